"""Requests of a server to the run's model in the middle of a call (`sampling/createMessage`), if its `sampling` allows
it.

    off   never (the default; the capability is not declared)
    ask   the user is asked each time, as for a tool called `<server>__sampling`
    on    always

The request is sent like any other of the run, within its limits and on its account. The model is the run's; the
server's preferences are ignored. A server gets no tools of the run, and may add none.

Source: https://modelcontextprotocol.io/specification/2025-11-25/client/sampling
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .....protocol.chat import AssistantTurn, ChatRequest, ImagePart, Part, TextPart, Turn, UserTurn
from .....protocol.errors import ConfigError, LimitReached, McpError, ModelError, ToolFailed
from .....protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from .....protocol.mcp.config import Server
from .....supervisors import Actor
from ...tools.tool import Arguments, Json, Tool, ToolSpec
from .names import offered_name

if TYPE_CHECKING:
    from .view import ServersView

REFUSED = -1
"""The specification's error code for a user who refuses."""

_STOPPED = {"end": "endTurn", "length": "maxTokens", "tools": "toolUse", "refused": "refusal"}


async def sample(me: Actor, talk: ServersView, server: Server, params: Mapping[str, Json]) -> dict[str, Json]:
    """Return the `CreateMessageResult`.

    Raises:
        McpError: sampling is not allowed, the request is invalid, or the model fails.
    """
    if server.sampling == "off":
        raise McpError(f"sampling is off for server '{server.name}' (mcp.json)", rpc_code=METHOD_NOT_FOUND)
    request = _request(talk.context.model or talk.model, params)
    if server.sampling == "ask":
        tool = Tool(spec=ToolSpec(name=offered_name(server.name, "sampling")), run=_never, effect="write", origin="mcp")
        shown = {"system": params.get("systemPrompt", ""), "messages": params.get("messages")}
        try:
            await talk.context.permissions.admit(me, tool, shown, talk.own)
        except ToolFailed as error:
            raise McpError(str(error), rpc_code=REFUSED) from error
    try:
        reply = await talk.context.chat(me, request)
    except (ModelError, LimitReached, ConfigError) as error:
        raise McpError(f"the model could not be asked: {error}") from error
    return {
        "role": "assistant",
        "content": {"type": "text", "text": reply.text},
        "model": reply.model,
        "stopReason": _STOPPED[reply.stop],
    }


async def _never(me: Actor, arguments: Arguments) -> Json:  # noqa: ARG001 - nothing is run
    raise AssertionError("only its permission is asked for")


def _request(model: str, params: Mapping[str, Json]) -> ChatRequest:
    # The server did not get the sub-capability for tools, so it must not use them.
    if params.get("tools"):
        raise _misfit("sampling with tools is not offered here")
    messages = params.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _misfit("`messages` has to be a list of messages")
    most, temperature = params.get("maxTokens"), params.get("temperature")
    stop = params.get("stopSequences")
    return ChatRequest(
        model=model,
        messages=tuple(_turn(message) for message in messages),
        system=str(params.get("systemPrompt") or ""),
        temperature=float(temperature) if isinstance(temperature, int | float) else None,
        max_tokens=most if isinstance(most, int) and most > 0 else None,
        stop=tuple(str(each) for each in stop) if isinstance(stop, list) else (),
    )


def _turn(message: Json) -> Turn:
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) else [content]
    parts = tuple(_part(block) for block in blocks)
    if message.get("role") == "assistant":
        return AssistantTurn("\n".join(part.text for part in parts if isinstance(part, TextPart)))
    return UserTurn(parts[0].text if len(parts) == 1 and isinstance(parts[0], TextPart) else parts)


def _part(block: Json) -> Part:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        return TextPart(str(block.get("text", "")))
    if kind == "image":
        try:
            data = base64.b64decode(str(block.get("data", "")), validate=True)
        except binascii.Error as error:
            raise _misfit(f"an image is not base64: {error}") from None
        return ImagePart(str(block.get("mimeType", "image/png")), data)
    raise _misfit(f"a message may hold texts and images, not {str(kind)[:40]!r}")


def _misfit(why: str) -> McpError:
    return McpError(why, rpc_code=INVALID_PARAMS)
