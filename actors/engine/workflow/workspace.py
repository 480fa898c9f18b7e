"""Working directory of a run's python nodes, which share their files there.

It is created on demand. A directory that the caller names remains; any other is removed with the run. The directory
of a durable run is available again when the run is resumed. It is removed after all rows of the run are on disk.
"""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import trio

from ....protocol.errors import NodeFailed
from ....protocol.journal import decode_value
from ....supervisors import Actor
from ...io import temporary
from ...work.journal.actor_journal import scope_of
from ...work.journal.directory import make, place_of

ATTACHMENTS = "attachments"
"""Subdirectory for the files of the task."""

FILE = "file"
"""Name of the journal row for the file name of a node's code."""


def names(stem: str) -> Iterator[str]:
    """Yield the names of a node's code files, visit by visit."""
    # DevAll's file names.
    return (f"{stem}.py" if count == 1 else f"{stem}_run-{count}.py" for count in itertools.count(1))


class WorkflowWorkspace:
    """Workspace of one run, created on demand.

    Args:
        me: the actor of the run.
        given: its path; None for a temporary directory.
        attachments: files that are copied into it.
    """

    def __init__(self, me: Actor, given: Path | None, attachments: Sequence[Path]) -> None:
        self._me = me
        self._given = given
        self._lasting = place_of(me, "workspace") if given is None else None
        self._attachments = attachments
        scope = scope_of(me)
        self._is_kept = scope is not None
        # Names that nodes of earlier incarnations have chosen. Such a node uses its name again when it repeats, even if
        # it has not written the file yet.
        self._chosen = set() if scope is None else {decode_value(name, str) for name in scope.noted_below(FILE)}
        self._choosing = threading.Lock()
        self._making = trio.Lock()
        self._path: Path | None = None

    async def path(self) -> Path:
        """Return the directory; create it at the first call.

        Raises:
            NodeFailed: it cannot be created.
        """
        async with self._making:
            if self._path is None:
                self._path = await trio.to_thread.run_sync(self._made)
        return self._path

    def free_name(self, stem: str) -> str:
        """Return an unused name for a code file and reserve it in this run; `path` must have been called before.

        The file is not created yet. May be called in threads.
        """
        assert self._path is not None
        with self._choosing:  # units of a map call this in threads
            name = next(name for name in names(stem) if name not in self._chosen and not (self._path / name).exists())
            self._chosen.add(name)
        return name

    def _made(self) -> Path:
        try:
            if self._lasting is not None:
                path = self._lasting
                make(path)
            elif self._given is None:
                path = temporary.make_directory("workspace-")
            else:
                path = self._given.absolute()
                path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NodeFailed(f"the workspace can't be created: {error}") from error
        try:
            for file in self._attachments:
                (path / ATTACHMENTS).mkdir(exist_ok=True)
                self._put(file, path / ATTACHMENTS / file.name)
        except OSError as error:
            if self._given is None:
                temporary.remove(path)
            raise NodeFailed(f"the attachments can't be copied into the workspace: {error}") from error
        return path

    def _put(self, file: Path, there: Path) -> None:
        if not self._is_kept:
            shutil.copy(file, there)
        # an earlier incarnation copied the file completely, and nodes may have changed it since
        elif not there.exists():
            # Atomic: a crash in the middle of a copy must not leave a file that looks complete.
            part = there.with_name(f".{there.name}.part")
            shutil.copy(file, part)
            part.rename(there)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._given is not None or self._path is None:
            return
        scope = scope_of(self._me)
        if scope is not None and error is None:
            await scope.run.barrier()
        elif self._lasting is not None:
            # The run may be resumed by another process; if it is not, its directories are removed with it. A replay
            # also has a scope, but its directory is a temporary one, which nothing removes later.
            return
        with self._me.cleanup():
            await trio.to_thread.run_sync(temporary.remove, self._path)
