"""Requests to models and their replies as titled parts of readable text. Terminals must still escape it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...protocol.control.resources import ModelCallDetail
from .money import usd

LONGEST_DESCRIPTION = 100
"""Characters of a tool's description that are shown."""

_NO_REPLY = "no reply yet, or the request was cut off"


class CallPart(NamedTuple):
    """Part of a model call for display: a title, a text, and whether it reports a failure."""

    title: str
    text: str
    failed: bool = False


def head(call: ModelCallDetail) -> str:
    """Return the facts about a call: actor, model, time, tokens, cost."""
    facts = [f"call {call.number}", call.actor, call.model]
    if call.seconds is not None:
        facts.append(f"{call.seconds:.1f} s")
    if call.input_tokens:
        facts.append(f"{call.input_tokens:,} tokens in, {call.output_tokens:,} out")
    if call.cost:
        facts.append(usd(call.cost))
    return ", ".join(facts)


def request_parts(call: ModelCallDetail) -> Iterator[CallPart]:
    """Yield the parts of the request in the order of the model's input: system prompt, messages, tools, parameters."""
    request = call.request
    if request.system:
        yield CallPart("system", request.system)
    for message in request.messages:
        yield CallPart(_title(message), "\n".join(_message(message)))
    if request.tools:
        yield CallPart(f"tools ({len(request.tools)})", "\n".join(map(_tool, request.tools)))
    if request.parameters:
        yield CallPart(
            "parameters", "\n".join(f"  {name}: {_json(value)}" for name, value in request.parameters.items())
        )


def reply_parts(call: ModelCallDetail) -> Iterator[CallPart]:
    """Yield the failed attempts, then the error or the parts of the reply."""
    for number, each in enumerate(call.failures, 1):
        yield CallPart(f"try {number} failed", f"{each.error}\n  again after {each.wait:.1f} s", failed=True)
    if call.error:
        yield CallPart("failed", call.error, failed=True)
    reply = call.reply
    if reply is None:
        if not call.error:
            yield CallPart("reply", _NO_REPLY)
        return
    if reply.reasoning:
        yield CallPart("reasoning", reply.reasoning)
    calls = [_call(each.name, each.malformed or each.arguments) for each in reply.tool_calls]
    yield CallPart(f"reply ({reply.stop})", "\n".join([*([reply.text] if reply.text else []), *calls]))


def call_text(call: ModelCallDetail) -> str:
    """Return a model call as one text: its facts, then each part of request and reply under a line with its title."""
    parts = (f"--- {part.title} ---\n{part.text.rstrip()}" for part in (*request_parts(call), *reply_parts(call)))
    return "\n\n".join([head(call), *parts])


def _title(message: dict[str, Any]) -> str:
    role = str(message.get("role", "?"))
    if role == "tool":
        return f"tool {message.get('name', '')}" + (" (failed)" if message.get("error") else "")
    return role


def _message(message: dict[str, Any]) -> Iterator[str]:
    content = message.get("text") if message.get("role") == "assistant" else message.get("content")
    if isinstance(content, list):
        for part in content:
            yield from _part(part)
    elif content:
        yield str(content)
    for call in message.get("tool_calls", ()):
        yield _call(str(call.get("name", "?")), call.get("malformed") or call.get("arguments", {}))


def _part(part: Any) -> Iterator[str]:
    if not isinstance(part, dict):
        yield str(part)
        return
    if part.get("type") != "text":
        where = part.get("name") or part.get("url") or part.get("media_type", "")
        size = f", {part['bytes']:,} bytes" if isinstance(part.get("bytes"), int) else ""
        yield f"  [{part.get('type', 'part')}: {where}{size}]"
    if isinstance(part.get("text"), str):
        yield part["text"]


def _tool(tool: dict[str, Any]) -> str:
    parameters = ", ".join(tool.get("parameters", {}).get("properties", {}))
    description = " ".join(str(tool.get("description", "")).split())
    if len(description) > LONGEST_DESCRIPTION:
        description = description[: LONGEST_DESCRIPTION - 1] + "…"
    return f"  {tool.get('name', '?')}({parameters})" + (f"  {description}" if description else "")


def _call(name: str, arguments: Any) -> str:
    return f"  calls {name} {arguments if isinstance(arguments, str) else _json(arguments)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
