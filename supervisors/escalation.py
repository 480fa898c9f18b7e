"""Questions travel from any leaf to the root, and each is answered on its own.

`me.ask_person(question)` walks up the tree. Every ancestor that has a `policy` may answer at once (a list of
prepared answers, "always yes"), keep the question to itself and answer later (`HOLD`), let it pass and perhaps answer
later all the same (`NOTED`: a parent whose model may know), or let it pass. What no ancestor answers is put on the
*desk* at the root and shown to every attached front end (terminal, websocket, HTTP) at once. The first answer wins and
closes the question for the others.

A question is a message, and so is its answer. The question is mail of the root's actor, whose body has the desk decide
about it (`Desk.decide`): all policies and front ends are called in that one task. The answer is the reply to it
(`ref.Request`): the root sends it, the asker's mailbox counts it, and it goes past the asker's mail to the call that
waits for it. So an actor may ask while its mail waits, and ask several questions at a time. An answer, wherever it is
given, closes its question at once (`Desk.answer`), and a question ends with the wait of its asker: neither waits for
the root's turn.

The asker waits, and only the asker: its siblings go on, up to `MOST_OPEN` questions may be open, and they are answered
in any order. One more fails at once with `Saturated`: no person reads that many, and each takes memory.
An unanswerable question (no front end is there, no ancestor has noted it) gets its own
default, else `NobodyToAsk`. Deadline (`timeout`) and default belong to the question; when the asker is interrupted
the question is withdrawn.
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
"""Questions that may be open under one root."""

log = logging.getLogger("callboard.questions")


class Verdict(Enum):
    """What a policy says when it does not answer."""

    PASS = "pass"  # noqa: S105 - not a password
    HOLD = "hold"
    NOTED = "noted"


PASS = Verdict.PASS
HOLD = Verdict.HOLD
NOTED = Verdict.NOTED
Policy = Callable[[Question], Answer | Verdict]
"""Asked once per question that comes by. Must be quick; use `HOLD` or `NOTED` and `desk.answer` to take one's time.

One that raises is reported, and counts as `PASS`: its fault is not the asker's.
"""


class FrontEnd(Protocol):
    """Something that can show questions to a person. Both calls must return at once; one that raises is detached."""

    name: str

    def asked(self, question: Question) -> None:
        """Show this; answer through `desk.answer`."""

    def closed(self, question_id: str, by: str) -> None:
        """It is answered or withdrawn; stop showing it. `by` says why."""


class QuestionMemory(Protocol):
    """Remembers what actors have asked in an earlier life of what they work on, and what was answered."""

    def asked(self, actor: Actor, question: Question) -> Question | Answer:
        """The answer that was given before; else the question as it is to be asked, under the id that it had."""

    def answer(self, actor: Actor, question: Question, answer: Answer) -> None:
        """It is answered. Called before anybody is told."""

    async def keep(self) -> None:
        """Wait until the questions and answers so far will be remembered, whatever happens."""


class QuestionListener(Protocol):
    """Is told how the questions of actors have ended."""

    def answered(self, actor: Actor, question: Question, answer: Answer) -> None:
        """It has this answer."""

    def unanswered(self, actor: Actor, question: Question, reason: str) -> None:
        """It was closed without one: `timeout` or `nobody`."""


listens: ContextVar[QuestionListener | None] = ContextVar("callboard_question_listener", default=None)
"""What is told how the questions of the actors of this context have ended."""

remembers: ContextVar[QuestionMemory | None] = ContextVar("callboard_question_memory", default=None)
"""What remembers the questions of the actors of this context."""


class QuestionTimeout(TimedOut):
    """No answer came within the question's own `timeout`."""

    code = "question_timeout"


@final
class Desk:
    """The open questions of one root.

    Attributes:
        patient: whether a question may wait for a front end that is not there yet (servers), or fails at once.
        most: how many questions may be open.
        mark: what ids of questions begin with that nothing remembers.
    """

    def __init__(self, root: Root, *, patient: bool = False) -> None:
        self.patient = patient
        self.most = MOST_OPEN
        self.mark = "q"
        self._root = root
        self._front_ends: list[FrontEnd] = []
        self._open: dict[str, _Open] = {}
        self._asking: Counter[Actor] = Counter()
        self._ids = itertools.count(1)

    @property
    def open(self) -> tuple[Question, ...]:
        """Every question that has no answer yet, oldest first. From any thread."""
        return tuple(pending.question for pending in list(self._open.values()))

    @property
    def attended(self) -> bool:
        """Whether a front end is there, so that a person may see what is asked."""
        return bool(self._front_ends)

    def new_id(self) -> str:
        """An id for a question, unique under this root."""
        return f"{self.mark}{next(self._ids)}"

    @contextlib.contextmanager
    def attach(self, front_end: FrontEnd) -> Iterator[None]:
        """Show questions to `front_end` while the block lasts, those first that are open already. From any thread.

        In an asyncio loop its methods are called in that loop, else in that of the root.
        """
        host = asyncio_host()
        shown = front_end if host is None else _ThroughLoop(front_end, host, self._detach_from_elsewhere)
        try:
            self._root.in_loop(self._attach, shown)
            yield
        finally:
            self._detach_from_elsewhere(shown)

    def _detach_from_elsewhere(self, front_end: FrontEnd) -> None:
        with contextlib.suppress(ShuttingDown):  # the root has ended, and its desk with it
            self._root.in_loop(self._detach, front_end)

    def _attach(self, front_end: FrontEnd) -> None:
        self._front_ends.append(front_end)
        for pending in list(self._open.values()):
            if pending.on_desk:
                self._show(front_end, pending.question)

    def answer(self, question_id: str, value: Value, by: str = "") -> bool:
        """Answer a question, as `protocol.kernel.questions.understood` understands the value. From any thread.

        False if it is not open: answered by another, withdrawn, or never asked.
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
        """As `answer`; returns when the answer will be remembered, if its asker's are. Raises if that can't be."""
        pending = self._open.get(question_id)
        answered = self.answer(question_id, value, by)
        if answered and pending is not None and pending.memory is not None:
            await pending.memory.keep()
        return answered

    def expire(self, question_id: str, seconds: float) -> bool:
        """End a question that was open for so long, as its own `timeout` would. False if it is not open."""
        pending = self._open.get(question_id)
        if pending is None or not pending.request.waits:
            return False
        self._close(pending, _too_late(pending.question, seconds), "timeout")
        return True

    def leave_to_nobody(self, question_id: str) -> bool:
        """End a question as if nobody was there to be asked. False if it is not open."""
        pending = self._open.get(question_id)
        if pending is None or not pending.request.waits:
            return False
        self._close(pending, _nobody(pending.question), "nobody")
        return True

    def waits_for_people(self, question_id: str) -> bool:
        """Whether a question is open, shown to people alone, and for as long as it takes, and no secret."""
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
        """Call back once with why, as front ends are told, when this question, which is open, is so no more."""
        self._open[question_id].callbacks.append(callback)

    def pass_on(self, question_id: str) -> None:
        """A policy that held this question lets it go on upwards."""
        pending = self._open.get(question_id)
        if pending is not None and pending.holder is not None:
            self._climb(pending, pending.holder.parent)

    async def ask(self, actor: Actor, question: Question) -> Answer:
        """Ask on behalf of `actor` and wait for the answer.

        Raises:
            NobodyToAsk: no front end or ancestor can answer, and there is no default.
            QuestionTimeout: no answer came within the question's `timeout`.
            ShuttingDown: the root stops and asks people nothing more.
            JournalError: it can't be remembered that it was asked, and has to be.
            Saturated: as many questions as may be are open.
        """
        root, memory = self._root, remembers.get()
        if root.stopping or root.actor.stopping:
            raise ShuttingDown(f"{actor.path} can't ask: the root is stopping")
        if memory is not None:
            known = memory.asked(actor, question)
            if isinstance(known, Answer):
                return known
            question = known
            await memory.keep()  # nobody sees a question whose id another may have after a kill
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
            if self._open.get(question.id) is pending:
                del self._open[question.id]
                self._tell_closed(pending, reason)
            if reason in ("nobody", "timeout") and (listener := listens.get()) is not None:
                listener.unanswered(actor, question, reason)
            if reason:
                actor.emit(QuestionExpired(reason=reason), id=question.id)
            actor.emit(ActorBusy(), id=question.id)

    def _opened(self, actor: Actor, question: Question, memory: QuestionMemory | None) -> _Open:
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
        pending = _Open(question, Request(question, self._root.actor, actor), actor, memory)
        self._open[question.id] = pending
        return pending

    async def _sent(self, pending: _Open) -> Answer:
        """The reply to the question, which is now mail of the root."""
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
        """Bring a question to who may answer it. Called in the root's task, as it comes to this message of its."""
        pending = self._open.get(request.message.id)
        if pending is None or pending.request is not request:
            return  # withdrawn meanwhile
        try:
            self._climb(pending, pending.actor)
        except Exception as error:  # noqa: BLE001 - an answer that is none is raised in the asker, not in the root
            request.fail(error)

    def _climb(self, pending: _Open, start: Actor | None) -> None:
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
        for front_end in list(self._front_ends):
            self._show(front_end, pending.question)
            if pending.question.id not in self._open:
                return  # answered on the spot
        if not self._front_ends and not self.patient and not pending.noted:
            self._give_up(pending)

    def _show(self, front_end: FrontEnd, question: Question) -> None:
        try:
            front_end.asked(question)
        except BaseException as error:  # the front end is detached and reported; the asker is not to blame
            failure_of(error)
            log.exception("front end '%s' raised on a question and is detached", front_end.name)
            self._detach(front_end)

    def _detach(self, front_end: FrontEnd) -> None:
        if front_end in self._front_ends:
            self._front_ends.remove(front_end)
            if not self._front_ends and not self.patient:
                self._nobody_left()

    def _give_up(self, pending: _Open) -> None:
        question = pending.question
        if question.default is not None:
            self.answer(question.id, question.default, "default")
        else:
            self._close(pending, _nobody(question), "nobody")

    def _nobody_left(self) -> None:
        for pending in list(self._open.values()):
            if pending.on_desk and not pending.noted:
                self._give_up(pending)

    def _close(self, pending: _Open, result: Answer | Exception, by: str) -> None:
        del self._open[pending.question.id]
        if isinstance(result, Answer):
            if pending.memory is not None:
                pending.memory.answer(pending.actor, pending.question, result)
            pending.request.reply(result)
        else:
            pending.request.fail(result)
        self._tell_closed(pending, by)

    def _tell_closed(self, pending: _Open, by: str) -> None:
        for callback in pending.callbacks:
            callback(by)
        if pending.on_desk:
            for front_end in list(self._front_ends):
                try:
                    front_end.closed(pending.question.id, by)
                except BaseException as error:  # as above
                    failure_of(error)
                    log.exception("front end '%s' raised on a closed question and is detached", front_end.name)
                    self._detach(front_end)


@final
class _ThroughLoop:
    """A front end whose methods are called in an asyncio loop. One that raises is detached, as others are."""

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
        except BaseException as error:  # reported; real interrupts pass
            failure_of(error)
            log.exception("front end '%s' raised and is detached", self.name)
            self._detach(self)


class _Open(msgspec.Struct, eq=False):
    """An open question, and how far it has come."""

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
    except BaseException as error:  # reported; the question goes on to the next who may answer
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
