"""Execution of one run: its actor, its event stream, and exactly one event for its end.

The order at the end is fixed:

1. The actor ends, and no further effect is recorded.
2. A durable run waits for the journal's barrier: an end is only reported when its rows are on disk.
3. The run is marked as over in its journal. A session turn or a batch defers this until its own file has the result
   (`_holds`). A crash in between therefore resumes the run, and its result is not lost.
4. The end event is emitted with the redacted outcome, and the stream is closed.
5. Temporary directories are removed, unless another process may resume the run.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, final

import trio

from ...protocol.errors import CallboardError, FailedEnd, JournalError, NobodyToAsk, ShuttingDown, TimedOut
from ...protocol.events import (
    Event,
    QuestionAsked,
    RunCancelled,
    RunDormant,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    Warned,
)
from ...protocol.journal import decode_value
from ...protocol.kernel.questions import Answer, Question
from ...protocol.outcome import ErrorReport, Message, Outcome, Status
from ...protocol.placement import Carried, PartOf
from ...protocol.problems import Problem
from ...protocol.requests import AnswerText
from ...supervisors.escalation import PASS, Policy, Verdict, listens
from ...supervisors.event_loops import in_callers_loop
from ...supervisors.user_code import failure_of
from ..engine.graph.result import GraphResult, run_error
from ..io.secret_redaction import without_secrets
from ..work.agent.history import History
from ..work.context import RunContext
from ..work.journal.actor_journal import Scopes
from ..work.journal.directory import directory_of, may_have_one, over
from ..work.journal.run_journal import PREPARED, JournaledRun
from ..work.labels.flow import NOTED, Flow
from ..work.labels.labels import Labels
from ..work.playback import Beginning, Playback, playback
from ..work.sandbox.run_sandbox import current as sandbox
from ..work.tools.stored_results import readable
from ..work.transcript import Record
from .files import Saved
from .prepared import AgentInput, Prepared
from .root import Root

if TYPE_CHECKING:
    from ...supervisors import Actor, End
    from ...supervisors import Root as Kernel
    from ...supervisors.bus import Stream

INTERRUPTED = 130
"""Exit code of a run that was cancelled without a signal."""


NUMBERS = 1_000_000_000
"""Event numbers of one incarnation. Each incarnation starts at its own multiple, whatever events were lost before."""

REMOVE_WITHIN = 2.0
"""Seconds to remove files that only the run's models used; a later run removes the rest."""


class Answers:
    """Answers prepared before a run: used in the order of the questions, or by the id of the asking node.

    They are a policy of the run's actor (see `supervisors.escalation`), so they apply before a user is asked.

    Args:
        given: `RunRequest.answers`: in order, or by node id, one for each visit of the node. The key of a map's item is
            `NODE[0]`, `NODE[1]` and so on; its answers are used before the answers of its node.
    """

    def __init__(self, given: Sequence[AnswerText] | Mapping[str, Sequence[AnswerText]] | None) -> None:
        self._in_order: list[AnswerText] = []
        self._by_node: dict[str, list[AnswerText]] = {}
        if isinstance(given, Mapping):
            self._by_node = {node: list(answers) for node, answers in given.items()}
        elif given is not None:
            self._in_order = list(given)

    def policy(self, question: Question) -> Answer | Verdict:
        """Answer a question if a prepared answer remains. Permissions are not answered (see `--allow`, `--yes`)."""
        if question.permission is not None:
            return PASS
        prepared = self._unused_for(question.asker)
        if not prepared:
            return PASS
        return Answer(question=question.id, value=prepared.pop(0), by=PREPARED)

    def drop(self, asker: str) -> None:
        """Remove the answer that a question of this asker got in an earlier incarnation of the run."""
        prepared = self._unused_for(asker)
        if prepared:
            del prepared[0]

    def _unused_for(self, asker: str) -> list[AnswerText]:
        of_unit, of_node = self._by_node.get(asker), self._by_node.get(asker.rpartition("[")[0])
        return of_unit or of_node or self._in_order

    @property
    def unused(self) -> list[str]:
        """The unused answers, as texts for a message."""
        words = [f"'{node}': {answer}" for node, answers in self._by_node.items() for answer in answers]
        return words + [str(answer) for answer in self._in_order]


@final
class EventCallback:
    """`on_event` callback of a caller. Its first exception ends the run, and is raised where the run is awaited.

    Otherwise a program that follows a run by its events would not notice its own error, and would miss later events.
    The callback runs in the caller's event loop (see `supervisors.event_loops`), so its exception may arrive after
    the run has ended.
    """

    def __init__(self, function: Callable[[Event], None]) -> None:
        self._function = function
        self._kernel: Kernel | None = None
        self._error: Exception | None = None

    def under(self, kernel: Kernel) -> Callable[[Event], None]:
        """Return the listener of a run's stream, for the loop of this kernel."""
        self._kernel = kernel
        return in_callers_loop(self._hear)

    def check(self) -> None:
        """Raise the exception of the callback, if there was one."""
        if self._error is not None:
            raise self._error

    def _hear(self, event: Event) -> None:
        if self._error is not None:
            return
        try:
            self._function(event)
        except BaseException as error:  # noqa: BLE001 - raised by `check`; real interrupts pass
            self._error = failure_of(error)
            if self._kernel is not None and self._kernel.loop is not None:
                self._kernel.loop.post(self._interrupt, event.run)

    def _interrupt(self, run: str) -> None:
        actor = None if self._kernel is None else self._kernel.actor.child(run)
        if actor is not None:
            actor.interrupt()


@dataclass(eq=False, repr=False)
class Execution:
    """State of one run from its preparation to its outcome."""

    id: str
    root: Root
    prepared: Prepared
    context: RunContext
    input: AgentInput
    answers: Answers | None
    saved: Saved | None
    history: History
    started: RunStarted
    problems: tuple[Problem, ...]
    kept: JournaledRun | None = None
    resumed: RunResumed | None = None
    playback: Playback | None = None
    directory: Path | None = None
    part: PartOf | None = None
    make_scopes: Callable[[JournaledRun, Actor], Scopes] = Scopes

    def __post_init__(self) -> None:
        self._result = self.prepared.new_result()
        self._record = Record()
        self._actor: Actor | None = None
        self._holds: Callable[[str, Callable[[], None]], None] = _now

    def keep(self, kept: JournaledRun, holds: Callable[[str, Callable[[], None]], None] | None) -> None:
        """Journal the run in `kept`; `holds` as in `RunCallbacks`. Call it before `run`."""
        self.kept, self._holds = kept, holds or _now
        self.history.is_left = lambda: kept.is_handed_over
        self.root.kept[self.id] = kept
        if self.context.flow is not None:
            note_labels(self.context.flow, kept)

    async def run(self, on_event: Callable[[Event], None] | None) -> Outcome:
        """Start the run's actor, wait for its end, and emit exactly one event for the end."""
        bus, top = self.root.bus, self.root.kernel.actor
        resumed = self.resumed
        # Events of the last incarnation may have been sent without being stored: use the next block of numbers.
        stream = bus.open(self.id, after=0 if resumed is None else max((resumed.life - 1) * NUMBERS, resumed.after))
        saves = None if self.saved is None else self.saved.on_event
        try:
            with _heard_by(stream, on_event), _heard_by(stream, saves), _heard_by(stream, self._notifies()):
                actor = top.adopt(self._play, (), name=self.id, bond="watched", stream=stream)
                actor.policy = self._policy()
                self._actor = actor
                actor.emit(self.started)
                if self.resumed is not None:
                    actor.emit(self.resumed)
                    for used in self.context.meter.totals():
                        actor.emit(used)
                for problem in self.problems:
                    actor.emit(Warned(code=problem.code, message=str(problem), node=problem.node))
                if self.kept is not None:
                    self.kept.on_refusal = actor.crash
                actor.launch(self._context(actor))
                try:
                    end = await actor.wait_over()
                    await self._keep()
                except trio.Cancelled:
                    # The caller was cancelled. The actor needs time to clean up, and the run still gets its one end
                    # event.
                    actor.interrupt()
                    with self.root.kernel.shield(actor.time_to_end()):
                        await actor.wait_over()
                    self._emit(actor, "cancelled", None)
                    raise
                return self._close(actor, end)
        finally:
            self.root.end_run(self.id)
            if self.context.recorder is not None:
                self.context.recorder.end()
            bus.close(stream)
            await self._remove()

    def _notifies(self) -> Callable[[Event], None] | None:
        """Return a listener that runs the `Notification` hooks for each question; None if there are none."""
        hooks = self.context.hooks
        if hooks is None or not hooks.has("Notification"):
            return None

        def hear(event: Event) -> None:
            if isinstance(event.data, QuestionAsked) and self._actor is not None:
                self._actor.spawn(hooks.notify, event.data.question, name="notification", link=False)

        return hear

    async def _remove(self) -> None:
        """Remove the run's own temporary files, unless another process may resume it."""
        if self.kept is not None and (self.context.kept or self._has_directory):
            with self.root.kernel.shield(REMOVE_WITHIN):
                # The stored results of a run are needed again by its next incarnation.
                if not await self.kept.is_over():
                    return
                await trio.to_thread.run_sync(over, self.id)
        for results in self.context.kept:
            with self.root.kernel.shield(REMOVE_WITHIN):
                await trio.to_thread.run_sync(results.remove)
        own = () if self.context.sandbox is None else (self.context.sandbox,)
        for each in (*own, *self.context.sandboxes):
            if not each.has_files:
                continue
            with self.root.kernel.shield(REMOVE_WITHIN):
                await trio.to_thread.run_sync(each.remove, abandon_on_cancel=True)

    @property
    def _has_directory(self) -> bool:
        return (self.resumed is not None or may_have_one(self.id)) and directory_of(self.id).exists()

    def _context(self, actor: Actor) -> contextvars.Context | None:
        """Return the context of the run's actor; None if it needs none of its own."""
        if self.kept is None and self.playback is None:
            return None
        context = contextvars.copy_context()
        if self.playback is not None:
            self.playback.begins(actor, self._beginning())
            context.run(playback.set, self.playback)
            context.run(listens.set, self.playback)
        return context if self.kept is None else self.make_scopes(self.kept, actor).inside(context)

    def _policy(self) -> Policy | None:
        """Return the policy that answers before a user: prepared answers first, then the recording of a playback."""
        given, playing = self.answers, self.playback
        if playing is None:
            return None if given is None else given.policy
        if given is None:
            return playing.policy

        def policy(question: Question) -> Answer | Verdict:
            verdict = given.policy(question)
            return playing.policy(question) if verdict is PASS else verdict

        return policy

    def _beginning(self) -> Beginning:
        started, context = self.started, self.context
        return Beginning(
            run=self.id,
            target=started.target,
            prompt=started.prompt,
            model=started.model or "",
            cwd=context.cwd or Path.cwd(),
            config_dir=self.root.config_dir.absolute(),
            directory=self.directory,
        )

    async def _play(self, me: Actor) -> None:
        readable.set(self.context.results)  # inherited by every task below
        sandbox.set(self.context.sandbox)
        if self.context.sandbox is not None:
            self.context.sandbox.works_under(me)
        seconds = self.context.meter.limits.timeout
        for own in () if self.part is None else self.part.held:
            self.context.hold(me, own)
        playing = self.prepared.play(
            me,
            self.input,
            self.context,
            depth=0 if self.part is None else self.part.depth,
            result=self._result,
            record=self._record,
            history=self.history,
        )
        if seconds is None:
            await playing
            return
        if self.kept is not None:
            # The limit holds for the whole run: earlier incarnations have used a part of it.
            seconds = max(0.0, seconds - self.kept.now / 1000)
        with me.time_limit(trio.move_on_after(seconds)) as clock:
            await playing
        if clock.cancelled_caught:
            self._result.error = TimedOut(f"the run did not end within {seconds:g} s (`timeout`, --timeout)")

    async def _keep(self) -> None:
        """Wait until all rows of a durable run are on disk, so that an end is never reported before it is stored.

        A failed run, or one whose time is over, does not wait for a disk that refuses writes: it would never end.
        """
        if self.kept is None:
            return
        limit = self.context.meter.limits.timeout
        within = None if limit is None else max(0.0, limit - self.kept.now / 1000)
        has_failed = self._result.error is not None or bool(self._record.failures)
        if has_failed:
            within = 0.0
        try:
            await self.kept.barrier(within)
        except ShuttingDown as error:
            self._result.error = error
        except JournalError as error:
            if not has_failed or isinstance(self._result.error, TimedOut):
                self._result.error = error

    def _close(self, actor: Actor, end: End) -> Outcome:
        error = self._result.error
        if self.playback is not None and self.playback.broken is not None:
            return self._emit(actor, "failed", self.playback.broken)
        if end.error is not None:
            error = end.error if isinstance(end.error, CallboardError) else CallboardError(f"crashed: {end.error!r}")
        if end.reason in ("cancelled", "stopped") or isinstance(error, ShuttingDown):
            return self._emit(actor, "cancelled", None)
        failures = self._record.failures
        self._warn_of_unused_answers(actor, error)
        if error is not None:
            output = self._result.output if isinstance(error, FailedEnd) else ""
            return self._emit(actor, "failed", run_error(failures, error), output)
        if self.playback is not None and self.playback.unused:
            text = f"the cassette has recorded results that the run did not use: {self.playback.unused}"
            actor.emit(Warned(code="cassette_left", message=text))
        if not failures:
            return self._emit(actor, "done", None, self._result.output)
        return self._emit(actor, "failed", run_error(failures, None), self._result.output)

    def _warn_of_unused_answers(self, actor: Actor, error: CallboardError | None) -> None:
        # After another failure, questions that would have used the answers may never have been reached.
        if self.answers is not None and self.answers.unused and (error is None or isinstance(error, NobodyToAsk)):
            text = "answers that no question asked for: " + ", ".join(self.answers.unused)
            actor.emit(Warned(code="answers_left", message=text))

    def _emit(self, actor: Actor, status: Status, error: CallboardError | None, output: str = "") -> Outcome:
        result = self._result
        code = 0 if error is None else error.exit_code
        if status == "cancelled":
            signal = self.root.kernel.signal
            code = INTERRUPTED if signal is None else 128 + signal
        final, leftover, outputs = _messages(result)
        outcome = Outcome(
            run_id=self.id,
            status=status,
            output=output,
            final=self._final(output) if status == "done" else output,
            result=self.history.value if status == "done" else None,
            has_result=status == "done" and self.history.has_value,
            state=result.state,
            order=result.order,
            nodes=result.nodes,
            usage=self.context.meter.models,
            cost_complete=all(used.priced for used in self.context.meter.models.values()),
            turns=self.context.meter.turns,
            tool_calls=self.context.meter.tool_calls,
            children=self._record.children,
            final_messages=final,
            pending=leftover,
            failures=[ErrorReport.of(each) for each in self._record.failures],
            error=None if error is None else ErrorReport.of(error),
            resumable=status == "cancelled"
            and self.kept is not None
            and self.kept.is_handed_over
            and not self.kept.trouble,
            carries=None if self.part is None else self._carries(),
            exit_code=code,
        )
        # The vault has handed out secrets, and the output may contain some.
        if self.root.vault.told:
            outcome = without_secrets(outcome)
        if self.saved is not None:
            self.saved.keep(outcome, outputs)
            _unsaved(outcome, self.saved)
        if self.kept is not None and not self.kept.is_handed_over:
            self._holds(self.id, partial(self.kept.over, status))
        if self.kept is not None and self.kept.dormant:
            actor.emit(RunDormant())
        elif actor.stream.heard:
            actor.emit(_ENDS[status](outcome=outcome.to_wire()))
        if self.saved is not None:
            self.saved.close()
            _unsaved(outcome, self.saved)
        return outcome

    def _final(self, output: str) -> str:
        return self._record.last if self.started.dialect == "agent" else output

    def _carries(self) -> Carried | None:
        flow = self.context.flow
        return None if flow is None else Carried(untrusted=flow.carried.untrusted, private=flow.carried.private)


def note_labels(flow: Flow, kept: JournaledRun) -> None:
    """Add the labels of earlier incarnations to a run's flow, and record each change in its journal."""
    before = kept.once.get(NOTED)
    if before is not None:
        flow.add(decode_value(before, Labels))
    flow.noted_by(partial(kept.note_once, NOTED))
    if flow.carried:
        kept.note_once(NOTED, flow.carried)


def _now(_: str, over: Callable[[], None]) -> None:
    over()


_UNHEARD = nullcontext()


def _heard_by(stream: Stream, hears: Callable[[Event], None] | None) -> AbstractContextManager[None]:
    return _UNHEARD if hears is None else stream.listen(hears)


def _unsaved(outcome: Outcome, saved: Saved) -> None:
    outcome.save_error = saved.error
    if saved.error is not None:
        outcome.exit_code = outcome.exit_code or 1


_ENDS: dict[Status, type[RunFinished | RunFailed | RunCancelled]] = {
    "done": RunFinished,
    "failed": RunFailed,
    "cancelled": RunCancelled,
}


def _messages(
    result: GraphResult,
) -> tuple[list[Message] | None, dict[str, list[Message]] | None, dict[str, list[Message]] | None]:
    """Return a workflow's messages: final ones, leftover ones and outputs by node; three times None for an agent."""
    # By name, since importing `WorkflowResult` for `isinstance` would load the engine of workflows for every run.
    recorded = getattr(result, "recorded_messages", None)
    return (None, None, None) if recorded is None else recorded()
