"""A worker: takes runs from the queue, plays them with its hub, and says that it lives.

    lease     every quarter of it; who comes late finds out which runs others have by now, and ends those here
    take      as many as there is room for, when something waits and every second. Of those that have ended two workers
              without a row one at a time, so that none is blamed for what another does
    sweep     runs of workers that are dead go back into the queue; only by one whose own lease has been good for a
              whole one: when the database was away, all are over at once
    answers   those that people have given to its runs' questions, and who wants which run cancelled

A run that was taken begins, or goes on from its rows as after a kill. One whose worker was taken for dead writes
nothing any more, whatever it does (`supervisors.cluster.store`), and is interrupted when that turns out.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control.caller import LOCAL
from ....protocol.control.things import RunInfo
from ....protocol.decoding import decode_json, msgpack_decoder
from ....protocol.errors import ActorCancelled, CallboardError, ShuttingDown
from ....protocol.journal import BY_WORKER
from ....protocol.kernel.errors import JournalUnread
from ....protocol.outcome import ErrorReport
from ....protocol.requests import RunRequest
from ....protocol.version import VERSION
from ....supervisors.cluster import queue, telling, workers
from ....supervisors.cluster.store import ClusterStore
from ....supervisors.cluster.workers import Worker as Registered
from ....supervisors.journal.journal import Journal, RunJournal
from ...runs.as_begun import without_cwd
from ...runs.durable import Taken as Interrupted
from ...runs.durable import check_goes_on, taken_of
from ...work.journal.directory import keeps_elsewhere
from ...work.journal.left import LeftAnswer, first_answers, run_of
from ..control.cluster import NothingElsewhere
from ..control.runs.summary import rfc3339
from ..control.sessions import SessionTurn
from .asking import Asking
from .bundle import moved, unpacked
from .placing import Placing
from .provider_limits import ProviderLimits
from .seat import RETRY_EVERY, Seat, as_ours, tell_trouble
from .suspects import MOST, SUSPICIOUS, Suspect
from .turns import Turns
from .worker_logs import WorkerLogs

if TYPE_CHECKING:
    from pathlib import Path

    from ....supervisors.cluster.queue import Taken
    from ...runs.root import Root
    from ..control.hub import Hub
    from ..control.runs.live_run import HubOptions

AT_ONCE = 8
"""Runs that are taken at once at most, so that others get some."""

LOOK_EVERY = 1.0

log = logging.getLogger("callboard.cluster")


class Worker(NothingElsewhere):
    """See the module.

    Args:
        root: plays runs; its journal is that of the cluster from now on.
        seat: of this process.

    Attributes:
        runs: those that it has, with the number of its life of each.
        failed: why it ends by itself, or None: nothing that it does can be kept any more.
    """

    plays = True
    figures = None

    def __init__(self, root: Root, seat: Seat) -> None:
        options = seat.options
        self.runs: dict[str, int] = {}
        self.failed: CallboardError | None = None
        self._suspect = Suspect()
        self.seat = seat
        self._root = root
        self._limits = ProviderLimits(root.gateway.gates, seat)
        self._store = ClusterStore(options.dsn, seat.sign, seat.shown, options.lease)
        self._journal = Journal(self._store, None, tell_trouble)
        root.keep_in(self._journal)
        keeps_elsewhere()
        quiet = msgspec.structs.replace(root.settings.durable, dormant_after=None)  # others would not know of it
        root.settings = msgspec.structs.replace(root.settings, durable=quiet)
        self._placing = Placing(root, seat, self.runs, self._lose)
        root.elsewhere, root.questions.mark = self._placing.play, f"q{seat.sign}-"
        self._over: dict[str, trio.Event] = {}
        self._given: dict[str, set[str]] = {}  # by run, the questions whose answers it has
        self._hub: Hub
        self._turns: Turns
        self._logs: WorkerLogs
        self._nursery: trio.Nursery
        self._news = trio.Event()
        self._answered = trio.Event()
        self._good_since: float | None = None
        self._draining = False

    def logs(self, directory: Path, **options: object) -> WorkerLogs:
        """See `control.cluster.Cluster`."""
        return WorkerLogs(self.seat, directory, **options)

    def of_hub(self, options: HubOptions) -> HubOptions:
        """The options of the hub: whatever it plays is kept. That a run has begun need not be: it was in the queue."""
        return msgspec.structs.replace(options, durable=True, by=BY_WORKER)

    @property
    def room(self) -> int:
        """How many more runs it may take."""
        return 0 if self._draining else self.seat.options.room - len(self.runs) + self._placing.waiting

    async def begin(self, hub: Hub, nursery: trio.Nursery, url: str, token: str) -> None:
        """Work, for as long as the nursery lives; returns when the cluster knows of it.

        Args:
            hub: plays the runs; its logs are `WorkerLogs`.
            url: of its control channel; token: what opens that to who is on this machine.
        """
        self._hub, self._nursery = hub, nursery
        assert isinstance(hub.logs, WorkerLogs)
        self._logs, self._turns = hub.logs, Turns(hub, hub.logs.holds)
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
        nursery.start_soon(self.seat.listen, self._hear, self._look)

    async def _ask(self) -> None:
        with self._root.questions.attach(Asking(self._root.kept)):
            await trio.sleep_forever()

    async def drain(self) -> None:
        """Take no more."""
        self._draining = True
        sign = self.seat.sign
        try:
            await self.seat.do(lambda db: workers.drain(db, sign))
        except CallboardError as error:
            log.warning("%s", error)

    async def leave(self) -> None:
        """Hand back what is left, and be gone. After the journal has written all there is."""
        sign, name = self.seat.sign, self.seat.options.called
        try:
            await self._journal.barrier()
            await self.seat.do(lambda db: workers.leave(db, sign, name))
        except CallboardError as error:
            log.warning("the cluster finds out by itself that this worker is gone: %s", error)
        self.seat.close()

    # --- its lease ----------------------------------------------------------------------------------------------

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
            rounds += 1
            if (broken := self._journal.broken) is not None and self.failed is None:
                log.error("this worker ends, and leaves its runs to the others: %s", broken)
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
                self._good_since = None
                await trio.sleep(RETRY_EVERY)

    async def _renew(self, *, look: bool) -> None:
        sign, lease = self.seat.sign, self.seat.options.lease
        kept = {run: each.rows for run, each in self._root.kept.items()}
        written = {run: rows.written for run, rows in kept.items() if isinstance(rows, RunJournal)}
        held = await self.seat.of_lease(lambda db: workers.renew(db, sign, lease, look=look))
        if held is None:
            log.warning("this worker was taken for dead, since it was silent for longer than %g s", lease)
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
            if rows < written.get(run, 0):
                self._lose(run, "the database has crashed and lost its last rows")
        unknown = held.runs.keys() - self.runs.keys()
        if unknown:  # the answer to a take was lost
            await self.seat.do(lambda db: queue.give_back(db, sign, sorted(unknown)))

    async def _sweep(self) -> None:
        sign, lease = self.seat.sign, self.seat.options.lease
        lost = await self.seat.of_lease(lambda db: queue.sweep(db, sign, MOST, lease))
        for run in lost.back:
            log.warning("%s goes on with another worker, since its own is dead", run)
        for run in lost.parked:
            log.error("%s has ended %d workers without getting on: callboard resume has it go on", run, MOST)

    def _lose(self, run: str, why: str = "this worker was silent for too long") -> None:
        """Others have it, or it has to go on from what is there."""
        kept, actor = self._root.kept.get(run), self._root.kernel.actor.child(run)
        if kept is None or kept.left or actor is None or actor.end is not None:
            return  # it is about to end
        log.warning("%s goes on elsewhere, since %s: it ends here", run, why)
        kept.leave()
        actor.interrupt()

    # --- what is told -------------------------------------------------------------------------------------------

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

    def _look(self, anew: bool) -> None:  # noqa: ARG002 - it looks at all, in any case
        self._news.set()
        self._answered.set()

    def _cancel(self, run: str, by: str) -> None:
        if run in self._hub.running.live:
            log.info("%s is cancelled%s", run, f" by {by}" if by else "")
            self._hub.cancel(LOCAL, run)
        elif run in self.runs:
            self._turns.cancel(run)

    async def _deliver(self) -> None:
        """Give answers to the runs that asked."""
        sign = self.seat.sign
        while True:
            await self._answered.wait()
            self._answered = trio.Event()
            if not self.runs:
                continue
            try:
                found = await self.seat.do(lambda db: telling.answers_for(db, sign))
            except CallboardError:
                continue
            for question, data in found:
                given = self._given.get(run_of(question), set())
                if question in given:
                    continue
                answer = msgpack_decoder(LeftAnswer).decode(data).answer
                try:
                    if await self._root.questions.answer_for_good(question, answer.value, by=answer.by):
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
                    log.debug("nothing can be taken: %s", error)
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
        """Play a run; `before` is set when what this worker has played of it in an earlier life has ended."""
        info, over = _info(taken, self.seat.options.called), self._over[taken.run]
        try:
            if before is not None:  # it was taken for dead, and has the run again
                self._lose(taken.run)
                await before.wait()
            if damaged is not None:
                await self._park(taken, info, damaged)
            elif taken.past.rows:
                await self._go_on(taken, info)
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
            return  # the next one begins it
        except ActorCancelled:
            await self._finish_cancelled(taken, info)
        except Exception as error:  # one that can't begin must not end the worker
            if not isinstance(error, CallboardError):
                log.exception("%s could not begin", taken.run)
            report = ErrorReport.of(as_ours(error))
            failed = msgspec.structs.replace(info, status="failed", error=report, exit_code=as_ours(error).exit_code)
            await self._finish(taken, failed)

    async def _placed(self, taken: Taken, request: RunRequest) -> RunRequest:
        """The request, with the files that came with it where this machine has them."""
        if (hash := taken.bundle) is None:
            return request
        return await unpacked(request, hash, partial(self.seat.at_last, lambda db: telling.blob(db, hash)), os.environ)

    async def _go_on(self, taken: Taken, info: RunInfo) -> None:
        try:
            past = await trio.to_thread.run_sync(taken_of, await self._again(taken.run), taken.past)
            check_goes_on(taken.run, past.past)
            past = await self._moved(taken, past)
            go_on = self._hub.running.go_on if past.began.session is None else self._turns.go_on
            await self._until_over(taken, lambda: go_on(info, past, self._turns.hooks(info)))
        except ShuttingDown:
            return
        except ActorCancelled:
            await self._finish_cancelled(taken, info)
        except Exception as error:  # one that can't go on must not keep the others from it
            if not isinstance(error, CallboardError):
                log.exception("%s could not go on", taken.run)
            await self._park(taken, info, error)

    async def _again(self, run: str) -> RunJournal:
        """Where its further rows go, as soon as the database can be asked."""
        while True:
            try:
                return await self._journal.again(run)
            except JournalUnread as error:
                log.warning("%s", error)
                await trio.sleep(RETRY_EVERY)

    async def _moved(self, taken: Taken, past: Interrupted) -> Interrupted:
        """The run, with its files where this machine has them: the one before had them elsewhere, perhaps."""
        request = decode_json(taken.request, RunRequest)
        if taken.bundle is not None:
            past = moved(past, request.target, (await self._placed(taken, request)).target)
        if request.cwd is None:  # then it works where its worker does
            past = msgspec.structs.replace(past, past=without_cwd(past.past))
        return past

    async def _until_over(self, taken: Taken, start: Callable[[], Awaitable[object]]) -> None:
        """Play a run to its end, and until all of it is in the database."""
        begun = await start()
        if taken.suspect:
            self._nursery.start_soon(self._suspect.see_it_get_on, taken, self._root.kept, self._news.set)
        if taken.cancelled:
            self._cancel(taken.run, taken.cancelled)
        if self._hub.running.plays(taken.run):
            await self._hub.running.over(taken.run).wait()
        while (record := self._hub.running.live.get(taken.run)) is not None:
            await record.ended()
            await trio.sleep(0.01)
        if isinstance(begun, SessionTurn):
            await begun.over.wait()

    async def _finish_cancelled(self, taken: Taken, info: RunInfo) -> None:
        if not self._draining:  # else the next one does
            await self._finish(taken, msgspec.structs.replace(info, status="cancelled", exit_code=130))

    async def _finish(self, taken: Taken, info: RunInfo) -> None:
        info.ended = rfc3339(datetime.now(UTC))
        data, sign = msgspec.json.encode(info), self.seat.sign
        await self.seat.at_last(lambda db: queue.finish(db, sign, taken.run, taken.life, data))

    async def _park(self, taken: Taken, info: RunInfo, error: Exception) -> None:
        log.warning("%s does not go on: %s", taken.run, error)
        info = msgspec.structs.replace(info, status="interrupted", error=ErrorReport.of(as_ours(error)))
        data, sign = msgspec.json.encode(info), self.seat.sign
        await self.seat.at_last(lambda db: queue.park(db, sign, taken.run, taken.life, data))


def _info(taken: Taken, worker: str) -> RunInfo:
    info = decode_json(taken.info, RunInfo) if taken.info else RunInfo(run=taken.run)
    info.seq = max(info.seq, taken.seen)
    return msgspec.structs.replace(info, status="running", ended=None, error=None, worker=worker)
