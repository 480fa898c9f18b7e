"""Tool call execution: permission, time limit, events, and the result for the model.

Each call is the body of its own actor. The conversation (`engine/conversation/decider`) decides which calls run, and in
which order.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from ....protocol.chat import Content, TextPart, Turn
from ....protocol.effects import CallTool
from ....protocol.errors import CallboardError, NobodyToAsk, TimedOut, ToolFailed, ToolRaised, code_of
from ....protocol.events import ToolFinished, ToolStarted
from ....protocol.interrupted_calls import OnUnknown
from ....protocol.messages import ToolDone
from ....protocol.permissions import Permissions as Rules
from ....protocol.permissions import Verdict
from ....supervisors.ref import crash_text
from ...io.secret_redaction import hide_in, without_secrets
from ..call_clock import Clock
from ..journal.actor_journal import scope_of
from ..journal.unknown_outcome import may_call
from ..playback import OutsideEffect, done, in_turn
from .permissions import Permissions
from .rules import FileAccess
from .tool import Arguments, Json, Tool, VisibleResult, shortened, text_of

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..spending.meter import Meter
    from .functions import RunsAgents

log = logging.getLogger("callboard.tools")

UNKNOWN = {
    "status": "unknown",
    "message": (
        "This call was running when the program ended. It may have done all of its work, a part of it, or "
        "nothing: check before you repeat it."
    ),
}
"""Result for the model when the outcome of an interrupted call is unknown."""

DONE_BEFORE = "This call was running when the program ended. It had succeeded, and was not repeated."
"""Result for the model when a check of the world (`Tool.was_done`) shows that the interrupted call was done."""

RESULT_LIMIT = 64_000
"""Default limit in characters for one result sent to the model, where the agent sets none."""

EVENT_LIMIT = 2_000
"""Limit in characters for arguments, results and errors in events."""


class Around(Protocol):
    """Policy of the run's workspace for tool calls: permissions of skills, and instructions of directories."""

    def narrowed(self, said: Sequence[Turn]) -> Rules:
        """Return the rules that deny calls at this point of the conversation, whatever else allows them."""
        ...

    async def entered(self, me: Actor, tool: Tool, arguments: Arguments, said: Sequence[Turn]) -> str:
        """Return text to append to the result of a call; "" for none."""
        ...


class CallLabels(Protocol):
    """Label checks of the run, as tool calls use them; see `work.labels`."""

    async def check(self, me: Actor, tool: Tool, arguments: Arguments) -> None:
        """Check a call and add the labels of its result. Raises `ToolFailed` for a call that the labels forbid."""
        ...

    async def heard_of_hooks(self) -> None:
        """Record that the model reads output of a hook, which is a taint source."""
        ...


class CallHooks(Protocol):
    """Hooks, as tool calls use them."""

    async def before(self, me: Actor, tool: Tool, arguments: Arguments, id: str) -> tuple[Arguments, Verdict | None]:
        """Return the arguments for the call, and the hooks' verdict.

        The verdict is `allow` to skip a question, `ask` to force one, or None.

        Raises:
            CallboardError: a hook blocks the call.
        """
        ...

    async def after(self, me: Actor, tool: Tool, arguments: Arguments, value: Json, id: str) -> str:
        """Return text to append to the result; "" for none."""
        ...


class CallPlayer:
    """Executor of the tool calls of one conversation.

    Args:
        tools: by name, including tools that the model is not offered but may call.
        permissions: the run's permissions.
        own: `permissions` of the agent's file.
        timeout: seconds per call, instead of the tools' own limits.
        result_limit: characters of one result.
        meter: counts the calls.
        on_unknown: policy for a call that was in flight when the process of a durable run was killed.
        around: policy of the run's directory for calls.
        hooks: hooks that run before and after each call.
        flow: the labels of the run.
        agent: the agent that owns the conversation, for functions with a context.

    Attributes:
        tools: the `tools` argument.
        said: returns the conversation's turns so far.
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
        hooks: CallHooks | None = None,
        flow: CallLabels | None = None,
        agent: RunsAgents | None = None,
    ) -> None:
        self.tools = tools
        self._agent = agent
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
        """Execute one call as the body of its actor; failures are raised."""
        if self._meter is not None:
            self._meter.tool_calls += 1
        tool = self.tools[work.tool]
        # The hooks below must see the tool and arguments that were executed, which may differ from the model's call.
        value, tool, arguments = await self._result_of(me, tool, work)
        more: list[str] = []
        if self._around is not None:
            more.append(await self._around.entered(me, tool, arguments, self.said()))
        if self._hooks is not None:
            said = await self._hooks.after(me, tool, arguments, value, work.call)
            if said and self._flow is not None:
                await self._flow.heard_of_hooks()
            more.append(said)
        return ToolDone(work.key, content=_with(result_for_model(value, self._limit), more))

    async def _result_of(self, me: Actor, tool: Tool, work: CallTool) -> tuple[Json, Tool, Arguments]:
        """Return the result, and the tool and arguments that were actually executed."""
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
            # A recovered call that was done needs no permission again, but its result still must pass the label check.
            was_done = await _was_done(me, tool)
            if was_done:
                if self._flow is not None:
                    await self._flow.check(me, tool, arguments)
                error, code, result = None, "", DONE_BEFORE
                return DONE_BEFORE, tool, arguments
            tool, arguments, access = await self._admitted(me, tool, arguments, id)
            if changes(tool) and not await self._may_play(me, tool, not_done=was_done is False):
                error, code = "whether the call succeeded is unknown", "unknown_outcome"
                return await _unknown(me), tool, arguments
            if heard:
                began = trio.current_time()  # The time that the user needed for the approval does not count.
            run = self._run(me, tool, work, arguments, access)
            value = without_secrets(await self._in_time(me, tool, run))  # Redact before the model sees the value.
            error = _admitted_failure(value)
            code = "tool_error" if error is not None else ""
            if heard and error is None:
                result = shortened(text_of(value), EVENT_LIMIT)
            return value, tool, arguments
        except Exception as failed:  # Only for the event and the log; the exception is raised again.
            hide_in(failed)
            error, code = shortened(_error_text(failed), EVENT_LIMIT), code_of(failed)
            if isinstance(failed, ToolRaised) or not isinstance(failed, CallboardError):
                log.error("tool '%s' raised an exception (run %s)", tool.name, me.stream.run, exc_info=failed)
            raise
        finally:
            if heard:
                seconds = trio.current_time() - began
                me.emit(ToolFinished(tool=tool.name, seconds=seconds, error=error, result=result, code=code), id=id)

    async def _admitted(
        self, me: Actor, tool: Tool, arguments: Arguments, id: str
    ) -> tuple[Tool, Arguments, FileAccess]:
        """Return the tool and arguments to execute, and the permitted file access. Raise if the call is refused."""
        permissions = self._permissions
        if self._around is not None and (narrowed := self._around.narrowed(self.said())):
            permissions = permissions.below(narrowed)
        # The wrapper (`mcp_invoke_*`) and the tool behind it each need permission.
        if tool.means is not None:
            await permissions.admit(me, tool, arguments, self._own)
            tool, arguments = await tool.means(me, arguments)
        hooked: Verdict | None = None
        if self._hooks is not None:
            arguments, hooked = await self._hooks.before(me, tool, arguments, id)
        # Hooks may replace the arguments, so permissions and labels judge the replaced ones.
        access = await permissions.admit(me, tool, arguments, self._own, hooked=hooked)
        if self._flow is not None:
            await self._flow.check(me, tool, arguments)
        return tool, arguments, access

    async def _may_play(self, me: Actor, tool: Tool, *, not_done: bool) -> bool:
        repeatable, server = not_done or may_be_repeated(tool), tool.remembers
        return await may_call(me, tool.name, self._on_unknown, repeatable=repeatable, server=server)

    def _run(self, me: Actor, tool: Tool, work: CallTool, arguments: Arguments, access: FileAccess) -> Awaitable[Json]:
        """Execute the call. Changes to the agent's own state, and questions to the user, are no recorded effects."""
        # In a replay the decider runs again and computes the same answer, so it is not recorded as an effect.
        if tool.decided is not None:
            return _in_turn(me, tool.decided(me, work.key, arguments))
        if tool.origin == "family":
            return _in_turn(me, tool.run(me, arguments))
        within = tool.run_within
        if tool.run_for is not None:
            run = partial(tool.run_for, me, arguments, self._agent, work.call)
        else:
            run = partial(tool.run, me, arguments) if within is None else partial(within, me, arguments, access)
        return done(me, OutsideEffect("tool", tool.spec.name, arguments), object, run)

    async def _in_time(self, me: Actor, tool: Tool, run: Awaitable[Json]) -> Json:
        if tool.timeout is None:
            return await run
        seconds = self._timeout or tool.timeout
        # Not a plain deadline: the clock stops while the call waits for an answer of the user.
        clock = Clock(seconds)
        with clock.counting(), me.time_limit(clock.scope):
            return await run
        raise ToolFailed(f"Tool call '{tool.name}' was stopped: it did not finish within {seconds:g} s")


def _error_text(error: Exception) -> str:
    return str(error) or repr(error) if isinstance(error, CallboardError) else crash_text(error)


def changes(tool: Tool) -> bool:
    """Return True if a call may change the world, by the author's declaration, or else by origin and effect.

    An external tool without a declaration (file, function, MCP) may do anything.
    """
    if tool.repeats is not None:
        return tool.repeats != "read"
    if tool.origin in ("file", "function", "mcp"):
        return True
    return tool.effect not in ("none", "read") and tool.decided is None


async def _was_done(me: Actor, tool: Tool) -> bool | None:
    """Return whether an earlier incarnation completed this call; None if unknown or if it never began."""
    scope = None if tool.was_done is None else scope_of(me)
    if tool.was_done is None or scope is None or not scope.intended(tool.name):
        return None
    return await tool.was_done(me)


async def _in_turn(me: Actor, run: Awaitable[Json]) -> Json:
    """Await the result of a decider or of a user's answer.

    In a replay, the actor then waits for its place in the recorded order.
    """
    try:
        return await run
    finally:
        await in_turn(me)


async def _unknown(me: Actor) -> Json:
    """Return the result for an unknown outcome.

    Questions that the interrupted call had asked are asked again, and earlier answers are included.
    """
    scope = scope_of(me)
    asked: list[Json] = []
    for question in () if scope is None else scope.questions():
        with contextlib.suppress(NobodyToAsk, TimedOut):
            answer = await me.ask_person(question)
            asked.append({"question": question.text, "answer": answer.value})
    return {**UNKNOWN, "asked": asked} if asked else UNKNOWN


def may_be_repeated(tool: Tool) -> bool:
    """Return True if the author of a changing tool declares that a call may be made twice."""
    return tool.repeats in ("idempotent", "keyed")


def _with(content: Content, more: Sequence[str]) -> Content:
    """Return the content with further texts appended."""
    texts = [text for text in more if text]
    if not texts:
        return content
    return "\n\n".join([content, *texts]) if isinstance(content, str) else (*content, *map(TextPart, texts))


def result_for_model(value: Json, limit: int) -> Content:
    """Return a result as the model reads it, each text shortened to `limit` characters."""
    if isinstance(value, VisibleResult):
        return tuple(TextPart(shortened(p.text, limit)) if isinstance(p, TextPart) else p for p in value.parts)
    return shortened(text_of(value), limit)


def _admitted_failure(value: Json) -> str | None:
    """Return the failure that a family tool or a server reports in its result, for events; None if there is none.

    The model receives the result itself, unchanged.
    """
    if isinstance(value, dict) and value.get("status") == "error":
        return shortened(str(value.get("message", "error")), EVENT_LIMIT)
    if isinstance(value, dict) and value.get("isError") is True:
        return shortened(text_of(value.get("content")), EVENT_LIMIT)
    return None
