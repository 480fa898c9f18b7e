"""Root of a process: the kernel's root, and the services that all its runs share.

    async with callboard.Root() as root:
        async with trio.open_nursery() as nursery:
            for question in questions:
                nursery.start_soon(partial(callboard.run, "researcher", question, root=root))

Thousands of runs share one model gateway, one pool of local engines and one guardian. `callboard.run` finds the root
of the enclosing block by itself.

Enter the block under trio or asyncio. Under asyncio the root runs in a trio loop in its own thread (see
`supervisors.event_loops`). `Root.call` reaches it from any event loop.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar, Token
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec
import trio

from ...protocol.control.caller import LOCAL
from ...protocol.deferred_types import defer
from ...protocol.errors import JournalError, ShuttingDown, UsageError
from ...protocol.mcp.config import McpConfig
from ...protocol.requests import Limits, RunRequest
from ...supervisors import Actor, Bus, End, collector
from ...supervisors import Root as Kernel
from ...supervisors.event_loops import Call, Loop, LoopThread, ended
from ..io.directories import cache_dir, journal_dir, private_directory, state_dir
from ..io.directories import config_dir as configured
from ..io.secret_redaction import SecretTexts, known
from ..io.settings import load_settings
from ..io.tenancy import Tenancy, environ, tenancy
from ..io.vault.vault import AskPassphrase, Vault
from ..work.models.engines import LocalEngines
from ..work.models.gateway import Gateway
from ..work.tools.registry import ToolRegistry
from .loading import Loader

if TYPE_CHECKING:
    from outcome import Outcome as Result

    from ...protocol.mcp.config import Server
    from ...protocol.outcome import Outcome
    from ...protocol.problems import Problem
    from ...protocol.settings import Settings
    from ...supervisors.journal.journal import Journal
    from ..work.context import SeparatePart
    from ..work.journal.run_journal import JournaledRun
    from ..work.knowledge.base.model import BuildReport
    from ..work.knowledge.recipe import Recipe
    from ..work.knowledge.service import Knowledge
    from ..work.mcp.pool.servers import McpServers
    from ..work.middleware import Middleware
    from ..work.models.python_model import Model
    from ..work.sandbox.policy import SandboxPlace
    from ..work.spending.book import SpendingBook
    from ..work.spending.days import Days
    from ..work.spending.meter import Meter
    from .config import Config
    from .sessions.session_locks import Sessions
    from .tenants import TenantHome
else:
    defer(
        globals(),
        {
            "outcome": "Outcome as Result",
            "...protocol.mcp.config": "Server",
            "...protocol.outcome": "Outcome",
            "...protocol.problems": "Problem",
            "...protocol.settings": "Settings",
            "...supervisors.journal.journal": "Journal",
            "..work.context": "SeparatePart",
            "..work.journal.run_journal": "JournaledRun",
            "..work.knowledge.base.model": "BuildReport",
            "..work.knowledge.recipe": "Recipe",
            "..work.knowledge.service": "Knowledge",
            "..work.mcp.pool.servers": "McpServers",
            "..work.middleware": "Middleware",
            "..work.models.python_model": "Model",
            "..work.sandbox.policy": "SandboxPlace",
            "..work.spending.book": "SpendingBook",
            "..work.spending.days": "Days",
            "..work.spending.meter": "Meter",
            ".config": "Config",
            ".sessions.session_locks": "Sessions",
            ".tenants": "TenantHome",
        },
    )


current: ContextVar[Root | None] = ContextVar("callboard_root", default=None)
"""Root of the enclosing block."""

_open_roots: trio.lowlevel.RunVar[int] = trio.lowlevel.RunVar("callboard_open_roots", default=0)
"""Number of open roots in this trio loop."""

END_WITHIN = 2.0
"""Seconds for an actor to end after the task that waits for it is cancelled."""

PRUNE_WITHIN = 2.0
"""Seconds for the removal of old durable runs; the next process continues it."""

T = TypeVar("T")

Entered = tuple[Token[Tenancy | None], Token[SecretTexts | None]]
"""Values that `Root.enter` has replaced: the tenancy of the task, and the secrets that it redacts."""

log = logging.getLogger("callboard.journal")


def leave(entered: Entered) -> None:
    """Undo `enter_process` or `TenantHome.enter`, in the task that called it."""
    tenancy.reset(entered[0])
    known.reset(entered[1])


def enter_process() -> Entered:
    """Make the running task work for the process and not for a tenant."""
    return tenancy.set(None), known.set(None)


async def played(root: Root, body: Callable[[Actor], Awaitable[None]], *, name: str) -> None:
    """Run `body` as an actor of this root until it ends, however long; raise the error of a crash.

    If the caller is cancelled, the actor is cancelled too, and has `END_WITHIN` seconds to end.
    """
    await _ended(root, body, name)


async def result_of(root: Root, body: Callable[[Actor], Awaitable[T]], *, name: str) -> T:
    """Run `body` as an actor of this root, outside of all runs, and return its result; raise the error of a crash.

    If the caller is cancelled, the actor is cancelled too, and has `END_WITHIN` seconds to end.

    Raises:
        ShuttingDown: the root is stopping, and has ended it.
    """
    end = await _ended(root, body, name)
    if end.reason != "normal":
        raise ShuttingDown(f"callboard is stopping, and {name} has not ended")
    result: T = end.value
    return result


async def _ended(root: Root, body: Callable[[Actor], Awaitable[object]], name: str) -> End:
    ref = root.kernel.spawn(body, name=name, link=False, stop_within=root.kernel.stop_within)
    try:
        end = await ref.wait()
    except trio.Cancelled:
        ref.cancel()
        with root.kernel.shield(END_WITHIN):
            await ref.wait()
        raise
    if end.error is not None:
        raise end.error
    return end


def check_new_root(what: str) -> None:
    """Check that the function `what` may open its own root here.

    Raises:
        UsageError: no trio loop runs here; or another root is open in this event loop, and the new one would not share
            its limits, connections and servers.
    """
    if in_asyncio():
        raise UsageError(
            f"{what} needs a root under asyncio, for all runs of the program: `async with callboard.Root() as root:` "
            "once, and `await root.run(target, prompt)` in it"
        )
    if not trio.lowlevel.in_trio_task():
        raise UsageError(
            f"{what} runs on trio: `trio.run(callboard.run, target, prompt)`, or `callboard.run_sync(target, prompt)`"
        )
    if _open_roots.get():
        raise UsageError(
            f"{what} would open a second root beside one that is open in this event loop, and share no limits, "
            "connections or MCP servers with it. Open one `callboard.Root` around all runs, and call its methods "
            "(`await root.run(target, prompt)`) or pass `root=`"
        )


def check_no_settings(what: str, config_dir: object, config: Config | None = None) -> None:
    """Check that a call under a root has no settings of its own, which the root would not follow.

    Raises:
        UsageError: it has some.
    """
    if config is not None:
        raise UsageError(
            f"{what} with `config` would run below a root that has other settings: "
            "`await root.run(target, prompt, config=config)`, or `async with root.tenant(config) as tenant:`"
        )
    if config_dir is not None:
        raise UsageError(
            f"{what} with `config_dir` would run below a root, whose settings and keys count: leave it out, give it to "
            "`callboard.Root(config_dir=...)`, or run other settings as a tenant, `root.run(..., config=...)`"
        )


def in_asyncio() -> bool:
    """Return whether an asyncio loop runs in this thread; imports nothing."""
    asyncio = sys.modules.get("asyncio")
    try:
        return asyncio is not None and asyncio.get_running_loop() is not None
    except RuntimeError:  # raised if no loop runs
        return False


def _log_trouble(trouble: str) -> None:
    if trouble:
        log.warning(
            "durable runs wait before they change anything: %s can't be written (%s); free some disk space there, or "
            "run with --ephemeral",
            journal_dir(environ()),
            trouble,
        )
    else:
        log.warning("durable runs continue: their journal can be written again")


def _renamed(old: str, old_value: bool | None, new: str, value: bool) -> bool:
    """Return the value of an option that may have been passed by its old name, which is a deprecation warning."""
    if old_value is None:
        return value
    from ...protocol.deprecation import warn_of

    warn_of(f"callboard.Root({old}=...)", f"{new}=")
    return old_value


def _extensions(
    models: Sequence[Model], middleware: Sequence[Middleware]
) -> tuple[Mapping[str, Model], tuple[Middleware, ...]]:
    """Return the root's models made in Python by name, and its middleware.

    Raises:
        UsageError: they are invalid.
    """
    named: Mapping[str, Model] = {}
    chain: tuple[Middleware, ...] = ()
    if models:
        from ..work.models.python_model import by_name

        named = by_name(models, "callboard.Root(models=...)")
    if middleware:
        from ..work.middleware import checked

        chain = checked(middleware, "callboard.Root(middleware=...)")
    return named, chain


class Root:
    """Services that all runs of a process share, and their lifetime.

    Args:
        config_dir: directory of agents and `config.yaml`; see `directories.config_dir`.
        config: settings in place of `config_dir`, `config.yaml` and the environment; see `Config`.
        host: the root whose tenant this is, for `tenants`.
        signals: handle SIGINT, SIGTERM and SIGHUP (main thread only), as the command line does.
        stop_within: seconds from the beginning of the stop to its end.
        on_signal: called with a signal's number and how many have arrived.
        wait_for_front_end: questions wait for a front end if none is attached yet.
        dry_run: no request is sent to a model; see `Settings.dry_run`.
        ask_passphrase: asks the user for the passphrase of the vault; None if there is no user.
        keep_servers: the process is long-lived: unused MCP servers are retained for a while.
        models: models made in Python, which runs, agents, and graphs name.
        middleware: functions around requests to models, the outermost first.
        keeps_usage: record the spending on models by day, for `callboard usage`.
        on_hangup, hangup_ends, on_drain: see `supervisors.Root`.
        patient, serving: old names of `wait_for_front_end` and `keep_servers`.

    Attributes:
        kernel: the supervision tree.
        config: the `config` argument.
        environ: environment of the runs: that of the process, or of the tenant.
        cwd: directory of runs that name none; None for the process's own.
        settings: settings of `config.yaml` and the environment; `problems` has warnings about them.
        vault: the secrets that files name.
        gateway: access to models.
        registry: the global tools.
        loader: loader of targets.
        book: record of spending by day; None if it is not recorded.
        days: daily spending limits; None except in a server, which sets it.
        kept: the durable runs that are under way, by id.
        elsewhere: runs remote children on other workers; None except in a worker of a cluster, which sets it.

    Raises:
        ConfigError: `config.yaml` has errors (when the root is created).
    """

    config_dir: Path
    settings: Settings
    problems: list[Problem]
    models: Mapping[str, Model]
    middleware: tuple[Middleware, ...]

    def __init__(
        self,
        *,
        config_dir: str | os.PathLike[str] | None = None,
        config: Config | None = None,
        host: Root | None = None,
        signals: bool = False,
        stop_within: float = 3.0,
        on_signal: Callable[[int, int], None] | None = None,
        wait_for_front_end: bool = False,
        keep_servers: bool = False,
        models: Sequence[Model] = (),
        middleware: Sequence[Middleware] = (),
        keeps_usage: bool = False,
        dry_run: bool = False,
        ask_passphrase: AskPassphrase | None = None,
        on_hangup: Callable[[], None] | None = None,
        hangup_ends: Callable[[], bool] | None = None,
        on_drain: Callable[[], None] | None = None,
        patient: bool | None = None,
        serving: bool | None = None,
    ) -> None:
        wait_for_front_end = _renamed("patient", patient, "wait_for_front_end", wait_for_front_end)
        keep_servers = _renamed("serving", serving, "keep_servers", keep_servers)
        self.config = config
        self.environ: Mapping[str, str] = os.environ
        self.cwd: Path | None = None
        self.homes: set[TenantHome] = set()
        self._home: TenantHome | None = None
        if config is None:
            self.config_dir, _ = configured(config_dir, os.environ)
            self.settings, self.problems = load_settings(self.config_dir)
        else:
            if config_dir is not None:
                raise UsageError("callboard.Root takes either `config` or `config_dir`: a Config reads no files")
            from .config import config_models, servers_of, settings_of
            from .tenants import TenantHome

            models, middleware = (*config_models(config), *models), (*config.middleware, *middleware)
            self.settings, self.problems = settings_of(config)
            servers_of(config)  # called for its errors
            neighbours, hidden = (self.homes, None) if host is None else (host.homes, host.config_dir)
            self._home = TenantHome(config, neighbours, hidden)
            self.config_dir, self.environ, self.cwd = self._home.directory, self._home.environ, self._home.cwd
        self.models, self.middleware = _extensions(models, middleware)
        if keep_servers:  # Its errors reach remote callers, who must not learn paths of this machine.
            self.settings = msgspec.structs.replace(self.settings, file=Path(self.settings.file).name)
        if dry_run:
            self.settings = msgspec.structs.replace(self.settings, dry_run=True)
        self.kernel: Kernel = Kernel(
            signals=signals,
            stop_within=stop_within,
            on_signal=on_signal,
            patient=wait_for_front_end,
            on_hangup=on_hangup,
            hangup_ends=hangup_ends,
            on_drain=on_drain,
        )
        secrets = self.environ if config is None else {**self.environ, **config.secrets}
        entered = self.enter()  # The vault registers secrets for redaction in the current tenancy.
        self.vault: Vault = Vault(self.settings, self.config_dir, secrets, self.kernel, ask=ask_passphrase)
        leave(entered)
        self.gateway: Gateway
        self.engines: LocalEngines | None = None if host is None else host.engines
        self.registry: ToolRegistry = ToolRegistry(self.config_dir, self.settings, self.environ)
        self.loader: Loader = Loader(self.config_dir, self.registry)
        self._opening = threading.Lock()
        self._serving = keep_servers
        self._mcp: McpServers | None = None
        self._knowledge: Knowledge | None = None
        self._sessions: Sessions | None = None
        self._journal: Journal | None = None
        self._opening_journal = trio.Lock()
        self.kept: dict[str, JournaledRun] = {}
        self.elsewhere: Callable[[RunRequest, Actor, SeparatePart], Awaitable[Outcome]] | None = None
        self.days: Days | None = None
        self.book: SpendingBook | None = self._new_book() if keeps_usage else None
        self._thread: LoopThread | None = None
        self._token: Token[Root | None] | None = None
        self._entered: Entered | None = None

    def _new_book(self) -> SpendingBook:
        from ..work.spending.book import BookFile, SpendingBook

        return SpendingBook(self.kernel, BookFile(self.usage_file), now=time.time)

    async def __aenter__(self) -> Self:
        if trio.lowlevel.in_trio_task():
            await self._open()
        elif in_asyncio():
            if self.kernel.own_signals:
                raise UsageError(
                    "callboard.Root(signals=True) needs trio in the main thread: under asyncio leave signals to the "
                    "program, which ends the block when it is interrupted"
                )
            self._thread = LoopThread(self._opened, self.kernel.stop_within)
            await self._thread.open()
        else:
            raise UsageError(
                "callboard.Root needs a running event loop: `trio.run(main)` or `asyncio.run(main())` with "
                "`async with callboard.Root() as root:` in `main`"
            )
        self._token, self._entered = current.set(self), self.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._token is not None and self._entered is not None:
            with suppress(ValueError):  # entered by another task, as in a cell of a notebook
                leave(self._entered)
                current.reset(self._token)
        if self._thread is None:
            return await self._close(kind, error, trace)
        await self._thread.close()
        return None

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """Context manager of the block under asyncio, in the root's own loop."""
        await self._open()
        try:
            yield
        except BaseException as error:  # The kernel cancels the block when one of its actors crashes.
            if not await self._close(type(error), error, error.__traceback__):
                raise
        else:
            await self._close(None, None, None)

    def enter(self) -> Entered:
        """Make the running task work for this root; `leave` undoes it."""
        return enter_process() if self._home is None else self._home.enter()

    async def _open(self) -> None:
        token, entered = current.set(self), self.enter()  # inherited by all actors of the tree
        await self.kernel.__aenter__()
        current.reset(token)
        leave(entered)
        _open_roots.set(_open_roots.get() + 1)
        if self.engines is None:
            self.engines = LocalEngines(self.kernel, self.environ)
        self.gateway = Gateway(self.kernel, self.settings, self.environ, engines=self.engines, vault=self.vault)
        if self.models:
            self.gateway = self.gateway.with_models(self.models)
        collector.hold()

    async def _close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        _open_roots.set(_open_roots.get() - 1)
        collector.release()
        await self.kernel.stop()
        if self.kernel.loop is not None:
            await self.kernel.loop.close()
        closing = AsyncExitStack()  # Runs in reverse order, and each callback runs whatever the ones before it raised.
        if self._home is not None:
            closing.callback(self._home.close)
        closing.push_async_exit(self.kernel.__aexit__)
        if self.book is not None:
            closing.push_async_callback(self.book.aclose)
        if self.days is not None:
            closing.push_async_callback(self.days.aclose)
        closing.push_async_callback(self._close_models)
        if self._journal is not None:
            closing.push_async_callback(self._close_journal, self._journal)
        return await closing.__aexit__(kind, error, trace)

    def call(self, function: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Await `function()` in this root's event loop, from a task of any loop, with the caller's context variables.

        A cancelled caller returns when the function has ended. `current` is this root. This is no coroutine function,
        so that a run in the root's own loop does not have another frame to resume at each step.

        Raises:
            UsageError: the root is not open.
            ShuttingDown: the root is ending.
        """
        loop = self._loop
        if trio.lowlevel.in_trio_task() and trio.lowlevel.current_trio_token() is loop.token:
            loop.check_open()
            return function() if current.get() is self else self._within(function)
        return loop.call(partial(self._within, function))

    def start(self, function: Callable[[], Awaitable[T]], deliver: Callable[[Result[T]], object]) -> Call[T]:
        """Start `function()` in this root's event loop, as `call` does; `deliver` is called there with its result."""
        return self._loop.start(partial(self._within, function), deliver)

    def call_blocking(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call `function()` in this root's event loop from a thread without an event loop, and block until it has
        ended.
        """
        return self._loop.call_blocking(partial(self._within, function))

    @property
    def _loop(self) -> Loop:
        if self.kernel.loop is None:
            raise UsageError("this callboard.Root is not open: use it inside of `async with callboard.Root() as root:`")
        if self.kernel.loop.is_closed:
            raise ended()
        return self.kernel.loop

    async def _within(self, function: Callable[[], Awaitable[T]]) -> T:
        if current.get() is self:
            return await function()
        token, entered = current.set(self), self.enter()
        try:
            return await function()
        finally:
            leave(entered)
            current.reset(token)

    async def _close_models(self) -> None:
        with self.kernel.shield(1.0):
            await self.gateway.aclose()
            if self._knowledge is not None:
                await self._knowledge.aclose()

    async def _close_journal(self, journal: Journal) -> None:
        if self.kernel.signal is None and not self._serving:
            from .stored_runs import prune_if_due

            with self.kernel.shield(PRUNE_WITHIN):
                await trio.to_thread.run_sync(prune_if_due, self.settings, journal.sign, abandon_on_cancel=True)
        with trio.CancelScope(shield=True):  # Shielded without a deadline here: `aclose` has its own.
            if not await journal.aclose():
                where, why = journal.directory, journal.trouble
                log.warning(
                    "runs of this process can't be resumed as they are now: %s can't be written (%s)", where, why
                )

    async def journal(self) -> Journal:
        """Return the journal of durable runs. The first call opens it.

        Raises:
            JournalError: it cannot be opened.
        """
        if self._journal is not None:
            return self._journal
        async with self._opening_journal:
            if self._journal is None:
                from ...supervisors.journal.journal import open_journal

                directory = journal_dir(self.environ)
                try:
                    await trio.to_thread.run_sync(private_directory, directory.parent)
                except OSError as error:
                    raise JournalError(
                        f"durable runs can't be stored in {directory}: {error.strerror or error}"
                    ) from error
                self._journal = await open_journal(directory, _log_trouble)
            return self._journal

    def keep_in(self, journal: Journal) -> None:
        """Use this journal for durable runs, and close it with the root. Call it before any run begins."""
        self._journal = journal

    @property
    def journal_in_use(self) -> Journal | None:
        """The journal if it has been opened."""
        return self._journal

    @property
    def usage_file(self) -> Path:
        """Path of the record of spending on models."""
        return state_dir(self.environ) / "usage.db"

    @property
    def bus(self) -> Bus:
        """Bus of all runs' events."""
        return self.kernel.bus

    @property
    def mcp(self) -> McpServers:
        """MCP servers of `mcp.json`, which is read at the first access; they end with the kernel."""
        with self._opening:  # Threads that load targets access it, too.
            if self._mcp is None:
                from ..work.mcp.client.connect import OfferedCapabilities
                from ..work.mcp.pool.servers import McpServers

                self._mcp = McpServers(
                    self.kernel,
                    self._load_mcp(),
                    environ=self.environ,
                    cache=cache_dir(self.environ),
                    secrets=self.environ,
                    vault=self.vault,
                    abilities=OfferedCapabilities(elicitation=True, sampling=True),
                    settings=self.settings.mcp_pool,
                    serving=self._serving,
                    read_again=self._load_mcp,
                    place_of=self._place_of,
                )
        return self._mcp

    def _load_mcp(self) -> McpConfig:
        from ..work.mcp.files import load_mcp

        if self.config is None:
            return load_mcp(self.config_dir)
        from .config import SOURCE, servers_of

        here = str(self.cwd)
        servers = {
            name: msgspec.structs.replace(server, cwd=os.path.join(here, server.cwd or ""))  # noqa: PTH118 - a text
            for name, server in servers_of(self.config).items()
        }
        return McpConfig(file=SOURCE, servers=servers)

    @property
    def roots(self) -> tuple[str, ...]:
        """Directories of the `Config` in which the `fs_*` tools may work."""
        return () if self.config is None else tuple(os.fspath(root) for root in self.config.roots)

    def limits(self, own: Limits) -> Limits:
        """Return the limits of a run, narrowed by the limits of the `Config`."""
        if self.config is None:
            return own
        from .config import narrower

        return narrower(own, self.config.limits)

    def _place_of(self, server: Server) -> SandboxPlace | None:
        """Return the sandbox of a server that is started outside of runs; None if the sandbox is off."""
        said = self.settings.sandbox
        if said == "off":
            return None
        from ..work.sandbox.run_sandbox import before_any_run

        held = before_any_run(said, self.config_dir.absolute(), self.environ, self.cwd)
        return held.of_server(server.name, server.words)

    def mcp_servers(self) -> McpServers:
        """Return `mcp`; passed to runs as a function, because most never use servers."""
        return self.mcp

    @property
    def mcp_in_use(self) -> McpServers | None:
        """MCP servers if they have been accessed."""
        return self._mcp

    @property
    def sessions(self) -> Sessions:
        """Stored sessions; created at the first access."""
        if self._sessions is None:
            from .sessions.session_locks import Sessions

            self._sessions = Sessions(self)
        return self._sessions

    @property
    def knowledge(self) -> Knowledge:
        """Knowledge bases; created at the first access, they end with the kernel."""
        if self._knowledge is None:
            from ..work.knowledge.service import Knowledge

            self._knowledge = Knowledge(self.kernel, self.settings, self.environ, self.gateway.gates, self.vault)
        return self._knowledge

    async def build_knowledge(self, recipe: Recipe, owner: str, *, rebuild: bool = False) -> BuildReport:
        """Build a knowledge base at the expense of a subject, in an actor that ends with the caller.

        Raises:
            CallboardError: the subject has reached its spending limit of the day; or see `Knowledge.build`.
        """
        if self.days is not None:
            await self.days.check(owner)

        async def build(me: Actor) -> BuildReport:
            with self.knowledge.charges.on(self.meter(owner)):
                return await self.knowledge.build(me, recipe, rebuild=rebuild)

        return await result_of(self, build, name="rag")

    async def embed(
        self, model: str, texts: Sequence[str], owner: str, *, dimensions: int | None = None
    ) -> tuple[list[list[float]], int]:
        """Return a vector per text, and the tokens that the provider counted, at the expense of a subject.

        Raises:
            CallboardError: the subject has reached its spending limit of the day; or see `Embedders.of` and
                `Embedder.embed`.
        """
        if self.days is not None:
            await self.days.check(owner)
        meter = self.meter(owner)

        async def embed(me: Actor) -> list[list[float]]:
            with self.knowledge.charges.on(meter):
                embedder = self.knowledge.embedders.of(model, dimensions=dimensions)
                rows: list[list[float]] = (await embedder.embed(me, texts)).tolist()
                return rows

        rows = await result_of(self, embed, name="embed")
        return rows, sum(usage.input_tokens for usage in meter.models.values())

    def meter(self, owner: str = LOCAL.subject) -> Meter:
        """Return an unlimited meter that charges work outside of runs to a subject and its spending of the day."""
        from ..work.spending.meter import Meter

        day = None if self.days is None else self.days.account(owner)
        return Meter(Limits(), owner=owner, book=self.book, day=day)

    def end_run(self, id: str) -> None:
        """Release what the root holds for this run: its journal, the costs of its knowledge, its MCP servers."""
        self.kept.pop(id, None)
        if self._knowledge is not None:
            self._knowledge.charges.end_run(id)
        if self._mcp is not None:
            self._mcp.end_run(id)

    def begin_stop(self) -> None:
        """Refuse new runs and interrupt running ones; return at once. May be called from any thread."""
        self.kernel.begin_stop()
