"""A project and a state directory, and a way to have the tools called by the runs one likes."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard.actors.work.tools.builtin.table import builtin_tools
from callboard.actors.work.tools.changes.run_changes import changes_of, restore
from callboard.actors.work.tools.changes.store import ChangeStore, store_of
from callboard.protocol.control.resources import ChangedFile, Restored
from callboard.protocol.errors import ActorFailed
from callboard.supervisors import Actor, Root


class ToolCaller:
    """Calls tools as runs do.

    Attributes:
        project: the working directory.
        environ: of the tools; the state directory is in there.
        root: of the actors.
    """

    def __init__(self, project: Path, state: Path, root: Root) -> None:
        self.project = project
        self.root = root
        self.environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "XDG_STATE_HOME": str(state)}
        self._tools = builtin_tools(self.environ, [project], here=project)

    async def __call__(self, run: str, tool: str, /, **arguments: Any) -> Any:
        """One call; its failure is raised as it is."""

        async def body(me: Actor) -> Any:
            return await self._tools[tool].run(me, arguments)

        ref = self.root.spawn(body, name=run, link=False)
        try:
            return await ref.result()
        except ActorFailed as failed:
            raise (failed.__cause__ or failed) from None

    @property
    def store(self) -> ChangeStore:
        """Where changes are kept."""
        return store_of(self.environ)

    def changed(self, *runs: str, **options: Any) -> list[ChangedFile]:
        """See `changes_of`."""
        return changes_of(self.store, runs, **options)

    async def restore(self, *runs: str, **options: Any) -> Restored:
        """See `restore`."""
        return await trio.to_thread.run_sync(lambda: restore(self.store, runs, **options))

    def left(self, report: Restored) -> dict[str, str]:
        """Why files were left, by their paths in the project."""
        return {str(Path(each.path).relative_to(self.project)): each.why for each in report.left}

    def back(self, report: Restored) -> dict[str, str]:
        """What was done to files, by their paths in the project."""
        return {str(Path(each.path).relative_to(self.project)): each.done for each in report.restored}


@pytest.fixture
async def tool_caller(tmp_path: Path) -> AsyncIterator[ToolCaller]:
    """See `ToolCaller`."""
    project = (tmp_path / "project").resolve()
    project.mkdir()
    async with Root() as root:
        yield ToolCaller(project, tmp_path / "state", root)
