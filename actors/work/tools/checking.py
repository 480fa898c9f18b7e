"""What a model's calls are worth, before any is played: pure, on what the tools say of themselves.

A model's text is a stranger's text: names, arguments and the number of calls are bounded before anything is done
with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from ....protocol.chat import Tool as ToolSpec
from ....protocol.chat import ToolCall
from ....protocol.json_values import NotJson, decode
from ....protocol.problems import did_you_mean
from ...io.json_schema import errors_by, quick, validator
from .tool import Arguments, Json, Origin, shortened, text_of

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MOST_CALLS = 64
"""Calls of one turn that are played; the rest is refused."""

LONGEST_NAME = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
LONGEST_ARGUMENTS = 2_000_000


class Offer(Protocol):
    """What is to be known of a tool to decide about its calls: a `Tool`, or an `OfferedTool` of a message."""

    @property
    def spec(self) -> ToolSpec: ...
    @property
    def origin(self) -> Origin: ...
    @property
    def ordered(self) -> bool: ...
    @property
    def elsewhere(self) -> bool: ...
    @property
    def waits(self) -> bool: ...
    @property
    def synonyms(self) -> Mapping[str, str]: ...


class Misfit(Exception):
    """A call that can't be played; the model is told why."""


class Checks:
    """Compares calls with the schemas of their tools."""

    def __init__(self) -> None:
        self._validators: dict[str, Validator] = {}

    def clear(self) -> None:
        """The tools are others now."""
        self._validators.clear()

    def arguments(self, tool: Offer, call: ToolCall) -> Arguments:
        """The arguments as the tool takes them.

        Raises:
            Misfit: they don't fit its schema.
        """
        if call.malformed:
            raise Misfit(
                f"The call '{call.name}' has invalid arguments: a JSON object was expected, and this came: "
                f"{shortened(call.malformed, 300)}"
            )
        arguments = call.arguments
        if names := {name: own for name, own in tool.synonyms.items() if own not in arguments}:
            arguments = {names.get(name, name): value for name, value in arguments.items()}
        taken: Arguments = converted(_without_nulls(arguments, tool), tool.spec.parameters)
        wrong = self._misfits(tool, taken)
        if wrong:
            raise Misfit(f"The call '{call.name}' has invalid arguments: {'; '.join(wrong)}")
        return taken

    def _misfits(self, tool: Offer, arguments: Arguments) -> list[str]:
        name = tool.spec.name
        try:
            check = self._validators.get(name)
            if check is None:
                parameters = tool.spec.parameters
                schema = quick(parameters) if tool.origin == "mcp" else parameters
                check = self._validators[name] = validator(json.dumps(schema))
            return errors_by(check, arguments)
        except Exception:  # jsonschema raises all kinds of errors for a schema that is none
            if tool.origin != "mcp":
                raise
            return []  # a stranger's schema that is none: the server has to look for itself


def unknown(name: str, tools: Mapping[str, Offer], unlisted: Mapping[str, Offer]) -> str:
    """Return what a model reads that has called what is not there.

    An entry `evil__*` of `unlisted` stands for all tools of an MCP server that can't be asked; its description is why.
    """
    for pattern, absent in unlisted.items():
        if pattern.endswith("*") and name.startswith(pattern[:-1]):
            return absent.spec.description
    near = did_you_mean(name[:LONGEST_NAME], tools)
    there = f"there are: {', '.join(list(tools)[:50])}" if tools else "there is none"
    return f"Unknown tool '{shortened(name, LONGEST_NAME)}': {near or there}"


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
        usable = call.id and call.id not in seen and len(call.id) <= LONGEST_NAME
        id = call.id if usable else f"call_{number}_{len(seen)}"
        seen.add(id)
        tamed.append(msgspec.structs.replace(call, id=id, name=name, arguments=arguments, malformed=malformed))
    return tuple(tamed)


def _without_nulls(arguments: Arguments, tool: Offer) -> Arguments:
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


_DEEPEST = 20
"""Levels of a schema that values are converted by."""


def converted(value: Json, schema: Json, *, root: Json = None, depth: int = 0) -> Json:
    """A value with JSON texts replaced by what they encode, wherever the schema wants another type than text.

    Small models write `"5"` for 5 and `"[1]"` for a list. A parameter that may be a text is never touched, and a text
    that encodes a value of another type than the schema names stays, for the check to tell.
    """
    root = schema if root is None else root
    schema = _resolved(schema, root)
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return value
    if isinstance(value, str):
        kinds = _types(schema, root)
        value = _read_as(value, kinds) if kinds and "string" not in kinds else value
    if isinstance(value, dict) and isinstance(properties := schema.get("properties"), dict):
        return {
            name: converted(each, properties[name], root=root, depth=depth + 1) if name in properties else each
            for name, each in value.items()
        }
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        return [converted(each, items, root=root, depth=depth + 1) for each in value]
    return value


def _resolved(schema: Json, root: Json) -> Json:
    """The schema that a reference within its own document names; itself if it is none."""
    for _ in range(_DEEPEST):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        schema = root
        for key in reference[2:].split("/"):
            schema = schema.get(key) if isinstance(schema, dict) else None
    return schema


def _types(schema: Json, root: Json, depth: int = 0) -> set[str]:
    """Names of the types that a schema admits; empty if that is not clear."""
    schema = _resolved(schema, root)
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return set()
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {each for each in kind if isinstance(each, str)}
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key)
        if isinstance(branches, list) and branches:
            named = [_types(branch, root, depth + 1) for branch in branches]
            return set().union(*named) if all(named) else set()
    return set()


def _read_as(text: str, kinds: set[str]) -> Json:
    try:
        value = decode(text.strip())
    except NotJson:
        return text
    match value:
        case bool():
            fits = "boolean" in kinds
        case int():
            fits = bool(kinds & {"integer", "number"})
        case float():
            fits = "number" in kinds
        case list():
            fits = "array" in kinds
        case dict():
            fits = "object" in kinds
        case _:
            fits = value is None and "null" in kinds
    return value if fits else text


def _takes_null(schema: Json) -> bool:
    if not isinstance(schema, dict):
        return True
    kind = schema.get("type")
    return kind is None or kind == "null" or (isinstance(kind, list) and "null" in kind)


AT_ROOT = (2, 3)
AS_CHILD = (4, 10)
"""Repeats and chain of a `RepeatGuard`, as in Loki: a child has no person who watches it."""


class RepeatGuard:
    """Stops a model that goes round in circles: the same call again and again, or the same few calls in turn.

    A call that has come `repeats` times in a row, or a chain of up to `chain` calls that has, is not played once more:
    the model gets a note instead.
    """

    def __init__(self, repeats: int, chain: int) -> None:
        self._repeats = repeats
        self._chain = chain
        self._calls: list[tuple[str, str]] = []

    def copy(self) -> RepeatGuard:
        """Another that remembers the same calls."""
        copied = RepeatGuard(self._repeats, self._chain)
        copied._calls = list(self._calls)
        return copied

    def alert(self, call: ToolCall) -> Json | None:
        """What to tell the model instead of playing this call, or None; the call is remembered."""
        key = (call.name, text_of(call.arguments))
        length = self._circle(key)
        self._calls.append(key)
        del self._calls[: -self._repeats * self._chain]
        if length is None:
            return None
        what = "this call" if length == 1 else f"this chain of {length} calls"
        return {
            "tool_call_loop_alert": {
                "code": 400,
                "message": f"{what} came {self._repeats} times in a row and was not repeated. The result would be the "
                "same. Use what you have, call something else, or give your answer.",
                "call": call.name,
            }
        }

    def _circle(self, key: tuple[str, str]) -> int | None:
        """Length of the chain that `key` would begin or continue once too often; None if there is none.

        A chain counts from its first repetition's end: A, B, A, B and again A.
        """
        calls = self._calls
        for length in range(1, self._chain + 1):
            span = length * self._repeats
            if len(calls) < span:
                return None
            recent = calls[-span:]
            if recent[0] == key and all(recent[i] == recent[i % length] for i in range(span)):
                return length
        return None
