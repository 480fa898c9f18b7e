"""Life cycle of a server: listen, announce it, serve, and on a signal let runs end first.

    server = HttpServer(ServeOptions(port=0))
    drain, hang_up = server.drain, server.hang_up
    async with Root(wait_for_front_end=True, keep_servers=True, on_drain=drain, on_hangup=hang_up) as root:
        await server.serve(root, print)

A signal or the end of its root ends the server. After the first signal new work is refused (503, and not ready). Runs
continue for `api.shutdown_grace_seconds`, and their followers receive the events. Then the root stops and cancels the
rest. A second signal does not wait. Durable runs are left to the next server, immediately if they wait for people.
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
from ....supervisors.installation import install_command
from ....supervisors.journal.liveness_lock import unique_process_name
from ...io.directories import user_folder
from ...io.secret_redaction import Redactor, secrets_of
from ...runs.loading import durable_by
from ...runs.root import Root, played
from ...runs.stored_runs import prune_regularly
from ...work.spending.days import Days
from ...work.spending.ledger import LedgerFile
from ..access.access_control import AccessControl, check_may_listen, reload
from ..access.audit import Audit
from ..access.limits import ConnectionLimiter
from ..access.server_paths import paths_of_server
from ..control.hub import Hub
from ..control.methods import open_hub
from ..control.runs.live_run import HubOptions
from ..http.health import Health
from .listener import GOODBYE_WITHIN, InspectedStream, begin_listening, bind, say_missing, serve_port, speaker_of
from .token_file import ServerFile, new_token, remove_server, write_server

if TYPE_CHECKING:
    from ....protocol.settings.api import ApiSettings
    from ...work.spending.ledger import LedgerStore
    from ..chat.chat import Chats
    from ..cluster.gateway import ClusterGateway
    from ..cluster.membership import ClusterOptions
    from ..cluster.worker import ClusterWorker
    from ..metrics import Metrics

log = logging.getLogger("callboard.server")

LOOK_EVERY = 0.05
CANCEL_WITHIN = 3.0
"""Seconds in which runs that are cancelled after the grace period have to end."""

LAST_WORDS = 1.0
"""Seconds after the last run for sending its end to its followers."""


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a server. None means the value in `api.listen_addr`; port 0 is a free one.

    Attributes:
        read: a person reads stderr, so on a loopback address the audit trail does not go there.
        keep_requests: see `HubOptions`.
        grace: seconds in which runs may end by themselves after the server is asked to end; None for the settings.
        durable: whether runs are recorded; None for the settings.
        by: kind of process, for lists of durable runs.
        cluster: role of this process in a cluster, playing runs or submitting them; None outside a cluster.
    """

    host: str | None = None
    port: int | None = None
    read: bool = False
    keep_requests: bool = False
    grace: float | None = None
    durable: bool | None = None
    by: str = BY_SERVER
    cluster: ClusterOptions | None = None


class ListeningServer(msgspec.Struct, frozen=True, kw_only=True):
    """A listening server.

    Attributes:
        url: address of the server.
        page: address of the page, with the token; only for people on this machine.
        http: whether the server offers HTTP in addition to the websocket.
    """

    url: str
    page: str
    http: bool

    def page_of_run(self, run: str) -> str:
        """Return the address at which the page shows this run."""
        return f"{self.page}&run={run}"

    def page_of_chat(self, chat: str) -> str:
        """Return the address at which the page shows this chat."""
        return f"{self.page}&chat={chat}"


class HttpServer:
    """A server from listening to its end.

    Attributes:
        drained: whether all runs had ended when the grace period was over; None before that.
        chats: chats of the hub, once the server listens.
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
        self._place: ClusterGateway | ClusterWorker | None = None

    @property
    def _works(self) -> bool:
        return self._options.cluster is not None and self._options.cluster.plays

    def drains_within(self, settings: ApiSettings) -> float:
        """Return the maximum number of seconds from `drain` to the beginning of the root's stop."""
        return self._grace(settings) + CANCEL_WITHIN + LAST_WORDS

    def _grace(self, settings: ApiSettings) -> float:
        return settings.shutdown_grace_seconds if self._options.grace is None else self._options.grace

    def drain(self) -> None:
        """Start the shutdown and return at once: new work is refused, and runs may finish."""
        self._told_to_end.set()

    def hang_up(self) -> None:
        """Request a reload of the settings, and return at once."""
        self._hung_up.set()

    async def last_words(self) -> None:
        """Wait until all followers have received the end of their runs, at most `LAST_WORDS` seconds."""
        with trio.move_on_after(LAST_WORDS):
            await _until(lambda: not self._being_told())

    async def serve(self, root: Root, on_listening: Callable[[ListeningServer], None]) -> None:
        """Serve until the root stops.

        Raises:
            UsageError: the address can't be bound, or would be open to everyone.
            ConfigError: the settings forbid it, or a directory is not writable.
            JournalBroken: this process is a worker whose journal can no longer be written.
        """
        settings = root.settings.api
        host, port = settings.address
        host = self._options.host or host
        port = port if self._options.port is None else self._options.port
        loopback = check_may_listen(settings, host)
        sock = bind(host, port)

        async def body(me: Actor) -> None:
            await self._serve(me, root, sock, host, on_listening, loopback=loopback)

        try:
            await played(root, body, name="control")
        finally:
            sock.close()
        if self._place is not None and self._place.failed is not None:
            raise self._place.failed

    async def _serve(
        self,
        me: Actor,
        root: Root,
        sock: socket.socket,
        host: str,
        on_listening: Callable[[ListeningServer], None],
        *,
        loopback: bool,
    ) -> None:
        settings = root.settings.api
        port: int = sock.getsockname()[1]
        redactor = Redactor([self._token, *secrets_of(root.settings, os.environ)])
        self._place = place = None if self._options.cluster is None else _place(root, self._options.cluster)
        ledger = LedgerFile(root.usage_file) if place is None else await _cluster_ledger(root, place)
        options = self._of_hub(root, place)
        resumes = options.by == BY_SERVER and root.settings.durable.resume == "auto" and not self._works
        async with open_hub(root, options=options, redact=redactor.data, cluster=place) as hub:
            self.chats = _chats(hub)
            self.under_way = lambda: hub.under_way
            self._being_told = lambda: bool(hub.followers_behind)
            with ExitStack() as stack:
                metrics = stack.enter_context(_metrics(root, hub))
                stream = None if loopback and self._options.read else sys.stderr
                audit = Audit(settings.audit, stream=stream, redactor=redactor)
                stack.callback(audit.close)
                stack.enter_context(root.bus.listen(audit.listener(_owners(hub))))
                access = AccessControl(
                    settings,
                    local_token=self._token,
                    loopback=loopback,
                    audit=audit,
                    metrics=metrics,
                    paths=paths_of_server(root.config_dir, os.environ),
                )
                if metrics is not None:
                    metrics.rates = lambda: access.rates.current()
                    metrics.cluster = lambda: None if place is None else place.figures
                await access.start(me)
                root.days = Days(root.kernel, ledger, settings, now=time.time, patient=self._works)
                await root.days.poll()
                stores = [hub.logs.directory, user_folder("sessions", root.sessions.store.config_dir)]
                health = Health(root, access.requests, stores)
                http = _http(root, hub, access, metrics, health, told=self._options.read)
                served = self._log_started(host, port, http=http is not None)
                # The token file comes before listening: a client with the previous server's token would get a 401.
                stack.enter_context(self._written(served.url, port))
                begin_listening(sock, host)
                listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
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

    def _of_hub(self, root: Root, place: ClusterGateway | ClusterWorker | None) -> HubOptions:
        options = HubOptions(
            keep_runs=root.settings.api.keep_runs,
            keep_requests=self._options.keep_requests,
            durable=durable_by(self._options.durable, root.settings),
            by=self._options.by,
        )
        return options if place is None else place.of_hub(options)

    def _log_started(self, host: str, port: int, *, http: bool) -> ListeningServer:
        shown = f"[{host}]" if ":" in host else host
        here = "127.0.0.1" if host in ("0.0.0.0", "::") else shown  # noqa: S104 - the user's choice
        page = f"http://{here}:{port}/#token={self._token}"
        return ListeningServer(url=f"http://{shown}:{port}", page=page, http=http)

    @contextmanager
    def _written(self, url: str, port: int) -> Iterator[None]:
        here = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
        server = ServerFile(url=here, token=self._token, pid=os.getpid(), started=time.time(), worker=self._works)
        try:
            path = write_server(server, port, os.environ)
        except OSError as error:
            raise ConfigError(
                f"the file with the server's token can't be written for ps, attach and the web page: {error}"
            ) from None
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
        self,
        root: Root,
        hub: Hub,
        access: AccessControl,
        health: Health,
        place: ClusterGateway | ClusterWorker | None,
    ) -> None:
        await self._told_to_end.wait()
        # First the cluster stops sending runs to this process, then the hub refuses them.
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
        with trio.move_on_after(LAST_WORDS):  # followers of a run receive its end
            await _until(lambda: not access.requests.taken and not hub.followers_behind)
        if place is not None:
            with trio.move_on_after(LAST_WORDS):
                await place.leave()
        root.begin_stop()


def _place(root: Root, options: ClusterOptions) -> ClusterGateway | ClusterWorker:
    from ..cluster.membership import ClusterMembership

    seat = ClusterMembership(options, unique_process_name())
    if options.plays:
        from ..cluster.worker import ClusterWorker

        return ClusterWorker(root, seat)
    from ..cluster.gateway import ClusterGateway

    return ClusterGateway(root, seat)


async def _cluster_ledger(root: Root, place: ClusterGateway | ClusterWorker) -> LedgerStore:
    from ..cluster.shared_limits import keep_spending

    return await keep_spending(root, place.seat)


async def _prune(root: Root) -> None:
    try:
        journal = await root.journal()
    except JournalError as error:  # each run reports that it can't be recorded
        log.warning("%s", error)
        return
    await prune_regularly(root.settings, journal.sign)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the values that it reads signal no change
        await trio.sleep(LOOK_EVERY)


@contextmanager
def _metrics(root: Root, hub: Hub) -> Iterator[Metrics | None]:
    try:
        from ..metrics import Metrics
    except ImportError:  # the extra `server` is not installed
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
) -> Callable[[InspectedStream], Awaitable[None]] | None:
    """Return the HTTP handler of a connection; None without the extra `server`.

    The log reports a missing extra, unless the command reports it to a person (`told`).
    """
    try:
        import hypercorn.trio.tcp_server  # noqa: F401 - tests the import
        import starlette.applications  # noqa: F401 - tests the import
    except ImportError as error:
        if not told:
            log.warning(
                "HTTP is not served, only the websocket at /ws (%s); to serve it, run: %s",
                error,
                install_command("server"),
            )
        return None
    from ..http.app import guarded, make_app
    from ..http.call import Api

    api = Api(hub=hub, root=root, metrics=metrics, health=health, started=trio.current_time())
    return speaker_of(guarded(make_app(api), access, metrics=metrics))


def _chats(hub: Hub) -> Chats:
    from ..chat.chat import Chats

    return Chats(hub)


def _websocket(me: Actor, chats: Chats, access: AccessControl) -> Callable[[InspectedStream], Awaitable[None]]:
    from ..acp.agent import AcpAgent
    from ..chat.methods import ChatMethods
    from ..control.websocket import WebSocketOptions, serve_websocket

    hub = chats.hub
    options = WebSocketOptions(max_frame=hub.root.settings.api.limits.max_frame_bytes)

    async def websocket(connection: InspectedStream) -> None:
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
            with me.root.shield(GOODBYE_WITHIN):  # sends our close frame to the client
                await ref.wait()
            raise
        finally:
            ref.cancel()
        if end.error is not None:
            log.error("a websocket connection crashed", exc_info=end.error)

    return websocket


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send a state such as `READY=1` to systemd, for a unit of `Type=notify`; return whether it was sent.

    Never waits.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as link:
            link.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
    except OSError:
        return False
    return True
