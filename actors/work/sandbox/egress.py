"""Egress for processes whose network is a list of hosts: a network namespace whose only way out is a proxy.

Only a process inside a namespace can open a socket of it. So a helper starts there once: `bwrap` creates the namespace
and brings its loopback up. The helper opens the socket, sends it to Callboard together with the namespace, and exits.
Later processes of the run start in that namespace, and Callboard answers their connections to the socket directly.
There is no relay in between, and no other way out.

The proxy asks before it connects. It implements `CONNECT host:port`, after which bytes pass both ways unread, and
requests with an absolute URL. Each process has a password of its own in its proxy URL. The password identifies the
process, so the permissions of one are not available to another. The proxy resolves each name once, under the same rule
as `fetch_url` (`io.http.guarded`). A refused host gets status 403 with the reason as text.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import os
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, final
from urllib.parse import urlsplit

import httpx
import msgspec
import trio

from ....protocol.errors import CallboardError, ProcessError
from ....protocol.kernel.questions import NETWORK_ACTOR
from ....supervisors.escalation import listens
from ....supervisors.process import run_process
from ...io.http import guarded
from ...io.http.transport import BROKEN, RECEIVE, PlainWire, Wire
from ..call_clock import current as call_clock
from . import bubblewrap
from .grants import NotAdmitted, ProxyClient, Who
from .hosts import host_and_port

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..call_clock import Clock
    from .grants import Who


_PROXY = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy")


@final
class Egress:
    """Network namespace and the proxy that is the only way out of it.

    Attributes:
        namespace: network namespace in which such processes are started.
    """

    def __init__(self, namespace: Namespace, proxy: Proxy) -> None:
        self.namespace = namespace
        self._proxy = proxy

    def client(self, who: Who, clock: Clock | None) -> ProxyClient:
        """Register a process of this tool or server that is about to start, for a call with this clock.

        See `Proxy.client`.
        """
        return self._proxy.client(who, clock)

    def forget(self, client: ProxyClient) -> None:
        """Unregister a process that has ended. Any thread may call this."""
        self._proxy.forget(client)


Asks: TypeAlias = Callable[["Actor", ProxyClient, str, int], Awaitable[bool]]
"""An `Admits` callback that also receives the actor on whose behalf it asks the user."""


async def open_egress(me: Actor, asks: Asks, environ: Mapping[str, str], *, as_root: bool) -> Egress:
    """Open an egress that lives as long as `me`.

    Args:
        asks: decides which hosts a process may reach; runs in the egress's own actor.
        environ: variables that may name an upstream proxy of the user.

    Raises:
        ProcessError: the namespace can't be created.
    """
    namespace = await make_namespace(me, as_root=as_root)
    proxies: list[Proxy] = []

    async def live(own: Actor) -> None:
        listens.set(None)  # the answers here are not part of the run's own recorded answers
        call_clock.set(None)  # the proxy serves all calls, so no single call's clock applies
        proxies.append(Proxy(namespace, partial(asks, own), environ))
        own.started()
        try:
            await proxies[0].serve()
        finally:
            namespace.close()

    try:
        await me.start(live, name=NETWORK_ACTOR, link=False)
    except BaseException:
        namespace.close()
        raise
    return Egress(namespace, proxies[0])


def environment(client: ProxyClient, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the proxy variables of curl, Python, Node, git, pip and npm set to the egress.

    Other proxy variables of the user, `no_proxy` included, are removed.
    """
    kept = {name: value for name, value in env.items() if name.lower() not in _PROXY}
    url = client.url
    return {
        **kept,
        **dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"), url),
        "NODE_USE_ENV_PROXY": "1",
    }


# --- network namespace

HELPER = Path(__file__).resolve().with_name("in_namespace.py")

MADE_WITHIN = 30.0
"""Seconds allowed to create a namespace."""


@final
class Namespace:
    """Network namespace with a listening socket. It holds descriptors until it is closed.

    Attributes:
        listening: listening socket inside the namespace, used from outside.
        port: port of the socket on the namespace's 127.0.0.1.
    """

    def __init__(self, listening: socket.socket, user: int, network: int, *, as_root: bool) -> None:
        self.listening = listening
        self.port = int(listening.getsockname()[1])
        self._fds: tuple[int, ...] = (user, network)
        self._as_root = as_root

    @property
    def closed(self) -> bool:
        """True once no process can be started in the namespace any more."""
        return not self._fds

    def command(self) -> list[str]:
        """Return the command prefix that starts a program in the namespace; empty as root.

        Raises:
            ProcessError: the namespace is closed.
        """
        if self._as_root:
            return []
        user, network = self._open()
        # By this process's descriptors: inherited ones would stay open in the started program. nsenter closes its own.
        ours = f"/proc/{os.getpid()}/fd"
        return ["nsenter", f"--user={ours}/{user}", f"--net={ours}/{network}", "--preserve-credentials", "--"]

    def network_to_enter(self) -> int | None:
        """Return the descriptor of the network namespace if a process can enter it directly, as only root can; else
        None."""
        return self._open()[1] if self._as_root else None

    def _open(self) -> tuple[int, ...]:
        if not self._fds:
            raise ProcessError("the run has ended, and with it the network of its sandbox")
        return self._fds

    def close(self) -> None:
        """Close the descriptors; no more processes can start here. Idempotent."""
        self.listening.close()
        fds, self._fds = self._fds, ()
        for fd in fds:
            os.close(fd)


async def make_namespace(me: Actor, *, as_root: bool) -> Namespace:
    """Create a namespace.

    Raises:
        ProcessError: the namespace can't be created.
    """
    program = bubblewrap.found() or "bwrap"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        ways = [] if as_root else ["--unshare-user"]
        argv = [program, *ways, "--unshare-net", "--die-with-parent", "--dev-bind", "/", "/", "--"]
        done = await run_process(
            me,
            [*argv, sys.executable, "-I", "-S", HELPER, str(number)],
            name="namespace",
            env={},
            pass_fds=[number],
            timeout=MADE_WITHIN,
        )
        theirs.close()
        ours.setblocking(False)
        try:
            _, fds, _, _ = socket.recv_fds(ours, 16, 3)
        except BlockingIOError:
            fds = []
    if len(fds) != 3:
        for fd in fds:
            os.close(fd)
        why = done.stderr_tail.strip()[-300:] or f"exit status {done.status}"
        raise ProcessError(f"a network namespace for the sandbox can't be created: {why}")
    listening, user, network = fds
    return Namespace(socket.socket(fileno=listening), user, network, as_root=as_root)


# --- proxy

LONGEST_HEAD = 64 * 1024
HEAD_WITHIN = 30.0
"""Seconds allowed for a client to send the head of its request."""

CONNECT_WITHIN = 60.0
_PASSES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ECONNABORTED, errno.EINTR)

MOST = 256
"""Concurrent connections at most; further connections wait."""


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
        """Register a process that is about to start; return its proxy address, whose password identifies the process.

        The time of questions about hosts is not counted by `clock`, the clock of the tool call.
        """
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
            await _refuse(client, 400, "this is a proxy: it accepts CONNECT, and requests with an absolute URL")
            return
        who = self._clients.get(wanted.password)
        if who is None:
            await _refuse(
                client,
                407,
                "a password is required; HTTPS_PROXY contains it",
                "Proxy-Authenticate: Basic realm=callboard",
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
