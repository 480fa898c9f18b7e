"""The root of a process: the kernel's root, and what all its runs share.

    async with callboard.Root() as root:
        async with trio.open_nursery() as nursery:
            for question in questions:
                nursery.start_soon(partial(callboard.run, "researcher", question, root=root))

Thousands of runs share one model gateway, one pool of local engines and one guardian. `callboard.run` finds the
root of the block it is called in by itself.

The block is entered under trio, or under asyncio: then the root lives in a trio loop with a thread of its own (see
`supervisors.event_loops`). `Root.call` reaches it from any event loop.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar, Token
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec
import trio

from ...protocol.control.caller import LOCAL
from ...protocol.errors import JournalError, ShuttingDown, UsageError
from ...protocol.requests import Limits, RunRequest
from ...supervisors import Actor, Bus, Desk, End
from ...supervisors import Root as Kernel
from ...supervisors.event_loops import Call, Loop, LoopThread
from ..io.directories import cache_dir, journal_dir, private_directory, state_dir
from ..io.directories import config_dir as configured
from ..io.settings import load_settings
from ..io.vault.vault import AskPassphrase, Vault
from ..work.models.engines import LocalEngines
from ..work.models.gateway import Gateway
from ..work.tools.registry import ToolRegistry
from .loading import Loader

if TYPE_CHECKING:
    from outcome import Outcome as Result

    from ...protocol.mcp.config import Server
    from ...protocol.outcome import Outcome
    from ...supervisors.journal.journal import Journal
    from ..work.context import Part
    from ..work.journal.of_run import OfRun
    from ..work.knowledge.base.model import BuildReport
    from ..work.knowledge.recipe import Recipe
    from ..work.knowledge.service import Knowledge
    from ..work.mcp.pool.servers import McpServers
    from ..work.sandbox.place import Place
    from ..work.spending.book import Book
    from ..work.spending.days import Days
    from ..work.spending.meter import Meter
    from .sessions.live import Sessions

current: ContextVar[Root | None] = ContextVar("callboard_root", default=None)
"""The root of the block we are in."""

_open_roots: trio.lowlevel.RunVar[int] = trio.lowlevel.RunVar("callboard_open_roots", default=0)
"""How many roots are open in this trio loop."""

END_WITHIN = 2.0
"""Seconds for an actor to end in when the task that waits for it is cancelled."""

PRUNE_WITHIN = 2.0
"""Seconds for the removal of old durable runs, which the next process goes on with."""

T = TypeVar("T")

log = logging.getLogger("callboard.journal")


async def played(root: Root, body: Callable[[Actor], Awaitable[None]], *, name: str) -> None:
    """Run the actor of a server to its end; its crash is raised."""
    await _ended(root, body, name)


async def result_of(root: Root, body: Callable[[Actor], Awaitable[T]], *, name: str) -> T:
    """Run an actor beside all runs, and return what its body returns; its crash is raised. It ends with its caller.

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
    """Check that `what` may open a root of its own here.

    Raises:
        UsageError: there is no trio to run on; or another root is open in this event loop, whose limits, connections
            and servers the new one would not share.
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


def in_asyncio() -> bool:
    """Whether a loop of asyncio runs in this thread; imports nothing."""
    asyncio = sys.modules.get("asyncio")
    try:
        return asyncio is not None and asyncio.get_running_loop() is not None
    except RuntimeError:  # its way to say no
        return False


def _tell_trouble(trouble: str) -> None:
    if trouble:
        log.warning(
            "durable runs wait before they change anything: %s can't be written (%s); free some space there, or run "
            "with --ephemeral",
            journal_dir(os.environ),
            trouble,
        )
    else:
        log.warning("durable runs go on: what they do can be kept again")


class Root:
    """See the module.

    Args:
        config_dir: where agents and `config.yaml` live; see `directories.config_dir`.
        signals: own SIGINT, SIGTERM and SIGHUP (main thread only), as the command line does.
        stop_within: seconds from the beginning of the stop to its end.
        on_signal: called with a signal's number and how many there were.
        patient: questions wait for a front end that is not there yet.
        dry_run: no request goes to a model; see `Settings.dry_run`.
        ask_passphrase: has a person type the passphrase of the vault; without it no person is there.
        serving: the process lives long: unused MCP servers are kept for a while.
        keeps_usage: what is spent on models is kept by day, for `callboard usage`.
        on_hangup, hangup_ends, on_drain: see `supervisors.Root`.

    Attributes:
        kernel: the supervision tree.
        settings: what `config.yaml` and the environment say; `problems` what is odd about that.
        vault: has the secrets that files name.
        gateway: the way to models.
        registry: the tools there are.
        loader: loads what is to be run.
        book: what is spent on models by day; None if that is not kept.
        days: what may be spent on a day; None but for a server, which sets it.
        kept: the durable runs that are under way, by id.
        elsewhere: has parts of runs played elsewhere; None but for a worker of a cluster, which sets it.

    Raises:
        ConfigError: `config.yaml` has errors (at the beginning of the block).
    """

    def __init__(
        self,
        *,
        config_dir: str | os.PathLike[str] | None = None,
        signals: bool = False,
        stop_within: float = 3.0,
        on_signal: Callable[[int, int], None] | None = None,
        patient: bool = False,
        serving: bool = False,
        keeps_usage: bool = False,
        dry_run: bool = False,
        ask_passphrase: AskPassphrase | None = None,
        on_hangup: Callable[[], None] | None = None,
        hangup_ends: Callable[[], bool] | None = None,
        on_drain: Callable[[], None] | None = None,
    ) -> None:
        self.config_dir, _ = configured(config_dir, os.environ)
        self.settings, self.problems = load_settings(self.config_dir)
        if serving:  # its errors reach remote callers, who are not told this machine's paths
            self.settings = msgspec.structs.replace(self.settings, file=Path(self.settings.file).name)
        if dry_run:
            self.settings = msgspec.structs.replace(self.settings, dry_run=True)
        self.kernel = Kernel(
            signals=signals,
            stop_within=stop_within,
            on_signal=on_signal,
            patient=patient,
            on_hangup=on_hangup,
            hangup_ends=hangup_ends,
            on_drain=on_drain,
        )
        self.vault = Vault(self.settings, self.config_dir, os.environ, self.kernel, ask=ask_passphrase)
        self.gateway: Gateway
        self.registry = ToolRegistry(self.config_dir, self.settings, os.environ)
        self.loader = Loader(self.config_dir, self.registry)
        self._opening = threading.Lock()
        self._serving = serving
        self._mcp: McpServers | None = None
        self._knowledge: Knowledge | None = None
        self._sessions: Sessions | None = None
        self._journal: Journal | None = None
        self._opening_journal = trio.Lock()
        self.kept: dict[str, OfRun] = {}
        self.elsewhere: Callable[[RunRequest, Actor, Part], Awaitable[Outcome]] | None = None
        self.days: Days | None = None
        self.book: Book | None = None
        if keeps_usage:
            from ..work.spending.book import Book, BookFile

            self.book = Book(self.kernel, BookFile(self.usage_file), now=time.time)
        self._thread: LoopThread | None = None
        self._token: Token[Root | None] | None = None

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
        self._token = current.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._token is not None:
            with suppress(ValueError):  # it was entered by another task, as in a cell of a notebook
                current.reset(self._token)
        if self._thread is None:
            return await self._close(kind, error, trace)
        await self._thread.close()
        return None

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """The block under asyncio, in the root's own loop."""
        await self._open()
        current.set(self)
        try:
            yield
        except BaseException as error:  # the kernel cancels the block when one of its actors has crashed
            if not await self._close(type(error), error, error.__traceback__):
                raise
        else:
            await self._close(None, None, None)

    async def _open(self) -> None:
        await self.kernel.__aenter__()
        _open_roots.set(_open_roots.get() + 1)
        engines = LocalEngines(self.kernel, os.environ)
        self.gateway = Gateway(self.kernel, self.settings, os.environ, engines=engines, vault=self.vault)

    async def _close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        _open_roots.set(_open_roots.get() - 1)
        await self.kernel.stop()
        if self.kernel.loop is not None:
            await self.kernel.loop.close()
        closing = AsyncExitStack()  # the last first, each whatever becomes of those before it
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

        A cancelled caller returns when the function has ended. `current` is this root. It is no coroutine function, so
        that a run in the root's own loop has no frame more to resume at each step.

        Raises:
            UsageError: the root is not open.
            ShuttingDown: the root ends.
        """
        loop = self._loop
        if trio.lowlevel.in_trio_task() and trio.lowlevel.current_trio_token() is loop.token:
            return function() if current.get() is self else self._within(function)
        return loop.call(partial(self._within, function))

    def start(self, function: Callable[[], Awaitable[T]], deliver: Callable[[Result[T]], object]) -> Call[T]:
        """Start `function()` in this root's event loop, as `call` does; `deliver` gets its result there."""
        return self._loop.start(partial(self._within, function), deliver)

    def call_blocking(self, function: Callable[[], Awaitable[T]]) -> T:
        """As `call`, from a thread without an event loop."""
        return self._loop.call_blocking(partial(self._within, function))

    @property
    def _loop(self) -> Loop:
        if self.kernel.loop is None:
            raise UsageError("this callboard.Root is not open: use it inside of `async with callboard.Root() as root:`")
        return self.kernel.loop

    async def _within(self, function: Callable[[], Awaitable[T]]) -> T:
        if current.get() is self:
            return await function()
        token = current.set(self)
        try:
            return await function()
        finally:
            current.reset(token)

    async def _close_models(self) -> None:
        with self.kernel.shield(1.0):
            await self.gateway.aclose()
            if self._knowledge is not None:
                await self._knowledge.aclose()

    async def _close_journal(self, journal: Journal) -> None:
        if self.kernel.signal is None and not self._serving:
            from .keeping import prune_if_due

            with self.kernel.shield(PRUNE_WITHIN):
                await trio.to_thread.run_sync(prune_if_due, self.settings, journal.sign, abandon_on_cancel=True)
        with trio.CancelScope(shield=True):  # it has a bound of its own
            if not await journal.aclose():
                where, why = journal.directory, journal.trouble
                log.warning(
                    "runs of this process can't be resumed as they are now: %s can't be written (%s)", where, why
                )

    async def journal(self) -> Journal:
        """What durable runs are kept in; opened when this is first asked for.

        Raises:
            JournalError: none can be kept.
        """
        if self._journal is not None:
            return self._journal
        async with self._opening_journal:
            if self._journal is None:
                from ...supervisors.journal.journal import open_journal

                directory = journal_dir(os.environ)
                try:
                    await trio.to_thread.run_sync(private_directory, directory.parent)
                except OSError as error:
                    raise JournalError(f"no run can be kept in {directory}: {error.strerror or error}") from error
                self._journal = await open_journal(directory, _tell_trouble)
            return self._journal

    def keep_in(self, journal: Journal) -> None:
        """Have durable runs kept in this journal, which is closed with the root; before any run begins."""
        self._journal = journal

    @property
    def journal_in_use(self) -> Journal | None:
        """The journal, once it was asked for."""
        return self._journal

    @property
    def usage_file(self) -> Path:
        """Where it is kept what is spent on models."""
        return state_dir(os.environ) / "usage.db"

    @property
    def questions(self) -> Desk:
        """Every run's open questions; attach a front end here."""
        return self.kernel.questions

    @property
    def bus(self) -> Bus:
        """Every run's events."""
        return self.kernel.bus

    @property
    def mcp(self) -> McpServers:
        """The MCP servers of `mcp.json`, which is read when this is first asked for; they end with the kernel."""
        with self._opening:  # threads that load targets ask for them, too
            if self._mcp is None:
                from ..work.mcp.client.connect import Abilities
                from ..work.mcp.files import load_mcp
                from ..work.mcp.pool.servers import McpServers

                self._mcp = McpServers(
                    self.kernel,
                    load_mcp(self.config_dir),
                    environ=os.environ,
                    cache=cache_dir(os.environ),
                    secrets=os.environ,
                    vault=self.vault,
                    abilities=Abilities(elicitation=True, sampling=True),
                    settings=self.settings.mcp_pool,
                    serving=self._serving,
                    read_again=lambda: load_mcp(self.config_dir),
                    place_of=self._place_of,
                )
        return self._mcp

    def _place_of(self, server: Server) -> Place | None:
        """How a server is held that is started before any run wants it; None for not at all."""
        said = self.settings.sandbox
        if said == "off":
            return None
        from ..work.sandbox.of_run import before_any_run

        return before_any_run(said, self.config_dir.absolute(), os.environ).of_server(server.name, server.words)

    def mcp_servers(self) -> McpServers:
        """`mcp`, for those who may never ask."""
        return self.mcp

    @property
    def mcp_in_use(self) -> McpServers | None:
        """The MCP servers, once they were asked for."""
        return self._mcp

    @property
    def sessions(self) -> Sessions:
        """The conversations that are kept; made when this is first asked for."""
        if self._sessions is None:
            from .sessions.live import Sessions

            self._sessions = Sessions(self)
        return self._sessions

    @property
    def knowledge(self) -> Knowledge:
        """The knowledge bases; made when this is first asked for, they end with the kernel."""
        if self._knowledge is None:
            from ..work.knowledge.service import Knowledge

            self._knowledge = Knowledge(self.kernel, self.settings, os.environ, self.gateway.gates, self.vault)
        return self._knowledge

    async def build_knowledge(self, recipe: Recipe, owner: str, *, rebuild: bool = False) -> BuildReport:
        """Build a knowledge base for a subject, which pays for it, as an actor that ends with the caller.

        Raises:
            CallboardError: the subject may spend no more today; or see `Knowledge.build`.
        """
        if self.days is not None:
            await self.days.check(owner)

        async def build(me: Actor) -> BuildReport:
            with self.knowledge.charges.on(self.meter(owner)):
                return await self.knowledge.build(me, recipe, rebuild=rebuild)

        return await result_of(self, build, name="rag")

    def meter(self, owner: str = LOCAL.subject) -> Meter:
        """Counts what is done for a subject beside its runs."""
        from ..work.spending.meter import Meter

        day = None if self.days is None else self.days.account(owner)
        return Meter(Limits(), owner=owner, book=self.book, day=day)

    def end_run(self, id: str) -> None:
        """A run is over, and so is what only that run has used."""
        self.kept.pop(id, None)
        if self._knowledge is not None:
            self._knowledge.charges.end_run(id)
        if self._mcp is not None:
            self._mcp.end_run(id)

    def begin_stop(self) -> None:
        """Admit no new run and interrupt those that are under way; returns at once. From any thread."""
        self.kernel.begin_stop()
