"""The Agent Client Protocol, version 1: parameters of its methods, and the words that it has for things.

Editors speak it over stdio; on our websocket the same methods are there. Objects may hold keys that we don't know.
Source: https://agentclientprotocol.com/protocol (schema v1).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Json = Any

VERSION = 1

METHODS = frozenset(
    {
        "initialize",
        "authenticate",
        "session/new",
        "session/load",
        "session/resume",
        "session/list",
        "session/prompt",
        "session/close",
        "session/delete",
        "session/set_mode",
        "session/set_config_option",
    }
)
"""Requests that an agent answers; `session/cancel` is a notification."""

StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


class Params(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Base of all parameters."""


class Elicitation(Params, frozen=True):
    """What of questions a client can show; present is able."""

    form: dict[str, Json] | None = None
    url: dict[str, Json] | None = None


class ClientCapabilities(Params, frozen=True):
    """What the client can do."""

    elicitation: Elicitation | None = None


class Initialize(Params, frozen=True):
    """`initialize`."""

    protocol_version: int
    client_capabilities: ClientCapabilities = ClientCapabilities()
    client_info: dict[str, Json] | None = None


class Authenticate(Params, frozen=True):
    """`authenticate`."""

    method_id: str


class NewSession(Params, frozen=True):
    """`session/new`; `_meta: {callboard: {agent: NAME}}` chooses the agent."""

    cwd: str
    mcp_servers: list[Json] = []
    meta: dict[str, Json] | None = msgspec.field(default=None, name="_meta")

    @property
    def agent(self) -> str | None:
        """The agent that `_meta` names."""
        own = (self.meta or {}).get("callboard")
        name = own.get("agent") if isinstance(own, dict) else None
        return name if isinstance(name, str) and name else None


class OldSession(Params, frozen=True):
    """`session/load`, `session/resume`."""

    session_id: str
    cwd: str = ""
    mcp_servers: list[Json] = []


class ListSessions(Params, frozen=True):
    """`session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class OfSession(Params, frozen=True):
    """`session/close`, `session/delete`, `session/cancel`."""

    session_id: str


class Prompt(OfSession, frozen=True):
    """`session/prompt`."""

    prompt: list[dict[str, Json]]


class SetMode(OfSession, frozen=True):
    """`session/set_mode`."""

    mode_id: str


class SetConfigOption(OfSession, frozen=True):
    """`session/set_config_option`."""

    config_id: str
    value: Json


def text_of_prompt(blocks: list[dict[str, Json]]) -> str:
    """The words of a prompt: texts as they are, files that come along fenced under their names, links by name.

    Raises:
        ValueError: there is a block that can't be said in words.
    """
    return "\n\n".join(part for block in blocks if (part := _block(block)))


def _block(block: dict[str, Json]) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text") or "")
    if kind == "resource_link":
        return f"[{block.get('name') or 'link'}]({block.get('uri')})"
    inner = block.get("resource")
    if kind == "resource" and isinstance(inner, dict) and isinstance(inner.get("text"), str):
        fence = "```"
        while fence in inner["text"]:
            fence += "`"
        return f"{inner.get('uri')}\n{fence}\n{inner['text']}\n{fence}"
    raise ValueError(f"a content block of type {kind!r} can't be read here; text, resource_link and text resources can")


def text_block(text: str) -> dict[str, Json]:
    """A text as a content block."""
    return {"type": "text", "text": text}
