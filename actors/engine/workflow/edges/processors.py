"""Processors of edges: functions that transform messages.

A processor receives the message as it would arrive, and returns a message or None. None means that nothing arrives
and nothing is triggered. If a processor fails, a warning is emitted and the message arrives unchanged.

`{{name}}` in a template, or in the role of a node that runs per unit, is replaced by a text. `{{name.key}}` and
`{{name[0]}}` select a value if that text is JSON. Node ids are free text, for example `Article Writer` or `v1.2`,
so any text between the braces can be a name. An unknown name remains unchanged, because a prompt can be about
templates.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, TypeAlias

import msgspec

from .....protocol.json_values import NotJson, decode
from .....protocol.workflow.model import FunctionProcessor, Processor, RegexExtract, Template
from ...graph.templates import MISSING, getter, render
from ..messages import Message
from .conditions import Change, Functions, MissingFunction
from .matching import pattern_in

Process: TypeAlias = Callable[[Message, Mapping[str, str]], Message | Awaitable[Message | None] | None]
"""Processor function; its arguments are a message and the last text of each node by id."""

_HOLE = re.compile(r"\{\{([^{}]*)\}\}")
_STEP = re.compile(r"[.\[]")

LONGEST = 1_000
"""Most characters between braces that are looked up as a name."""

Lookup: TypeAlias = Callable[[str], str | None]
"""Return the text for a name, or None."""


def process_of(processor: Processor, functions: Functions) -> Process | MissingFunction:
    """Return the processor as a function."""
    match processor:
        case RegexExtract():
            return _extract(processor)
        case Template(template=template):
            return lambda message, said: with_text(
                message, filled(template, lambda name: message.text if name == "content" else said.get(name))
            )
        case FunctionProcessor(name=name):
            known = {**BUILT_IN, **functions.processors}
            change = known.get(name)
            if change is None:
                return MissingFunction("processor", name, tuple(known))

            async def called(message: Message, _said: Mapping[str, str]) -> Message | None:
                result = change(message.text)
                return _taken(message, await result if isawaitable(result) else result)

            return called


def with_text(message: Message, text: str) -> Message:
    """Return the message with another content."""
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
    """Return the text with its names replaced in one pass: inserted text is not expanded again."""

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


BUILT_IN: dict[str, Change] = {"uppercase_payload": lambda text: text.upper()}
"""Processors that need neither a file nor a process."""
