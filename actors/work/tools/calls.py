"""Plays the tool calls of a model's turn, each as an actor of its own, all at once.

Whatever comes of a call becomes a `ToolTurn` that the model reads: the result; or what is wrong with the call (no
such tool, arguments that are no JSON or don't fit the tool's schema), that it may not be made, that it was made too
often, that it took too long, that the tool failed or crashed. Nothing of that ends the conversation. What does: a limit
of the run that was reached, the root's end, and the cancellation of whoever calls, which ends the calls first.

A model's text is a stranger's text: names, arguments and the number of calls are bounded before anything is done
with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Never

import msgspec
import trio

from ....protocol.chat import Content, TextPart, ToolCall, ToolTurn
from ....protocol.errors import BudgetReached, CallboardError, ShuttingDown, ToolFailed, TurnsReached, code_of
from ....protocol.events import ToolFinished, ToolStarted
from ....protocol.permissions import Permissions as Rules
from ....protocol.problems import did_you_mean
from ...io.json_schema import errors_by, quick, validator
from .guard import AT_ROOT, RepeatGuard
from .path_rules import Sight
from .permissions import Permissions
from .rendering import shortened, text_of
from .tool import Arguments, Json, Shown, Tool

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

    from ....supervisors import Actor, End, Ref

MOST_CALLS = 64
"""Calls of one turn that are played; the rest is refused."""

LONGEST_NAME = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
LONGEST_ARGUMENTS = 2_000_000
RESULT_LIMIT = 64_000
"""Characters of one result that the model gets, where its agent says no other number."""

_EVENT_LIMIT = 2_000


class Calls:
    """The calls of one conversation.

    Args:
        tools: what may be called.
        unlisted: what may be called though the model is not offered it, by name; for those who know it.
        permissions: what the user allows.
        own: `permissions` of the agent's file.
        guard: notices circles.
        timeout: seconds of a call, in place of the tools' own numbers.
        result_limit: characters of one result.

    Attributes:
        tools: by name.
        played: how many calls came to a tool.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        permissions: Permissions,
        *,
        unlisted: Mapping[str, Tool] | None = None,
        own: Rules | None = None,
        guard: RepeatGuard | None = None,
        timeout: float | None = None,
        result_limit: int = RESULT_LIMIT,
    ) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self._unlisted = unlisted or {}
        self.played = 0
        self._permissions = permissions
        self._own = own
        self._guard = guard or RepeatGuard(*AT_ROOT)
        self._timeout = timeout
        self._limit = result_limit
        self._validators: dict[str, Validator] = {}
        self._looked_at: set[tuple[str, str]] = set()

    def renew(self, tools: Iterable[Tool], unlisted: Mapping[str, Tool]) -> None:
        """From now on these may be called."""
        self.tools = {tool.name: tool for tool in tools}
        self._unlisted = unlisted
        self._validators.clear()

    def elsewhere(self, call: ToolCall) -> bool:
        """Whether it is for the caller of the run to play."""
        tool = self.tools.get(call.name)
        return tool is not None and tool.elsewhere

    async def play(self, me: Actor, calls: Sequence[ToolCall]) -> list[ToolTurn]:
        """Play these calls as children of `me`; their results in the order of the calls.

        Raises:
            BudgetReached, TurnsReached, ShuttingDown: the run is at its end.
        """
        self._looked_at = set()
        results: dict[int, Json] = {}
        errors: set[int] = set()
        refs: list[tuple[int, Ref[Never, Json]]] = []
        last: Ref[Never, Json] | None = None
        for number, call in enumerate(calls):
            tool = self._tool(call.name)
            after = last if tool is not None and tool.ordered else None
            many = number >= MOST_CALLS
            begun = _refused(f"more than {MOST_CALLS} calls at once") if many else self._begin(me, tool, call, after)
            if isinstance(begun, dict):
                results[number] = begun
                errors.add(number)
                _tell_refusal(me, call, begun)
            else:
                refs.append((number, begun))
                if tool is not None and tool.ordered:
                    last = begun
        for number, end in await _all_ends(me, refs):
            results[number], failed = _result_of(end, calls[number].name)
            if failed:
                errors.add(number)
        return [self._turn(call, results[number], number in errors) for number, call in enumerate(calls)]

    def _tool(self, name: str) -> Tool | None:
        return self.tools.get(name) or self._unlisted.get(name)

    def _begin(
        self, me: Actor, tool: Tool | None, call: ToolCall, after: Ref[Never, Json] | None
    ) -> Ref[Never, Json] | dict[str, Json]:
        """Start the call's actor, or say why not."""
        if tool is None:
            return _refused(self._unknown(call.name))
        if call.malformed:
            return _refused(
                f"The call '{call.name}' has invalid arguments: a JSON object was expected, and this came: "
                f"{shortened(call.malformed, 300)}"
            )
        arguments = _without_nulls(_by_own_names(call.arguments, tool), tool)
        wrong = self._misfits(tool, arguments)
        if wrong:
            return _refused(f"The call '{call.name}' has invalid arguments: {'; '.join(wrong)}")
        alert = None if tool.waits else self._alert(call)
        if alert is not None:
            assert isinstance(alert, dict)
            return alert
        self.played += 1
        return me.spawn(self._play, tool, arguments, call.id, after, name=tool.name, link=False)

    def _alert(self, call: ToolCall) -> Json | None:
        """What to say of a call that goes round in circles. The same call several times in one turn counts once."""
        key = (call.name, text_of(call.arguments))
        if key in self._looked_at:
            return None
        self._looked_at.add(key)
        return self._guard.alert(call)

    def _unknown(self, name: str) -> str:
        near = did_you_mean(name[:LONGEST_NAME], self.tools)
        there = f"there are: {', '.join(list(self.tools)[:50])}" if self.tools else "there is none"
        return f"Unknown tool '{shortened(name, LONGEST_NAME)}': {near or there}"

    def _misfits(self, tool: Tool, arguments: Arguments) -> list[str]:
        try:
            check = self._validators.get(tool.name)
            if check is None:
                parameters = tool.spec.parameters
                schema = quick(parameters) if tool.origin == "mcp" else parameters
                check = self._validators[tool.name] = validator(json.dumps(schema))
            return errors_by(check, arguments)
        except Exception:  # jsonschema raises all kinds of errors for a schema that is none
            if tool.origin != "mcp":
                raise
            return []  # a stranger's schema that is none: the server has to look for itself

    async def _play(self, me: Actor, tool: Tool, arguments: Arguments, id: str, after: Ref[Never, Json] | None) -> Json:
        """Body of the call's actor, which lets the call before it end first, if they are ordered."""
        if after is not None:
            await after.wait()
        if me.root.pauses is not None:
            await me.root.pauses.passed(me)
        began = trio.current_time()
        heard = me.stream.heard
        if heard:
            text = shortened(text_of(arguments), _EVENT_LIMIT)
            me.emit(ToolStarted(tool=tool.name, arguments=text, origin=tool.origin), id=id)
        error: str | None = "interrupted"
        code = "cancelled"
        result = ""
        try:
            sight = await self._permissions.admit(me, tool, arguments, self._own)
            if tool.means is not None:
                tool, arguments = await tool.means(me, arguments)
                sight = await self._permissions.admit(me, tool, arguments, self._own)
            began = trio.current_time()  # what a person took to allow it does not count
            value = await self._in_time(me, tool, arguments, sight)
            error = _admitted_failure(value)
            code = "tool_error" if error is not None else ""
            if heard and error is None:
                result = shortened(text_of(value), _EVENT_LIMIT)
            return value
        except Exception as failed:  # only to tell it; it goes on
            error, code = shortened(str(failed) or repr(failed), _EVENT_LIMIT), code_of(failed)
            raise
        finally:
            if heard:
                seconds = trio.current_time() - began
                me.emit(ToolFinished(tool=tool.name, seconds=seconds, error=error, result=result, code=code), id=id)

    async def _in_time(self, me: Actor, tool: Tool, arguments: Arguments, sight: Sight) -> Json:
        if tool.timeout is None:
            return await _run(me, tool, arguments, sight)
        seconds = self._timeout or tool.timeout
        with trio.move_on_after(seconds):
            return await _run(me, tool, arguments, sight)
        raise ToolFailed(f"Tool call '{tool.name}' did not end within {seconds:g} s and was ended")

    def _turn(self, call: ToolCall, value: Json, failed: bool) -> ToolTurn:
        content: Content = shortened(text_of(value), self._limit)
        if isinstance(value, Shown):
            parts = value.parts
            content = tuple(TextPart(shortened(p.text, self._limit)) if isinstance(p, TextPart) else p for p in parts)
        return ToolTurn(call=call.id, name=call.name, content=content, error=failed)


def tame(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """A model's calls as they may go into the history: ids there and unique, names and arguments bounded.

    A provider refuses a history with a name that could not have been offered, and that would end the conversation.
    """
    seen: set[str] = set()
    tamed = []
    for number, call in enumerate(calls[: 2 * MOST_CALLS]):
        name = _ILLEGAL.sub("_", call.name[:LONGEST_NAME]) or "unknown"
        malformed = shortened(call.malformed, 1_000)
        arguments = call.arguments
        if len(text_of(arguments)) > LONGEST_ARGUMENTS:
            arguments, malformed = {}, f"(an object of more than {LONGEST_ARGUMENTS} characters)"
        id = (
            call.id
            if call.id and call.id not in seen and len(call.id) <= LONGEST_NAME
            else f"call_{number}_{len(seen)}"
        )
        seen.add(id)
        tamed.append(msgspec.structs.replace(call, id=id, name=name, arguments=arguments, malformed=malformed))
    return tuple(tamed)


async def _run(me: Actor, tool: Tool, arguments: Arguments, sight: Sight) -> Json:
    return await (tool.run(me, arguments) if tool.seeing is None else tool.seeing(me, arguments, sight))


async def _all_ends(me: Actor, refs: list[tuple[int, Ref[Never, Json]]]) -> list[tuple[int, End]]:
    """Wait until all have ended; whoever is interrupted meanwhile leaves none behind that works on."""
    try:
        return [(number, await ref.wait()) for number, ref in refs]
    except trio.Cancelled:
        for _, ref in refs:
            ref.cancel()
        with me.cleanup():
            for _, ref in refs:
                await ref.wait()
        raise


def _result_of(end: End, name: str) -> tuple[Json, bool]:
    """What the model is told of a call that has ended, and whether that is a failure."""
    error = end.error
    if error is None:
        return (
            (end.value, False) if end.reason == "normal" else (_refused(f"Tool call '{name}' was {end.reason}"), True)
        )
    if isinstance(error, BudgetReached | TurnsReached | ShuttingDown):
        raise error
    if isinstance(error, ToolFailed):
        told = _refused(str(error))
        if error.stderr:
            told["stderr"] = error.stderr.rstrip()
        if error.output:
            told["output"] = error.output.rstrip()
        return told, True
    if isinstance(error, CallboardError):
        return _refused(str(error)), True
    return _refused(f"Tool call '{name}' crashed: {type(error).__name__}: {error}"), True


def _admitted_failure(value: Json) -> str | None:
    """What a family or a server says went wrong, for those who watch: the model is told it as a result all the same."""
    if isinstance(value, dict) and value.get("status") == "error":
        return shortened(str(value.get("message", "error")), _EVENT_LIMIT)
    if isinstance(value, dict) and value.get("isError") is True:
        return shortened(text_of(value.get("content")), _EVENT_LIMIT)
    return None


def _refused(why: str) -> dict[str, Json]:
    return {"tool_call_error": why}


def _tell_refusal(me: Actor, call: ToolCall, why: dict[str, Json]) -> None:
    if me.stream.heard:
        name = shortened(call.name, LONGEST_NAME)
        me.emit(ToolStarted(tool=name, arguments=shortened(text_of(call.arguments), _EVENT_LIMIT)), id=call.id)
        error = shortened(text_of(why), _EVENT_LIMIT)
        me.emit(ToolFinished(tool=name, seconds=0.0, error=error, code="refused"), id=call.id)


def _by_own_names(arguments: Arguments, tool: Tool) -> Arguments:
    """With the tool's own names of its parameters; one that is given by both names stays as it is."""
    names = {name: own for name, own in tool.synonyms.items() if own not in arguments}
    return {names.get(name, name): value for name, value in arguments.items()} if names else arguments


def _without_nulls(arguments: Arguments, tool: Tool) -> Arguments:
    """Models write null for what they leave out; where the schema wants no null, it is left out."""
    if None not in arguments.values():
        return arguments
    required = tool.spec.parameters.get("required", ())
    properties = tool.spec.parameters.get("properties", {})
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name in required or _takes_null(properties.get(name))
    }


def _takes_null(schema: Json) -> bool:
    if not isinstance(schema, dict):
        return True
    kind = schema.get("type")
    return kind is None or kind == "null" or (isinstance(kind, list) and "null" in kind)
