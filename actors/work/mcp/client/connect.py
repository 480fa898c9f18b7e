"""Reaching a server: the link for its type, the handshake, and the end of both.

    async with connect(me, server, environ=os.environ, abilities=Abilities()) as client:
        print(await client.tools())

The link has an actor of its own below `me`, so that a first try may fail (a process that dies of a question it does not
know, an address that speaks an older HTTP) without `me` failing. Once there is a client, the end of the link is the end
of `me`, which owns it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Never

import trio

from .....protocol.errors import ActorFailed, CallboardError, McpLost
from .....protocol.mcp.config import Server
from .....protocol.mcp.model import HANDSHAKE, LogMessage
from .....protocol.version import VERSION
from .....supervisors import Actor, Ref
from .....supervisors.process import ProcessStop
from ..auth.access import Access
from ..links import texts
from ..links.link import Host, Link
from ..links.stdio import StdioLink, open_stdio
from .client import McpClient
from .handshake import Abilities

if TYPE_CHECKING:
    from ...sandbox.place import Place

__all__ = ["Abilities", "connect"]

STOP_WITHIN = ProcessStop().within + 1.0
"""Seconds for a link to end, its process included."""

JUNK_TOLD = 20
"""Lines on stdout that are no messages, as far as they are logged."""

NO_ENDPOINT = (400, 404, 405)
"""What HTTP servers of 2024-11-05 answer to a POST where they expect a GET."""

Opener = Callable[["Actor"], AbstractAsyncContextManager[Link]]


@asynccontextmanager
async def connect(
    me: Actor,
    server: Server,
    *,
    environ: Mapping[str, str],
    abilities: Abilities,
    host: Host | None = None,
    on_change: Callable[[str], None] | None = None,
    on_log: Callable[[LogMessage], None] | None = None,
    remembered: str = "",
    access: Access | None = None,
    place: Place | None = None,
) -> AsyncIterator[McpClient]:
    """A client of the server, started and agreed with within its `start_timeout_seconds`.

    `me` owns the connection: it ends when the block ends, or when `me` does; and if the connection is lost, `me`
    crashes with `McpLost`.

    Args:
        server: its entry, with all values put in.
        environ: ours.
        abilities: what we declare that the server may ask.
        host: answers what the server asks outside of calls that have a host of their own.
        on_change: gets `tools`, `resources`, `prompts` or a resource's URI; it must neither wait nor raise.
        on_log: gets what the server logs, as `on_change`.
        remembered: the revision it spoke the last time; "" for unknown.
        access: the tokens for it, where it may want them.
        place: how its process is held, if it is one of ours; None for not at all.

    Raises:
        McpLost: it could not be started or reached; the text ends with what it wrote to stderr at last.
        McpError: there is no revision that both know, or it refuses the handshake.
    """
    client = McpClient(me, server, abilities, host=host, on_change=on_change, on_log=on_log, version=VERSION)
    attempt = _Attempt(me, server, environ, client, access, place)
    try:
        with trio.move_on_after(server.start_timeout_seconds) as limit:
            await attempt.make(remembered)
        if limit.cancelled_caught:
            what = f"was not ready within {server.start_timeout_seconds:g} s (`start_timeout_seconds`)"
            raise texts.lost(server.name, what + attempt.junk, attempt.words)
        watch = me.spawn(attempt.watch, name="watch")
        try:
            yield client
        finally:
            watch.cancel()
    finally:
        await attempt.end()


class _Attempt:
    def __init__(
        self,
        me: Actor,
        server: Server,
        environ: Mapping[str, str],
        client: McpClient,
        access: Access | None,
        place: Place | None,
    ) -> None:
        self._me = me
        self._server = server
        self._environ = environ
        self._client = client
        self._access = access
        self._place = place
        self._junk = 0
        self._first_junk = ""
        self._ref: Ref[Never, None] | None = None

    @property
    def words(self) -> str:
        """What the server's process has written to stderr."""
        link = getattr(self._client, "link", None)
        return link.process.stderr_tail if isinstance(link, StdioLink) else ""

    async def make(self, remembered: str) -> None:
        if self._server.type == "stdio":
            await self._stdio(remembered)
        else:
            await self._http(remembered)

    async def _stdio(self, remembered: str) -> None:
        await self._open(self._open_stdio)
        try:
            await self._client.shake_hands(remembered)
        except McpLost:
            if remembered in HANDSHAKE:
                raise
            # Some servers of the old era don't survive a first request other than `initialize`.
            await self._open(self._open_stdio)
            await self._client.shake_hands(HANDSHAKE[0])
        link = self._client.link
        assert isinstance(link, StdioLink)
        link.process.stop_as(ProcessStop())
        self._client.pid = link.process.pid

    async def _http(self, remembered: str) -> None:
        from .....protocol.errors import HttpRefused
        from ..links.http import open_http
        from ..links.sse import open_sse

        server, client, environ, access = self._server, self._client, self._environ, self._access
        if server.type == "http":
            await self._open(lambda own: open_http(own, server, client, environ, access))
            try:
                return await client.shake_hands(remembered)
            except HttpRefused as refused:
                if refused.status not in NO_ENDPOINT:
                    raise
                first = refused
        else:
            first = None
        try:
            await self._open(lambda own: open_sse(own, server, client, environ, access))
            await client.shake_hands(HANDSHAKE[0])
        except CallboardError as error:
            raise first or error from None

    def _open_stdio(self, own: Actor) -> AbstractAsyncContextManager[Link]:
        return open_stdio(
            own, self._server, self._client, environ=self._environ, on_junk=self._on_junk, place=self._place
        )

    async def _open(self, opener: Opener) -> None:
        await self.end()
        try:
            self._ref = await self._me.start(self._live, opener, name="link", link=False, stop_within=STOP_WITHIN)
        except ActorFailed as failed:
            if isinstance(failed.__cause__, CallboardError):
                raise failed.__cause__ from None
            raise

    async def _live(self, own: Actor, opener: Opener) -> None:
        async with opener(own) as self._client.link:
            own.started()
            await trio.sleep_forever()

    async def watch(self, _: Actor) -> None:
        """Linked to the owner: it learns in this way that the connection is lost."""
        assert self._ref is not None
        end = await self._ref.wait()
        if end.error is not None:
            raise self._client.link.lost or end.error

    async def end(self) -> None:
        if self._ref is not None:
            self._ref.cancel()
            with self._me.root.shield(STOP_WITHIN):
                await self._ref.wait()

    @property
    def junk(self) -> str:
        """What the server's process has written to stdout instead of messages."""
        return f"; it wrote to stdout, where only messages belong: {self._first_junk!r}" if self._junk else ""

    def _on_junk(self, line: bytes) -> None:
        self._junk += 1
        if self._junk <= JUNK_TOLD:
            text = line[:500].decode("utf-8", "replace").strip()
            self._first_junk = self._first_junk or text[:100]
            self._client.log("warning", f"on its stdout, where only messages belong: {text}")
