"""The life of a server: it listens, says so, serves; on a signal it lets runs end first.

    server = Server(ServeOptions(port=0))
    async with Root(patient=True, serving=True, on_drain=server.drain, on_hangup=server.hang_up) as root:
        await server.serve(root, print)

What ends it is a signal, or the end of its root. After the first signal nothing new begins (503, and not ready), for
`api.shutdown_grace_seconds` runs go on, and their followers get the events; then the root stops, which cancels what
is left. A second signal does not wait. Durable runs are left to the next server, at once where they wait for people.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control.caller import LOCAL
from ....protocol.errors import ConfigError, JournalError, NotFound
from ....protocol.journal import BY_SERVER
from ....supervisors import Actor
from ....supervisors.journal.sign import new_sign
from ...io.directories import user_folder
from ...io.redact import Redactor, secrets_of
from ...runs.keeping import prune_regularly
from ...runs.loading import durable_by
from ...runs.root import Root, played
from ...work.spending.days import Days
from ...work.spending.ledger_file import LedgerFile
from ..access.access_control import AccessControl
from ..access.audit import Audit
from ..access.configuration import check_may_listen, reload
from ..access.limits import ConnectionLimiter
from ..control.hub import Hub
from ..control.opening import open_hub
from ..control.runs.live_run import HubOptions
from ..http.health import Health
from .listener import GOODBYE_WITHIN, Opened, listen, serve_port
from .speaking import say_missing, speaker_of
from .token_file import ServerFile, new_token, remove_server, write_server

if TYPE_CHECKING:
    from ....protocol.settings.api import ApiSettings
    from ...work.spending.ledger import LedgerStore
    from ..chat.chats import Chats
    from ..cluster.gateway import Gateway
    from ..cluster.seat import ClusterOptions
    from ..cluster.worker import Worker
    from ..metrics import Metrics

log = logging.getLogger("callboard.server")

LOOK_EVERY = 0.05
CANCEL_WITHIN = 3.0
"""Seconds for runs to end in that are cancelled when the grace is over."""

LAST_WORDS = 1.0
"""Seconds after the last run for sending its end to its followers."""


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen; what is None stands in `api.listen_addr`. Port 0 is a free one.

    Attributes:
        read: a person reads stderr, so the audit trail of a loopback address does not go there.
        keep_requests: as in `HubOptions`.
        grace: seconds for runs to end by themselves once the server is told to end; None for what the settings say.
        durable: whether what its runs do is kept; None for what the settings say.
        by: what it is, for lists of durable runs.
        cluster: the place of this process in a cluster, whose runs it plays, or hands in; None for neither.
    """

    host: str | None = None
    port: int | None = None
    read: bool = False
    keep_requests: bool = False
    grace: float | None = None
    durable: bool | None = None
    by: str = BY_SERVER
    cluster: ClusterOptions | None = None


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A server that listens.

    Attributes:
        url: where it is.
        page: the page's address, with the token; for people at this machine.
        http: whether it speaks more than the websocket.
    """

    url: str
    page: str
    http: bool

    def page_of_run(self, run: str) -> str:
        """The address at which the page shows this run."""
        return f"{self.page}&run={run}"

    def page_of_chat(self, chat: str) -> str:
        """The address at which the page shows this chat."""
        return f"{self.page}&chat={chat}"


class Server:
    """See the module.

    Attributes:
        drained: whether all runs had ended when the server was told to end; None as long as it was not.
        chats: those of its hub, once it listens.
    """

    chats: Chats

    def __init__(self, options: ServeOptions | None = None) -> None:
        self.drained: bool | None = None
        self.under_way: Callable[[], int] = lambda: 0
        self._being_told: Callable[[], bool] = lambda: False
        self._options = options or ServeOptions()
        self._told_to_end = trio.Event()
        self._hung_up = trio.Event()
        self._token = new_token()
        self._place: Gateway | Worker | None = None

    @property
    def _works(self) -> bool:
        return self._options.cluster is not None and self._options.cluster.plays

    def drains_within(self, settings: ApiSettings) -> float:
        """Seconds from `drain` to the beginning of the root's stop, at most."""
        return self._grace(settings) + CANCEL_WITHIN + LAST_WORDS

    def _grace(self, settings: ApiSettings) -> float:
        return settings.shutdown_grace_seconds if self._options.grace is None else self._options.grace

    def drain(self) -> None:
        """Begin to end; returns at once."""
        self._told_to_end.set()

    def hang_up(self) -> None:
        """Read the settings again; returns at once."""
        self._hung_up.set()

    async def last_words(self) -> None:
        """Return when all who follow a run that is over have been told its end, `LAST_WORDS` seconds later at most."""
        with trio.move_on_after(LAST_WORDS):
            await _until(lambda: not self._being_told())

    async def serve(self, root: Root, on_listening: Callable[[Served], None]) -> None:
        """Serve until the root stops.

        Raises:
            UsageError: the address can't be listened on, or would be open to all.
            ConfigError: the settings forbid it, or a directory can't be written to.
            JournalBroken: it is a worker, and what its runs do can't be kept any more.
        """
        settings = root.settings.api
        host, port = settings.address
        host = self._options.host or host
        port = port if self._options.port is None else self._options.port
        loopback = check_may_listen(settings, host)
        listener = listen(host, port)

        async def body(me: Actor) -> None:
            await self._serve(me, root, listener, host, on_listening, loopback=loopback)

        try:
            await played(root, body, name="control")
        finally:
            listener.socket.close()
        if self._place is not None and self._place.failed is not None:
            raise self._place.failed

    async def _serve(
        self,
        me: Actor,
        root: Root,
        listener: trio.SocketListener,
        host: str,
        on_listening: Callable[[Served], None],
        *,
        loopback: bool,
    ) -> None:
        settings = root.settings.api
        port: int = listener.socket.getsockname()[1]
        redactor = Redactor([self._token, *secrets_of(root.settings, os.environ)])
        self._place = place = None if self._options.cluster is None else _place(root, self._options.cluster)
        ledger = LedgerFile(root.usage_file) if place is None else await _kept_in_cluster(root, place)
        options = self._of_hub(root, place)
        resumes = options.by == BY_SERVER and root.settings.durable.resume == "auto" and not self._works
        async with open_hub(root, options=options, redact=redactor.data, cluster=place) as hub:
            self.chats = _chats(hub)
            self.under_way = lambda: hub.under_way
            self._being_told = lambda: bool(hub.being_told)
            with ExitStack() as stack:
                metrics = stack.enter_context(_metrics(root, hub))
                stream = None if loopback and self._options.read else sys.stderr
                audit = Audit(settings.audit, stream=stream, redactor=redactor)
                stack.callback(audit.close)
                stack.enter_context(root.bus.listen(audit.listener(_owners(hub))))
                access = AccessControl(
                    settings, local_token=self._token, loopback=loopback, audit=audit, metrics=metrics
                )
                if metrics is not None:
                    metrics.rates = lambda: access.rates.current()
                    metrics.cluster = lambda: None if place is None else place.figures
                await access.start(me)
                root.days = Days(root.kernel, ledger, settings, now=time.time, patient=self._works)
                await root.days.look()
                stores = [hub.logs.directory, user_folder("sessions", root.sessions.store.config_dir)]
                health = Health(root, access.requests, stores)
                http = _http(root, hub, access, metrics, health, told=self._options.read)
                served = self._told(host, port, http=http is not None)
                stack.enter_context(self._written(served.url, port))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._reload, access, root)
                    nursery.start_soon(self._end, root, hub, access, health, place)
                    if options.durable is not False:
                        nursery.start_soon(_prune, root)
                    if place is not None:
                        await place.begin(hub, nursery, served.url, self._token if loopback else "")
                    if resumes:
                        hub.resuming.expect()
                        nursery.start_soon(hub.resuming.work)
                    notify("READY=1")
                    on_listening(served)
                    limiter = ConnectionLimiter(lambda: access.settings)
                    await serve_port(
                        listener, limiter, http=http or say_missing, websocket=_websocket(me, self.chats, access)
                    )

    def _of_hub(self, root: Root, place: Gateway | Worker | None) -> HubOptions:
        options = HubOptions(
            keep_runs=root.settings.api.keep_runs,
            keep_requests=self._options.keep_requests,
            durable=durable_by(self._options.durable, root.settings),
            by=self._options.by,
        )
        return options if place is None else place.of_hub(options)

    def _told(self, host: str, port: int, *, http: bool) -> Served:
        shown = f"[{host}]" if ":" in host else host
        here = "127.0.0.1" if host in ("0.0.0.0", "::") else shown  # noqa: S104 - what was asked for
        page = f"http://{here}:{port}/#token={self._token}"
        return Served(url=f"http://{shown}:{port}", page=page, http=http)

    @contextmanager
    def _written(self, url: str, port: int) -> Iterator[None]:
        here = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
        server = ServerFile(url=here, token=self._token, pid=os.getpid(), started=time.time(), worker=self._works)
        try:
            path = write_server(server, port, os.environ)
        except OSError as error:
            raise ConfigError(f"the server's token can't be left for ps, attach and the page: {error}") from None
        try:
            yield
        finally:
            remove_server(path, self._token)

    async def _reload(self, access: AccessControl, root: Root) -> None:
        while True:
            await self._hung_up.wait()
            self._hung_up = trio.Event()
            notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            if await reload(access, root.config_dir) and root.days is not None:
                root.days.configure(access.settings)
            notify("READY=1")

    async def _end(
        self, root: Root, hub: Hub, access: AccessControl, health: Health, place: Gateway | Worker | None
    ) -> None:
        await self._told_to_end.wait()
        notify("STOPPING=1")
        if place is not None:
            with trio.move_on_after(LAST_WORDS):
                await place.drain()
        hub.closing = True
        health.draining = True
        with trio.move_on_after(self._grace(root.settings.api)):
            await _until(lambda: not hub.running.at_work)
        self.drained = not hub.running.leave()
        with trio.move_on_after(CANCEL_WITHIN):
            await _until(lambda: not hub.under_way)
        with trio.move_on_after(LAST_WORDS):  # followers of a run get its end
            await _until(lambda: not access.requests.taken and not hub.being_told)
        if place is not None:
            with trio.move_on_after(LAST_WORDS):
                await place.leave()
        root.begin_stop()


def _place(root: Root, options: ClusterOptions) -> Gateway | Worker:
    from ..cluster.seat import Seat

    seat = Seat(options, new_sign())
    if options.plays:
        from ..cluster.worker import Worker

        return Worker(root, seat)
    from ..cluster.gateway import Gateway

    return Gateway(root, seat)


async def _kept_in_cluster(root: Root, place: Gateway | Worker) -> LedgerStore:
    from ..cluster.spending import keep_spending

    return await keep_spending(root, place.seat)


async def _prune(root: Root) -> None:
    try:
        journal = await root.journal()
    except JournalError as error:  # each run tells that it can't be kept
        log.warning("%s", error)
        return
    await prune_regularly(root.settings, journal.sign)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - several things change it, and none of them knows that a server ends
        await trio.sleep(LOOK_EVERY)


@contextmanager
def _metrics(root: Root, hub: Hub) -> Iterator[Metrics | None]:
    try:
        from ..metrics import Metrics
    except ImportError:  # without the extra
        yield None
        return
    metrics = Metrics()
    with metrics.listening(root, journal=hub.logs.writer):
        yield metrics


def _owners(hub: Hub) -> Callable[[str], str | None]:
    def owner(run: str) -> str | None:
        try:
            return hub.get(LOCAL, run).owner
        except NotFound:  # not started through the hub
            return None

    return owner


def _http(
    root: Root, hub: Hub, access: AccessControl, metrics: Metrics | None, health: Health, *, told: bool
) -> Callable[[Opened], Awaitable[None]] | None:
    """What speaks HTTP; None without the extra, which the log says unless a person is `told` by the command."""
    try:
        import hypercorn.trio.tcp_server  # noqa: F401 - to see whether it is there
        import starlette.applications  # noqa: F401 - the same
    except ImportError as error:
        if not told:
            log.warning("HTTP is not served, only the websocket at /ws (%s): pip install 'callboard[server]'", error)
        return None
    from ..http.app import make_app
    from ..http.call import Api
    from ..http.middleware import guarded

    api = Api(hub=hub, root=root, metrics=metrics, health=health, started=trio.current_time())
    return speaker_of(guarded(make_app(api), access, metrics=metrics))


def _chats(hub: Hub) -> Chats:
    from ..chat.chats import Chats

    return Chats(hub)


def _websocket(me: Actor, chats: Chats, access: AccessControl) -> Callable[[Opened], Awaitable[None]]:
    from ..acp.agent import AcpAgent
    from ..chat.methods import ChatMethods
    from ..control.websocket import WebSocketOptions, serve_websocket

    hub = chats.hub
    options = WebSocketOptions(max_frame=hub.root.settings.api.limits.max_frame_bytes)

    async def websocket(connection: Opened) -> None:
        async def speak(actor: Actor) -> None:
            await serve_websocket(
                actor,
                connection,
                hub,
                access,
                peer=connection.peer,
                methods=lambda peer: {**AcpAgent(peer).methods, **ChatMethods(peer, chats).methods},
                options=options,
            )

        ref = me.spawn(speak, name="ws", link=False)
        try:
            end = await ref.wait()
        except trio.Cancelled:
            ref.cancel()
            with me.root.shield(GOODBYE_WITHIN):  # sends the client our goodbye
                await ref.wait()
            raise
        finally:
            ref.cancel()
        if end.error is not None:
            log.error("a websocket connection crashed", exc_info=end.error)

    return websocket


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send our state (`READY=1`) to systemd, for a unit of `Type=notify`; whether that took it. Never waits."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as link:
            link.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
    except OSError:
        return False
    return True
