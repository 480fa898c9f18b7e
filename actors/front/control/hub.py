"""The hub: what all front ends of a process share, however they are reached.

    async with open_hub(root) as hub:
        info = await hub.start(caller, StartRun(target="researcher", prompt="..."))
        with hub.subscribe(caller, info.run) as events:
            async for event in events:
                ...

Every method takes the caller, and decides by it what may be done and seen. A run belongs to the subject that has
started it. Other callers get it with the scope `admin:runs`, `Denied` with `read:runs`, and else `NotFound`. A caller
that goes away changes nothing: the hub owns the runs.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control.caller import Caller
from ....protocol.control.own import StartRun
from ....protocol.control.things import GraphPicture, RunInfo, TargetInfo
from ....protocol.errors import Conflict, ShuttingDown, UsageError
from ....protocol.events import TERMINAL, Event
from ....protocol.kernel.questions import Question
from ....protocol.mcp.status import ServerStatus
from ....protocol.outcome import Outcome
from ....protocol.requests import RunRequest
from ...io.outbox import UnreadOfAll
from ...runs.execution import NUMBERS
from ...runs.keeping import remove_kept
from ...runs.loading import NO_HOOKS, Hooks
from .actors import Actors
from .answering import answer
from .listing import first_page
from .logs.reading import LoggedEvent
from .logs.runs import RunLogs, is_settled, order
from .open_questions import OpenQuestions, QuestionFeed
from .requests import check_model, request_of
from .resuming import Resuming
from .runs.dormant import Dormant
from .runs.live_run import HubOptions
from .runs.running import Running, check_owner, elsewhere, no_run, sees
from .runs.summary import outcome_of
from .subscription import Lagged, Subscription

if TYPE_CHECKING:
    from ...runs.root import Root
    from .cluster import Cluster
    from .peer import Method
    from .sessions import HubSessions

log = logging.getLogger("callboard.control")

PRUNE_AFTER = 1.0
"""Seconds in which runs that end gather before the oldest ones are removed, all at once."""

LOOK_EVERY = 2.0
"""Seconds between two looks at what other processes have begun and ended."""

END_WITHIN = 6.0
"""Seconds for the logs to be written at the end."""


class Hub:
    """See the module, and `opening.open_hub`.

    Attributes:
        root: what the runs share.
        logs: what is kept of runs.
        options, cluster: see there.
        running: its runs that are under way; dormant: those of them that wait for people alone.
        sessions: starts runs that belong to a session.
        resuming: goes on with runs whose process was killed.
        actors: what can be seen of the actors of runs, and done with them.
        methods: what a peer may be asked, by name.
        unread: what the connections of each key have not read yet.
        shown: the questions that are open.
        since: when it was opened, in trio's time.
        closing: set before the process ends: nothing new begins.
    """

    def __init__(
        self,
        root: Root,
        logs: RunLogs,
        options: HubOptions,
        redact: Callable[[bytes], bytes] | None,
        cluster: Cluster | None = None,
    ) -> None:
        self.root = root
        self.cluster = cluster
        self.logs = logs
        self.options = options
        self.sessions: HubSessions
        self.resuming: Resuming
        self.methods: dict[str, Method] = {}
        self.since = trio.current_time()
        self.closing = False
        self.unread = UnreadOfAll()
        self.shown = OpenQuestions(self.options.questions)
        self._pictures: dict[str, GraphPicture] = {}
        self.running = Running(root, logs, self.options, redact)
        self.dormant = Dormant(root, self.running, self.shown, root.settings.durable.dormant_after)
        self.actors = Actors(root, self.running, self.get)

    def complete(self, sessions: HubSessions) -> None:
        """Take what plays turns of sessions."""
        self.sessions = sessions
        self.resuming = Resuming(self.root, self.logs, self.running, sessions, self.dormant)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[trio.Nursery]:
        """Listen, and let runs go on, while the block lasts; what goes on beside them is put into the nursery."""
        try:
            with self.root.bus.listen(self._hear), self.root.questions.attach(self.shown):
                async with trio.open_nursery() as nursery:
                    self.running.nursery = nursery
                    nursery.start_soon(self._prune)
                    nursery.start_soon(self._look_around)
                    nursery.start_soon(self.dormant.work)
                    yield nursery
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise

    # --- runs ---------------------------------------------------------------------------------------------

    @property
    def under_way(self) -> int:
        """How many runs have no end yet."""
        return self.running.under_way

    @property
    def being_told(self) -> int:
        """How many follow a run that is over and have not heard all of it."""
        followed = [self.running.known(reader.run) for reader in self.logs.readers]
        return sum(info is not None and info.over for info in followed)

    async def start(self, caller: Caller, wanted: StartRun) -> RunInfo:
        """Start a run; returns when it has begun.

        Raises:
            Denied, Saturated: the caller may not do this; too much is under way.
            UsageError, InvalidFile, Unsupported, ConfigError: the run could not start.
        """
        request = await self.request(caller, wanted)
        if wanted.session is not None:
            if self.cluster is None or not self.cluster.takes(RunInfo(run="", session=wanted.session), request):
                return await self.sessions.start(caller, wanted.session, request, title=wanted.title)
            caller.need("write:sessions")
        return await self.begin(caller, request, title=wanted.title, session=wanted.session)

    async def request(self, caller: Caller, wanted: StartRun) -> RunRequest:
        """What the caller wants, as far as it may want it. Raises as `start` does."""
        self.check_open()
        return await trio.to_thread.run_sync(self._request, caller, wanted)

    def _request(self, caller: Caller, wanted: StartRun) -> RunRequest:
        request = request_of(caller, wanted, self.root.config_dir)
        check_model(caller, wanted.model, self.root)
        return request

    def hooks(self, caller: Caller, hooks: Hooks = NO_HOOKS) -> Hooks:
        """The hooks of what the caller has played in a role, whose file may name a model, too."""
        return msgspec.structs.replace(hooks, check_model=lambda model: check_model(caller, model, self.root))

    def check_open(self) -> None:
        """Raise `ShuttingDown` once nothing new begins here."""
        if self.closing:
            raise ShuttingDown("the server is about to end and begins nothing new")

    async def begin(
        self,
        caller: Caller,
        request: RunRequest,
        hooks: Hooks = NO_HOOKS,
        *,
        title: str = "",
        session: str | None = None,
        durable: bool = True,
    ) -> RunInfo:
        """Start a run whose request was checked (`request`). Raises as `start` does.

        Args:
            title: what lists call it.
            session: the id of the session that it is a turn of.
            durable: false: nobody would want it to go on after a kill, as it goes with who asked for it.
        """
        self.check_open()
        self.running.check_room()
        if request.role is not None:
            hooks = self.hooks(caller, hooks)
        info = RunInfo(run="", owner=caller.subject, title=title, session=session)
        if self.cluster is not None and not hooks.binds and self.cluster.takes(info, request):
            return await self.cluster.start(info, request)
        return self.get(caller, await self.running.start(info, request, hooks, durable=durable))

    async def resume(self, caller: Caller, run: str, *, with_changes: bool = False) -> RunInfo:
        """Go on with a run whose process was killed; see `Resuming.resume`. Returns when it has begun."""
        caller.need("write:runs")
        self.check_open()
        info = await self.look(caller, run)
        if self.cluster is not None and self.cluster.has(run):
            await self.cluster.resume(run, with_changes=with_changes)
        else:
            await self.resuming.resume(info, with_changes=with_changes)
        return self.get(caller, run)

    def list(
        self, caller: Caller, *, status: str | None = None, limit: int = 100, before: str | None = None
    ) -> builtins.list[RunInfo]:
        """Runs, newest first, past ones included; `before` is the id of the last one of the page before."""
        caller.need("read:runs")
        last = None if before is None else order(self.get(caller, before))
        live = self.running.live
        past = (info for id, info in self.logs.past.items() if id not in live)
        runs = [info for info in (*past, *(record.info for record in live.values())) if sees(caller, info.owner)]
        runs.sort(key=order, reverse=True)
        found = [info for info in runs if status in (None, info.status) and (last is None or order(info) < last)]
        return found[: max(0, limit)]

    def page(
        self, caller: Caller, *, status: str | None = None, limit: int = 100, before: str | None = None
    ) -> tuple[builtins.list[RunInfo], str | None]:
        """As `list`, but no more than can be sent at once; and the `before` of the next page, if there is one."""
        return first_page(self.list(caller, status=status, limit=limit + 1, before=before), limit)

    def get(self, caller: Caller, run: str) -> RunInfo:
        """One run.

        Raises:
            NotFound, Denied: see the module.
        """
        record = self.running.live.get(run)
        info = record.info if record is not None else self.logs.get(run)
        if info is None:
            raise no_run(run)
        check_owner(caller, info.owner, info.run)
        return info

    async def look(self, caller: Caller, run: str) -> RunInfo:
        """As `get`; what another process may have changed is read in a thread."""
        past = self.logs.past.get(run)
        if run in self.running.live or (past is not None and past.over):
            return self.get(caller, run)
        return await trio.to_thread.run_sync(self.get, caller, run)

    async def wait(self, caller: Caller, run: str) -> Outcome:
        """How the run ends, or ended. Who waits may be cancelled: the run goes on.

        Raises:
            Conflict: it goes on in another process.
        """
        self.get(caller, run)
        await self.dormant.woken(run)
        info, record = self.get(caller, run), self.running.live.get(run)
        if record is None:
            if self.cluster is not None and self.cluster.has(run):
                info = await self.cluster.over(run)
            elif not info.over:
                raise elsewhere(run)
            return outcome_of(info, await self.logs.last(run))
        await record.ended()
        return outcome_of(record.info, record.ring[-1])

    def cancel(self, caller: Caller, run: str) -> bool:
        """Cancel a run; False if it has ended already.

        Raises:
            Conflict: it goes on in another process.
        """
        caller.need("write:runs")
        info = self.get(caller, run)
        if self.dormant.has(run):
            self.running.nursery.start_soon(self.dormant.cancel, run)
            return True
        if not info.over and run not in self.running.live:
            if self.cluster is None or not self.cluster.has(run):
                raise elsewhere(run)
            self.running.nursery.start_soon(self.cluster.cancel, run, caller.called)
            return True
        actor = self.root.kernel.actor.child(run)
        if actor is None or actor.end is not None:
            return False
        actor.interrupt()
        return True

    async def delete(self, caller: Caller, run: str) -> None:
        """Remove a run that is over or was interrupted, with all that is kept of it.

        Raises:
            Conflict: it is under way.
            Damaged: what is kept of it to go on with can't be read.
        """
        caller.need("write:runs")
        info = self.get(caller, run)
        if not info.over:
            raise Conflict(f"{run} is under way; cancel it first")
        if self.cluster is not None and self.cluster.has(run):
            await self.cluster.delete(run)
            return
        if run in self.running.live:  # its log is about to be closed
            await self.logs.flush()
        record = self.running.live.pop(run, None)
        if record is not None:  # its log can't be written now
            record.log.forget()
            await self.logs.flush()
        await trio.to_thread.run_sync(remove_kept, run)
        await self.logs.remove(run)

    def subscribe(self, caller: Caller, run: str, after: int = 0) -> Subscription:
        """Every event after number `after`: those of the past, then each as it happens, to the run's last.

        Raises:
            UsageError: `after` is negative, or beyond the newest event.
        """
        info = self.get(caller, run)
        record = self.running.live.get(run)
        unknown = record is None and not is_settled(info)  # of another process, or one that was killed
        newest = max(after if unknown else info.seq, info.life * NUMBERS if info.life > 1 else 0)
        if not 0 <= after <= newest:
            raise UsageError(f"`after` is a number from 0 to {newest}, that of the newest event, not {after}")
        return Subscription(self.logs, info, record, after)

    async def follow(
        self, caller: Caller, run: str, take: Callable[[LoggedEvent], Awaitable[None]], after: int = 0
    ) -> None:
        """Give every event after number `after` to `take`, up to the run's last; a slow reader goes on from the log."""
        while True:
            with self.subscribe(caller, run, after) as events:
                try:
                    async for event in events:
                        after = event.seq
                        await take(event)
                except Lagged:
                    continue
            return

    async def events(self, caller: Caller, run: str, after: int = 0, limit: int = 1000) -> builtins.list[LoggedEvent]:
        """A page of what has happened after number `after`: at least one event if there is any, and `limit` at most."""
        self.get(caller, run)
        record = self.running.live.get(run)
        if record is not None:
            if record.has(after):
                return record.after(after)[:limit]
            await self.logs.flush()
        found = await self.logs.several(run, after, limit)
        if not found and record is not None:  # they could not be written down; what is in memory comes after them
            found = record.after(max(after, record.first - 1))[:limit]
        return found

    def graph_of(self, caller: Caller, run: str) -> GraphPicture:
        """What runs there, as a drawing.

        Raises:
            NotFound: its file is not there any more.
        """
        info = self.get(caller, run)
        if (found := self._pictures.get(run)) is None:
            from .targets import picture_of

            found = picture_of(info.target, self.root.config_dir)
            if run in self.running.live and not info.over:
                self._pictures[run] = found
        return found

    async def targets(self, caller: Caller) -> builtins.list[TargetInfo]:
        """What can be started by its name."""
        from .targets import targets

        caller.need("read:agents")
        return await targets(self.root)

    async def target(self, caller: Caller, name: str) -> TargetInfo | None:
        """What a name starts; None for nothing."""
        from .targets import target

        caller.need("read:agents")
        return await target(self.root, name)

    # --- questions ----------------------------------------------------------------------------------------

    def questions(self, caller: Caller, run: str | None = None) -> builtins.list[Question]:
        """Those that wait for an answer, oldest first."""
        if run is not None:
            self.get(caller, run)
        asked = self.shown.open.values()
        return [each for each in asked if run in (None, each.run) and sees(caller, self.running.owner_of(each.run))]

    async def answer(self, caller: Caller, question: str, value: str | builtins.list[str]) -> bool:
        """Answer a question; False if it is not open any more.

        That of a durable run has its answer when that is on the disk. One whose run was interrupted gets it when the
        run goes on.

        Raises:
            JournalError, ShuttingDown: the answer can't be kept, so it counts for this process alone, or for none.
            Conflict: an answer was left for it before, or must not be left.
        """
        return await answer(self, self.shown, caller, question, value)

    def watch_questions(self, caller: Caller) -> contextlib.AbstractContextManager[QuestionFeed]:
        """The open ones, then each as it is asked or closed."""
        return self.shown.watch(lambda question: sees(caller, self.running.owner_of(question.run)))

    # --- what runs share ----------------------------------------------------------------------------------

    def mcp_status(self, caller: Caller) -> builtins.list[ServerStatus]:
        """The MCP servers of `mcp.json`, running or not."""
        caller.need("admin:mcp")
        return self.root.mcp.status()

    async def mcp_reload(self, caller: Caller, server: str | None = None) -> builtins.list[str]:
        """Read `mcp.json` again and start what runs anew: one server, or all; their names."""
        caller.need("admin:mcp")
        return await self.root.mcp.reload(server)

    # --- inside -------------------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        """Everything that happens under this root, at once, in the task in which it happens."""
        try:
            if event.run:
                self.running.hear(event)
            self.actors.take(event)
            if event.kind in TERMINAL:
                self._pictures.pop(event.run, None)
        except Exception:  # reported; a listener that raises is dropped, and that would end every run's log
            log.exception("the hub could not take event %d of %s (%s)", event.seq, event.run, event.kind)

    async def _prune(self) -> None:
        """Remove what is beyond the number of runs that are kept, soon after it is."""
        while True:
            await self.logs.prune()
            await self.logs.grown()
            await trio.sleep(PRUNE_AFTER)

    async def _look_around(self) -> None:
        """Notice the runs of other processes that write into the same directory."""
        while True:
            await trio.sleep(LOOK_EVERY)
            await self.logs.look_again(self.running.live.keys() | self.resuming.held | self.dormant.runs.keys())
