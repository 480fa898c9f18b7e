"""What changed in the git repository that the run was started in."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

FILTERS = r"^filter\..*\.(clean|smudge|process|required)$"
QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
PLAIN = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
CHANGES = {"A": "added", "D": "deleted", "M": "modified", "T": "type changed"}


def changed_files(base: str = "HEAD") -> dict[str, Any]:
    """List the files that differ from a commit, and the files that git does not know yet.

    Args:
        base: Branch or commit to compare with, from where the current branch left it. HEAD for uncommitted work.
    """
    start = _start(base)
    lines = dict(_lines(start))
    # With -z: letter, path, letter, path, ... and nothing at the end.
    status = _git("diff", *PLAIN, "--name-status", "--no-renames", "-z", start).split("\0")
    files: list[dict[str, Any]] = []
    for i in range(0, len(status) - 1, 2):
        letter, path = status[i : i + 2]
        files.append({"path": path, "change": CHANGES.get(letter, letter), **lines.get(path, {})})
    new = _git("ls-files", "--others", "--exclude-standard", "-z", "--full-name", ":/").split("\0")
    files += [{"path": path, "change": "untracked"} for path in new if path]
    return {"base": start, "files": sorted(files, key=lambda file: file["path"])}


def _lines(start: str) -> list[tuple[str, dict[str, Any]]]:
    """How many lines of each file changed."""
    found: list[tuple[str, dict[str, Any]]] = []
    for entry in _git("diff", *PLAIN, "--numstat", "--no-renames", "-z", start).split("\0"):
        if entry:
            added, removed, path = entry.split("\t", 2)
            binary = added == "-"
            found.append((path, {"binary": True} if binary else {"added": int(added), "removed": int(removed)}))
    return found


def _start(base: str) -> str:
    """The commit at which the current branch left `base`."""
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", base + "^{commit}", what=f"commit '{base}'")
    return _git("merge-base", commit.strip(), "HEAD", what=f"a common ancestor of '{base}' and HEAD").strip()


def _git(*arguments: str, what: str = "the repository") -> str:
    done = subprocess.run(
        ["git", *QUIET, *arguments], env=_environment(), capture_output=True, encoding="utf-8", errors="replace"
    )
    if done.returncode:
        sys.exit(f"git could not read {what}: {done.stderr.strip() or 'there is none'}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Keeps git from running anything that the repository names: who reviews code does not run it."""
    asked = ["git", *QUIET, "config", "--show-scope", "--name-only", "-z", "--get-regexp", FILTERS]
    words = subprocess.run(asked, capture_output=True).stdout.split(b"\0")
    theirs = [os.fsdecode(words[i + 1]) for i in range(0, len(words) - 1, 2) if words[i] in (b"local", b"worktree")]
    first = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
    # No locks: the index is not refreshed. No protocol: what a partial clone lacks is not fetched.
    more = {"GIT_CONFIG_COUNT": str(first + len(theirs)), "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none"}
    for i, name in enumerate(theirs, first):  # not with `-c`: the name of a filter may have a `=` in it
        more |= {f"GIT_CONFIG_KEY_{i}": name, f"GIT_CONFIG_VALUE_{i}": ""}
    return {**os.environ, **more}
