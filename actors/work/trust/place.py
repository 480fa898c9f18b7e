"""Root directory of a workspace: the root of the enclosing repository, or the directory itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

MOST_LEVELS = 40


def root_of(directory: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the workspace of a directory, with links resolved; None where none is possible.

    The home directory and its parents are no workspaces: files there belong to the user and to other programs.
    """
    here = Path(os.path.realpath(directory))
    home = Path(os.path.realpath(environ.get("HOME") or Path.home()))
    if _holds(here, home):
        return None
    for place in (here, *here.parents)[:MOST_LEVELS]:
        # A repository that contains the home directory must not make all of it a workspace.
        if _holds(place, home):
            break
        # `lexists`: in worktrees and submodules, `.git` is a file or a link.
        if os.path.lexists(place / ".git"):
            return place
    return here


def levels(directory: Path, root: Path) -> list[Path]:
    """Return the directories from this one up to the root of its workspace, nearest first."""
    here = Path(os.path.realpath(directory))
    if here != root and root not in here.parents:
        return [root]
    return [place for place in (here, *here.parents) if place == root or root in place.parents]


def _holds(place: Path, home: Path) -> bool:
    return place == home or place in home.parents
