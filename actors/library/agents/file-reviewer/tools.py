"""The change to one file of the git repository that the run was started in."""

from __future__ import annotations

import subprocess
import sys


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
    # The user's own colours and diff programs are for people.
    diff = ("diff", "--no-color", "--no-ext-diff", f"-U{max(0, context)}")
    literal = f":(top,literal){path}"  # a name with * in it is no pattern
    if _git("ls-files", "--others", "--exclude-standard", "--", literal):
        # With two files to compare, a difference is exit code 1.
        return _git("-C", top, *diff, "--no-index", "--", "/dev/null", path, what=path, good=(0, 1))
    changes = _git(*diff, "--no-renames", start, "--", literal, what=path)
    return changes or f"{path} does not differ from {base}"


def _git(*arguments: str, what: str = "the repository", good: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode not in good:
        sys.exit(f"git could not read {what}: {done.stderr.strip() or 'there is none'}")
    return done.stdout
