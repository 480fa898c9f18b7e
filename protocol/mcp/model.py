"""Contents of MCP messages, as far as Callboard reads them. Fields have the names of the wire, in snake_case.

There are two eras. Up to 2025-11-25 a connection begins with `initialize` and has a session; servers send their own
requests (`elicitation/create`, `sampling/createMessage`, `roots/list`). From 2026-07-28 on every request is
independent. Its `_meta` has the version and the client's capabilities, and `server/discover` returns the server's
capabilities. A server that needs input during a call returns `resultType: "input_required"`, and the client repeats the
call with the answers. Unknown fields are skipped, because a server may be newer than Callboard.

Source: the schemas of https://modelcontextprotocol.io/specification/2025-11-25 and /2026-07-28.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

Json: TypeAlias = Any

MODERN = "2026-07-28"
"""Newest revision, and the only one without a handshake."""

HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions that begin with `initialize`, newest first; the first one is offered."""

META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT = "io.modelcontextprotocol/clientInfo"
META_SERVER = "io.modelcontextprotocol/serverInfo"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"

CALL_KEY = "callboard/key"
"""Key in `_meta` of a call of a durable run: equal in each repetition of the call, and unique to it."""

KEYED = "callboard/keyed"
"""Key in `_meta` of a tool, True if the tool performs its work once for each such key."""

COMPLETE = "complete"
INPUT_REQUIRED = "input_required"

HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
URL_ELICITATION_REQUIRED = -32042
"""Error of 2025-11-25 only: the request must wait until a user has opened the pages that `data` lists."""


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of structs with camelCase names on the wire."""


class Implementation(Wire, frozen=True, kw_only=True):
    """Name and version of a server or a client."""

    name: str = "unknown"
    version: str = ""
    title: str | None = None


class ToolAnnotations(Wire, frozen=True, kw_only=True):
    """Hints of a server about a tool's effects. They are untrusted."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class McpTool(Wire, frozen=True, kw_only=True):
    """Tool of a server; `input_schema` is the JSON Schema of its arguments."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, Json] = {}
    output_schema: dict[str, Json] | None = None
    annotations: ToolAnnotations | None = None
    meta: dict[str, Json] | None = msgspec.field(default=None, name="_meta")


class Resource(Wire, frozen=True, kw_only=True):
    """Resource that can be read by its URI."""

    uri: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class PromptArgument(Wire, frozen=True, kw_only=True):
    """Parameter of a prompt."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class McpPrompt(Wire, frozen=True, kw_only=True):
    """Prompt of a server."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: tuple[PromptArgument, ...] | None = None


class Discovered(Wire, frozen=True, kw_only=True):
    """Result of `server/discover`."""

    supported_versions: tuple[str, ...]
    capabilities: dict[str, Json] = {}
    instructions: str | None = None
    meta: dict[str, Json] = msgspec.field(default={}, name="_meta")


class Initialized(Wire, frozen=True, kw_only=True):
    """Result of `initialize`."""

    protocol_version: str
    capabilities: dict[str, Json] = {}
    server_info: Implementation = Implementation()
    instructions: str | None = None


class Progress(Wire, frozen=True, kw_only=True):
    """Progress of a request; `total` is in the unit of `progress`, if it is known."""

    progress_token: int | str
    progress: float
    total: float | None = None
    message: str | None = None


class RequestCancelled(Wire, frozen=True, kw_only=True):
    """Cancellation: the other side no longer needs the response to its request."""

    request_id: int | str
    reason: str | None = None


class LogMessage(Wire, frozen=True, kw_only=True):
    """Log message, `notifications/message`: levels as in syslog, `debug` to `emergency`."""

    level: str = "info"
    logger: str | None = None
    data: Json = None
