"""Which revision a server speaks, and what it can do: found out once, before anything else is said.

`server/discover` goes first, as a modern server answers it without any handshake. A server that refuses it is of
before 2026-07-28 and gets `initialize`. Silence says less: the server may be one that ignores what it does not know, or
one that takes long to start. So after a while `initialize` is sent as well, and whichever is granted first counts; both
lie in the server's input in the order they were sent, so a server that knows `discover` answers that one.

A server that spoke an older revision the last time is not probed again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec
import trio

from .....protocol.decoding import convert, decode_json
from .....protocol.errors import McpError, McpLost
from .....protocol.jsonrpc import UNREADABLE
from .....protocol.mcp import model
from ..links.link import Json

DISCOVER_WITHIN = 2.0
"""Seconds of silence after which a server may be one that does not know `server/discover`."""

Ask = Callable[[str, Mapping[str, Json]], Awaitable[msgspec.Raw]]
T = TypeVar("T")


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What we tell servers that they may ask of us.

    Attributes:
        elicitation: questions to people. sampling: answers of a model.
        roots: `file://` URIs for them to work in.
    """

    elicitation: bool = True
    sampling: bool = False
    roots: tuple[str, ...] = ()

    def declared(self) -> dict[str, Json]:
        """As the wire says it."""
        able: dict[str, Json] = {}
        if self.elicitation:
            able["elicitation"] = {"form": {}, "url": {}}
        if self.sampling:
            able["sampling"] = {}
        if self.roots:
            able["roots"] = {}
        return able


class Agreed(msgspec.Struct, frozen=True):
    """What a server says of itself, in either era."""

    version: str
    server: model.Implementation = model.Implementation()
    capabilities: dict[str, Json] = {}
    instructions: str | None = None


class _NoCommon(McpError):
    """There is no revision that both know."""


class Handshake:
    """With one server.

    Args:
        name: the server's, for errors.
        ask: sends a request of the client's and gives its result; the client adds what the modern era wants to
            `server/discover`.
        introduction: the parameters of `initialize` but for the version.
    """

    def __init__(self, name: str, ask: Ask, introduction: Mapping[str, Json]) -> None:
        self._name = name
        self._ask = ask
        self._introduction = introduction
        self._offer = model.HANDSHAKE[0]

    async def shake(self, remembered: str) -> Agreed:
        """Find out, beginning with the revision that the server spoke the last time ("" for unknown).

        Raises:
            McpError: there is no revision that both know.
            McpLost: the server was lost meanwhile.
        """
        if remembered in model.HANDSHAKE:
            try:
                return await self._initialize()
            except McpLost:
                raise
            except McpError:
                pass  # it has become another server since
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
            if not isinstance(refusals.get("discover"), McpLost | _NoCommon):
                await attempt("initialize", self._initialize, nursery.cancel_scope)
                with trio.move_on_after(DISCOVER_WITHIN):  # refused: only a server that answers both at once has more
                    await silence.wait()
                nursery.cancel_scope.cancel()
        if agreed is not None:
            return agreed
        final = [error for error in refusals.values() if isinstance(error, McpLost | _NoCommon)]
        raise final[0] if final else refusals["initialize"]

    async def _discover(self) -> Agreed:
        try:
            raw = await self._ask("server/discover", {})
        except McpError as error:
            if error.rpc_code == model.UNSUPPORTED_VERSION:
                self._choose(_supported(error.data))
            raise
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
                f"MCP server '{self._name}' speaks {', '.join(supported)[:200]}, and we speak "
                f"{', '.join((model.MODERN, *model.HANDSHAKE))}: there is none in common; update the older of the two"
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
            raise McpError(f"MCP server '{self._name}' answered the handshake with something else: {error}") from error


def _introduced(meta: Mapping[str, Json]) -> model.Implementation:
    """Who the server says it is. It need not say so; what can't be understood is as good as nothing."""
    try:
        return convert(meta.get(model.META_SERVER, {}), model.Implementation)
    except msgspec.ValidationError:
        return model.Implementation()


def _supported(data: Json) -> tuple[str, ...]:
    listed = data.get("supported") if isinstance(data, dict) else None
    return tuple(version for version in listed if isinstance(version, str)) if isinstance(listed, list) else ()
