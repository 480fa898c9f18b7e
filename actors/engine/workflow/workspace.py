"""The directory that the python nodes of a run work in; what one writes there, the next finds.

It is made when it is first asked for. A given one stays; another is removed with the run. That of a durable run is
there again when the run goes on, and is removed when all that has happened in it is on the disk.
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
from ...work.journal.directory import make, place_of
from ...work.journal.scope import here

ATTACHMENTS = "attachments"
"""The directory in it for the files that came with the task."""

FILE = "file"
"""What a durable run notes the name of a file with code as."""


def names(stem: str) -> Iterator[str]:
    """What a node's files with code are called, visit by visit."""
    return (f"{stem}.py" if count == 1 else f"{stem}_run-{count}.py" for count in itertools.count(1))


class Workspace:
    """See the module.

    Args:
        me: the actor of the run.
        given: where it shall be.
        attachments: files that are put into it.
    """

    def __init__(self, me: Actor, given: Path | None, attachments: Sequence[Path]) -> None:
        self._me = me
        self._given = given
        self._lasting = place_of(me, "workspace") if given is None else None
        self._attachments = attachments
        scope = here(me)
        self._is_kept = scope is not None
        self._chosen = set() if scope is None else {decode_value(name, str) for name in scope.noted_below(FILE)}
        self._choosing = threading.Lock()
        self._making = trio.Lock()
        self._path: Path | None = None

    async def path(self) -> Path:
        """The directory, which is there from now on.

        Raises:
            NodeFailed: it can't be made.
        """
        async with self._making:
            if self._path is None:
                self._path = await trio.to_thread.run_sync(self._made)
        return self._path

    def free_name(self, stem: str) -> str:
        """A name for a file with code, which no other has from then on; the file is not made yet."""
        assert self._path is not None
        with self._choosing:  # threads of units of a map
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
            raise NodeFailed(f"the workspace can't be made: {error}") from error
        try:
            for file in self._attachments:
                (path / ATTACHMENTS).mkdir(exist_ok=True)
                self._put(file, path / ATTACHMENTS / file.name)
        except OSError as error:
            if self._given is None:
                temporary.remove(path)
            raise NodeFailed(f"attachments can't be put into the workspace: {error}") from error
        return path

    def _put(self, file: Path, there: Path) -> None:
        if not self._is_kept:
            shutil.copy(file, there)
        elif not there.exists():  # in an earlier life it was put there as a whole, and may be another by now
            part = there.with_name(f".{there.name}.part")
            shutil.copy(file, part)
            part.rename(there)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._given is not None or self._path is None:
            return
        scope = here(self._me)
        if scope is not None and error is None:
            await scope.run.barrier()
        elif self._lasting is not None:
            # The run may be resumed by another process; if it is not, its directories are removed with it. A replay
            # also has a scope, but its directory is a temporary one, which nothing removes later.
            return
        with self._me.cleanup():
            await trio.to_thread.run_sync(temporary.remove, self._path)
