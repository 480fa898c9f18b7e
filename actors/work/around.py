"""What the directory of a run has to say of one conversation's calls; see `tools.calls.Around`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from ...protocol.chat import Turn
from ...protocol.permissions import Permissions as Rules
from .playback.playback import Effect, done
from .skills.narrowing import narrowed
from .told import Told

if TYPE_CHECKING:
    from ...supervisors import Actor
    from .tools.tool import Arguments, Tool
    from .workspace import Workspace


class AroundCalls:
    """See the module.

    Args:
        workspace: None in a run that is played from a record.
        told: what the conversation was told at its beginning.
    """

    def __init__(self, workspace: Workspace | None, told: Told) -> None:
        self._workspace = workspace
        self._told = told

    def narrowed(self, said: Sequence[Turn]) -> Rules:
        """The rules of the skill that is followed now."""
        return narrowed(self._told.skills, said)

    async def entered(self, me: Actor, tool: Tool, arguments: Arguments, said: Sequence[Turn]) -> str:
        """The instructions of a directory that the call works in, if they are new to the conversation."""
        if not self._told.below or tool.subject != "path":
            return ""
        workspace = self._workspace
        entered = _nothing if workspace is None else workspace.entered
        find = partial(trio.to_thread.run_sync, entered, tool, arguments, said)
        return await done(me, Effect("instructions", tool.name, arguments), str, find)


def _nothing(tool: Tool, arguments: Arguments, said: Sequence[Turn]) -> str:
    del tool, arguments, said
    return ""
