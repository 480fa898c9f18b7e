"""Plays tool calls, each as the body of an actor of its own: permission, time, events, the result as models read it.

What decides which calls are played, and in which order, is the conversation (`engine/conversation/rounds`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING

import trio

from ....protocol.chat import Content, TextPart
from ....protocol.effects import CallTool
from ....protocol.errors import ToolFailed, code_of
from ....protocol.events import ToolFinished, ToolStarted
from ....protocol.messages import ToolDone
from ....protocol.permissions import Permissions as Rules
from ...io.handed_out import hide_in, without_secrets
from .permissions import Permissions
from .tool import Json, Shown, Tool, shortened, text_of

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..spending.meter import Meter

RESULT_LIMIT = 64_000
"""Characters of one result that the model gets, where its agent says no other number."""

EVENT_LIMIT = 2_000
"""Characters of arguments, results and errors in events."""


class Player:
    """Plays the calls of one conversation.

    Args:
        tools: by name; those that a model is not offered but may call as well.
        permissions: what the user allows.
        own: `permissions` of the agent's file.
        timeout: seconds of a call, in place of the tools' own numbers.
        result_limit: characters of one result.
        meter: counts the calls.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        permissions: Permissions,
        *,
        own: Rules | None = None,
        timeout: float | None = None,
        result_limit: int = RESULT_LIMIT,
        meter: Meter | None = None,
    ) -> None:
        self.tools = tools
        self._permissions = permissions
        self._own = own
        self._timeout = timeout
        self._limit = result_limit
        self._meter = meter

    async def play(self, me: Actor, work: CallTool) -> ToolDone:
        """Body of a call's actor; what goes wrong is raised."""
        if self._meter is not None:
            self._meter.tool_calls += 1
        value = await self._told(me, self.tools[work.tool], work)
        return ToolDone(work.key, content=shown(value, self._limit))

    async def _told(self, me: Actor, tool: Tool, work: CallTool) -> Json:
        arguments, id, began = work.arguments, work.call, 0.0
        heard = me.stream.heard
        if heard:
            began = trio.current_time()
            text = shortened(text_of(arguments), EVENT_LIMIT)
            me.emit(ToolStarted(tool=tool.name, arguments=text, origin=tool.origin), id=id)
        error: str | None = "interrupted"
        code = "cancelled"
        result = ""
        try:
            access = await self._permissions.admit(me, tool, arguments, self._own)
            if tool.means is not None:
                tool, arguments = await tool.means(me, arguments)
                access = await self._permissions.admit(me, tool, arguments, self._own)
            if heard:
                began = trio.current_time()  # what a person took to allow it does not count
            if tool.decided is not None:
                run = tool.decided(me, work.key, arguments)
            else:
                run = tool.run(me, arguments) if tool.run_within is None else tool.run_within(me, arguments, access)
            value = without_secrets(await self._in_time(tool, run))  # no model is to have them
            error = _admitted_failure(value)
            code = "tool_error" if error is not None else ""
            if heard and error is None:
                result = shortened(text_of(value), EVENT_LIMIT)
            return value
        except Exception as failed:  # only to tell it; it goes on
            hide_in(failed)
            error, code = shortened(str(failed) or repr(failed), EVENT_LIMIT), code_of(failed)
            raise
        finally:
            if heard:
                seconds = trio.current_time() - began
                me.emit(ToolFinished(tool=tool.name, seconds=seconds, error=error, result=result, code=code), id=id)

    async def _in_time(self, tool: Tool, run: Awaitable[Json]) -> Json:
        if tool.timeout is None:
            return await run
        seconds = self._timeout or tool.timeout
        with trio.move_on_after(seconds):
            return await run
        raise ToolFailed(f"Tool call '{tool.name}' did not end within {seconds:g} s and was ended")


def shown(value: Json, limit: int) -> Content:
    """A result as the model reads it, in so many characters."""
    if isinstance(value, Shown):
        return tuple(TextPart(shortened(p.text, limit)) if isinstance(p, TextPart) else p for p in value.parts)
    return shortened(text_of(value), limit)


def _admitted_failure(value: Json) -> str | None:
    """What a family or a server says went wrong, for those who watch: the model is told it as a result all the same."""
    if isinstance(value, dict) and value.get("status") == "error":
        return shortened(str(value.get("message", "error")), EVENT_LIMIT)
    if isinstance(value, dict) and value.get("isError") is True:
        return shortened(text_of(value.get("content")), EVENT_LIMIT)
    return None
