"""Replies of a dry run (`dry_run`): no request is sent, and the reply shows the request.

The reply to a request with a response schema is the smallest value that matches it, so that a graph can continue.
"""

from __future__ import annotations

import json
from typing import Any

from ....protocol.chat import AssistantTurn, ChatReply, ChatRequest, UserTurn, text_of


def dry_reply(request: ChatRequest, model: str) -> ChatReply:
    """Return the reply of a dry run."""
    if request.response_schema is not None:
        return ChatReply(text=json.dumps(_emptiest(request.response_schema)), model=model)
    return ChatReply(text=as_text(request, model), model=model)


def as_text(request: ChatRequest, model: str) -> str:
    """Return a request as readable text: model, messages and the names of the tools."""
    lines = [f"(dry run: not sent to {model})"]
    if request.system:
        lines += ["", "system:", request.system]
    for turn in request.messages:
        if isinstance(turn, UserTurn):
            lines += ["", "user:", text_of(turn.content)]
        elif isinstance(turn, AssistantTurn):
            lines += ["", "assistant:", turn.text, *(f"calls {call.name} {call.arguments}" for call in turn.tool_calls)]
        else:
            lines += ["", f"result of {turn.name}:", text_of(turn.content)]
    if request.tools:
        lines += ["", f"tools: {', '.join(tool.name for tool in request.tools)}"]
    return "\n".join(lines)


def _emptiest(schema: dict[str, Any]) -> Any:
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _emptiest(properties.get(name, {})) for name in schema.get("required", properties)}
    if kind == "array":
        return [_emptiest(schema.get("items", {})) for _ in range(schema.get("minItems", 0))]
    return {"string": "", "integer": 0, "number": 0, "boolean": False, "null": None}.get(kind, "")
