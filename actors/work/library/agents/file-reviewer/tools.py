"""The change to one file of the git repository that the run was started in."""

from __future__ import annotations

import os
import subprocess
import sys

FILTERS = r"^filter\..*\.(clean|smudge|process|required)$"
QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "--submodule=short")


def file_diff(path: str, base: str = "HEAD", context: int = 10) -> str:
    """Show how a file differs from a commit; a file that git does not know yet is shown whole.

    Args:
        path: The file, relative to the top of the repository, as changed_files lists it.
        base: Branch or commit to compare with, from where the current branch left it. HEAD for uncommitted work.
        context: Unchanged lines around each change.
    """
    top = _git("rev-parse", "--show-toplevel").strip()
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", base + "^{commit}", what=f"commit '{base}'")
    start = _git("merge-base", commit.strip(), "HEAD", what=f"a common ancestor of '{base}' and HEAD").strip()
    # Colours and diff programs are for people, and the repository's own programs for nobody here.
    diff = ("diff", *PLAIN, f"-U{max(0, context)}")
    literal = f":(top,literal){path}"  # a name with * in it is no pattern
    if _git("ls-files", "--others", "--exclude-standard", "--", literal):
        # With two files to compare, a difference is exit code 1.
        return _git("-C", top, *diff, "--no-index", "--", "/dev/null", path, what=path, good=(0, 1))
    changes = _git(*diff, "--no-renames", start, "--", literal, what=path)
    return changes or f"{path} does not differ from {base}"


def _git(*arguments: str, what: str = "the repository", good: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        ["git", *QUIET, *arguments], env=_environment(), capture_output=True, encoding="utf-8", errors="replace"
    )
    if done.returncode not in good:
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
