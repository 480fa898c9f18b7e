"""Validation of a model's tool calls before any of them runs. Pure: uses only the tools' specifications.

Text of a model is untrusted input. Names, arguments and the number of calls are bounded before they are used.
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
from ...io.json_schema import NoSchema, misfits, quick, surely_fits, validator
from .tool import Arguments, Json, Origin, shortened, text_of

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MOST_CALLS = 64
"""Maximum number of calls executed per turn; further calls are refused."""

LONGEST_NAME = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
LONGEST_ARGUMENTS = 2_000_000


class Offer(Protocol):
    """Properties of a tool that the validation of its calls needs: a `Tool`, or an `OfferedTool` of a message."""

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
    """A call that cannot be executed. The text is the reason for the model."""


class Checks:
    """Validator of calls against the schemas of their tools, with one cached validator per tool."""

    def __init__(self) -> None:
        self._validators: dict[str, Validator] = {}

    def clear(self) -> None:
        """Drop the cached validators after the tools changed."""
        self._validators.clear()

    def arguments(self, tool: Offer, call: ToolCall) -> Arguments:
        """Return the arguments, with synonyms, nulls and encoded values converted to the schema's form.

        Raises:
            Misfit: the arguments do not fit the schema.
        """
        if call.malformed:
            raise Misfit(
                f"The call '{call.name}' has invalid arguments: expected a JSON object, got "
                f"{shortened(call.malformed, 300)}"
            )
        arguments = call.arguments
        if names := {name: own for name, own in tool.synonyms.items() if own not in arguments}:
            arguments = {names.get(name, name): value for name, value in arguments.items()}
        taken = _without_nulls(arguments, tool)
        if surely_fits(taken, tool.spec.parameters):
            return taken
        # An MCP server's schema is checked in a reduced form (`quick`), which may accept a text that the full schema
        # rejects. Therefore MCP arguments are always converted first.
        if tool.origin != "mcp" and not self._misfits(tool, taken):
            return taken
        fitting: Arguments = converted(taken, tool.spec.parameters)
        wrong = self._misfits(tool, fitting)
        if wrong:
            raise Misfit(f"The call '{call.name}' has invalid arguments: {'; '.join(wrong)}")
        return fitting

    def _misfits(self, tool: Offer, arguments: Arguments) -> list[str]:
        name = tool.spec.name
        try:
            check = self._validators.get(name)
            if check is None:
                parameters = tool.spec.parameters
                schema = quick(parameters) if tool.origin == "mcp" else parameters
                check = self._validators[name] = validator(json.dumps(schema))
            return misfits(check, arguments)
        except NoSchema as error:
            if tool.origin != "mcp":
                return [str(error)]
            return []  # An invalid schema of an MCP server: the server has to validate the arguments itself.


def unknown(name: str, tools: Mapping[str, Offer], unlisted: Mapping[str, Offer]) -> str:
    """Return the error text for a model that called an unknown tool.

    An entry `evil__*` of `unlisted` represents all tools of an MCP server that cannot be reached; its description is
    the reason.
    """
    for pattern, absent in unlisted.items():
        if pattern.endswith("*") and name.startswith(pattern[:-1]):
            return absent.spec.description
    near = did_you_mean(name[:LONGEST_NAME], tools)
    there = f"there are: {', '.join(list(tools)[:50])}" if tools else "there are no tools"
    return f"Unknown tool '{shortened(name, LONGEST_NAME)}': {near or there}"


def tame(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return a model's calls in a form that is safe for the history: unique ids, bounded names and arguments.

    Calls beyond twice `MOST_CALLS` are dropped.

    A provider rejects a history with a name that could not have been offered. That would end the conversation.
    """
    seen: set[str] = set()
    tamed = []
    for number, call in enumerate(calls[: 2 * MOST_CALLS]):
        name = _ILLEGAL.sub("_", call.name[:LONGEST_NAME]) or "unknown"
        malformed = shortened(call.malformed, 1_000)
        arguments = call.arguments
        if len(text_of(arguments)) > LONGEST_ARGUMENTS:
            arguments, malformed = {}, f"(arguments left out: an object of more than {LONGEST_ARGUMENTS} characters)"
        # Some providers send no ids, or the same id twice. Results are matched by id, so each call needs its own.
        usable = call.id and call.id not in seen and len(call.id) <= LONGEST_NAME
        id = call.id if usable else f"call_{number}_{len(seen)}"
        seen.add(id)
        tamed.append(msgspec.structs.replace(call, id=id, name=name, arguments=arguments, malformed=malformed))
    return tuple(tamed)


def _without_nulls(arguments: Arguments, tool: Offer) -> Arguments:
    """Drop null arguments that the schema does not accept: models write null for parameters that they omit."""
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
"""Maximum nesting of a schema for the conversion of values."""


def converted(value: Json, schema: Json, *, root: Json = None, depth: int = 0) -> Json:
    """Replace JSON texts by the values that they encode, wherever the schema does not accept a text.

    Small models write `"5"` for 5 and `"[1]"` for a list. A parameter that accepts a text is never changed. A text that
    encodes a value of another type than the schema names is unchanged, so that the check reports it.
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
    """Resolve a reference within the same document; return the schema itself if it has none."""
    # A bound instead of a loop until the end: references may form a cycle.
    for _ in range(_DEEPEST):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        schema = root
        for key in reference[2:].split("/"):
            schema = schema.get(key) if isinstance(schema, dict) else None
    return schema


def _types(schema: Json, root: Json, depth: int = 0) -> set[str]:
    """Return the names of the types that a schema admits; empty if that cannot be determined."""
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
            # One branch of unknown type admits anything, so nothing may be converted.
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
"""Repeats and chain of a `RepeatGuard` for root and child agents, with Loki's numbers.

A child has no user who watches it.
"""


class RepeatGuard:
    """Guard against a model that repeats itself: the same call, or the same short chain of calls.

    After `repeats` consecutive occurrences of a call, or of a chain of up to `chain` calls, the call is not executed
    again. The model receives a note instead.
    """

    def __init__(self, repeats: int, chain: int) -> None:
        self._repeats = repeats
        self._chain = chain
        self._calls: list[tuple[str, str]] = []

    def copy(self) -> RepeatGuard:
        """Return an independent guard with the same remembered calls."""
        copied = RepeatGuard(self._repeats, self._chain)
        copied._calls = list(self._calls)
        return copied

    def alert(self, call: ToolCall) -> Json | None:
        """Remember the call. Return the note for the model if the call must not be executed, else None."""
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
                "message": (
                    f"{what} was made {self._repeats} times in a row and was not repeated: the result would be "
                    "the same. Use the results that you have, call something else, or give your answer."
                ),
                "call": call.name,
            }
        }

    def _circle(self, key: tuple[str, str]) -> int | None:
        """Return the length of the chain that `key` would start or continue once too often; None if there is none.

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
