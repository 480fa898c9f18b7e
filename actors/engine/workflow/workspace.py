"""The directory that the python nodes of a run work in; what one writes there, the next finds.

It is made when it is first asked for. A given one stays; another is removed with the run.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import trio

from ....protocol.errors import NodeFailed
from ....supervisors import Actor

ATTACHMENTS = "attachments"
"""The directory in it for the files that came with the task."""


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
        self._attachments = attachments
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

    def _made(self) -> Path:
        try:
            if self._given is None:
                path = Path(tempfile.mkdtemp(prefix="callboard-workspace-"))
            else:
                path = self._given.absolute()
                path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NodeFailed(f"the workspace can't be made: {error}") from error
        try:
            for file in self._attachments:
                (path / ATTACHMENTS).mkdir(exist_ok=True)
                shutil.copy(file, path / ATTACHMENTS)
        except OSError as error:
            if self._given is None:
                _remove(path)
            raise NodeFailed(f"attachments can't be put into the workspace: {error}") from error
        return path

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._given is None and self._path is not None:
            with self._me.cleanup():
                await trio.to_thread.run_sync(_remove, self._path)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
