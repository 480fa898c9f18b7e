"""Where a workspace begins: the root of the repository that a directory lies in, or the directory itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

MOST_LEVELS = 40


def root_of(directory: Path, environ: Mapping[str, str]) -> Path | None:
    """The workspace of a directory, without links; None where none can be.

    The home directory, and what lies above it, is no workspace: what lies there is the user's own, for other programs.
    """
    here = Path(os.path.realpath(directory))
    home = Path(os.path.realpath(environ.get("HOME") or Path.home()))
    if _holds(here, home):
        return None
    for place in (here, *here.parents)[:MOST_LEVELS]:
        if _holds(place, home):
            break
        if os.path.lexists(place / ".git"):
            return place
    return here


def levels(directory: Path, root: Path) -> list[Path]:
    """The directories from this one up to the root of its workspace, nearest first."""
    here = Path(os.path.realpath(directory))
    if here != root and root not in here.parents:
        return [root]
    return [place for place in (here, *here.parents) if place == root or root in place.parents]


def _holds(place: Path, home: Path) -> bool:
    return place == home or place in home.parents
