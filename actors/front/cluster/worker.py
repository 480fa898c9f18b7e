"""Cluster worker: claims runs from the queue, executes them with its hub, and renews its lease.

Its duties:

    lease     Renewed every quarter of it. A late worker learns which of its runs others have claimed, and ends those.
    take      Claims as many runs as there is room for, upon notification and every second. Runs that killed two workers
              without a new row run one at a time, so that none is blamed for the fault of another.
    sweep     Returns the runs of dead workers to the queue. Only a worker whose own lease was valid for one whole lease
              may do so: after an outage of the database, all leases appear expired at once.
    answers   Passes answers of users to the runs' questions, and cancellations.

A claimed run begins, or recovers from its rows as after a kill. A worker that was declared dead may still be running,
for example after a pause of its machine. The database rejects all its further rows (`supervisors.cluster.store`), so it
cannot damage the run. The worker interrupts the run when it notices.

Invariants:

- At most one incarnation of a run can write rows: the store compares owner and incarnation in each transaction.
- A run leaves the worker only through a recorded end, a return to the queue (`leave`, `sweep`), or `park`.
- The lease has a connection of its own (`of_lease`), so slow queries do not delay it.

Turns of sessions (`SessionTurns`): the labels of a run may require the worker that has its session. The session is in
this worker's configuration directory, which may be on a disk shared with other workers of the same label. The session's
lock decides which process works with it. A worker that waits for the lock has room for one run less. The run is not
over before its messages are in the session's file.

Poison runs (`SuspectSlot`): when a worker dies, any of its many runs may be the cause, or none of them, because
machines are replaced. So a run that was in two dead workers, without a new row in between, becomes a suspect. A worker
executes one suspect at a time, so its next death identifies the cause. After three more deaths, the run is parked until
a user resumes it. A suspect that writes a row is acquitted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control.caller import LOCAL, Caller
from ....protocol.control.resources import RunInfo
from ....protocol.decoding import decode_json, msgpack_decoder
from ....protocol.errors import ActorCancelled, CallboardError, ShuttingDown
from ....protocol.journal import BY_WORKER
from ....protocol.kernel.errors import JournalUnread
from ....protocol.outcome import ErrorReport
from ....protocol.requests import RunRequest
from ....protocol.version import VERSION
from ....supervisors.cluster import queries, queue, workers
from ....supervisors.cluster.store import ASKED, CLOSED, ClusterStore
from ....supervisors.cluster.workers import Worker as Registered
from ....supervisors.journal.journal import Journal, RunJournal
from ...runs.durable import TakenRun as Interrupted
from ...runs.durable import check_goes_on, taken_of
from ...runs.loading import RunCallbacks
from ...runs.pinned_files import without_cwd
from ...work.journal.directory import use_remote_journal
from ...work.journal.pending_answers import PendingAnswer, first_answers, run_of
from ..control.cluster import NoWorkers
from ..control.runs.summary import rfc3339
from ..control.sessions import SessionTurn
from .bundle import moved, unpacked
from .logs import WorkerLogs
from .membership import RETRY_EVERY, ClusterMembership, as_ours, log_storage_trouble
from .remote_children import Placing
from .shared_limits import ProviderLimits

if TYPE_CHECKING:
    from pathlib import Path

    from ....protocol.kernel.questions import Question
    from ....supervisors.cluster.queue import Taken
    from ...runs.durable import TakenRun
    from ...runs.root import Root
    from ...work.journal.run_journal import JournaledRun
    from ..control.hub import Hub
    from ..control.runs.live_run import HubOptions


AT_ONCE = 8
"""Maximum number of runs claimed in one query, so that other workers get some."""

LOOK_EVERY = 1.0
"""Seconds between two attempts to claim runs without a notification."""

log = logging.getLogger("callboard.cluster")


class ClusterWorker(NoWorkers):
    """Cluster interface of a hub in a worker process.

    Args:
        root: executes runs; the constructor makes it write its journal into the cluster's database.
        seat: membership of this process.

    Attributes:
        runs: claimed runs, each with the number of its incarnation.
        failed: error after which the journal can store nothing more, so that the worker must end; else None.
    """

    plays = True
    figures = None

    def __init__(self, root: Root, seat: ClusterMembership) -> None:
        options = seat.options
        self.runs: dict[str, int] = {}
        self.failed: CallboardError | None = None
        self._suspect = SuspectSlot()
        self.seat = seat
        self._root = root
        self._limits = ProviderLimits(root.gateway.gates, seat)
        self._store = ClusterStore(options.dsn, seat.sign, seat.shown, options.lease)
        self._journal = Journal(self._store, None, log_storage_trouble)
        root.keep_in(self._journal)
        use_remote_journal()
        # No dormant runs: other processes would not know of them.
        quiet = msgspec.structs.replace(root.settings.durable, dormant_after=None)
        root.settings = msgspec.structs.replace(root.settings, durable=quiet)
        self._placing = Placing(root, seat, self.runs, self._lose)
        root.elsewhere, root.kernel.questions.mark = self._placing.play, f"q{seat.sign}-"
        self._over: dict[str, trio.Event] = {}
        self._given: dict[str, set[str]] = {}  # by run: questions that have their answer
        self._hub: Hub
        self._turns: SessionTurns
        self._logs: WorkerLogs
        self._nursery: trio.Nursery
        self._news = trio.Event()
        self._answered = trio.Event()
        self._good_since: float | None = None
        self._draining = False

    def logs(self, directory: Path, **options: object) -> WorkerLogs:
        """Return logs that write into the database."""
        return WorkerLogs(self.seat, directory, **options)

    def of_hub(self, options: HubOptions) -> HubOptions:
        """Return the hub's options: all runs are durable. Their start need not be stored, as the queue has them."""
        return msgspec.structs.replace(options, durable=True, by=BY_WORKER)

    @property
    def room(self) -> int:
        """Number of further runs that it may claim. Runs that only wait for remote children do not count."""
        return 0 if self._draining else self.seat.options.room - len(self.runs) + self._placing.waiting

    async def begin(self, hub: Hub, nursery: trio.Nursery, url: str, token: str) -> None:
        """Register the worker and start its loops in the nursery; returns when the cluster knows it.

        Args:
            hub: executes the runs; its logs are `WorkerLogs`.
            url: address of the control channel.
            token: grants access to the control channel to processes on this machine.
        """
        self._hub, self._nursery = hub, nursery
        assert isinstance(hub.logs, WorkerLogs)
        self._logs, self._turns = hub.logs, SessionTurns(hub, hub.logs.holds)
        self._logs.kept, self._logs.nursery = self._root.kept, nursery
        self._logs.redact = hub.running.without_secrets
        self._url, self._token = url, token
        await self._register()
        nursery.start_soon(self._ask)
        nursery.start_soon(self._keep_lease)
        nursery.start_soon(self._take)
        nursery.start_soon(self._deliver)
        nursery.start_soon(self._placing.watch)
        nursery.start_soon(self._limits.work)
        nursery.start_soon(self.seat.listen, self._hear, self._poll)

    async def _ask(self) -> None:
        with self._root.kernel.questions.attach(ClusterAsking(self._root.kept)):
            await trio.sleep_forever()

    async def drain(self) -> None:
        """Stop claiming runs, and mark the worker as draining in the database; an error of the database is logged."""
        self._draining = True
        sign = self.seat.sign
        try:
            await self.seat.do(lambda db: workers.drain(db, sign))
        except CallboardError as error:
            log.warning("%s", error)

    async def leave(self) -> None:
        """Return the remaining runs to the queue and unregister, after the journal has written all rows.

        Closes the connections. An error is only logged: the lease expires, and other workers claim the runs.
        """
        sign, name = self.seat.sign, self.seat.options.called
        try:
            await self._journal.barrier()
            await self.seat.do(lambda db: workers.leave(db, sign, name))
        except CallboardError as error:
            log.warning("this worker could not sign off; the cluster will notice that it is gone: %s", error)
        self.seat.close()

    # --- lease --------------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        options, sign = self.seat.options, self.seat.sign
        row = Registered(
            sign=sign,
            name=options.called,
            url=self._url,
            token=self._token,
            has=options.has,
            room=options.room,
            version=VERSION,
        )
        await self.seat.of_lease(lambda db: workers.register(db, row, options.lease))
        self._good_since = trio.current_time()

    async def _keep_lease(self) -> None:
        lease, rounds = self.seat.options.lease, 0
        while True:
            await trio.sleep(lease / 8)
            # Eighths of a lease: renew every second round, and read the list of claimed runs every eighth.
            rounds += 1
            if (broken := self._journal.broken) is not None and self.failed is None:
                log.error("this worker shuts down, and leaves its runs to the other workers: %s", broken)
                self.failed = broken
                self._root.begin_stop()
            try:
                if rounds % 2 == 0 or self._good_since is None:
                    await self._renew(look=rounds % 8 == 0 or self._good_since is None)
                if self._good_since is not None and trio.current_time() - self._good_since >= lease:
                    await self._sweep()
            except CallboardError as error:
                if self._good_since is not None:
                    log.warning("the lease can't be renewed: %s", error)
                # An invalid lease forces a full renewal first, and blocks `_sweep` for a whole lease.
                self._good_since = None
                await trio.sleep(RETRY_EVERY)

    async def _renew(self, *, look: bool) -> None:
        sign, lease = self.seat.sign, self.seat.options.lease
        kept = {run: each.rows for run, each in self._root.kept.items()}
        written = {run: rows.written for run, rows in kept.items() if isinstance(rows, RunJournal)}
        held = await self.seat.of_lease(lambda db: workers.renew(db, sign, lease, look=look))
        if held is None:
            log.warning("the cluster declared this worker dead, because it was silent for longer than %g s", lease)
            await self._register()
            held = await self.seat.of_lease(lambda db: workers.renew(db, sign, lease, look=True))
            if held is None:
                return
        if held.late or self._good_since is None:
            self._good_since = trio.current_time()
        for run, by in held.cancelled.items():
            self._cancel(run, by)
        if held.runs is None:
            return
        for run in self.runs.keys() - held.runs.keys():
            self._lose(run)
        for run, rows in held.runs.items():
            # The database lost commits in a crash, so memory is ahead of it; only a recovery from the rows is safe.
            if rows < written.get(run, 0):
                self._lose(run, "the database crashed and lost the last rows of the journal")
        unknown = held.runs.keys() - self.runs.keys()
        if unknown:  # the connection broke after the database had committed a claim
            await self.seat.do(lambda db: queue.give_back(db, sign, sorted(unknown)))

    async def _sweep(self) -> None:
        sign, lease = self.seat.sign, self.seat.options.lease
        lost = await self.seat.of_lease(lambda db: queue.sweep(db, sign, MOST_DEATHS, lease))
        for run in lost.back:
            log.warning("%s continues on another worker, because its worker is dead", run)
        for run in lost.parked:
            log.error(
                (
                    "%s has crashed %d workers without progress, so no worker claims it; to try once more: "
                    "callboard resume"
                ),
                run,
                MOST_DEATHS,
            )

    def _lose(self, run: str, why: str = "this worker was silent for too long") -> None:
        """End a run here, because another worker has it or it must recover from its stored rows."""
        kept, actor = self._root.kept.get(run), self._root.kernel.actor.child(run)
        if kept is None or kept.handed_over or actor is None or actor.end is not None:
            return  # it is already ending
        log.warning("%s stops on this worker and continues on another one, because %s", run, why)
        kept.hand_over()
        actor.interrupt()

    # --- notifications --------------------------------------------------------------------------------------------

    def _hear(self, kind: str, about: list[str]) -> None:
        if kind == "q":
            self._news.set()
        elif kind == "a" and not self.runs.keys().isdisjoint(about):
            self._answered.set()
        elif kind == "c":
            for run in about:
                self._cancel(run, "")
        elif kind == "l":
            self._limits.hear(about)
        else:
            self._placing.hear(kind, about)

    def _poll(self, anew: bool) -> None:  # noqa: ARG002  - it always checks everything
        self._news.set()
        self._answered.set()

    def _cancel(self, run: str, by: str) -> None:
        if run in self._hub.running.live:
            log.info("%s is cancelled%s", run, f" by {by}" if by else "")
            self._hub.cancel(LOCAL, run)
        elif run in self.runs:
            self._turns.cancel(run)

    async def _deliver(self) -> None:
        """Pass answers to the runs that asked."""
        sign = self.seat.sign
        while True:
            await self._answered.wait()
            self._answered = trio.Event()
            if not self.runs:
                continue
            try:
                found = await self.seat.do(lambda db: queries.answers_for(db, sign))
            except CallboardError:
                continue
            for question, data in found:
                given = self._given.get(run_of(question), set())
                if question in given:
                    continue
                answer = msgpack_decoder(PendingAnswer).decode(data).answer
                try:
                    if await self._root.kernel.questions.answer_for_good(question, answer.value, by=answer.by):
                        given.add(question)
                except (CallboardError, ValueError) as error:
                    log.warning("question %s: %s", question, error)

    # --- runs ---------------------------------------------------------------------------------------------------

    async def _take(self) -> None:
        options, sign = self.seat.options, self.seat.sign
        while True:
            taken: list[Taken] = []
            damaged: dict[str, Exception] = {}
            self._news = trio.Event()
            most = min(self.room, AT_ONCE)
            if most > 0:
                try:
                    take = partial(
                        queue.take,
                        sign=sign,
                        name=options.called,
                        has=options.has,
                        most=most,
                        suspicious=SUSPICIOUS,
                        suspects=self._suspect.room,
                    )
                    taken, damaged = await self.seat.do(take)
                except CallboardError as error:
                    log.debug("no run can be claimed: %s", error)
            for each in taken:
                before, self._over[each.run] = self._over.get(each.run), trio.Event()
                self.runs[each.run] = each.life
                self._given[each.run] = set(first_answers(each.past.letters))
                self._suspect.take(each)
                self._nursery.start_soon(self._play, each, damaged.get(each.run), before)
            if not taken:
                with trio.move_on_after(LOOK_EVERY):
                    await self._news.wait()

    async def _play(self, taken: Taken, damaged: Exception | None, before: trio.Event | None) -> None:
        """Execute a run. `before` is set when an earlier incarnation of it in this process has ended."""
        info, over = _info(taken, self.seat.options.called), self._over[taken.run]
        try:
            if before is not None:  # this worker was declared dead, and has claimed the same run again
                self._lose(taken.run)
                await before.wait()
            if damaged is not None:
                await self._park(taken, info, damaged)
            elif taken.past.rows:
                await self._resume(taken, info)
            elif taken.cancelled:
                await self._finish_cancelled(taken, info)
            else:
                await self._begin_run(taken, info)
        finally:
            over.set()
            if self._over[taken.run] is over:
                del self._over[taken.run], self.runs[taken.run], self._given[taken.run]
                self._placing.over(taken.run)
                self._logs.forget_end(taken.run)
            self._suspect.acquit(taken.run)
            self._news.set()

    async def _begin_run(self, taken: Taken, info: RunInfo) -> None:
        try:
            request = await self._placed(taken, decode_json(taken.request, RunRequest))
            self._store.adopt(taken.run, taken.key, taken.life, taken.began)
            start = self._hub.running.start if info.session is None else self._turns.begin
            await self._until_over(taken, lambda: start(info, request, self._turns.hooks(info)))
        except ShuttingDown:
            return  # the run returns to the queue, and another worker begins it
        except ActorCancelled:
            await self._finish_cancelled(taken, info)
        except Exception as error:  # one failed run must not end the worker
            if not isinstance(error, CallboardError):
                log.exception("%s could not be started", taken.run)
            report = ErrorReport.of(as_ours(error))
            failed = msgspec.structs.replace(info, status="failed", error=report, exit_code=as_ours(error).exit_code)
            await self._finish(taken, failed)

    async def _placed(self, taken: Taken, request: RunRequest) -> RunRequest:
        """Return the request with the path of the unpacked bundle on this machine."""
        if (hash := taken.bundle) is None:
            return request
        return await unpacked(request, hash, partial(self.seat.at_last, lambda db: queries.blob(db, hash)), os.environ)

    async def _resume(self, taken: Taken, info: RunInfo) -> None:
        try:
            past = await trio.to_thread.run_sync(taken_of, await self._again(taken.run), taken.past)
            check_goes_on(taken.run, past.past)
            past = await self._moved(taken, past)
            resume = self._hub.running.resume if past.began.session is None else self._turns.resume
            await self._until_over(taken, lambda: resume(info, past, self._turns.hooks(info)))
        except ShuttingDown:
            return
        except ActorCancelled:
            await self._finish_cancelled(taken, info)
        except Exception as error:  # one failed run must not end the worker
            if not isinstance(error, CallboardError):
                log.exception("%s could not be resumed", taken.run)
            await self._park(taken, info, error)

    async def _again(self, run: str) -> RunJournal:
        """Open the run's journal, and retry until the database can be reached."""
        while True:
            try:
                return await self._journal.reopen(run)
            except JournalUnread as error:
                log.warning("%s", error)
                await trio.sleep(RETRY_EVERY)

    async def _moved(self, taken: Taken, past: Interrupted) -> Interrupted:
        """Return the recovered run with the file paths of this machine, which may differ from the previous one's."""
        request = decode_json(taken.request, RunRequest)
        if taken.bundle is not None:
            past = moved(past, request.target, (await self._placed(taken, request)).target)
        if request.cwd is None:  # without `cwd`, a run uses its worker's working directory
            past = msgspec.structs.replace(past, past=without_cwd(past.past))
        return past

    async def _until_over(self, taken: Taken, start: Callable[[], Awaitable[object]]) -> None:
        """Execute a run to its end, and wait until the database has all of it."""
        begun = await start()
        if taken.suspect:
            self._nursery.start_soon(self._suspect.see_it_get_on, taken, self._root.kept, self._news.set)
        if taken.cancelled:
            self._cancel(taken.run, taken.cancelled)
        if self._hub.running.plays(taken.run):
            await self._hub.running.over(taken.run).wait()
        # The record stays live until its log is stored; only then may another incarnation start here.
        while (record := self._hub.running.live.get(taken.run)) is not None:
            await record.ended()
            await trio.sleep(0.01)
        if isinstance(begun, SessionTurn):
            await begun.over.wait()

    async def _finish_cancelled(self, taken: Taken, info: RunInfo) -> None:
        if not self._draining:  # a draining worker leaves this to the next one
            await self._finish(taken, msgspec.structs.replace(info, status="cancelled", exit_code=130))

    async def _finish(self, taken: Taken, info: RunInfo) -> None:
        info.ended = rfc3339(datetime.now(UTC))
        data, sign = msgspec.json.encode(info), self.seat.sign
        await self.seat.at_last(lambda db: queue.finish(db, sign, taken.run, taken.life, data))

    async def _park(self, taken: Taken, info: RunInfo, error: Exception) -> None:
        log.warning("%s is not resumed: %s", taken.run, error)
        info = msgspec.structs.replace(info, status="interrupted", error=ErrorReport.of(as_ours(error)))
        data, sign = msgspec.json.encode(info), self.seat.sign
        await self.seat.at_last(lambda db: queue.park(db, sign, taken.run, taken.life, data))


def _info(taken: Taken, worker: str) -> RunInfo:
    info = decode_json(taken.info, RunInfo) if taken.info else RunInfo(run=taken.run)
    info.seq = max(info.seq, taken.seen)
    return msgspec.structs.replace(info, status="running", ended=None, error=None, worker=worker)


class ClusterAsking:
    """Writer of opened and closed questions into the database, in the transaction of the run's rows.

    Args:
        kept: durable runs of this process, by id.
    """

    name = "cluster"

    def __init__(self, kept: Mapping[str, JournaledRun]) -> None:
        self._kept = kept
        self._runs: dict[str, str] = {}

    def asked(self, question: Question) -> None:
        """Store an opened question, unless its run is not a durable one of this process."""
        kept = self._kept.get(question.run)
        if kept is not None:
            self._runs[question.id] = question.run
            kept.rows.store_data(ASKED, question.id, msgspec.json.encode(question))
            kept.rows.hurry()

    def closed(self, question_id: str, by: str) -> None:
        """Store that a question is closed, if `asked` has stored it and its run is still here."""
        kept = self._kept.get(self._runs.pop(question_id, ""))
        if kept is not None:
            kept.rows.store_data(CLOSED, question_id, by.encode())
            kept.rows.hurry()


SESSION_SCOPES = frozenset({"read:runs", "write:runs", "run:agents", "read:sessions", "write:sessions"})
"""Scopes of the owner of a session turn on this worker; the gateway has already authorised the start."""


class SessionTurns:
    """Starts and resumes turns, with a wait for the session's lock that can be cancelled.

    Args:
        hub: hub of the worker.
        holds: see `RunCallbacks`.
    """

    def __init__(self, hub: Hub, holds: Callable[[str, Callable[[], None]], None]) -> None:
        self._hub = hub
        self._hooks = RunCallbacks(holds=holds)
        self._waiting: dict[str, trio.CancelScope] = {}

    def hooks(self, info: RunInfo) -> RunCallbacks:
        """Return the callbacks of a run of this worker, whether or not it is a turn."""
        return self._hub.hooks(_owner(info), self._hooks)

    async def begin(self, info: RunInfo, request: RunRequest, hooks: RunCallbacks) -> SessionTurn:
        """Start a turn once its session is free. Raises as `HubSessions.begin`, and `ActorCancelled`."""
        with self._until_free(info.run):
            return await self._hub.sessions.begin_queued(_owner(info), info, request, hooks)
        raise ActorCancelled(f"{info.run} was cancelled before it began")

    async def resume(self, info: RunInfo, taken: TakenRun, hooks: RunCallbacks) -> SessionTurn:
        """Resume a turn of another worker. Raises as `HubSessions.resume`, and `ActorCancelled`."""
        with self._until_free(info.run):
            return await self._hub.sessions.resume(info, taken, hooks, wait=float("inf"))
        raise ActorCancelled(f"{info.run} was cancelled before it was resumed")

    def cancel(self, run: str) -> None:
        """Cancel the wait of this run for its session: `begin` or `resume` raises `ActorCancelled`."""
        if run in self._waiting:
            self._waiting[run].cancel()

    @contextmanager
    def _until_free(self, run: str) -> Iterator[None]:
        with trio.CancelScope() as scope:
            self._waiting[run] = scope
            try:
                yield
            finally:
                del self._waiting[run]


def _owner(info: RunInfo) -> Caller:
    return LOCAL if info.owner == LOCAL.subject else Caller(info.owner, SESSION_SCOPES)


SUSPICIOUS = 2
"""Number of dead workers without a new row from which on a run is a suspect."""

MOST_DEATHS = 5
"""Number of dead workers after which no worker claims the run automatically."""

ROW_CHECK_EVERY = 0.01
"""Seconds between two checks for a new row."""


class SuspectSlot:
    """Slot for one suspect, a run whose earlier workers died: a worker executes one suspect at a time."""

    def __init__(self) -> None:
        self._run = ""

    @property
    def room(self) -> int:
        """Number of suspects that the worker may claim."""
        return 0 if self._run else 1

    def take(self, taken: Taken) -> None:
        """Occupy the slot if the claimed run is a suspect."""
        if taken.suspect:
            self._run = taken.run

    def acquit(self, run: str) -> None:
        """Free the slot, because the run has written a row or has left this worker."""
        if self._run == run:
            self._run = ""

    async def see_it_get_on(self, taken: Taken, kept: Mapping[str, JournaledRun], on_row: Callable[[], None]) -> None:
        """Wait until the suspect writes a row of its journal, or ends.

        Args:
            taken: the claimed suspect.
            kept: durable runs of this process, by id.
            on_row: called when it has written a row.
        """
        run, before = taken.run, taken.past.kept.rows
        while (own := kept.get(run)) is not None and isinstance(own.rows, RunJournal):
            if own.rows.written > before:
                self.acquit(run)
                on_row()
                return
            own.rows.hurry()
            await trio.sleep(ROW_CHECK_EVERY)
