"""Dormant runs: unloaded from memory while they only wait for a user's answer.

A durable run is defined by its journal rows. So a run whose only pending work is open questions
(`supervisors.introspection.at_rest`) does not need its actors. After `durable.dormant_after` seconds, they end as they
do at the end of the process. Only the summary and the questions stay in memory, about 1 kB: no task, no conversation,
no state.

An answer is stored in the journal, and accepted by that. Then the run recovers from its rows in the same process, with
the same event numbers, question ids and budgets. Followers of its log see `run.resumed`. A cancellation also wakes the
run first. A server that starts finds dormant runs by `About.dormant` and adopts them without executing them.

These runs never become dormant: runs with a time limit that counts, with a secret question, or with an agent that
relies on an MCP server; turns of sessions; runs with a follower or waiter in this process; and runs that a program
executes itself, outside the hub.

A transition takes several steps and may race with a reader, an answer or a cancellation. `_moving` marks a run from
the first step to the last; every operation waits in `settled` or `woken` until the mark is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .....protocol.errors import CallboardError, JournalError, NotFound, ShuttingDown
from .....protocol.kernel.questions import Answer, Question, understood
from .....supervisors.introspection import at_rest
from ....runs.durable import TakenRun, taken_again
from ....runs.loading import NO_HOOKS
from ....work.journal.pending_answers import encode_answer
from .running import Running

if TYPE_CHECKING:
    from .....protocol.control.resources import RunInfo
    from ....runs.root import Root
    from ..subscriptions import OpenQuestions
    from .live_run import LiveRun

LOOK_EVERY = 5.0
"""Maximum seconds between two scans for runs at rest."""

AT_ONCE = 500
"""Maximum number of runs that become dormant after one scan."""

ASKS_WITHIN = 10.0
"""Seconds for a run that wakes to ask its questions again."""

COLLECTS = "agent__collect"
"""Tool call in which an agent only waits for a child."""

log = logging.getLogger("callboard.control")


class Dormant:
    """Dormant runs of a hub.

    Args:
        root, running, questions: services of the hub.
        after: seconds at rest before a run becomes dormant; None for never.

    Attributes:
        runs: dormant runs, each with the ids of its questions.
    """

    def __init__(self, root: Root, running: Running, questions: OpenQuestions, after: float | None) -> None:
        self.runs: dict[str, tuple[str, ...]] = {}
        self._root = root
        self._running = running
        self._questions = questions
        self._after = after
        self._since: dict[str, tuple[int, float]] = {}  # number of the newest event, and since when
        self._moving: dict[str, trio.Event] = {}
        self._woke = trio.Event()

    def has(self, run: str) -> bool:
        """Return True if the run is dormant, or is becoming dormant or waking."""
        return run in self.runs or run in self._moving

    async def settled(self, run: str) -> None:
        """Wait while the run is becoming dormant or waking."""
        while (moving := self._moving.get(run)) is not None:
            await moving.wait()

    async def woken(self, run: str) -> None:
        """Wait until the run is not dormant."""
        while self.has(run):
            await self.settled(run)
            if run in self.runs:
                await self._woke.wait()

    async def work(self) -> None:
        """Make runs dormant while the hub is open."""
        if self._after is None:
            return
        while True:
            await trio.sleep(min(LOOK_EVERY, max(0.05, self._after / 4)))
            async with trio.open_nursery() as nursery:
                for record in self._at_rest()[:AT_ONCE]:
                    nursery.start_soon(self._sleep, record)

    def _at_rest(self) -> list[LiveRun]:
        """Return the runs that have been at rest long enough."""
        now, since = trio.current_time(), self._since
        waiting = [
            record
            for id, record in self._running.live.items()
            if record.info.status == "waiting" and not record.over and id in self._root.kept
        ]
        # The clock of a run starts again with each event: a changed `seq` resets it.
        self._since = {
            record.info.run: before
            if (before := since.get(record.info.run)) is not None and before[0] == record.seq
            else (record.seq, now)
            for record in waiting
        }
        assert self._after is not None
        due = [record for record in waiting if now - self._since[record.info.run][1] >= self._after]
        followed = self._running.followed()
        return [record for record in due if record.info.run not in followed and self._may_sleep(record)]

    def _may_sleep(self, record: LiveRun) -> bool:
        run, view = record.info.run, record.view
        kept, actor = self._root.kept.get(run), self._root.kernel.actor.child(run)
        if kept is None or actor is None or kept.handed_over or kept.relies or kept.about.spoilt or kept.about.session:
            return False
        if record.over or record.attended or run in self._moving or not self._running.plays(run):
            return False
        if not at_rest(actor, view.questions) or not view.questions.keys() <= self._questions.open.keys():
            return False
        busy = (*view.under_way("chat"), *view.under_way("mcp"), *view.under_way("knowledge"))
        calls = (call for call in view.under_way("tool") if call.name != COLLECTS)
        asking = {each.question["actor"] for each in view.questions.values()}
        return not busy and all(call.actor in asking for call in calls)

    async def _sleep(self, record: LiveRun) -> None:
        run = record.info.run
        try:
            await self._root.kept[run].barrier()
        except (JournalError, ShuttingDown):
            return
        # Check again: an event or a reader may have arrived during the barrier.
        if run in self._running.followed() or not self._may_sleep(record):
            return
        kept, actor = self._root.kept[run], self._root.kernel.actor.child(run)
        assert actor is not None
        questions = tuple(record.view.questions)
        self._moving[run] = trio.Event()
        try:
            # Held before the actors end: their end closes the questions, which must stay open for clients.
            self._questions.hold([self._questions.open[id] for id in questions])
            record.sleep()
            kept.sleep()
            over = self._running.over(run)
            actor.interrupt()
            await over.wait()
            self.runs[run] = questions
        finally:
            self._finish(run)
        log.info("%s only waits for answers of users and was unloaded; it continues when an answer arrives", run)

    def _take_out(self, run: str) -> None:
        del self.runs[run]
        self._moving[run] = trio.Event()
        self._woke.set()
        self._woke = trio.Event()

    def _finish(self, run: str) -> None:
        self._moving.pop(run).set()

    def adopt(self, info: RunInfo, taken: TakenRun) -> None:
        """Register a dormant run of an earlier server, which this process has claimed."""
        run, record = info.run, self._running.live[info.run]
        self._questions.hold([msgspec.structs.replace(question, run=run) for question in taken.asked])
        record.info.status, record.info.open_questions = "waiting", len(taken.asked)
        record.sleep()
        self.runs[run] = tuple(question.id for question in taken.asked)

    # --- waking ---------------------------------------------------------------------------------------------

    async def answer(self, question: Question, value: str | list[str], by: str) -> bool:
        """Store an answer for a dormant run and wake it; returns False if the run did not wait for this answer.

        Only the first answer to a question is accepted.

        Raises:
            JournalError: the answer cannot be stored.
        """
        asked = self.runs.get(question.run, ())
        if question.id not in asked:
            return False
        answer = Answer(question=question.id, value=understood(question, value), by=by)
        self._take_out(question.run)
        try:
            await (await self._root.journal()).add_to_inbox(question.run, encode_answer(answer))
        except BaseException:  # on any failure, cancellation included, the run stays dormant
            self.runs[question.run] = asked
            self._finish(question.run)
            raise
        self._questions.release([question.id], by)
        left = tuple(id for id in asked if id != question.id)
        self._running.nursery.start_soon(self._try, self._wake, question.run, left)
        return True

    async def resume(self, run: str) -> None:
        """Resume a dormant run without an answer; no effect if it is not dormant. If that fails, it stays dormant.

        Raises:
            NotFound: the run does not exist.
            CallboardError: the run could not be resumed.
        """
        await self.settled(run)
        if (asked := self.runs.get(run)) is not None:
            self._take_out(run)
            await self._wake(run, asked)

    async def cancel(self, run: str) -> None:
        """Wake the run, then interrupt it. A failure to wake it is only logged, and the run stays dormant."""
        await self._try(self.resume, run)
        actor = self._root.kernel.actor.child(run)
        if actor is not None and actor.end is None:
            actor.interrupt()

    async def _try(self, work: Callable[..., Awaitable[None]], run: str, *args: Any) -> None:
        try:
            await work(run, *args)
        except Exception as error:  # one failed run must not end the hub
            if not isinstance(error, CallboardError):
                log.exception("%s could not be resumed", run)
            log.warning("%s is not resumed: %s", run, error)

    async def _wake(self, run: str, asked: tuple[str, ...]) -> None:
        """Resume the run and wait until it has asked its questions again; after a failure, it is dormant again."""
        try:
            await self._resume(run, asked)
        except BaseException:  # on any failure, the journal is unchanged, so the run is still dormant
            self.runs[run] = asked
            raise
        else:
            self._questions.release(asked, "cancelled")
        finally:
            self._finish(run)

    async def _resume(self, run: str, asked: tuple[str, ...]) -> None:
        while run in self._running.live:  # its previous record stays live until its log is on disk
            await self._running.flush()
        info = self._running.known(run)
        if info is None:
            raise NotFound(f"there is no run {run}")
        await self._running.resume(info, await taken_again(self._root, run), NO_HOOKS)
        record = self._running.live.get(run)
        if record is None:
            return
        with trio.move_on_after(ASKS_WITHIN):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_at_end, record, nursery.cancel_scope)
                await self._questions.none_held(asked)
                nursery.cancel_scope.cancel()


async def _cancel_at_end(record: LiveRun, scope: trio.CancelScope) -> None:
    await record.ended()
    scope.cancel()
