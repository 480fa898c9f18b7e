"""Runs that wait for people alone, and are played no more until an answer comes.

A durable run is its rows. So one that has nothing to do but to wait for answers (`supervisors.rest`) need not be
played: after `durable.dormant_after` seconds its actors end as they do when the process ends, and what stays in memory
is its summary and its questions: about 1 kB. No task, no conversation, no state.

An answer is left for it on the disk, and accepted with that. Then its rows are read and folded, and it goes on in the
same process, with the numbers of its events, the ids of its questions and its budgets as they were. Who follows its
log notices `run.resumed`. To cancel it, it is woken as well. A server that starts finds by `About.dormant` which runs
need not be played, and takes them over as they are.

Not dormant become runs with a time limit that counts, a secret question, an agent that relies on an MCP server, and
turns of sessions; and none is while somebody follows it or waits for its end in this process, or if a program plays it
beside the hub.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .....protocol.errors import CallboardError, JournalError, NotFound, ShuttingDown
from .....protocol.kernel.questions import Answer, Question, understood
from .....supervisors.rest import at_rest
from ....runs.durable import Taken, taken_again
from ....runs.loading import NO_HOOKS
from ....work.journal.left import letter_of
from .running import Running

if TYPE_CHECKING:
    from .....protocol.control.things import RunInfo
    from ....runs.root import Root
    from ..open_questions import OpenQuestions
    from .live_run import LiveRun

LOOK_EVERY = 5.0
"""Seconds between two looks at what is at rest, at most."""

AT_ONCE = 500
"""Runs that become dormant after one look."""

ASKS_WITHIN = 10.0
"""Seconds in which a run that was woken asks again what it had asked."""

COLLECTS = "agent__collect"
"""The call in which an agent waits for a child, and for nothing else."""

log = logging.getLogger("callboard.control")


class Dormant:
    """See the module.

    Args:
        root, running, questions: of the hub.
        after: seconds that a run is at rest before it becomes dormant; None for never.

    Attributes:
        runs: those that are, each with the ids of what it has asked.
    """

    def __init__(self, root: Root, running: Running, questions: OpenQuestions, after: float | None) -> None:
        self.runs: dict[str, tuple[str, ...]] = {}
        self._root = root
        self._running = running
        self._questions = questions
        self._after = after
        self._since: dict[str, tuple[int, float]] = {}  # the number of the newest event, and since when it is that
        self._moving: dict[str, trio.Event] = {}
        self._woke = trio.Event()

    def has(self, run: str) -> bool:
        """Whether it is dormant, or about to be, or to be so no more."""
        return run in self.runs or run in self._moving

    async def settled(self, run: str) -> None:
        """Wait while it is about to be dormant, or to be so no more."""
        while (moving := self._moving.get(run)) is not None:
            await moving.wait()

    async def woken(self, run: str) -> None:
        """Wait until a run that is dormant is so no more."""
        while self.has(run):
            await self.settled(run)
            if run in self.runs:
                await self._woke.wait()

    async def work(self) -> None:
        """Have runs become dormant, for as long as the hub is open."""
        if self._after is None:
            return
        while True:
            await trio.sleep(min(LOOK_EVERY, max(0.05, self._after / 4)))
            async with trio.open_nursery() as nursery:
                for record in self._at_rest()[:AT_ONCE]:
                    nursery.start_soon(self._sleep, record)

    def _at_rest(self) -> list[LiveRun]:
        """Those that have been for so long that they become dormant now."""
        now, since = trio.current_time(), self._since
        waiting = [
            record
            for id, record in self._running.live.items()
            if record.info.status == "waiting" and not record.over and id in self._root.kept
        ]
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
        if kept is None or actor is None or kept.left or kept.relies or kept.about.spoilt or kept.about.session:
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
        if run in self._running.followed() or not self._may_sleep(record):  # something came meanwhile
            return
        kept, actor = self._root.kept[run], self._root.kernel.actor.child(run)
        assert actor is not None
        questions = tuple(record.view.questions)
        self._moving[run] = trio.Event()
        try:
            self._questions.hold([self._questions.open[id] for id in questions])
            record.sleep()
            kept.sleep()
            over = self._running.over(run)
            actor.interrupt()
            await over.wait()
            self.runs[run] = questions
        finally:
            self._settle(run)
        log.info("%s waits for people alone, and is played again when an answer comes", run)

    def _take_out(self, run: str) -> None:
        del self.runs[run]
        self._moving[run] = trio.Event()
        self._woke.set()
        self._woke = trio.Event()

    def _settle(self, run: str) -> None:
        self._moving.pop(run).set()

    def adopt(self, info: RunInfo, taken: Taken) -> None:
        """A run of an earlier server, which this process has claimed, is as dormant as it was."""
        run, record = info.run, self._running.live[info.run]
        self._questions.hold([msgspec.structs.replace(question, run=run) for question in taken.asked])
        record.info.status, record.info.open_questions = "waiting", len(taken.asked)
        record.sleep()
        self.runs[run] = tuple(question.id for question in taken.asked)

    # --- waking ---------------------------------------------------------------------------------------------

    async def answer(self, question: Question, value: str | list[str], by: str) -> bool:
        """Leave an answer for a run that is dormant, and have it go on; whether it was, and the first to come.

        Raises:
            JournalError: it can't be kept.
        """
        asked = self.runs.get(question.run, ())
        if question.id not in asked:
            return False
        answer = Answer(question=question.id, value=understood(question, value), by=by)
        self._take_out(question.run)
        try:
            await (await self._root.journal()).letter(question.run, letter_of(answer))
        except BaseException:  # whatever it was, it is dormant still
            self.runs[question.run] = asked
            self._settle(question.run)
            raise
        self._questions.release([question.id], by)
        left = tuple(id for id in asked if id != question.id)
        self._running.nursery.start_soon(self._try, self._wake, question.run, left)
        return True

    async def resume(self, run: str) -> None:
        """Have it go on, whatever it waits for. Raises as `durable.play` does."""
        await self.settled(run)
        if (asked := self.runs.get(run)) is not None:
            self._take_out(run)
            await self._wake(run, asked)

    async def cancel(self, run: str) -> None:
        """Have it end."""
        await self._try(self.resume, run)
        actor = self._root.kernel.actor.child(run)
        if actor is not None and actor.end is None:
            actor.interrupt()

    async def _try(self, work: Callable[..., Awaitable[None]], run: str, *args: Any) -> None:
        try:
            await work(run, *args)
        except Exception as error:  # one that can't go on must not end the hub
            if not isinstance(error, CallboardError):
                log.exception("%s could not go on", run)
            log.warning("%s does not go on: %s", run, error)

    async def _wake(self, run: str, asked: tuple[str, ...]) -> None:
        """Have it go on; returns when it has asked again what it had asked. If that fails, it may be tried again."""
        try:
            await self._go_on(run, asked)
        except BaseException:  # whatever it was: what is on the disk is as it was
            self.runs[run] = asked
            raise
        else:
            self._questions.release(asked, "cancelled")
        finally:
            self._settle(run)

    async def _go_on(self, run: str, asked: tuple[str, ...]) -> None:
        while run in self._running.live:  # its log is not yet all on the disk
            await self._running.flush()
        info = self._running.known(run)
        if info is None:
            raise NotFound(f"there is no run {run}")
        await self._running.go_on(info, await taken_again(self._root, run), NO_HOOKS)
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
