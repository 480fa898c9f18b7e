"""Workspace policy of one conversation: skill permissions and AGENTS.md files, applied to its tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from ...protocol.chat import Turn
from ...protocol.permissions import Permissions as Rules
from .opening_instructions import OpeningInstructions
from .playback import OutsideEffect, done
from .skills.allowed_tools import narrowed

if TYPE_CHECKING:
    from ...supervisors import Actor
    from .tools.tool import Arguments, Tool
    from .workspace import Workspace


class AroundCalls:
    """Workspace policy of one conversation; implements `tools.calls.Around`.

    Args:
        workspace: None in a run that is replayed from a record.
        told: the instructions at the start of the conversation.
    """

    def __init__(self, workspace: Workspace | None, told: OpeningInstructions) -> None:
        self._workspace = workspace
        self._told = told

    def narrowed(self, said: Sequence[Turn]) -> Rules:
        """Return the permissions of the skill that the conversation follows now."""
        return narrowed(self._told.skills, said)

    async def entered(self, me: Actor, tool: Tool, arguments: Arguments, said: Sequence[Turn]) -> str:
        """Return the instructions of a directory that the call works in, if the conversation does not have them yet."""
        if not self._told.below or tool.subject != "path":
            return ""
        workspace = self._workspace
        entered = _nothing if workspace is None else workspace.entered
        find = partial(trio.to_thread.run_sync, entered, tool, arguments, said)
        # `done` records the text, so that a replay does not depend on the files.
        return await done(me, OutsideEffect("instructions", tool.name, arguments), str, find)


def _nothing(tool: Tool, arguments: Arguments, said: Sequence[Turn]) -> str:
    del tool, arguments, said
    return ""
