"""Byte streams under HTTP: a plain socket, or TLS on one.

A plain wire uses its non-blocking socket directly: it parks once per read and costs a third of a trio `SocketStream`,
which matters for a thousand agents. TLS is trio's `SSLStream`. Closing is synchronous on both, because a wire is closed
where a caller was cancelled, and nothing may wait there.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import ssl
from functools import lru_cache
from typing import TypeAlias

import trio

RECEIVE = 65536


class PlainWire:
    """TCP socket."""

    __slots__ = ("socket",)

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def send_now(self, data: bytes) -> bytes:
        """Send as much as the kernel's buffer accepts; return the rest."""
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            return data
        return data[sent:]

    async def send(self, data: bytes) -> None:
        """Send all of `data`. A checkpoint only if the kernel's buffer is full."""
        view = memoryview(data)
        while True:
            with contextlib.suppress(BlockingIOError):
                view = view[self.socket.send(view) :]
            if not view:
                return
            await trio.lowlevel.wait_writable(self.socket)

    async def receive(self) -> bytes:
        """Receive some bytes, or none at the end. A checkpoint."""
        while True:
            await trio.lowlevel.wait_readable(self.socket)
            try:
                return self.socket.recv(RECEIVE)
            except BlockingIOError:
                continue

    def is_stale(self) -> bool:
        """Return True if an idle wire is unusable: the server has closed it, or has sent unrequested bytes."""
        return _has_news(self.socket)

    def close(self) -> None:
        if self.socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self.socket)
            self.socket.close()


class TlsWire:
    """TLS on a TCP socket, or on another TLS wire (a tunnel through an https proxy)."""

    __slots__ = ("socket", "stream")

    def __init__(self, stream: trio.SSLStream[trio.abc.Stream], sock: socket.socket) -> None:
        self.stream = stream
        self.socket = sock

    def send_now(self, data: bytes) -> bytes:
        """Return all of the data: sending over TLS may have to wait for the peer."""
        return data

    async def send(self, data: bytes) -> None:
        """Send all of `data`."""
        await self.stream.send_all(data)

    async def receive(self) -> bytes:
        """Receive some bytes, or none at the end."""
        return bytes(await self.stream.receive_some(RECEIVE))

    def is_stale(self) -> bool:
        """Return True if the socket has unread bytes or is closed, without waiting or reading."""
        return _has_news(self.socket)

    def close(self) -> None:
        """Close at once, without a close notification: HTTP frames its bodies itself."""
        if self.socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self.socket)
            self.socket.close()


Wire: TypeAlias = PlainWire | TlsWire
"""Open byte stream. Every method raises OSError or a trio resource error when it is broken."""


def _has_news(sock: socket.socket) -> bool:
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


async def connect(host: str, port: int) -> PlainWire:
    """Connect to a host by name or address.

    Raises:
        OSError: the connection is refused; for a name, at all of its addresses.
    """
    address = _as_address(host)
    if address is not None:
        return PlainWire(await _connect_address(address, port))
    stream = await trio.open_tcp_stream(host, port)
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)
    return PlainWire(_prompt(sock))


def peer(wire: PlainWire) -> str:
    """Return the address of the peer."""
    return str(wire.socket.getpeername()[0])


async def encrypt(wire: Wire, context: ssl.SSLContext, host: str) -> TlsWire:
    """Start TLS on `wire`, verifying the certificate for `host`. The wire must not be used any more.

    Raises:
        trio.BrokenResourceError: the handshake failed; its cause gives the reason.
    """
    below: trio.abc.Stream
    if isinstance(wire, PlainWire):
        sock = wire.socket
        below = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
    else:
        sock = wire.socket
        below = wire.stream
    stream: trio.SSLStream[trio.abc.Stream] = trio.SSLStream(
        below, context, server_hostname=host, https_compatible=True
    )
    await stream.do_handshake()
    return TlsWire(stream, sock)


@lru_cache(maxsize=1_024)
def _as_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if not host[-1:].isdigit() and ":" not in host:
        return None  # a name, by a cheap test
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


async def _connect_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        code = sock.connect_ex((str(address), port))
        if code == errno.EINPROGRESS:
            await trio.lowlevel.wait_writable(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:  # cancelled too: no socket leaks
        sock.close()
        raise
    return _prompt(sock)


def _prompt(sock: socket.socket) -> socket.socket:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # send small packets without delay
    return sock
