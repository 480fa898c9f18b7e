"""The only way out of a sandbox whose network is a list of hosts: an HTTP proxy that asks before it connects.

It speaks what every client of HTTP speaks: `CONNECT host:port`, after which bytes go both ways unread, and requests
with a whole URL. Who connects is told by the password that each process has been given of its own: what one may reach
is no other's. A name is resolved here, once, by the rule of `fetch_url` (`io.http.guarded`). A host that may not
be reached gets 403 with the reason in words.
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
from ...io.http.connections import BROKEN
from ...io.http.wires import RECEIVE, PlainWire, Wire
from .grants import NotAdmitted, Who
from .hosts import shown

if TYPE_CHECKING:
    from ..call_clock import Clock
    from .namespace import Namespace

LONGEST_HEAD = 64 * 1024
HEAD_WITHIN = 30.0
"""Seconds for a client to say what it wants."""

CONNECT_WITHIN = 60.0
_PASSES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ECONNABORTED, errno.EINTR)

MOST = 256
"""Connections at a time; more wait."""


@final
class Client:
    """One process that connects here.

    Attributes:
        who: whose it is.
        once: hosts that a person has allowed to this process.
        refused: those that it was kept from, with the reasons.
        url: of the proxy, as this process has it in its environment.
        clock: of the call that it works for; it stands still while a person is asked.
    """

    def __init__(self, who: Who, url: str, clock: Clock | None) -> None:
        self.who = who
        self.url = url
        self.clock = clock
        self.once: set[str] = set()
        self.refused: dict[str, str] = {}


Admits: TypeAlias = Callable[[Client, str, int], Awaitable[bool]]
"""Told who wants to reach which host and port. Returns whether a private address will do; raises `NotAdmitted`."""


@final
class Proxy:
    """See the module.

    Args:
        namespace: where its clients are.
        admits: says who may go where.
        environ: for a proxy of the user's own.
    """

    def __init__(self, namespace: Namespace, admits: Admits, environ: Mapping[str, str]) -> None:
        self._namespace = namespace
        self._admits = admits
        self._environ = environ
        self._clients: dict[str, Client] = {}
        self._room = trio.Semaphore(MOST)

    def client(self, who: Who, clock: Clock | None) -> Client:
        """A process of this tool or server is to be started."""
        password = secrets.token_urlsafe(12)
        made = Client(who, f"http://callboard:{password}@127.0.0.1:{self._namespace.port}", clock)
        self._clients[password] = made
        return made

    def forget(self, client: Client) -> None:
        """Its process is over."""
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
            who.refused.setdefault(shown(wanted.host, wanted.port), str(error))
            await _refuse(client, 403, str(error))
        except (httpx.TransportError, CallboardError, OSError, ValueError) as error:  # a name may be none at all
            await _refuse(client, 502, str(error))
        else:
            if wire is not None:
                await _joined(client, wire, wanted)

    async def _reached(self, client: trio.SocketStream, who: Client, wanted: _Wanted) -> Wire | None:
        """A connection to the host; None if the client has left while somebody thought about it."""
        found: list[Wire] = []
        failed: list[Exception] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_gone, client, nursery.cancel_scope)
            try:
                private = await self._admits(who, wanted.host, wanted.port)
                with trio.fail_after(CONNECT_WITHIN):
                    way = guarded.tunnel(wanted.host, wanted.port, self._environ, allow_private=private)
                    found.append(await way)
            except guarded.Refused as error:
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
    """The next connection. One that has gone again, or that there is no descriptor for just now, is no end of it."""
    while True:
        try:
            return (await listening.accept())[0]
        except OSError as error:
            if error.errno not in _PASSES:
                raise
            await trio.sleep(0.1)


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has asked for.

    Attributes:
        host, port: where it wants to go.
        password: that it has shown; "" for none.
        tunnel: whether bytes go both ways, once it is connected.
        opening: what the host is told first.
    """

    host: str
    port: int
    password: str
    tunnel: bool
    opening: bytes


async def _head(client: trio.SocketStream) -> bytes:
    """The head of a request, with what has come behind it."""
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


async def _cancel_when_gone(client: trio.SocketStream, scope: trio.CancelScope) -> None:
    await trio.lowlevel.wait_readable(client.socket)
    with contextlib.suppress(OSError):
        if await client.socket.recv(1, socket.MSG_PEEK):
            return
    scope.cancel()


async def _joined(client: trio.SocketStream, wire: Wire, wanted: _Wanted) -> None:
    """Pass bytes on both ways, until the host has no more to say or one side breaks off."""
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
    """What the client sends; when it has no more to say the host is told so."""
    try:
        while data := await client.receive_some(RECEIVE):
            await wire.send(data)
        if isinstance(wire, PlainWire):
            wire.socket.shutdown(socket.SHUT_WR)
    except BROKEN:
        both.cancel()
