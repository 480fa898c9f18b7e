"""Directories of durable runs: what must be there again when a run goes on, and is too large or too alive for rows.

    $XDG_STATE_HOME/callboard/durable/<run>/workspace/    where the python nodes of a workflow work
                                           /memory/       stores of a workflow that end with it
                                           /attached/     the files that it came with

They are for their owner alone. A fork has a copy of them as they are when it begins. A run's go when it is over, but
for the files that it came with: a fork needs them, so they stay as long as its rows. What is left of runs which no
journal knows any more, and of such as have ended in the moment of a kill, goes when the next one is made. Of runs that
are kept elsewhere (in a cluster) no journal here knows anything: `.elsewhere` marks theirs, which stay for a month.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...io.directories import durable_dir, journal_dir, private_directory
from ..playback.playback import in_the_world
from .scope import here

if TYPE_CHECKING:
    from ....supervisors import Actor

_NAMED: set[str] = set()
"""Runs of this process that may have a directory: to look for one takes longer than all else at the end of a run."""

ATTACHED = "attached"
"""The kind of the directory with the files that a run came with."""

LEFT_FOR = 3600.0
"""Seconds in which a run may have begun without a journal that says so."""

ELSEWHERE = ".elsewhere"

ELSEWHERE_FOR = 30 * 86_400.0
"""Seconds after which the directory of a run that is kept elsewhere is taken for left."""

_elsewhere = False


def keeps_elsewhere() -> None:
    """The durable runs of this process are in no journal of this machine."""
    global _elsewhere
    _elsewhere = True


def place_of(me: Actor, kind: str) -> Path | None:
    """The directory of this kind of the part of a durable run that an actor is; None in other runs, and in
    replays: it belongs to what was played. Not made yet."""
    scope = here(me)
    if scope is None or not in_the_world():
        return None
    return directory_of(scope.run.rows.run) / kind / (scope.path.replace("/", "-") or "run")


def directory_of(run: str) -> Path:
    """That of a run, which may be made now."""
    _NAMED.add(run)
    return durable_dir(os.environ) / run


def may_have_one(run: str) -> bool:
    """Whether a run that began in this process has a directory, as far as is known without a look at the disk."""
    return run in _NAMED


def make(directory: Path) -> None:
    """Make it, if it is not there. Blocks.

    Raises:
        OSError: it can't be made.
    """
    _remove_left_once()
    private_directory(directory)
    if _elsewhere:
        base = durable_dir(os.environ)
        (base / directory.relative_to(base).parts[0] / ELSEWHERE).touch(0o600)


def copy(run: str, to: str) -> None:
    """Give another run, a fork of this one, a copy of its directory, if it has one. Blocks.

    Raises:
        OSError: it can't be made.
    """
    directory = directory_of(run)
    if directory.is_dir():
        make(directory.parent)
        shutil.copytree(directory, directory_of(to), symlinks=True)


def moved(file: str, run: str, to: str) -> str:
    """Where a file is in the copy, if it is in the directory of the run."""
    directory = directory_of(run)
    path = Path(file)
    return str(directory_of(to) / path.relative_to(directory)) if path.is_relative_to(directory) else file


def over(run: str) -> None:
    """A run is over: remove what only it needs. Blocks."""
    _clear(directory_of(run))
    _NAMED.discard(run)


def remove(run: str) -> None:
    """A run is forgotten: remove its directory. Blocks."""
    shutil.rmtree(directory_of(run), ignore_errors=True)
    _NAMED.discard(run)


def _clear(directory: Path) -> None:
    if not (directory / ATTACHED).is_dir():
        shutil.rmtree(directory, ignore_errors=True)
        return
    with contextlib.suppress(OSError):  # what is left is removed later
        for each in directory.iterdir():
            if each.name != ATTACHED:
                shutil.rmtree(each, ignore_errors=True)


def remove_left() -> None:
    """Remove what runs that are not to go on have left; takes a look at all journals. Blocks."""
    from ....supervisors.journal.reading import kept_runs
    from ....supervisors.journal.row import State

    found = []
    with contextlib.suppress(OSError):  # there are none
        found = [each for each in durable_dir(os.environ).iterdir() if time.time() - each.stat().st_mtime > LEFT_FOR]
    if not found:
        return
    kept = kept_runs(journal_dir(os.environ))
    if any(run.damage and not run.run for run in kept):  # it may be one of those
        return
    states = {run.run: run.state for run in kept}
    for each in found:
        state = states.get(each.name)
        if state is None and not _is_elsewhere(each):
            shutil.rmtree(each, ignore_errors=True)
        elif state is State.OVER:
            _clear(each)


def _is_elsewhere(directory: Path) -> bool:
    try:
        return time.time() - (directory / ELSEWHERE).stat().st_mtime < ELSEWHERE_FOR
    except OSError:
        return False


_remove_left_once = cache(remove_left)
