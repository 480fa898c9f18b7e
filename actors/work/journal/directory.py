"""Directories of durable runs, for files that recovery needs and that rows can't hold.

    $XDG_STATE_HOME/callboard/durable/<run>/workspace/    working directory of a workflow's python nodes
                                           /memory/       stores of a workflow that end with it
                                           /attached/     the files that were attached to the run

Only the owner can read them. A fork gets a copy of their state at its start. A finished run keeps only its attached
files: a fork needs them, so they are stored as long as its rows.

The first new directory of a process removes abandoned ones: of runs that no journal knows any more, and of runs that
were killed just when they ended. Runs whose journal is on another machine (in a cluster) are in no local journal. The
file `.elsewhere` marks their directories, which are kept for a month.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...io.directories import durable_dir, journal_dir, private_directory
from ...io.tenancy import environ
from ..playback import in_the_world
from .actor_journal import scope_of

if TYPE_CHECKING:
    from ....supervisors import Actor

_NAMED: set[str] = set()
"""Runs of this process that may have a directory: a check on disk takes longer than the rest of a run's end."""

ATTACHED = "attached"
"""Name of the directory with the files that were attached to the run."""

LEFT_FOR = 3600.0
"""Minimum age of an abandoned directory in seconds: a new run's rows may not be written yet."""

ELSEWHERE = ".elsewhere"

ELSEWHERE_FOR = 30 * 86_400.0
"""Seconds after which the directory of a run with a remote journal counts as abandoned."""

_elsewhere = False


def use_remote_journal() -> None:
    """Mark the durable runs of this process as stored in no journal of this machine."""
    global _elsewhere
    _elsewhere = True


def place_of(me: Actor, kind: str) -> Path | None:
    """Return the directory of this kind for an actor's part of a durable run, without creating it.

    None in other runs, and in replays, whose directories belong to the original run.
    """
    scope = scope_of(me)
    if scope is None or not in_the_world():
        return None
    return directory_of(scope.run.rows.run) / kind / (scope.path.replace("/", "-") or "run")


def directory_of(run: str) -> Path:
    """Return the path of a run's directory, which need not exist (`make` creates it)."""
    _NAMED.add(run)
    return durable_dir(environ()) / run


def may_have_one(run: str) -> bool:
    """Return True if a run that began in this process may have a directory, without disk access."""
    return run in _NAMED


def make(directory: Path) -> None:
    """Create the directory if it is missing, after a process's first call has removed abandoned ones. Blocks.

    Raises:
        OSError: it can't be created.
    """
    _remove_left_once()
    private_directory(directory)
    if _elsewhere:
        base = durable_dir(environ())
        (base / directory.relative_to(base).parts[0] / ELSEWHERE).touch(0o600)


def copy(run: str, to: str) -> None:
    """Copy the directory of a run, if it has one, for its fork. Blocks.

    Raises:
        OSError: the copy can't be created.
    """
    directory = directory_of(run)
    if directory.is_dir():
        make(directory.parent)
        shutil.copytree(directory, directory_of(to), symlinks=True)


def moved(file: str, run: str, to: str) -> str:
    """Return the path of a file in the copy, if it is in the directory of the run; else the same path."""
    directory = directory_of(run)
    path = Path(file)
    return str(directory_of(to) / path.relative_to(directory)) if path.is_relative_to(directory) else file


def over(run: str) -> None:
    """Remove all files of a finished run but the attached ones, which a fork needs. Blocks."""
    _clear(directory_of(run))
    _NAMED.discard(run)


def remove(run: str) -> None:
    """Remove the directory of a deleted run. Blocks."""
    shutil.rmtree(directory_of(run), ignore_errors=True)
    _NAMED.discard(run)


def _clear(directory: Path) -> None:
    if not (directory / ATTACHED).is_dir():
        shutil.rmtree(directory, ignore_errors=True)
        return
    with contextlib.suppress(OSError):  # the rest is removed later
        for each in directory.iterdir():
            if each.name != ATTACHED:
                shutil.rmtree(each, ignore_errors=True)


def remove_abandoned() -> None:
    """Remove directories of runs that can't be resumed. Reads all journals of this machine. Blocks."""
    from ....supervisors.journal.reading import stored_runs
    from ....supervisors.journal.row import State

    found = []
    with contextlib.suppress(OSError):  # the directory does not exist
        found = [each for each in durable_dir(environ()).iterdir() if time.time() - each.stat().st_mtime > LEFT_FOR]
    if not found:
        return
    stored = stored_runs(journal_dir(environ()))
    if any(run.damage and not run.run for run in stored):  # it may hold any of these runs
        return
    states = {run.run: run.state for run in stored}
    for each in found:
        state = states.get(each.name)
        if state is None and not _is_remote(each):
            shutil.rmtree(each, ignore_errors=True)
        elif state is State.OVER:
            _clear(each)


def _is_remote(directory: Path) -> bool:
    try:
        return time.time() - (directory / ELSEWHERE).stat().st_mtime < ELSEWHERE_FOR
    except OSError:
        return False


_remove_left_once = cache(remove_abandoned)
