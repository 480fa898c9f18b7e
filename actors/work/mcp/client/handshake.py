"""Handshake: detection of a server's protocol revision and capabilities, before any other request.

`server/discover` is sent first, since a modern server answers it without a handshake. A server that refuses it is older
than 2026-07-28 and gets `initialize`. Silence is ambiguous: the server may ignore unknown requests, or may be slow to
start. So after `DISCOVER_WITHIN` seconds `initialize` is sent as well, and the first success counts. Both are in the
server's input in the order of sending, so a server that knows `discover` answers that one first.

A 401 or 403 to `server/discover` does not reveal the revision, so `initialize` is still tried: some servers accept it
without a token. If that is refused as well, the 401 is raised, because it explains how to sign in. A server without
`initialize` would only complain about a missing header.

A server that spoke an older revision the last time gets `initialize` at once, and is probed only if it refuses that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec
import trio

from .....protocol.decoding import convert, decode_json
from .....protocol.errors import McpError, McpLost, McpUnauthorized
from .....protocol.jsonrpc import UNREADABLE
from .....protocol.mcp import model
from ..links.link import Json

DISCOVER_WITHIN = 2.0
"""Seconds of silence after which a server may be one that does not know `server/discover`."""

Ask = Callable[[str, Mapping[str, Json]], Awaitable[msgspec.Raw]]
T = TypeVar("T")


class OfferedCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities that the client declares to servers.

    Attributes:
        elicitation: questions to the user.
        sampling: requests to a model.
        roots: `file://` URIs that servers may work in.
    """

    elicitation: bool = True
    sampling: bool = False
    roots: tuple[str, ...] = ()

    def declared(self) -> dict[str, Json]:
        """Return the capabilities in their wire form."""
        able: dict[str, Json] = {}
        if self.elicitation:
            able["elicitation"] = {"form": {}, "url": {}}
        if self.sampling:
            able["sampling"] = {}
        if self.roots:
            able["roots"] = {}
        return able


class Agreed(msgspec.Struct, frozen=True):
    """Result of the handshake: protocol revision, and capabilities of the server."""

    version: str
    server: model.Implementation = model.Implementation()
    capabilities: dict[str, Json] = {}
    instructions: str | None = None


class _NoCommon(McpError):
    """No common protocol revision."""


class Handshake:
    """Handshake with one server.

    Args:
        name: name of the server, for errors.
        ask: sends a request of the client and returns its result; adds the modern era's metadata to `server/discover`.
        introduction: parameters of `initialize` except the version.
    """

    def __init__(self, name: str, ask: Ask, introduction: Mapping[str, Json]) -> None:
        self._name = name
        self._ask = ask
        self._introduction = introduction
        self._offer = model.HANDSHAKE[0]

    async def shake(self, remembered: str) -> Agreed:
        """Agree on a revision, starting with the one of the last connection ("" if unknown).

        Raises:
            McpError: there is no common revision, or the server refuses the handshake or answers it invalidly.
            McpLost: the server was lost meanwhile.
        """
        if remembered in model.HANDSHAKE:
            try:
                return await self._initialize()
            except McpLost:
                raise
            except McpError:
                pass  # another server has replaced it
        return await self._probe()

    async def _probe(self) -> Agreed:
        agreed: Agreed | None = None
        refusals: dict[str, McpError] = {}
        silence = trio.Event()

        async def attempt(what: str, how: Callable[[], Awaitable[Agreed]], scope: trio.CancelScope) -> None:
            nonlocal agreed
            try:
                found = await how()
            except McpError as error:
                refusals[what] = error
            else:
                agreed = agreed or found
                scope.cancel()

        async def discover(scope: trio.CancelScope) -> None:
            await attempt("discover", self._discover, scope)
            silence.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(discover, nursery.cancel_scope)
            with trio.move_on_after(DISCOVER_WITHIN):
                await silence.wait()
            # After these two errors `initialize` would fail as well.
            if not isinstance(refusals.get("discover"), McpLost | _NoCommon):
                await attempt("initialize", self._initialize, nursery.cancel_scope)
                # After a refusal only a server that answers both concurrently can still succeed.
                with trio.move_on_after(DISCOVER_WITHIN):
                    await silence.wait()
                nursery.cancel_scope.cancel()
        if agreed is not None:
            return agreed
        # A lost server explains more than any refusal, and after it a refusal for missing credentials.
        final: list[McpError] = [error for error in refusals.values() if isinstance(error, McpLost | _NoCommon)]
        final += [error for error in reversed(refusals.values()) if isinstance(error, McpUnauthorized)]
        raise final[0] if final else refusals["initialize"]

    async def _discover(self) -> Agreed:
        try:
            raw = await self._ask("server/discover", {})
        except McpError as error:
            if error.rpc_code != model.UNSUPPORTED_VERSION:
                raise
            supported = _supported(error.data)
            if model.MODERN not in supported:
                self._choose(supported)
                raise
            raw = await self._ask("server/discover", {})  # refused a revision that it lists itself: try once more
        found = self._read(raw, model.Discovered)
        if model.MODERN not in found.supported_versions:
            self._choose(found.supported_versions)
            raise McpError(f"MCP server '{self._name}' speaks {', '.join(found.supported_versions)}")
        return Agreed(model.MODERN, _introduced(found.meta), found.capabilities, found.instructions)

    def _choose(self, supported: tuple[str, ...]) -> None:
        if not supported:
            return
        common = [version for version in model.HANDSHAKE if version in supported]
        if not common:
            raise _NoCommon(
                f"MCP server '{self._name}' supports the protocol revisions {', '.join(supported)[:200]}, "
                f"and Callboard supports {', '.join((model.MODERN, *model.HANDSHAKE))}: they have none in "
                "common; update the older of the two"
            )
        self._offer = common[0]

    async def _initialize(self) -> Agreed:
        raw = await self._ask("initialize", {"protocolVersion": self._offer, **self._introduction})
        found = self._read(raw, model.Initialized)
        if found.protocol_version not in model.HANDSHAKE:
            self._choose((found.protocol_version,))
        return Agreed(found.protocol_version, found.server_info, found.capabilities, found.instructions)

    def _read(self, raw: msgspec.Raw, type: type[T]) -> T:
        try:
            return decode_json(raw, type)
        except UNREADABLE as error:
            raise McpError(
                f"MCP server '{self._name}' answered the handshake with an invalid message: {error}"
            ) from error


def _introduced(meta: Mapping[str, Json]) -> model.Implementation:
    """Return the server's own description. It is optional, and an invalid one counts as missing."""
    try:
        return convert(meta.get(model.META_SERVER, {}), model.Implementation)
    except msgspec.ValidationError:
        return model.Implementation()


def _supported(data: Json) -> tuple[str, ...]:
    listed = data.get("supported") if isinstance(data, dict) else None
    return tuple(version for version in listed if isinstance(version, str)) if isinstance(listed, list) else ()
