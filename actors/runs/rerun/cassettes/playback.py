"""Replay of a run from a cassette: external results come from the recording, without network and processes.

Every request of the run must be in the cassette. A request is found by its contents, wherever it was recorded; among
equal ones, the one recorded at the same position is preferred. With `loose`, the next request recorded at the position
is used, whatever its contents. If none is found, the run fails, even if its nodes and tools tolerate failures, and the
error shows the difference as lines.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
import trio

from .....protocol.cassette import (
    AnswerLine,
    AnyLine,
    CassetteDiffers,
    DoneLine,
    Head,
    Piece,
    RecordedRequest,
    ReplyLine,
    ValueLine,
    WindowLine,
    hash_of,
    read_cassette,
)
from .....protocol.chat import ChatReply, ChatRequest
from .....protocol.decoding import convert
from .....protocol.errors import CallboardError, ConfigError, UsageError
from .....protocol.kernel.questions import Answer
from .....supervisors.escalation import HOLD, PASS, Verdict
from ....io.tenancy import environ
from ....work.playback import Asking, Beginning, OutsideEffect, RecordedReply
from .content import CallIds, NamedPaths, RequestContent, as_json, as_value, content_of, lines_of, lines_of_value
from .recording import TOKEN, named_paths_of, recorded_token

if TYPE_CHECKING:
    from .....protocol.kernel.questions import Question
    from .....protocol.settings import Settings
    from .....supervisors import Actor

T = TypeVar("T")


class CassettePlayback:
    """Playback from a cassette.

    Args:
        file: the cassette.
        loose: match requests by position, whatever their contents.

    Raises:
        UsageError: the file does not exist.
        InvalidFile: the file is not a cassette.
    """

    asks_the_world = False

    def __init__(self, file: Path, *, loose: bool = False) -> None:
        self._file = file
        self._lines = RemainingLines(read(file), str(file), loose=loose)
        self.model = self._lines.head.model
        self.broken: CallboardError | None = None
        self._counts: dict[tuple[str, str], int] = {}
        self._ids = CallIds()
        self._paths: NamedPaths | None = None
        self._actor: Actor | None = None
        self._asked = 0

    @property
    def unused(self) -> str:
        return self._lines.unused

    def begins(self, actor: Actor, beginning: Beginning) -> None:
        self._actor = actor
        self._paths = named_paths_of(beginning, environ())

    async def chat(
        self, me: Actor, request: ChatRequest, asking: Asking, live: Callable[[], Awaitable[ChatReply]]
    ) -> ChatReply:
        """Return the recorded reply to this request."""
        del live
        if asking.account is not None:
            # Limits hold in a replay too: it must end where a live run would.
            asking.account.check(turn=True)
        paths = self._named_paths
        try:
            line = self._lines.reply(self._at(me), content_of(request, paths, self._ids))
        except CassetteDiffers as error:
            await self._breaks(error)
        recorded = None if line.reply is None else paths.on_this_machine(msgspec.to_builtins(line.reply))
        reply = None if recorded is None else convert(recorded, ChatReply)
        self._asked += 1
        model = (reply.model if reply is not None else "") or request.model or self.model
        played = RecordedReply(me, f"llm-{self._asked}", model, request, asking)
        played.asked()
        # A checkpoint, as a live request is: replayed replies in a loop must not keep other tasks from running.
        await trio.lowlevel.checkpoint()
        if line.error is not None:
            raise played.failed(line.error.restore())
        assert reply is not None
        return played.answered(reply, line.seconds)

    async def done(self, me: Actor, effect: OutsideEffect, kind: type[T], live: Callable[[], Awaitable[T]]) -> T:
        """Return the recorded result of this effect."""
        del live
        given = self._named_paths.named(as_json(effect.request))
        try:
            line = self._lines.done(self._at(me), effect.kind, effect.name, given, hash_of(given))
            await trio.lowlevel.checkpoint()
            if line.error is not None:
                raise line.error.restore()
            return self._value(line, kind)
        except CassetteDiffers as error:
            await self._breaks(error)
        raise AssertionError("unreachable: the run is cancelled")

    async def in_turn(self, me: Actor) -> None:
        """Return at once: the order of a replay from a cassette is free."""

    def value(self, me: Actor | None, name: str, kind: type[T], find: Callable[[], T]) -> T:
        """Return the recorded value. Ids are computed from their position in the run."""
        at = "" if me is None or self._actor is None else self._at(me)
        if name == TOKEN:
            number = self._counts[at, name] = self._counts.get((at, name), 0) + 1
            return convert(recorded_token(at, number), kind)
        line = self._lines.value(at, name)
        if line is None:
            return find()
        return convert(line.value if self._paths is None else self._paths.on_this_machine(line.value), kind)

    def window(self, model: str, find: Callable[[], int | None]) -> int | None:
        """Return the recorded window of a model, else that of the settings."""
        try:
            return self._lines.window(model) or find()
        except ConfigError:  # The client need not be configured here.
            return None

    def policy(self, question: Question) -> Answer | Verdict:
        """Return the recorded answer. An answer by a parent agent is not replayed, because the agent answers again."""
        actor = self._actor
        assert actor is not None
        line = self._lines.answer(question.actor.removeprefix(actor.path), question.text)
        # An answer by a path came from a parent agent, whose model is replayed as well.
        if line is not None and line.by.startswith("/"):
            return PASS
        if line is not None and not line.reason:
            return Answer(question=question.id, value=self._given(line), by=line.by)
        questions = actor.root.questions
        if line is not None and line.reason == "timeout":
            questions.expire(question.id, question.timeout or 0.0)
        else:
            questions.leave_to_nobody(question.id)
        return HOLD

    def answered(self, actor: Actor, question: Question, answer: Answer) -> None:
        """Ignore the answer: a replay records nothing."""

    def unanswered(self, actor: Actor, question: Question, reason: str) -> None:
        """Ignore the closed question: a replay records nothing."""

    async def over(self, status: str, settings: Settings) -> None:
        """Do nothing: a replay writes no file."""

    @property
    def _named_paths(self) -> NamedPaths:
        assert self._paths is not None
        return self._paths

    def _at(self, me: Actor) -> str:
        assert self._actor is not None
        return me.path.removeprefix(self._actor.path)

    def _value(self, line: DoneLine, kind: type[T]) -> T:
        try:
            return as_value(self._named_paths.on_this_machine(line.value), kind)
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            raise CassetteDiffers(
                f"the cassette {self._file} has an unexpected value for {line.kind} '{line.name}': {error}"
            ) from error

    def _given(self, line: AnswerLine) -> str | list[str]:
        value: Any = self._named_paths.on_this_machine(line.value)
        return list(map(str, value)) if isinstance(value, list) else str(value)

    async def _breaks(self, error: CassetteDiffers) -> None:
        """Fail the whole run with this error. Never returns, because a node or a tool could tolerate an exception."""
        assert self._actor is not None
        if self.broken is None:
            self.broken = error
            self._actor.interrupt()
        await trio.sleep_forever()


def read(file: Path) -> list[AnyLine]:
    """Return the lines of a cassette. Raises as `CassettePlayback` does."""
    return read_cassette(_text(file), str(file))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the cassette {file} can't be read: {why}; --record {file} records one") from error


LONGEST = 60
"""Maximum of lines of a difference in a message."""

JUDGE = "callboard-judge"
"""Agent that judges the output of a case, in a run of its own after the case's run."""

_LIST = 12
"""Maximum of requests listed in a message if none is similar."""

Effects: TypeAlias = ReplyLine | DoneLine


class RemainingLines:
    """Unused lines of a cassette.

    Args:
        lines: lines of the cassette.
        name: name of the cassette in messages.
        loose: match requests by position.

    Attributes:
        head: the first line.
    """

    def __init__(self, lines: Sequence[AnyLine], name: str, *, loose: bool) -> None:
        head = lines[0]
        assert isinstance(head, Head)
        self.head = head
        self._name = name
        self._loose = loose
        self._pieces: dict[str, Any] = {line.hash: line.value for line in lines if isinstance(line, Piece)}
        self._effects: list[Effects] = [line for line in lines if isinstance(line, ReplyLine | DoneLine)]
        self._values = [line for line in lines if isinstance(line, ValueLine)]
        self._answers = [line for line in lines if isinstance(line, AnswerLine)]
        self._windows = {line.model: line.tokens for line in lines if isinstance(line, WindowLine)}

    @property
    def unused(self) -> str:
        """Description of the unused lines; "" if all were used."""
        # Judges run after the case's run, so their lines are unused while its report is made.
        names = [_what(line) for line in self._effects if not line.at.startswith(f"/{JUDGE}")]
        more = f" and {len(names) - _LIST} more" if len(names) > _LIST else ""
        return ", ".join(names[:_LIST]) + more

    def reply(self, at: str, content: RequestContent) -> ReplyLine:
        """Remove and return the recorded reply to this request.

        Raises:
            CassetteDiffers: it is not in the cassette.
        """
        line = self._found(at, content.hash, lambda line: isinstance(line, ReplyLine))
        if line is None:
            near = self._nearest(at, lambda line: isinstance(line, ReplyLine))
            was = None if near is None else lines_of(_asked(near), self._pieces)
            raise self._differs("request to a model", at, near, was, lines_of(content.asked, content.pieces))
        assert isinstance(line, ReplyLine)
        return line

    def done(self, at: str, kind: str, name: str, given: Any, digest: str) -> DoneLine:
        """Remove and return the recorded result of an effect. Raises as `reply` does."""

        def is_one(line: Effects) -> bool:
            return isinstance(line, DoneLine) and line.kind == kind and line.name == name

        line = self._found(at, digest, is_one)
        if line is None:
            near = self._nearest(at, is_one)
            was = lines_of_value(near.given) if isinstance(near, DoneLine) else None
            raise self._differs(f"{kind} '{name}'", at, near, was, lines_of_value(given))
        assert isinstance(line, DoneLine)
        return line

    def value(self, at: str, name: str) -> ValueLine | None:
        """Remove and return the next value of this name, preferably at this position; None if there is none."""
        # The position first: parallel nodes take values of the same name in an order that trio chooses.
        return _taken(self._values, lambda line: line.name == name and line.at == at) or _taken(
            self._values, lambda line: line.name == name
        )

    def answer(self, at: str, text: str) -> AnswerLine | None:
        """Remove and return the next answer to this question, preferably at this position.

        With `loose`, the next answer to any question at this position is also accepted.
        """
        return (
            _taken(self._answers, lambda line: line.at == at and line.question == text)
            or _taken(self._answers, lambda line: line.question == text)
            or (_taken(self._answers, lambda line: line.at == at) if self._loose else None)
        )

    def window(self, model: str) -> int | None:
        """Return the recorded window of a model in tokens."""
        return self._windows.get(model)

    def _found(self, at: str, digest: str, is_one: Callable[[Effects], bool]) -> Effects | None:
        if self._loose:
            return _taken(self._effects, lambda line: is_one(line) and line.at == at) or _taken(self._effects, is_one)
        return _taken(self._effects, lambda line: is_one(line) and line.request == digest and line.at == at) or _taken(
            self._effects, lambda line: is_one(line) and line.request == digest
        )

    def _nearest(self, at: str, is_one: Callable[[Effects], bool]) -> Effects | None:
        """Return the recorded request to compare with one that was not found: at this position, else the next one."""
        # Only for the message: a difference to the nearest request says more than that one is missing.
        there = [line for line in self._effects if is_one(line)]
        return next((line for line in there if line.at == at), there[0] if there else None)

    def _differs(
        self, what: str, at: str, near: Effects | None, was: Sequence[str] | None, now: Sequence[str]
    ) -> CassetteDiffers:
        where = at or "the run"
        if near is None or was is None:
            rest = f"its unused results: {self.unused}" if self._effects else "all of its results have been used"
            return CassetteDiffers(
                f"the cassette {self._name} has no further {what} of {where}; {rest}. The run asked for:\n"
                + "\n".join(f"  {line}" for line in now[:LONGEST])
                + f"\nRecord it again (--record {self._name})"
            )
        there = "" if near.at == at else f" (the most similar one is of {near.at or 'the run'})"
        difference = list(difflib.unified_diff(was, now, "recorded", "now", n=2, lineterm=""))
        shown = difference[:LONGEST]
        if len(difference) > len(shown):
            shown.append(f"... {len(difference) - len(shown)} more lines")
        return CassetteDiffers(
            f"the {what} of {where} differs from the one in the cassette {self._name}{there}:\n"
            + "\n".join(f"  {line}" for line in shown)
            + f"\nRecord it again (--record {self._name}), or accept the recorded result at this position (--loose)"
        )


def _asked(line: Effects) -> RecordedRequest:
    assert isinstance(line, ReplyLine)
    return line.asked


def _what(line: Effects) -> str:
    if isinstance(line, ReplyLine):
        return f"a request of {line.at}"
    return f"{line.kind} '{line.name}' of {line.at}"


def _taken(lines: list[T], wanted: Callable[[T], bool]) -> T | None:
    """Remove and return the first matching line; None if there is none."""
    for place, line in enumerate(lines):
        if wanted(line):
            return lines.pop(place)
    return None
