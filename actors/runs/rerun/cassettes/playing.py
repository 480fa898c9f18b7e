"""Replay of a run from a cassette: external results come from the recording, without network and processes.

Every request of the run must be in the cassette (`remaining_lines`). If one is not, the run fails, even if its nodes
and tools tolerate failures.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import trio

from .....protocol.cassette import AnswerLine, AnyLine, CassetteDiffers, DoneLine, hash_of, read_cassette
from .....protocol.chat import ChatReply, ChatRequest
from .....protocol.decoding import convert
from .....protocol.errors import CallboardError, ConfigError, UsageError
from .....protocol.kernel.questions import Answer
from .....supervisors.escalation import HOLD, PASS, Verdict
from ....io.tenancy import environ
from ....work.playback.playback import Asking, Beginning, OutsideEffect
from ....work.playback.replies import RecordedReply
from .content import CallIds, content_of
from .places import Places
from .recording import TOKEN, places_of, token_of
from .remaining_lines import RemainingLines
from .values import as_json, as_value

if TYPE_CHECKING:
    from .....protocol.kernel.questions import Question
    from .....protocol.settings import Settings
    from .....supervisors import Actor

T = TypeVar("T")


class Playing:
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
        self._shelf = RemainingLines(read(file), str(file), loose=loose)
        self.model = self._shelf.head.model
        self.broken: CallboardError | None = None
        self._counts: dict[tuple[str, str], int] = {}
        self._ids = CallIds()
        self._places: Places | None = None
        self._actor: Actor | None = None
        self._asked = 0

    @property
    def unused(self) -> str:
        return self._shelf.left

    def begins(self, actor: Actor, beginning: Beginning) -> None:
        self._actor = actor
        self._places = places_of(beginning, environ())

    async def chat(
        self, me: Actor, request: ChatRequest, asking: Asking, live: Callable[[], Awaitable[ChatReply]]
    ) -> ChatReply:
        """Return the recorded reply to this request."""
        del live
        if asking.account is not None:
            asking.account.check(turn=True)
        places = self._at_hand
        try:
            line = self._shelf.reply(self._at(me), content_of(request, places, self._ids))
        except CassetteDiffers as error:
            await self._breaks(error)
        reply = None if line.reply is None else convert(places.here(msgspec.to_builtins(line.reply)), ChatReply)
        self._asked += 1
        model = (reply.model if reply is not None else "") or request.model or self.model
        played = RecordedReply(me, f"llm-{self._asked}", model, request, asking)
        played.asked()
        await trio.lowlevel.checkpoint()
        if line.error is not None:
            raise played.failed(line.error.restore())
        assert reply is not None
        return played.answered(reply, line.seconds)

    async def done(self, me: Actor, effect: OutsideEffect, kind: type[T], live: Callable[[], Awaitable[T]]) -> T:
        """Return the recorded result of this effect."""
        del live
        given = self._at_hand.named(as_json(effect.request))
        try:
            line = self._shelf.done(self._at(me), effect.kind, effect.name, given, hash_of(given))
            await trio.lowlevel.checkpoint()
            if line.error is not None:
                raise line.error.restore()
            return self._value(line, kind)
        except CassetteDiffers as error:
            await self._breaks(error)
        raise AssertionError("unreachable: who is broken is cancelled")

    async def in_turn(self, me: Actor) -> None:
        """Return at once: the order of a replay from a cassette is free."""

    def value(self, me: Actor | None, name: str, kind: type[T], find: Callable[[], T]) -> T:
        """Return the recorded value. Ids are computed from their position in the run."""
        at = "" if me is None or self._actor is None else self._at(me)
        if name == TOKEN:
            number = self._counts[at, name] = self._counts.get((at, name), 0) + 1
            return convert(token_of(at, number), kind)
        line = self._shelf.value(at, name)
        if line is None:
            return find()
        return convert(line.value if self._places is None else self._places.here(line.value), kind)

    def window(self, model: str, find: Callable[[], int | None]) -> int | None:
        """Return the recorded window of a model, else that of the settings."""
        try:
            return self._shelf.window(model) or find()
        except ConfigError:  # The client need not be configured here.
            return None

    def policy(self, question: Question) -> Answer | Verdict:
        """Return the recorded answer. An answer by a parent agent is not replayed, because the agent answers again."""
        actor = self._actor
        assert actor is not None
        line = self._shelf.answer(question.actor.removeprefix(actor.path), question.text)
        if line is not None and line.by.startswith("/"):
            return PASS
        if line is not None and not line.reason:
            return Answer(question=question.id, value=self._given(line), by=line.by)
        desk = actor.root.questions
        if line is not None and line.reason == "timeout":
            desk.expire(question.id, question.timeout or 0.0)
        else:
            desk.leave_to_nobody(question.id)
        return HOLD

    def answered(self, actor: Actor, question: Question, answer: Answer) -> None:
        """Ignore the answer: a replay records nothing."""

    def unanswered(self, actor: Actor, question: Question, reason: str) -> None:
        """Ignore the closed question: a replay records nothing."""

    async def over(self, status: str, settings: Settings) -> None:
        """Do nothing: a replay writes no file."""

    @property
    def _at_hand(self) -> Places:
        assert self._places is not None
        return self._places

    def _at(self, me: Actor) -> str:
        assert self._actor is not None
        return me.path.removeprefix(self._actor.path)

    def _value(self, line: DoneLine, kind: type[T]) -> T:
        try:
            return as_value(self._at_hand.here(line.value), kind)
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            raise CassetteDiffers(
                f"the cassette {self._file} has something else of {line.kind} '{line.name}' than was expected: {error}"
            ) from error

    def _given(self, line: AnswerLine) -> str | list[str]:
        value: Any = self._at_hand.here(line.value)
        return list(map(str, value)) if isinstance(value, list) else str(value)

    async def _breaks(self, error: CassetteDiffers) -> None:
        """Fail the whole run with this error. Never returns, because a node or a tool could tolerate an exception."""
        assert self._actor is not None
        if self.broken is None:
            self.broken = error
            self._actor.interrupt()
        await trio.sleep_forever()


def read(file: Path) -> list[AnyLine]:
    """Return the lines of a cassette. Raises as `Playing` does."""
    return read_cassette(_text(file), str(file))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the cassette {file} can't be read: {why}; --record {file} makes one") from error
