"""Agent Client Protocol, version 1: parameters of its methods, and its terms.

Editors use it over stdio; the websocket has the same methods. Objects may have unknown keys. Source:
https://agentclientprotocol.com/protocol (schema v1).
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ..chat import ImagePart
from .method_structs import MOST, Json, Name, Object, Objects, Path, Paths, Value

# ACP's version is one integer. It changes only when the protocol breaks; everything else is negotiated as a capability.
VERSION = 1

_OF_SESSIONS = ("new", "load", "resume", "list", "prompt", "close", "delete", "set_mode", "set_config_option")
METHODS = frozenset({"initialize", "authenticate", *(f"session/{name}" for name in _OF_SESSIONS)})
"""Requests that an agent answers; `session/cancel` is a notification."""

StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


class Params(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Base of all parameters."""


class Elicitation(Params, frozen=True):
    """Kinds of questions that a client can show; a present key means that it can."""

    form: Object | None = None
    url: Object | None = None


class ClientSessions(Params, frozen=True):
    """Features of sessions that a client can show; a present key means that it can."""

    notices: Object | None = None


class ClientCapabilities(Params, frozen=True):
    """Capabilities of the client."""

    elicitation: Elicitation | None = None
    session: ClientSessions | None = None


class Initialize(Params, frozen=True):
    """`initialize`."""

    protocol_version: int
    client_capabilities: ClientCapabilities = ClientCapabilities()
    client_info: Object | None = None


class Authenticate(Params, frozen=True):
    """`authenticate`."""

    method_id: Name


class Pair(Params, frozen=True):
    """A variable of an environment, a header."""

    name: Name
    value: Value


class McpServer(Params, frozen=True):
    """An MCP server that the client names; without a `type` it is a program."""

    name: Name
    type: Literal["stdio", "http", "sse"] = "stdio"
    command: Path = ""
    args: Annotated[list[Value], Meta(max_length=MOST)] | None = None
    env: Annotated[list[Pair], Meta(max_length=MOST)] | None = None
    url: Path = ""
    headers: Annotated[list[Pair], Meta(max_length=MOST)] | None = None


class Place(Params, frozen=True):
    """Directories of a session, and the client's own MCP servers; `null` means none."""

    cwd: Path
    mcp_servers: Annotated[list[McpServer], Meta(max_length=MOST)] | None = None
    additional_directories: Paths | None = None


class NewSession(Place, frozen=True):
    """`session/new`; `_meta: {callboard: {agent: NAME}}` chooses the agent."""

    # An explicit `name` takes precedence over `rename`.
    meta: Object | None = msgspec.field(default=None, name="_meta")

    @property
    def agent(self) -> str | None:
        """The agent that `_meta` names; None if it names none."""
        own = (self.meta or {}).get("callboard")
        name = own.get("agent") if isinstance(own, dict) else None
        return name if isinstance(name, str) and name else None


class OldSession(Place, frozen=True, kw_only=True):
    """`session/load`, `session/resume`."""

    # Needs `kw_only`: a required field may not follow the optional fields of `Place`, and msgspec applies `kw_only`
    # only to the fields of the class that sets it.
    session_id: Name


class ListSessions(Params, frozen=True):
    """`session/list`."""

    cwd: Path | None = None
    cursor: Name | None = None


class OfSession(Params, frozen=True):
    """`session/close`, `session/delete`, `session/cancel`."""

    session_id: Name


class Prompt(OfSession, frozen=True):
    """`session/prompt`."""

    prompt: Objects


class SetMode(OfSession, frozen=True):
    """`session/set_mode`."""

    mode_id: Name


class SetConfigOption(OfSession, frozen=True):
    """`session/set_config_option`."""

    config_id: Name
    value: Json


def read_prompt(blocks: list[dict[str, Json]]) -> tuple[str, tuple[ImagePart, ...]]:
    """Return the text and the images of a prompt.

    Texts are used unchanged, attached files are fenced under their names, and links become name and address.

    Raises:
        ValueError: a block is neither text, an image, a link nor an attached file of text or an image.
    """
    words: list[str] = []
    images: list[ImagePart] = []
    for block in blocks:
        found = _block(block)
        if isinstance(found, ImagePart):
            images.append(found)
        elif found:
            words.append(found)
    return "\n\n".join(words), tuple(images)


def typed(blocks: list[dict[str, Json]]) -> str | None:
    """Return the texts of a prompt without attached files; None if no file is attached."""
    # Labels (docs/security.md) treat only typed words as the user's own. A file that the editor attaches may contain
    # anything.
    if all(block.get("type") != "resource" for block in blocks):
        return None
    return "\n\n".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")


def _block(block: dict[str, Json]) -> str | ImagePart:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text") or "")
    if kind == "image":
        return _image(block.get("mimeType"), block.get("data"), block.get("uri"))
    if kind == "resource_link":
        return f"[{block.get('name') or 'link'}]({block.get('uri')})"
    inner = block.get("resource")
    if kind == "resource" and isinstance(inner, dict):
        if isinstance(inner.get("text"), str):
            return _fenced(f"{inner.get('uri')}", inner["text"])
        if str(inner.get("mimeType")).startswith("image/"):
            return _image(inner.get("mimeType"), inner.get("blob"), None)
        kind = f"resource of the type {inner.get('mimeType')}"
    raise ValueError(f"a content block of type {kind!r} is not supported; send text, images, links or text files")


def _fenced(name: str, text: str) -> str:
    # A code block ends at a fence that is at least as long as its first (CommonMark), so a file with fences needs a
    # longer one.
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{name}\n{fence}\n{text}\n{fence}"


def _image(kind: Json, data: Json, uri: Json) -> ImagePart:
    if not (isinstance(kind, str) and kind.startswith("image/")):
        raise ValueError(f"an image has a `mimeType` such as image/png, not {str(kind)[:60]!r}")
    if isinstance(data, str) and data:
        try:
            # Without `validate`, Python skips characters outside of the alphabet, and a damaged image would be
            # accepted.
            return ImagePart(media_type=kind, data=base64.b64decode(data, validate=True))
        except binascii.Error as error:
            raise ValueError(f"the `data` of an image is base64: {error}") from error
    if isinstance(uri, str) and uri.startswith(("http://", "https://")):
        return ImagePart(media_type=kind, url=uri)
    raise ValueError("an image has `data` in base64")


def image_block(image: ImagePart) -> dict[str, Json]:
    """Return an image as a content block."""
    # ACP requires `data`, so it is present and empty for an image that has only an address.
    block = {"type": "image", "mimeType": image.media_type, "data": base64.b64encode(image.data).decode()}
    return {**block, "uri": image.url} if image.url else block


def text_block(text: str) -> dict[str, Json]:
    """Return a text as a content block."""
    return {"type": "text", "text": text}
