"""What MCP messages hold, as far as callboard looks into it. Field names are the wire's, in our spelling.

Two eras. Up to 2025-11-25 a connection begins with `initialize` and keeps a session; servers send requests of their
own (`elicitation/create`, `sampling/createMessage`, `roots/list`). From 2026-07-28 on every request stands alone: it
carries `_meta` with the version and what the client can do, `server/discover` tells what the server can, and what a
server wants to know in the middle of a call it returns as `resultType: "input_required"`; the client calls again with
the answers. Unknown fields are skipped: a server may be newer than we are.

Source: the schemas of https://modelcontextprotocol.io/specification/2025-11-25 and /2026-07-28.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

Json: TypeAlias = Any

MODERN = "2026-07-28"
"""The newest revision, and the only one without a handshake."""

HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions that begin with `initialize`, newest first; the first is what we offer."""

META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT = "io.modelcontextprotocol/clientInfo"
META_SERVER = "io.modelcontextprotocol/serverInfo"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"

CALL_KEY = "callboard/key"
"""In `_meta` of a call of a durable run: the same whenever the call is made again, and no other call has it."""

KEYED = "callboard/keyed"
"""True in `_meta` of a tool that does its work once for each such key."""

COMPLETE = "complete"
INPUT_REQUIRED = "input_required"

HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
URL_ELICITATION_REQUIRED = -32042
"""Of 2025-11-25 alone: what was asked for has to wait until a person has opened the pages that `data` lists."""


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of what goes over the wire in camelCase."""


class Implementation(Wire, frozen=True, kw_only=True):
    """Who a server or a client is."""

    name: str = "unknown"
    version: str = ""
    title: str | None = None


class ToolAnnotations(Wire, frozen=True, kw_only=True):
    """What a server says of a tool's effects. Hints of a stranger."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class Tool(Wire, frozen=True, kw_only=True):
    """A tool of a server; `input_schema` is the JSON Schema of its arguments."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, Json] = {}
    output_schema: dict[str, Json] | None = None
    annotations: ToolAnnotations | None = None
    meta: dict[str, Json] | None = msgspec.field(default=None, name="_meta")


class Resource(Wire, frozen=True, kw_only=True):
    """Something that can be read by its URI."""

    uri: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class PromptArgument(Wire, frozen=True, kw_only=True):
    """A value that a prompt takes."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Wire, frozen=True, kw_only=True):
    """A prompt of a server."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: tuple[PromptArgument, ...] | None = None


class Discovered(Wire, frozen=True, kw_only=True):
    """The answer to `server/discover`."""

    supported_versions: tuple[str, ...]
    capabilities: dict[str, Json] = {}
    instructions: str | None = None
    meta: dict[str, Json] = msgspec.field(default={}, name="_meta")


class Initialized(Wire, frozen=True, kw_only=True):
    """The answer to `initialize`."""

    protocol_version: str
    capabilities: dict[str, Json] = {}
    server_info: Implementation = Implementation()
    instructions: str | None = None


class Progress(Wire, frozen=True, kw_only=True):
    """How far a request has come; `total` is in the same unit as `progress`, if it is known."""

    progress_token: int | str
    progress: float
    total: float | None = None
    message: str | None = None


class Cancelled(Wire, frozen=True, kw_only=True):
    """The other side no longer wants the answer to its request."""

    request_id: int | str
    reason: str | None = None


class LogMessage(Wire, frozen=True, kw_only=True):
    """`notifications/message`: levels as in syslog, `debug` to `emergency`."""

    level: str = "info"
    logger: str | None = None
    data: Json = None
