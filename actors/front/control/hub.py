"""The hub: runs, questions and actors of a process, shared by all its front ends.

    async with open_hub(root) as hub:
        info = await hub.start(caller, StartRun(target="researcher", prompt="..."))
        with hub.subscribe(caller, info.run) as events:
            async for event in events:
                ...

Every method takes the caller, whose subject and scopes decide its permissions. A run belongs to the subject that
started it. Another caller needs the scope `admin:runs` to get the run. Without that scope, the hub raises `Denied` if
the caller has `read:runs`, else `NotFound`, which does not reveal that the run exists. The hub owns the runs: a caller
that disconnects does not affect them.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.control.caller import Caller
from ....protocol.control.method_structs import Events, StartRun
from ....protocol.control.resources import GraphPicture, RunInfo, ServerStatus, TargetInfo
from ....protocol.errors import Conflict, ShuttingDown, UsageError
from ....protocol.events import TERMINAL, Event
from ....protocol.kernel.questions import Question
from ....protocol.outcome import Outcome
from ....protocol.requests import RunRequest
from ...io.outbox import UnreadOfAll
from ...runs.execution import NUMBERS
from ...runs.loading import NO_HOOKS, RunCallbacks
from ...runs.stored_runs import leave_for, remove_stored_run
from ...work.journal.pending_answers import run_of
from .actors import HubActors
from .logs.files import LoggedEvent
from .logs.run_logs import RunLogs, order
from .requests import check_model, request_of
from .resuming import Resuming
from .runs.dormant import Dormant
from .runs.live_run import HubOptions
from .runs.running import Running, check_owner, no_run, owned_by_other_process, sees
from .runs.summary import outcome_of
from .sessions import HubSessions
from .subscriptions import Lagged, OpenQuestions, QuestionFeed, Subscription

if TYPE_CHECKING:
    from ...runs.root import Root
    from .cluster import Cluster

log = logging.getLogger("callboard.control")

PRUNE_AFTER = 1.0
"""Seconds to collect runs that end, before `_prune` removes the oldest ones in one pass."""

LOOK_EVERY = 2.0
"""Seconds between two scans for runs that other processes began and ended."""

LONGEST_PAGE = 256 * 1024
"""Bytes of a page of runs, unless a single one is longer."""

LONGEST_LISTED = 2_000
"""Characters of each run's output on a page; a request for a single run returns more of it."""

LONGEST_EVENTS_PAGE = 512 * 1024
"""Bytes of a page of events, unless a single one is longer."""

ASKED_AGAIN_WITHIN = 10.0
"""Seconds for a resuming run to ask its questions again."""

CHECK_EVERY = 0.5
"""Seconds between two checks whether it has asked."""

END_WITHIN = 6.0
"""Seconds to write the remaining log lines at shutdown."""


class Method(msgspec.Struct, frozen=True):
    """JSON-RPC method of the control channel: the structs of its parameters and result, and its handler.

    Attributes:
        params: struct of its parameters.
        result: struct of its result.
        call: called with the connection and the parameters; returns the result, an awaitable of the result, or
            `Follow`.
        long: true if the result may be long. The call then waits for room in the transport, and one API key runs only
            a few such awaitables at a time.
        notification: true if the method has no answer.
    """

    params: Any
    result: Any
    call: Callable[[Any, Any], Any]
    long: bool = False
    notification: bool = False


class Hub:
    """Entry point for all operations on runs; create it with `methods.open_hub`.

    Attributes:
        root: services that the runs share.
        logs: stored logs and summaries of runs.
        options: memory and disk limits, see `HubOptions`.
        cluster: runs that other processes execute, see `Cluster`; None outside a cluster.
        running: runs under way in this process.
        dormant: runs unloaded from memory until a user answers their questions.
        sessions: starts runs that are turns of a session.
        resuming: resumes runs whose process was killed.
        actors: lists and controls the actors of runs.
        methods: methods that a peer can call, by name.
        unread: unread output of the connections of each API key.
        shown: the open questions.
        since: time of opening, by trio's clock.
        closing: set before the process ends; from then on no run starts.
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
        self.sessions = HubSessions(self)
        self.methods: dict[str, Method] = {}
        self.since = trio.current_time()
        self.closing = False
        self.unread = UnreadOfAll()
        self.shown = OpenQuestions(self.options.questions)
        self._pictures: dict[str, GraphPicture] = {}
        self.running = Running(root, logs, self.options, redact)
        self.dormant = Dormant(root, self.running, self.shown, root.settings.durable.dormant_after)
        self.resuming = Resuming(root, logs, self.running, self.sessions, self.dormant)
        self.actors = HubActors(root, self.running, self.get)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[trio.Nursery]:
        """Listen for events and execute runs while the block lasts; yields a nursery for other background tasks.

        The hub cancels the nursery at the end of the block.
        """
        try:
            with self.root.bus.listen(self._hear), self.root.kernel.questions.attach(self.shown):
                async with trio.open_nursery() as nursery:
                    self.running.nursery = self.sessions.nursery = nursery
                    nursery.start_soon(self._prune)
                    nursery.start_soon(self._discover_runs)
                    nursery.start_soon(self.dormant.work)
                    yield nursery
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # The nursery wraps an error of the block into a group; callers of `open_hub` expect the error itself.
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise

    # --- runs ---------------------------------------------------------------------------------------------

    @property
    def under_way(self) -> int:
        """Number of runs that have not ended."""
        return self.running.under_way

    @property
    def followers_behind(self) -> int:
        """Number of existing subscriptions to finished runs; a reader drops its own after the last event."""
        followed = [self.running.known(reader.run) for reader in self.logs.readers]
        return sum(info is not None and info.over for info in followed)

    async def start(self, caller: Caller, wanted: StartRun) -> RunInfo:
        """Start a run and return when it has begun.

        Raises:
            Denied, Saturated: the caller lacks a permission; too many runs are under way.
            UsageError, InvalidFile, Unsupported, ConfigError: the run could not start.
        """
        request = await self.request(caller, wanted)
        if wanted.session is not None:
            if self.cluster is None or not self.cluster.takes(RunInfo(run="", session=wanted.session), request):
                return await self.sessions.start(caller, wanted.session, request, title=wanted.title)
            caller.need("write:sessions")
        return await self.begin(caller, request, title=wanted.title, session=wanted.session)

    async def request(self, caller: Caller, wanted: StartRun) -> RunRequest:
        """Return the run request for `wanted`, checked against the caller's scopes. Raises as `start` does."""
        self.check_open()
        return await trio.to_thread.run_sync(self._request, caller, wanted)

    def _request(self, caller: Caller, wanted: StartRun) -> RunRequest:
        request = request_of(caller, wanted, self.root.config_dir)
        check_model(caller, wanted.model, self.root)
        return request

    def hooks(self, caller: Caller, hooks: RunCallbacks = NO_HOOKS) -> RunCallbacks:
        """Return hooks that also check the model named in a role's file."""
        return msgspec.structs.replace(hooks, check_model=lambda model: check_model(caller, model, self.root))

    def check_open(self) -> None:
        """Raise `ShuttingDown` once the server starts no new runs."""
        if self.closing:
            raise ShuttingDown("the server is shutting down and starts nothing new")

    async def begin(
        self,
        caller: Caller,
        request: RunRequest,
        hooks: RunCallbacks = NO_HOOKS,
        *,
        title: str = "",
        session: str | None = None,
        durable: bool = True,
    ) -> RunInfo:
        """Start a run whose request `request` has checked. Raises as `start` does.

        Args:
            title: title of the run in lists.
            session: id of the session that the run is a turn of.
            durable: false for a run that must not outlive its requester, so a resume after a kill is useless.
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
        """Resume a run whose process was killed; returns when it has begun. Raises as `Resuming.resume` does."""
        caller.need("write:runs")
        self.check_open()
        info = await self.read_run(caller, run)
        if self.cluster is not None and self.cluster.has(run):
            await self.cluster.resume(run, with_changes=with_changes)
        else:
            await self.resuming.resume(info, with_changes=with_changes)
        return self.get(caller, run)

    def list(
        self, caller: Caller, *, status: str | None = None, limit: int = 100, before: str | None = None
    ) -> builtins.list[RunInfo]:
        """Return at most `limit` runs that the caller may see, newest first, whether under way or over.

        Args:
            status: only runs with this status.
            before: id of the last run of the previous page.
        """
        caller.need("read:runs")
        last = None if before is None else order(self.get(caller, before))
        live = self.running.live
        # A live record is newer than the summary of an earlier incarnation.
        past = (info for id, info in self.logs.past.items() if id not in live)
        runs = [info for info in (*past, *(record.info for record in live.values())) if sees(caller, info.owner)]
        runs.sort(key=order, reverse=True)
        found = [info for info in runs if status in (None, info.status) and (last is None or order(info) < last)]
        return found[: max(0, limit)]

    def page(
        self, caller: Caller, *, status: str | None = None, limit: int = 100, before: str | None = None
    ) -> tuple[builtins.list[RunInfo], str | None]:
        """Return one page of `list`, limited in bytes, and the `before` of the next page or None."""
        # One more than the page has, to know whether another page follows.
        runs = self.list(caller, status=status, limit=limit + 1, before=before)
        page: builtins.list[RunInfo] = []
        size = 0
        for info in runs[:limit]:
            shown = info
            if len(info.output) > LONGEST_LISTED:
                cut = {"output": len(info.output), **info.cut}
                shown = msgspec.structs.replace(info, output=info.output[:LONGEST_LISTED], cut=cut)
            size += len(msgspec.json.encode(shown))
            # The first run is always on the page, or a client could never list past it.
            if page and size > LONGEST_PAGE:
                break
            page.append(shown)
        return page, page[-1].run if len(page) < len(runs) else None

    def get(self, caller: Caller, run: str) -> RunInfo:
        """Return a run.

        Raises:
            NotFound, Denied: the run does not exist or belongs to another subject (see the module docstring).
        """
        record = self.running.live.get(run)
        info = record.info if record is not None else self.logs.get(run)
        if info is None:
            raise no_run(run)
        check_owner(caller, info.owner, info.run)
        return info

    async def read_run(self, caller: Caller, run: str) -> RunInfo:
        """Return a run like `get`. Files that another process may have changed are read in a worker thread."""
        past = self.logs.past.get(run)
        if run in self.running.live or (past is not None and past.over):
            return self.get(caller, run)
        return await trio.to_thread.run_sync(self.get, caller, run)

    async def wait(self, caller: Caller, run: str) -> Outcome:
        """Wait for the end of a run and return its outcome. Cancelling the wait does not cancel the run.

        Raises:
            Conflict: another process executes the run.
        """
        self.get(caller, run)
        await self.dormant.woken(run)
        # Read after the wait: a dormant run gets a new record when it is loaded.
        info, record = self.get(caller, run), self.running.live.get(run)
        if record is None:
            if self.cluster is not None and self.cluster.has(run):
                info = await self.cluster.over(run)
            elif not info.over:
                raise owned_by_other_process(run)
            return outcome_of(info, await self.logs.last(run))
        await record.ended()
        return outcome_of(record.info, record.ring[-1])

    def cancel(self, caller: Caller, run: str) -> bool:
        """Cancel a run; returns False if it has already ended.

        Raises:
            Conflict: another process executes the run.
        """
        caller.need("write:runs")
        info = self.get(caller, run)
        if self.dormant.has(run):
            self.running.nursery.start_soon(self.dormant.cancel, run)
            return True
        if not info.over and run not in self.running.live:
            if self.cluster is None or not self.cluster.has(run):
                raise owned_by_other_process(run)
            self.running.nursery.start_soon(self.cluster.cancel, run, caller.called)
            return True
        actor = self.root.kernel.actor.child(run)
        # The run is live until its log is on disk, so its actor may be over already.
        if actor is None or actor.end is not None:
            return False
        actor.interrupt()
        return True

    async def delete(self, caller: Caller, run: str) -> None:
        """Delete a finished or interrupted run with its log, journal and other stored data.

        Raises:
            Conflict: the run is under way.
            Damaged: the journal of the run cannot be read.
        """
        caller.need("write:runs")
        info = self.get(caller, run)
        if not info.over:
            raise Conflict(f"{run} is active; cancel it first")
        if self.cluster is not None and self.cluster.has(run):
            await self.cluster.delete(run)
            return
        if run in self.running.live:  # the flush closes the log, which removes the record
            await self.logs.flush()
        record = self.running.live.pop(run, None)
        if record is not None:  # still live after a flush: the disk refuses writes, so drop the unwritten lines
            record.log.forget()
            await self.logs.flush()
        await trio.to_thread.run_sync(remove_stored_run, run)
        await self.logs.remove(run)

    def subscribe(self, caller: Caller, run: str, after: int = 0) -> Subscription:
        """Return a subscription to every event after number `after`: stored events, then new ones until the run ends.

        Raises:
            UsageError: `after` is negative, or greater than the number of the newest event.
        """
        info = self.get(caller, run)
        record = self.running.live.get(run)
        # A killed process may have sent events that it had not yet written. A client that saw them must not get
        # UsageError for its `after`: it gets the end of the run, or the events of the next incarnation.
        unknown = record is None and info.status not in ("done", "failed", "cancelled")
        newest = max(after if unknown else info.seq, info.life * NUMBERS if info.life > 1 else 0)
        if not 0 <= after <= newest:
            raise UsageError(f"`after` must be the number of an event, from 0 to {newest}, not {after}")
        return Subscription(self.logs, info, record, after)

    async def follow(
        self, caller: Caller, run: str, take: Callable[[LoggedEvent], Awaitable[None]], after: int = 0
    ) -> None:
        """Pass every event after number `after` to `take` until the run ends; a slow reader continues from the log."""
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
        """Return a page of events after number `after`: at most `limit`, and at least one if any exists."""
        self.get(caller, run)
        record = self.running.live.get(run)
        if record is not None:
            if record.has(after):
                return record.after(after)[:limit]
            await self.logs.flush()
        found = await self.logs.several(run, after, limit)
        if not found and record is not None:  # the log could not be written, so only the events of the ring remain
            found = record.after(max(after, record.first - 1))[:limit]
        return found

    async def page_of_events(self, caller: Caller, run: str, after: int, limit: int) -> Events:
        """Return a page of `events` with the `after` of the next page, which is None at the end of a finished run."""
        found = await self.events(caller, run, after, limit)
        sizes = accumulate(len(event.data) + 1 for event in found)
        # At least one event, however long, or a client could never read past it.
        found = found[: max(sum(size <= LONGEST_EVENTS_PAGE for size in sizes), 1)]
        last = found[-1].seq if found else after
        info = self.get(caller, run)
        # `not found`: the last events are lost if the log could not be written.
        at_the_end = info.over and (last >= info.seq or not found)
        return Events(events=[msgspec.Raw(event.data) for event in found], next=None if at_the_end else last)

    def graph_of(self, caller: Caller, run: str) -> GraphPicture:
        """Return the graph of a run as a drawing. Blocking: reads the target's files.

        Raises:
            NotFound: the target's file no longer exists or cannot be loaded.
        """
        info = self.get(caller, run)
        if (found := self._pictures.get(run)) is None:
            from .targets import picture_of

            found = picture_of(info.target, self.root.config_dir)
            # Cache only live runs: `_hear` drops the picture with the run's terminal event.
            if run in self.running.live and not info.over:
                self._pictures[run] = found
        return found

    async def targets(self, caller: Caller) -> builtins.list[TargetInfo]:
        """Return the agents that a run can start by name."""
        from .targets import targets

        caller.need("read:agents")
        return await targets(self.root)

    async def target(self, caller: Caller, name: str) -> TargetInfo | None:
        """Return the agent with this name, or None."""
        from .targets import target

        caller.need("read:agents")
        return await target(self.root, name)

    # --- questions ----------------------------------------------------------------------------------------

    def questions(self, caller: Caller, run: str | None = None) -> builtins.list[Question]:
        """Return the open questions that the caller may see, oldest first."""
        if run is not None:
            self.get(caller, run)
        asked = self.shown.open.values()
        return [each for each in asked if run in (None, each.run) and sees(caller, self.running.owner_of(each.run))]

    async def answer(self, caller: Caller, question: str, value: str | builtins.list[str]) -> bool:
        """Answer a question; returns False if it is no longer open.

        The answer to a durable run is on disk before this returns. An interrupted run gets its answer when it resumes.

        Raises:
            JournalError, ShuttingDown: the answer could not be stored, so at most this process has it.
            Conflict: an answer is already stored for it, or an answer must not be stored.
        """
        caller.need("answer:questions")
        asked = self.shown.open.get(question)
        run = run_of(question) if asked is None else asked.run  # some ids do not contain a run
        if self.cluster is not None and self.cluster.has(run):
            check_owner(caller, self.running.owner_of(run), run)
            return await self.cluster.answer(question, value, caller.called)
        # The state of the run may change between a check and the answer, so each route has its own safeguard.
        await self._wait_until_asked_again(question)
        asked = self.shown.open.get(question)
        if asked is None:
            return await self._store_answer(caller, question, value)
        check_owner(caller, self.running.owner_of(asked.run), asked.run)
        if self.dormant.has(asked.run):
            # A dormant run that is being unloaded or loaded: wait for the end of that change.
            await self.dormant.settled(asked.run)
            if await self.dormant.answer(asked, value, caller.called):
                return True
        return await self.root.kernel.questions.answer_for_good(question, value, by=caller.called)

    async def _wait_until_asked_again(self, question: str) -> None:
        """Wait while the asking run resumes and is about to ask again."""
        run = run_of(question)
        if not self.resuming.settles(run) or question in self.shown.open:
            return
        with trio.move_on_after(ASKED_AGAIN_WITHIN), self.shown.watch(lambda each: each.run == run) as feed:
            while self.resuming.settles(run) and question not in self.shown.open:
                with trio.move_on_after(CHECK_EVERY):
                    await anext(feed)

    async def _store_answer(self, caller: Caller, question: str, value: str | builtins.list[str]) -> bool:
        """Store an answer that an interrupted run reads when it resumes; returns False if no such run waits for it."""
        run = run_of(question)
        info = self.logs.past.get(run)
        if info is None or info.status != "interrupted" or run in self.running.live:
            return False
        check_owner(caller, info.owner, run)
        return await trio.to_thread.run_sync(leave_for, run, question, value, caller.called)

    def watch_questions(self, caller: Caller) -> contextlib.AbstractContextManager[QuestionFeed]:
        """Watch questions: the open ones first, then each change."""
        return self.shown.watch(lambda question: sees(caller, self.running.owner_of(question.run)))

    # --- what runs share ----------------------------------------------------------------------------------

    def mcp_status(self, caller: Caller) -> builtins.list[ServerStatus]:
        """Return the status of every MCP server of `mcp.json`, whether it runs or not."""
        caller.need("admin:mcp")
        return self.root.mcp.status()

    async def mcp_reload(self, caller: Caller, server: str | None = None) -> builtins.list[str]:
        """Read `mcp.json` again, and restart one running server, or all without a name; returns their names.

        Waits for calls under way. A server that only one run, agent or conversation shares restarts at its next call.
        """
        caller.need("admin:mcp")
        return await self.root.mcp.reload(server)

    # --- inside -------------------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        """Receive every event under this root, synchronously in the task that emits it."""
        try:
            if event.run:
                self.running.hear(event)
            self.actors.take(event)
            if event.kind in TERMINAL:
                self._pictures.pop(event.run, None)
        except Exception:  # logged, not raised: the bus drops a listener that raises, and every run's log would end
            log.exception("the hub could not process event %d of %s (%s)", event.seq, event.run, event.kind)

    async def _prune(self) -> None:
        """Delete runs beyond the retention limit shortly after they exceed it."""
        while True:
            await self.logs.prune()
            await self.logs.grown()
            await trio.sleep(PRUNE_AFTER)

    async def _discover_runs(self) -> None:
        """Pick up changes by other processes that write into the same directory."""
        while True:
            await trio.sleep(LOOK_EVERY)
            await self.logs.rescan(self.running.live.keys() | self.resuming.held | self.dormant.runs.keys())
