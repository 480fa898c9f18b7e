"""Escalation: questions travel from any actor up to the root, and the first answer wins.

`me.ask_person(question)` offers the question to the ancestors of the asker, from the nearest one up. An ancestor with a
`policy` may

    answer      with an `Answer` (a list of prepared answers, "always yes")
    HOLD        stop the question here and answer it later
    NOTED       let it pass, and perhaps answer it later all the same (a parent whose model may know the answer)
    PASS        let it pass

A question that no ancestor answers or holds reaches the root, which shows it to every attached front end
(terminal, websocket, HTTP) at once. The first answer closes it for all.

**Question and answer are messages.** The question is mail of the root's actor, whose body calls `OpenQuestions.decide`:
all policies and front ends are called in that one task. The answer is the reply to that mail (`ref.Request`). It counts
as a message in the asker's mailbox, but bypasses the mail that waits there, so an actor may ask while its mail waits,
and ask several questions at a time. Answering (`OpenQuestions.answer`) and withdrawing take effect at once; they do not
wait for the root's task.

**Only the asker waits.** Its siblings continue, and questions are answered in any order. At most `MOST_OPEN` may be
open; one more fails at once with `Saturated`, since no user reads that many and each takes memory.

**Endings.** A question without any possible answer (no front end is attached, no ancestor has noted it) gets its own
default or fails with `NobodyToAsk`. `timeout` and default belong to the question. If the asker is interrupted, the
question is withdrawn.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from enum import Enum
from typing import TYPE_CHECKING, Protocol, final

import msgspec

from ..protocol.kernel.errors import ActorError, AskTimeout, NobodyToAsk, Saturated, ShuttingDown, TimedOut
from ..protocol.kernel.events import ActorBusy, ActorWaiting, QuestionAnswered, QuestionAsked, QuestionExpired
from ..protocol.kernel.questions import Answer, Question, understood
from .event_loops import AsyncioHost, asyncio_host
from .ref import Request
from .user_code import failure_of

if TYPE_CHECKING:
    from .actor import Actor
    from .root import Root

Value = str | list[str]

MOST_OPEN = 10_000
"""Most questions that may be open under one root."""

log = logging.getLogger("callboard.questions")


class Verdict(Enum):
    """Result of a policy that does not answer; see the table in the module docstring."""

    PASS = "pass"  # noqa: S105 - not a password
    HOLD = "hold"
    NOTED = "noted"


PASS = Verdict.PASS
HOLD = Verdict.HOLD
NOTED = Verdict.NOTED
Policy = Callable[[Question], Answer | Verdict]
"""Called once for each question that passes its actor. Must be quick; for a later answer return `HOLD` or `NOTED` and
call `OpenQuestions.answer`. An exception is logged and counts as `PASS`: the asker must not fail because of it."""


class FrontEnd(Protocol):
    """Shows questions to a user. Both methods must return at once; a front end that raises is detached."""

    name: str

    def asked(self, question: Question) -> None:
        """Show the question. Its answer is given to `OpenQuestions.answer`."""

    def closed(self, question_id: str, by: str) -> None:
        """Stop showing the question: it was answered or withdrawn. `by` is the answering party or the reason."""


class QuestionMemory(Protocol):
    """Journal of questions and answers, so that a resumed run does not ask again."""

    def asked(self, actor: Actor, question: Question) -> Question | Answer:
        """Return the recorded answer, or else the question with the id under which it was asked before."""

    def answer(self, actor: Actor, question: Question, answer: Answer) -> None:
        """Record an answer. Called before the asker or any front end sees it."""

    async def keep(self) -> None:
        """Wait until all questions and answers so far are durable."""


class QuestionListener(Protocol):
    """Receives the outcome of each question."""

    def answered(self, actor: Actor, question: Question, answer: Answer) -> None:
        """The question was answered."""

    def unanswered(self, actor: Actor, question: Question, reason: str) -> None:
        """The question was closed without an answer; `reason` is `timeout` or `nobody`."""


listens: ContextVar[QuestionListener | None] = ContextVar("callboard_question_listener", default=None)
"""Receives the outcomes of the questions asked in this context."""

remembers: ContextVar[QuestionMemory | None] = ContextVar("callboard_question_memory", default=None)
"""Journal for the questions asked in this context."""


class QuestionTimeout(TimedOut):
    """No answer came within the question's own `timeout`."""

    code = "question_timeout"


@final
class OpenQuestions:
    """The open questions of one root.

    Attributes:
        patient: True if questions wait for a front end to be attached (servers); else they fail without one.
        most: most questions that may be open.
        mark: prefix of the ids of questions that no journal records.
    """

    def __init__(self, root: Root, *, patient: bool = False) -> None:
        self.patient = patient
        self.most = MOST_OPEN
        self.mark = "q"
        self._root = root
        self._front_ends: list[FrontEnd] = []
        self._open: dict[str, _OpenQuestion] = {}
        self._asking: Counter[Actor] = Counter()
        self._ids = itertools.count(1)

    @property
    def open(self) -> tuple[Question, ...]:
        """All questions without an answer, oldest first. From any thread."""
        return tuple(pending.question for pending in list(self._open.values()))

    @property
    def attended(self) -> bool:
        """True if a front end is attached, so that a user may see questions."""
        return bool(self._front_ends)

    def new_id(self) -> str:
        """Return an id for a question, unique under this root."""
        return f"{self.mark}{next(self._ids)}"

    @contextlib.contextmanager
    def attach(self, front_end: FrontEnd) -> Iterator[None]:
        """Show questions to `front_end` while the block lasts, beginning with the open ones. From any thread.

        If the caller runs in an asyncio loop, the methods are called in that loop, else in the root's.
        """
        host = asyncio_host()
        shown = front_end if host is None else _ThroughLoop(front_end, host, self._detach_in_loop)
        try:
            self._root.in_loop(self._attach, shown)
            yield
        finally:
            self._detach_in_loop(shown)

    def _detach_in_loop(self, front_end: FrontEnd) -> None:
        with contextlib.suppress(ShuttingDown):  # the root has ended, and its questions with it
            self._root.in_loop(self._detach, front_end)

    def _attach(self, front_end: FrontEnd) -> None:
        self._front_ends.append(front_end)
        for pending in list(self._open.values()):
            if pending.on_desk:
                self._show(front_end, pending.question)

    def answer(self, question_id: str, value: Value, by: str = "") -> bool:
        """Answer a question; `protocol.kernel.questions.understood` interprets the value. From any thread.

        Returns False if it is not open: already answered, withdrawn, or never asked.
        """
        return self._root.in_loop(self._answer, question_id, value, by)

    def _answer(self, question_id: str, value: Value, by: str) -> bool:
        pending = self._open.get(question_id)
        if pending is None or not pending.request.waits:
            return False
        answer = Answer(question=question_id, value=understood(pending.question, value), by=by)
        self._close(pending, answer, by)
        return True

    async def answer_for_good(self, question_id: str, value: Value, by: str = "") -> bool:
        """Answer like `answer`, and return once the answer is durable, if the asker has a journal.

        Returns False at once if the question is not open.

        Raises:
            JournalError: the answer could not be stored.
        """
        pending = self._open.get(question_id)
        answered = self.answer(question_id, value, by)
        if answered and pending is not None and pending.memory is not None:
            await pending.memory.keep()
        return answered

    def expire(self, question_id: str, seconds: float) -> bool:
        """Fail a question with `QuestionTimeout` now, even if it has a default. False if it is not open.

        Args:
            seconds: time that the question was open, for the error.
        """
        pending = self._open.get(question_id)
        if pending is None or not pending.request.waits:
            return False
        self._close(pending, _too_late(pending.question, seconds), "timeout")
        return True

    def leave_to_nobody(self, question_id: str) -> bool:
        """Fail a question with `NobodyToAsk`, even if it has a default. False if it is not open."""
        pending = self._open.get(question_id)
        if pending is None or not pending.request.waits:
            return False
        self._close(pending, _nobody(pending.question), "nobody")
        return True

    def waits_for_people(self, question_id: str) -> bool:
        """Return whether a question is open, only users can answer it, it has no timeout, and it is not secret."""
        pending = self._open.get(question_id)
        return (
            pending is not None
            and pending.on_desk
            and not pending.noted
            and pending.request.waits
            and pending.question.timeout is None
            and not pending.question.secret
        )

    def when_closed(self, question_id: str, callback: Callable[[str], None]) -> None:
        """Call `callback` once when this question is closed, with the `by` that front ends receive.

        Raises:
            KeyError: the question is not open.
        """
        self._open[question_id].callbacks.append(callback)

    def pass_on(self, question_id: str) -> None:
        """Offer a held question to the ancestors above the one that holds it. No effect if no policy holds it."""
        pending = self._open.get(question_id)
        if pending is not None and pending.holder is not None:
            self._climb(pending, pending.holder.parent)

    async def ask(self, actor: Actor, question: Question) -> Answer:
        """Ask on behalf of `actor` and wait for the answer.

        Raises:
            NobodyToAsk: no front end or ancestor can answer, and there is no default.
            QuestionTimeout: no answer came within the question's `timeout`.
            ShuttingDown: the root is stopping and asks no more questions.
            JournalError: the question could not be stored in the asker's journal.
            Saturated: `most` questions are open.
        """
        root, memory = self._root, remembers.get()
        if root.stopping or root.actor.stopping:
            raise ShuttingDown(f"{actor.path} can't ask: the root is stopping")
        if memory is not None:
            known = memory.asked(actor, question)
            if isinstance(known, Answer):
                return known
            question = known
            await memory.keep()  # before it is shown: after a kill its id must not be given to another question
        pending = self._opened(actor, question, memory)
        question = pending.question
        self._asking[actor] += 1
        if actor.state == "running":
            actor.state = "waiting"
        actor.emit(QuestionAsked(question=msgspec.to_builtins(question)), id=question.id)
        actor.emit(ActorWaiting(on="question"), id=question.id)
        reason = "cancelled"
        try:
            answer = await self._sent(pending)
            reason = ""
            if (listener := listens.get()) is not None:
                listener.answered(actor, question, answer)
            shown = "" if question.secret else answer.value
            actor.emit(QuestionAnswered(value=shown, by=answer.by), id=question.id)
            return answer
        except NobodyToAsk:
            reason = "nobody"
            raise
        except QuestionTimeout:
            reason = "timeout"
            raise
        finally:
            self._asking[actor] -= 1
            if not self._asking[actor]:
                del self._asking[actor]
                if actor.state == "waiting":
                    actor.state = "running"
            # Still open: the asker was cancelled, or its time is over. By identity, since the id may be in use again.
            if self._open.get(question.id) is pending:
                del self._open[question.id]
                self._notify_closed(pending, reason)
            if reason in ("nobody", "timeout") and (listener := listens.get()) is not None:
                listener.unanswered(actor, question, reason)
            if reason:
                actor.emit(QuestionExpired(reason=reason), id=question.id)
            actor.emit(ActorBusy(), id=question.id)

    def _opened(self, actor: Actor, question: Question, memory: QuestionMemory | None) -> _OpenQuestion:
        question = msgspec.structs.replace(
            question, id=question.id or self.new_id(), actor=actor.path, run=actor.stream.run
        )
        if question.id in self._open:
            raise ActorError(
                f"a question with the id '{question.id}' is open already; leave `id` empty to get a new one"
            )
        if len(self._open) >= self.most:
            raise Saturated(
                f"{actor.path} can't ask '{_short(question.text)}': {len(self._open):,} questions are open, which"
                " is the most; answer some of them (`callboard answer` lists them), or start fewer runs that ask"
            )
        pending = _OpenQuestion(question, Request(question, self._root.actor, actor), actor, memory)
        self._open[question.id] = pending
        return pending

    async def _sent(self, pending: _OpenQuestion) -> Answer:
        """Send the question to the root's actor and return the answer."""
        root, request, timeout = self._root, pending.request, pending.question.timeout
        if root.sent is not None:
            root.sent.count(pending.actor)
        root.actor.mailbox.put_own(request)  # `most` is its bound
        if timeout is not None:
            root.alarms.set(timeout, request)
        try:
            answer: Answer = await request.answer()
        except AskTimeout:
            raise _too_late(pending.question, timeout or 0) from None
        return answer

    def decide(self, request: Request) -> None:
        """Offer a question to policies and front ends. Called in the root's task, which has received it as mail."""
        pending = self._open.get(request.message.id)
        if pending is None or pending.request is not request:
            return  # withdrawn in the meantime
        try:
            self._climb(pending, pending.actor)
        except Exception as error:  # noqa: BLE001 - an invalid answer is raised in the asker, not in the root
            request.fail(error)

    def _climb(self, pending: _OpenQuestion, start: Actor | None) -> None:
        """Offer the question to the policies from `start` upwards, then to the front ends."""
        pending.holder = None
        actor = start
        while actor is not None:
            if actor.policy is not None:
                verdict = _ask_policy(actor, actor.policy, pending.question)
                if isinstance(verdict, Answer):
                    self.answer(pending.question.id, verdict.value, verdict.by or actor.path)
                    return
                if verdict is HOLD:
                    pending.holder = actor
                    return
                if verdict is NOTED:
                    pending.noted = True
            actor = actor.parent
        pending.on_desk = True
        # A copy: a front end that raises is detached during the loop.
        for front_end in list(self._front_ends):
            self._show(front_end, pending.question)
            if pending.question.id not in self._open:
                return  # a front end answered at once
        if not self._front_ends and not self.patient and not pending.noted:
            self._give_up(pending)

    def _show(self, front_end: FrontEnd, question: Question) -> None:
        try:
            front_end.asked(question)
        except BaseException as error:  # logged; the front end is detached, and the asker unaffected
            failure_of(error)
            log.exception("front end '%s' raised on a question and is detached", front_end.name)
            self._detach(front_end)

    def _detach(self, front_end: FrontEnd) -> None:
        if front_end in self._front_ends:
            self._front_ends.remove(front_end)
            if not self._front_ends and not self.patient:
                self._fail_unanswerable()

    def _give_up(self, pending: _OpenQuestion) -> None:
        question = pending.question
        if question.default is not None:
            self.answer(question.id, question.default, "default")
        else:
            self._close(pending, _nobody(question), "nobody")

    def _fail_unanswerable(self) -> None:
        for pending in list(self._open.values()):
            if pending.on_desk and not pending.noted:
                self._give_up(pending)

    def _close(self, pending: _OpenQuestion, result: Answer | Exception, by: str) -> None:
        # Before anything is called: a callback that answers again must find the question closed.
        del self._open[pending.question.id]
        if isinstance(result, Answer):
            if pending.memory is not None:
                pending.memory.answer(pending.actor, pending.question, result)
            pending.request.reply(result)
        else:
            pending.request.fail(result)
        self._notify_closed(pending, by)

    def _notify_closed(self, pending: _OpenQuestion, by: str) -> None:
        for callback in pending.callbacks:
            callback(by)
        if pending.on_desk:
            for front_end in list(self._front_ends):
                try:
                    front_end.closed(pending.question.id, by)
                except BaseException as error:  # as in `_show`
                    failure_of(error)
                    log.exception("front end '%s' raised on a closed question and is detached", front_end.name)
                    self._detach(front_end)


@final
class _ThroughLoop:
    """Wraps a front end so that its methods are called in an asyncio loop. It is detached if it raises."""

    def __init__(self, front_end: FrontEnd, host: AsyncioHost, detach: Callable[[FrontEnd], None]) -> None:
        self.name = front_end.name
        self._front_end = front_end
        self._host = host
        self._detach = detach

    def asked(self, question: Question) -> None:
        self._host.post(self._call, self._front_end.asked, question)

    def closed(self, question_id: str, by: str) -> None:
        self._host.post(self._call, self._front_end.closed, question_id, by)

    def _call(self, method: Callable[..., None], *args: object) -> None:
        try:
            method(*args)
        except BaseException as error:  # logged; `failure_of` lets real interrupts pass
            failure_of(error)
            log.exception("front end '%s' raised and is detached", self.name)
            self._detach(self)


class _OpenQuestion(msgspec.Struct, eq=False):
    """An open question.

    Attributes:
        holder: the actor whose policy holds it.
        noted: True if a policy may still answer it.
        on_desk: True once front ends see it.
    """

    question: Question
    request: Request
    actor: Actor
    memory: QuestionMemory | None = None
    callbacks: list[Callable[[str], None]] = []
    holder: Actor | None = None
    noted: bool = False
    on_desk: bool = False


def _ask_policy(actor: Actor, policy: Policy, question: Question) -> Answer | Verdict:
    try:
        return policy(question)
    except BaseException as error:  # logged; the next ancestor or front end may answer
        failure_of(error)
        log.exception("the policy of %s raised on a question, which passes", actor.path)
        return PASS


def _nobody(question: Question) -> NobodyToAsk:
    return NobodyToAsk(f"nobody is there to answer: {_short(question.text)}")


def _too_late(question: Question, seconds: float) -> QuestionTimeout:
    return QuestionTimeout(f"no answer within {seconds:g} s to: {_short(question.text)}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else line[:117] + "..."
