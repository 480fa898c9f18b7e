"""Edges of a workflow, compiled to functions: conditions select messages, processors transform them, and splits divide
them into the units of nodes that run per unit.

A condition reads the source's text before any processor of the edge. Named functions are injected (`Functions`) and
can be slow, as can regular expressions (`matching`); all others return immediately.

A processor receives the message as it would arrive, and returns a message or None. None means that nothing arrives
and nothing is triggered. If a processor fails, a warning is emitted and the message arrives unchanged.

`{{name}}` in a template, or in the role of a node that runs per unit, is replaced by a text. `{{name.key}}` and
`{{name[0]}}` select a value if that text is JSON. Node ids are free text, for example `Article Writer` or `v1.2`,
so any text between the braces can be a name. An unknown name remains unchanged, because a prompt can be about
templates.

A message over a dynamic edge that cannot be split is one unit. If splitting yields no unit at all, each message is one
unit. Only an empty JSON array and a text without lines mean that there is no work.

This module uses messages and the structs of the file, and does not depend on nodes or runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import reduce
from inspect import isawaitable
from operator import or_
from typing import Any, TypeAlias

import msgspec

from ....protocol.json_values import NotJson, decode
from ....protocol.problems import did_you_mean
from ....protocol.workflow.model import (
    Always,
    ByArray,
    ByDelimiter,
    ByLines,
    ByMatch,
    ByMessage,
    ByPath,
    Condition,
    FunctionCondition,
    FunctionProcessor,
    KeywordCondition,
    Never,
    Processor,
    RegexCondition,
    RegexExtract,
    Split,
    Template,
)
from ..graph.templates import MISSING, getter, render
from .matching import Pattern, pattern_in
from .messages import Message

Test: TypeAlias = Callable[[str], bool | Awaitable[bool]]
"""Condition function: True if the edge is taken for this text of its source; also a function of `functions/edge/`."""

Change: TypeAlias = Callable[[str], Any]
"""Processor function of `functions/edge_processor/`; its result can be awaitable."""

CODE_FAILED = "==CODE EXECUTION FAILED=="
"""First line of a python node's output if its code failed."""


class Functions(msgspec.Struct, frozen=True, kw_only=True):
    """User functions that a workflow can name; they override built-in functions of the same name."""

    conditions: Mapping[str, Test] = {}
    processors: Mapping[str, Change] = {}


class MissingFunction(msgspec.Struct, frozen=True):
    """Name of a function that does not exist."""

    kind: str
    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        near = did_you_mean(self.name, self.known)
        return f"there is no {self.kind} function '{self.name}'" + (f": {near}" if near else "")


def predicate_of(condition: Condition, functions: Functions) -> Test | MissingFunction:
    """Return the condition as a function, or the name of the function that it needs and that does not exist."""
    match condition:
        case Always():
            return lambda _text: True
        case Never():
            return lambda _text: False
        case FunctionCondition(name=name):
            known = {**BUILT_IN_CONDITIONS, **functions.conditions}
            judge = known.get(name)
            return MissingFunction("condition", name, tuple(known)) if judge is None else judge
        case KeywordCondition():
            return _keywords(condition)
        case RegexCondition(pattern=pattern, flags=flags):
            return Pattern(pattern, reduce(or_, (re.RegexFlag[flag] for flag in flags), re.NOFLAG)).is_in


def _keywords(condition: KeywordCondition) -> Test:
    """Return the test of a keyword condition.

    `none` takes precedence, then `all`; then one match of `any` or `regex` suffices, if there are any.
    """
    exact = condition.case_sensitive

    def words(listed: tuple[str, ...]) -> list[str]:
        # As in DevAll, an empty word matches nothing. As a substring it would match every text.
        return [word if exact else word.lower() for word in listed if word]

    none, every, some = words(condition.none), words(condition.all), words(condition.any)
    searched = [Pattern(each, re.NOFLAG if exact else re.IGNORECASE).is_in for each in condition.regex]
    wants_one = bool(condition.any or condition.regex)

    def test(text: str) -> bool | Awaitable[bool]:
        looked_at = text if exact else text.lower()
        if any(word in looked_at for word in none) or not all(word in looked_at for word in every):
            return False
        if not wants_one:
            return True
        # Words first, because they need no regular expression.
        return any(word in looked_at for word in some) or _any(searched, text)

    return test


def _any(tests: Sequence[Test], text: str) -> bool | Awaitable[bool]:
    for i, test in enumerate(tests):
        met = test(text)
        if isawaitable(met):
            return _any_of_the_rest(met, tests[i + 1 :], text)
        if met:
            return True
    return False


async def _any_of_the_rest(first: Awaitable[bool], tests: Sequence[Test], text: str) -> bool:
    if await first:
        return True
    met = _any(tests, text)
    return await met if isawaitable(met) else met


_VERDICT = re.compile(r"verdict\s*:\s*(\w+)", re.IGNORECASE)


def _stops(text: str) -> bool:
    """Return True if a reviewer's text contains `Verdict: STOP` or `Verdict: DONE`."""
    verdict = _VERDICT.search(text)
    return verdict is not None and verdict[1].upper() in {"STOP", "DONE"}


# DevAll's functions, with the words and lengths that are fixed there.
BUILT_IN_CONDITIONS: dict[str, Test] = {
    "true": lambda _text: True,
    "always_false": lambda _text: False,
    "contains_keyword": lambda text: "trigger" in text.lower(),
    "not_contains_keyword": lambda text: "trigger" not in text.lower(),
    "length_greater_than_5": lambda text: len(text) > 5,
    "code_pass": lambda text: CODE_FAILED not in text,
    "code_fail": lambda text: CODE_FAILED in text,
    "need_reflection_loop": lambda text: not _stops(text),
    "should_stop_loop": _stops,
}
"""Condition functions that need no file."""


Process: TypeAlias = Callable[[Message, Mapping[str, str]], Message | Awaitable[Message | None] | None]
"""Processor function; its arguments are a message and the last text of each node by id."""

_HOLE = re.compile(r"\{\{([^{}]*)\}\}")
_STEP = re.compile(r"[.\[]")

LONGEST = 1_000
"""Most characters between braces that are looked up as a name."""

Lookup: TypeAlias = Callable[[str], str | None]
"""Function that returns the text for a name, or None for an unknown name."""


def process_of(processor: Processor, functions: Functions) -> Process | MissingFunction:
    """Return the processor as a function, or the name of the function that it needs and that does not exist."""
    match processor:
        case RegexExtract():
            return _extract(processor)
        case Template(template=template):
            return lambda message, said: with_text(
                message, filled(template, lambda name: message.text if name == "content" else said.get(name))
            )
        case FunctionProcessor(name=name):
            known = {**BUILT_IN_PROCESSORS, **functions.processors}
            change = known.get(name)
            if change is None:
                return MissingFunction("processor", name, tuple(known))

            async def called(message: Message, _said: Mapping[str, str]) -> Message | None:
                result = change(message.text)
                return _taken(message, await result if isawaitable(result) else result)

            return called


def with_text(message: Message, text: str) -> Message:
    """Return a copy of the message with this text as its content."""
    return msgspec.structs.replace(message, content=text)


def _extract(processor: RegexExtract) -> Process:
    pattern = pattern_in(processor)
    group = 0 if processor.group is None else processor.group

    async def extract(message: Message, _said: Mapping[str, str]) -> Message | None:
        text = message.text
        # A group other than 0 can be absent from the first match, so later matches count too.
        most = None if processor.multiple or group else 1
        values = [value for value in await pattern.each(text, group, most=most) if value is not None]
        if not processor.multiple:
            values = values[:1]
        template = processor.template
        found = [template.replace("{match}", value) if template else value for value in values]
        if found:
            return with_text(message, "\n".join(found))
        if processor.on_no_match == "drop":
            return None
        return with_text(message, processor.default_value or "") if processor.on_no_match == "default" else message

    return extract


def _taken(message: Message, result: Any) -> Message | None:
    if result is None or isinstance(result, Message):
        return result
    if not isinstance(result, Mapping):
        return with_text(message, result if isinstance(result, str) else str(result))
    if result.get("drop"):
        return None
    content = result.get("content", message.content)
    return msgspec.structs.replace(
        message,
        content=content if isinstance(content, str | tuple) else str(content),
        metadata={**message.metadata, **(result.get("metadata") or {})},
    )


def filled(text: str, lookup: Lookup) -> str:
    """Return the text with each `{{name}}` replaced in one pass: inserted text is not expanded again."""

    def put(match: re.Match[str]) -> str:
        path = match[1].strip()
        if not path or len(path) > LONGEST:
            return match[0]
        value = lookup(path)
        if value is not None:
            return value
        found = _inside(path, lookup)
        return match[0] if found is MISSING else render(found)

    return _HOLE.sub(put, text) if "{{" in text else text


def names_in(text: str) -> dict[str, None]:
    """Return the names that `filled` looks up for a text, in that order."""
    asked: dict[str, None] = {}
    filled(text, lambda name: asked.setdefault(name))
    return asked


def _inside(path: str, lookup: Lookup) -> Any:
    """Return the value at a path into a name's text; the longest matching name wins."""
    for step in reversed(list(_STEP.finditer(path))):
        text = lookup(path[: step.start()])
        if text is None:
            continue
        try:
            value = decode(text)
        except NotJson:
            return MISSING
        return getter("it" + path[step.start() :])({"it": value})
    return MISSING


BUILT_IN_PROCESSORS: dict[str, Change] = {"uppercase_payload": lambda text: text.upper()}
"""Processors that need neither a file nor a process."""


async def units_of(split: Split, messages: Sequence[Message]) -> list[Message]:
    """Return the units as messages, in the order of the messages and of their texts.

    Raises:
        NodeFailed: a pattern takes too long or needs too much memory (see `matching`).
    """
    match split:
        case ByMessage():
            return list(messages)
        case ByArray():
            return _pieces(messages, _array)
        case ByLines():
            return _pieces(messages, lambda text: [line.strip() for line in text.splitlines() if line.strip()])
        case ByDelimiter(pattern=pattern):
            between = Pattern(pattern)
            cut = [_between(message.text, await between.spans(message.text)) for message in messages]
            return _joined(messages, cut) or list(messages)
        case ByPath(json_path=path):
            return _pieces(messages, lambda text: _at_path(text, path)) or list(messages)
        case ByMatch():
            matching, group = pattern_in(split), split.group or 0
            # An unknown group means the whole match.
            if group not in matching.names if isinstance(group, str) else group > matching.groups:
                group = 0
            none = [""] if split.on_no_match == "empty" else None
            found = [await matching.each(message.text, group) for message in messages]
            return _joined(messages, [[each or "" for each in one] or none for one in found]) or list(messages)


def _pieces(messages: Sequence[Message], cut: Callable[[str], list[str] | None]) -> list[Message]:
    return _joined(messages, [cut(message.text) for message in messages])


def _joined(messages: Sequence[Message], cut: Iterable[list[str] | None]) -> list[Message]:
    units: list[Message] = []
    for message, pieces in zip(messages, cut, strict=True):
        if pieces is None:
            units.append(message)
        else:
            units.extend(with_text(message, piece) for piece in pieces)
    return units


_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)


def _array(text: str) -> list[str] | None:
    """Return the items of a JSON array, also if the array is in a fence; None if there is no array."""
    fence = _FENCED.search(text)
    for candidate in (text, fence[1] if fence else ""):
        try:
            items = decode(candidate)
        except NotJson:
            continue
        if isinstance(items, list):
            return [
                json.dumps(item, ensure_ascii=False)
                if isinstance(item, dict | list)
                else item
                if isinstance(item, str)
                else render(item)
                for item in items
            ]
    return None


def _between(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """Return the texts between the matches, without blank ones."""
    pieces: list[str] = []
    end = 0
    for start, after in spans:
        pieces.append(text[end:start])
        end = after
    return [piece.strip() for piece in (*pieces, text[end:]) if piece.strip()]


def _at_path(text: str, path: str) -> list[str] | None:
    """Return the items at a dotted path, where digits index lists. A path without a value yields an empty list."""
    try:
        value = decode(text)
    except NotJson:
        return None
    for part in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            value = None
        if value is None:
            return []
    items = value if isinstance(value, list) else [value]
    return [json.dumps(item, ensure_ascii=False) if isinstance(item, dict | list) else str(item) for item in items]
