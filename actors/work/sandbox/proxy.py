"""HTTP proxy that is the only egress of a sandbox with a host list, and that asks before it connects.

It implements `CONNECT host:port`, after which bytes pass both ways unread, and requests with an absolute URL. Each
process has a password of its own in its proxy URL. The password identifies the process, so the permissions of one are
not available to another. The proxy resolves each name once, under the same rule as `fetch_url` (`io.http.guarded`). A
refused host gets status 403 with the reason as text.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias, final
from urllib.parse import urlsplit

import httpx
import msgspec
import trio

from ....protocol.errors import CallboardError
from ...io.http import guarded
from ...io.http.connections import BROKEN, RECEIVE, PlainWire, Wire
from .grants import NotAdmitted, Who
from .hosts import host_and_port

if TYPE_CHECKING:
    from ..call_clock import Clock
    from .namespace import Namespace

LONGEST_HEAD = 64 * 1024
HEAD_WITHIN = 30.0
"""Seconds allowed for a client to send the head of its request."""

CONNECT_WITHIN = 60.0
_PASSES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ECONNABORTED, errno.EINTR)

MOST = 256
"""Concurrent connections at most; further connections wait."""


@final
class ProxyClient:
    """Process that connects to the proxy.

    Attributes:
        who: program that the process executes.
        once: hosts that the user has allowed for this process.
        refused: hosts that it was refused, with the reasons.
        url: URL of the proxy with this process's password.
        clock: clock of the call that the process works for; it pauses while the user is asked.
    """

    def __init__(self, who: Who, url: str, clock: Clock | None) -> None:
        self.who = who
        self.url = url
        self.clock = clock
        self.once: set[str] = set()
        self.refused: dict[str, str] = {}


Admits: TypeAlias = Callable[[ProxyClient, str, int], Awaitable[bool]]
"""Decides whether a client may reach a host and port. Returns True if a private address is allowed; raises
`NotAdmitted`."""


@final
class Proxy:
    """Proxy server of one network namespace.

    Args:
        namespace: namespace of the clients.
        admits: decides which hosts a client may reach.
        environ: variables that may name an upstream proxy of the user.
    """

    def __init__(self, namespace: Namespace, admits: Admits, environ: Mapping[str, str]) -> None:
        self._namespace = namespace
        self._admits = admits
        self._environ = environ
        self._clients: dict[str, ProxyClient] = {}
        self._room = trio.Semaphore(MOST)

    def client(self, who: Who, clock: Clock | None) -> ProxyClient:
        """Register a process of this tool or server that is about to start."""
        password = secrets.token_urlsafe(12)
        made = ProxyClient(who, f"http://callboard:{password}@127.0.0.1:{self._namespace.port}", clock)
        self._clients[password] = made
        return made

    def forget(self, client: ProxyClient) -> None:
        """Unregister a process that has ended."""
        self._clients.pop(urlsplit(client.url).password or "", None)

    async def serve(self) -> None:
        """Serve until it is cancelled."""
        listening = trio.socket.from_stdlib_socket(self._namespace.listening.dup())
        with listening:
            async with trio.open_nursery() as nursery:
                while True:
                    await self._room.acquire()
                    client = await _accepted(listening)
                    nursery.start_soon(self._served, trio.SocketStream(client))

    async def _served(self, client: trio.SocketStream) -> None:
        try:
            async with client:
                with contextlib.suppress(*BROKEN):
                    await self._answered(client)
        finally:
            self._room.release()

    async def _answered(self, client: trio.SocketStream) -> None:
        wanted = None
        with trio.move_on_after(HEAD_WITHIN):
            wanted = _read(await _head(client))
        if wanted is None:
            await _refuse(client, 400, "this is a proxy: it takes CONNECT, and requests with a whole URL")
            return
        who = self._clients.get(wanted.password)
        if who is None:
            await _refuse(
                client, 407, "HTTPS_PROXY says with which password", "Proxy-Authenticate: Basic realm=callboard"
            )
            return
        try:
            wire = await self._reached(client, who, wanted)
        except NotAdmitted as error:
            who.refused.setdefault(host_and_port(wanted.host, wanted.port), str(error))
            await _refuse(client, 403, str(error))
        # ValueError: the host may not be a valid name
        except (httpx.TransportError, CallboardError, OSError, ValueError) as error:
            await _refuse(client, 502, str(error))
        else:
            if wire is not None:
                await _joined(client, wire, wanted)

    async def _reached(self, client: trio.SocketStream, who: ProxyClient, wanted: _Wanted) -> Wire | None:
        """Return a connection to the host; None if the client disconnects during a question to the user."""
        found: list[Wire] = []
        failed: list[Exception] = []
        async with trio.open_nursery() as nursery:
            # A question may wait for hours. A client that gives up must not leave it open.
            nursery.start_soon(_cancel_on_disconnect, client, nursery.cancel_scope)
            try:
                private = await self._admits(who, wanted.host, wanted.port)
                with trio.fail_after(CONNECT_WITHIN):
                    way = guarded.tunnel(wanted.host, wanted.port, self._environ, allow_private=private)
                    found.append(await way)
            except guarded.AddressRefused as error:
                failed.append(NotAdmitted(str(error)))
            except trio.TooSlowError:
                failed.append(httpx.ConnectTimeout(f"{wanted.host} did not answer within {CONNECT_WITHIN:g} s"))
            except (NotAdmitted, httpx.TransportError, CallboardError, OSError, ValueError) as error:
                failed.append(error)
            nursery.cancel_scope.cancel()
        if failed:
            raise failed[0]
        return found[0] if found else None


async def _accepted(listening: trio.socket.SocketType) -> trio.socket.SocketType:
    """Return the next connection. A failed one, or a lack of descriptors, does not end the server."""
    while True:
        try:
            return (await listening.accept())[0]
        except OSError as error:
            if error.errno not in _PASSES:
                raise
            # Without a pause, a process out of descriptors would spin here.
            await trio.sleep(0.1)


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Parsed request of a client.

    Attributes:
        host, port: requested host.
        password: password in its headers; "" for none.
        tunnel: True if bytes pass both ways after the connection is made.
        opening: bytes that are sent to the host first.
    """

    host: str
    port: int
    password: str
    tunnel: bool
    opening: bytes


async def _head(client: trio.SocketStream) -> bytes:
    """Return the head of a request with the bytes received after it; empty if it is incomplete or too long."""
    data = bytearray()
    while b"\r\n\r\n" not in data:
        more = await client.receive_some(LONGEST_HEAD)
        data += more
        if not more or len(data) > LONGEST_HEAD:
            return b""
    return bytes(data)


def _read(data: bytes) -> _Wanted | None:
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, target = first.partition(" ")
    target, _, version = target.rpartition(" ")
    tunnel = method == "CONNECT"
    try:
        url = urlsplit(f"//{target}" if tunnel else target)
        port = url.port or 80
    except ValueError:
        return None
    if not url.hostname or not version.startswith("HTTP/1.") or (not tunnel and url.scheme != "http"):
        return None
    headers = [line.partition(":") for line in lines]
    shown = next((value for name, _, value in headers if name.lower() == "proxy-authorization"), "")
    kept = [f"{name}:{value}" for name, _, value in headers if name.lower() not in _OF_PROXY]
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    # One request per connection: a second one could name another host.
    told = "\r\n".join([f"{method} {path} {version}", *kept, "Connection: close", "", ""])
    return _Wanted(
        host=url.hostname,
        port=port,
        password=_password(shown.strip()),
        tunnel=tunnel,
        opening=rest if tunnel else told.encode("latin-1") + rest,
    )


_OF_PROXY = ("proxy-authorization", "proxy-connection", "connection", "keep-alive")


def _password(shown: str) -> str:
    kind, _, words = shown.partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(words, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


async def _refuse(client: trio.SocketStream, status: int, why: str, *more: str) -> None:
    text = f"callboard: {why}\n".encode()
    head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *more, "Content-Type: text/plain; charset=utf-8"]
    head += [f"Content-Length: {len(text)}", "Connection: close", "", ""]
    await client.send_all("\r\n".join(head).encode() + text)


async def _cancel_on_disconnect(client: trio.SocketStream, scope: trio.CancelScope) -> None:
    # Readable means either the end of the connection or early data, so peek.
    await trio.lowlevel.wait_readable(client.socket)
    with contextlib.suppress(OSError):
        if await client.socket.recv(1, socket.MSG_PEEK):
            return
    scope.cancel()


async def _joined(client: trio.SocketStream, wire: Wire, wanted: _Wanted) -> None:
    """Pass bytes both ways until the host closes its side or either connection breaks."""
    try:
        if wanted.tunnel:
            await client.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await wire.send(wanted.opening)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_sent_on, client, wire, nursery.cancel_scope)
            with contextlib.suppress(*BROKEN):
                while data := await wire.receive():
                    await client.send_all(data)
            nursery.cancel_scope.cancel()
    finally:
        wire.close()


async def _sent_on(client: trio.SocketStream, wire: Wire, both: trio.CancelScope) -> None:
    """Forward the client's bytes, then the end of its stream if the host is connected without TLS."""
    try:
        while data := await client.receive_some(RECEIVE):
            await wire.send(data)
        if isinstance(wire, PlainWire):
            wire.socket.shutdown(socket.SHUT_WR)
    except BROKEN:
        both.cancel()
