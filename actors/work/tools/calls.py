"""Plays tool calls, each as the body of an actor of its own: permission, time, events, the result as models read it.

What decides which calls are played, and in which order, is the conversation (`engine/conversation/rounds`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from ....protocol.chat import Content, TextPart, Turn
from ....protocol.effects import CallTool
from ....protocol.errors import NobodyToAsk, TimedOut, ToolFailed, code_of
from ....protocol.events import ToolFinished, ToolStarted
from ....protocol.messages import ToolDone
from ....protocol.permissions import Permissions as Rules
from ....protocol.permissions import Verdict
from ....protocol.repeats import OnUnknown
from ...io.handed_out import hide_in, without_secrets
from ..call_clock import Clock
from ..journal.scope import here
from ..journal.unknown import may_call
from ..playback.playback import Effect, done, in_turn
from .path_rules import FileAccess
from .permissions import Permissions
from .tool import Arguments, Json, Shown, Tool, shortened, text_of

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..spending.meter import Meter

UNKNOWN = {
    "status": "unknown",
    "message": "This call was under way when the program ended. It may have done all of its work, a part of it, or "
    "nothing: look before you repeat it.",
}
"""What the model reads of a call whose outcome nobody knows."""

RESULT_LIMIT = 64_000
"""Characters of one result that the model gets, where its agent says no other number."""

EVENT_LIMIT = 2_000
"""Characters of arguments, results and errors in events."""


class Around(Protocol):
    """What the directory that a run works in has to say of the calls of a conversation."""

    def narrowed(self, said: Sequence[Turn]) -> Rules:
        """What is denied now, whatever else allows it."""
        ...

    async def entered(self, me: Actor, tool: Tool, arguments: Arguments, said: Sequence[Turn]) -> str:
        """What the model is to read behind the result of a call; "" for nothing."""
        ...


class Flow(Protocol):
    """What a conversation carries, as calls see it; see `work.labels`."""

    async def check(
        self, me: Actor, tool: Tool, arguments: Arguments, said: Sequence[Turn], tools: Mapping[str, Tool]
    ) -> None:
        """Raises `ToolFailed` for a call that must not be made."""
        ...


class Asked(Protocol):
    """Hooks, as calls see them."""

    async def before(self, me: Actor, tool: Tool, arguments: Arguments, id: str) -> tuple[Arguments, Verdict | None]:
        """The arguments that a call is made with, and what becomes of a question about it: `allow`, or `ask` anyway.

        Raises:
            CallboardError: it is not to be made.
        """
        ...

    async def after(self, me: Actor, tool: Tool, arguments: Arguments, value: Json, id: str) -> str:
        """What the model is to read behind the result; "" for nothing."""
        ...


class Player:
    """Plays the calls of one conversation.

    Args:
        tools: by name; those that a model is not offered but may call as well.
        permissions: what the user allows.
        own: `permissions` of the agent's file.
        timeout: seconds of a call, in place of the tools' own numbers.
        result_limit: characters of one result.
        meter: counts the calls.
        on_unknown: what is to be done about one that was under way when the process of a durable run was killed.
        around: what the directory of the run has to say of calls.
        hooks: who else has a say in them.
        flow: what the conversation carries.

    Attributes:
        tools: as given.
        said: what was said in the conversation so far.
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
        on_unknown: OnUnknown | None = None,
        around: Around | None = None,
        hooks: Asked | None = None,
        flow: Flow | None = None,
    ) -> None:
        self.tools = tools
        self.said: Callable[[], Sequence[Turn]] = tuple
        self._around = around
        self._hooks = hooks
        self._flow = flow
        self._permissions = permissions
        self._own = own
        self._timeout = timeout
        self._limit = result_limit
        self._meter = meter
        self._on_unknown = on_unknown

    async def play(self, me: Actor, work: CallTool) -> ToolDone:
        """Body of a call's actor; what goes wrong is raised."""
        if self._meter is not None:
            self._meter.tool_calls += 1
        tool = self.tools[work.tool]
        value, tool, arguments = await self._told(me, tool, work)
        more: list[str] = []
        if self._around is not None:
            more.append(await self._around.entered(me, tool, arguments, self.said()))
        if self._hooks is not None:
            more.append(await self._hooks.after(me, tool, arguments, value, work.call))
        return ToolDone(work.key, content=_with(shown(value, self._limit), more))

    async def _told(self, me: Actor, tool: Tool, work: CallTool) -> tuple[Json, Tool, Arguments]:
        """The result, and what was really run with which arguments."""
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
            tool, arguments, access = await self._admitted(me, tool, arguments, id)
            if changes(tool) and not await self._may_play(me, tool):
                error, code = "it is not known whether it was done", "unknown_outcome"
                return await _unknown(me), tool, arguments
            if heard:
                began = trio.current_time()  # what a person took to allow it does not count
            run = self._run(me, tool, work.key, arguments, access)
            value = without_secrets(await self._in_time(me, tool, run))  # no model is to have them
            error = _admitted_failure(value)
            code = "tool_error" if error is not None else ""
            if heard and error is None:
                result = shortened(text_of(value), EVENT_LIMIT)
            return value, tool, arguments
        except Exception as failed:  # only to tell it; it goes on
            hide_in(failed)
            error, code = shortened(str(failed) or repr(failed), EVENT_LIMIT), code_of(failed)
            raise
        finally:
            if heard:
                seconds = trio.current_time() - began
                me.emit(ToolFinished(tool=tool.name, seconds=seconds, error=error, result=result, code=code), id=id)

    async def _admitted(
        self, me: Actor, tool: Tool, arguments: Arguments, id: str
    ) -> tuple[Tool, Arguments, FileAccess]:
        """What is really to be run, with which arguments, and what it may show and touch. Raises if it may not be."""
        permissions = self._permissions
        if self._around is not None and (narrowed := self._around.narrowed(self.said())):
            permissions = permissions.below(narrowed)
        if tool.means is not None:
            await permissions.admit(me, tool, arguments, self._own)
            tool, arguments = await tool.means(me, arguments)
        hooked: Verdict | None = None
        if self._hooks is not None:
            arguments, hooked = await self._hooks.before(me, tool, arguments, id)
        access = await permissions.admit(me, tool, arguments, self._own, hooked=hooked)
        if self._flow is not None:
            await self._flow.check(me, tool, arguments, self.said(), self.tools)
        return tool, arguments, access

    async def _may_play(self, me: Actor, tool: Tool) -> bool:
        repeatable, server = may_be_repeated(tool), tool.remembers
        return await may_call(me, tool.name, self._on_unknown, repeatable=repeatable, server=server)

    def _run(self, me: Actor, tool: Tool, key: int, arguments: Arguments, access: FileAccess) -> Awaitable[Json]:
        """Play it. What is of the agent itself, or asks people, is no effect."""
        if tool.decided is not None:
            return _in_turn(me, tool.decided(me, key, arguments))
        if tool.origin == "family":
            return _in_turn(me, tool.run(me, arguments))
        within = tool.run_within
        run = partial(tool.run, me, arguments) if within is None else partial(within, me, arguments, access)
        return done(me, Effect("tool", tool.name, arguments), object, run)

    async def _in_time(self, me: Actor, tool: Tool, run: Awaitable[Json]) -> Json:
        if tool.timeout is None:
            return await run
        seconds = self._timeout or tool.timeout
        clock = Clock(seconds)
        with clock.counting(), me.time_limit(clock.scope):
            return await run
        raise ToolFailed(f"Tool call '{tool.name}' did not end within {seconds:g} s and was ended")


def changes(tool: Tool) -> bool:
    """Whether a call may change the world, as far as is known: what its author says, else what permissions go by.

    What comes from elsewhere and says nothing of itself may do anything.
    """
    if tool.repeats is not None:
        return tool.repeats != "read"
    if tool.origin in ("file", "function", "mcp"):
        return True
    return tool.effect not in ("none", "read") and tool.decided is None


async def _in_turn(me: Actor, run: Awaitable[Json]) -> Json:
    """What others have led to: the decider, people."""
    try:
        return await run
    finally:
        await in_turn(me)


async def _unknown(me: Actor) -> Json:
    """What the model reads of it; what it has asked a person is still to be answered, and what was answered counts."""
    scope = here(me)
    asked: list[Json] = []
    for question in () if scope is None else scope.questions():
        with contextlib.suppress(NobodyToAsk, TimedOut):
            answer = await me.ask_person(question)
            asked.append({"question": question.text, "answer": answer.value})
    return {**UNKNOWN, "asked": asked} if asked else UNKNOWN


def may_be_repeated(tool: Tool) -> bool:
    """Whether the author of a tool that changes the world says that a call of it may be made twice."""
    return tool.repeats in ("idempotent", "keyed")


def _with(content: Content, more: Sequence[str]) -> Content:
    """A result with what else the model is to read behind it."""
    texts = [text for text in more if text]
    if not texts:
        return content
    return "\n\n".join([content, *texts]) if isinstance(content, str) else (*content, *map(TextPart, texts))


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
