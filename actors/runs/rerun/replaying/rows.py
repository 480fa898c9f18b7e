"""Parts of a durable run that compare with the recorded rows instead of writing rows.

Deciders receive the messages of the rows, in the order in which the replay reaches them. Their states therefore equal
the original ones, whatever the replay produced. Work begins one by one, so that the order of events does not depend
on trio's scheduling, which is random.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec
import trio

from .....protocol.effects import Effect, Work
from .....protocol.journal import About, Answered, AnyRow, Asked, Noted, Over, Told
from .....protocol.kernel.questions import Answer, Question
from .....protocol.messages import ChildEnded, FromBelow, Idle, Letter, PersonSays
from ....work.journal.actor_journal import D, JournalPlayer, JournalScope, Scopes
from ....work.journal.fork_prefix import work_path
from ....work.journal.run_journal import JournaledRun, RunPast, is_of_files
from .book import ReplayBook

if TYPE_CHECKING:
    from .....protocol.messages import Message
    from .....supervisors import Actor
    from .ordering import ReplayOrder


NOTHING = About(target="", name="", prompt="", cwd="", config_dir="", owner="")
"""Empty summary: a replay is not listed."""


class NoRows:
    """Substitute for a `RunJournal` that stores nothing."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.rows = 0

    def append(self, actor: str, data: bytes) -> int:
        del actor, data
        return 0

    def set_summary(self, about: bytes, *, over: bool = False) -> None:
        pass

    def store_data(self, kind: str, key: str, data: bytes) -> None:
        pass

    @property
    def trouble(self) -> str:
        return ""

    def hurry(self) -> None:
        pass

    def stop(self) -> None:
        pass

    async def barrier(self) -> None:
        pass


class ReplayedRun(JournaledRun):
    """Run journal of a replay, which compares rows with the recorded ones.

    Args:
        past: history before the rows of the book; None if there is none.
        with_changes: use today's files instead of the pinned ones.
    """

    def __init__(self, run: str, book: ReplayBook, past: RunPast | None, *, with_changes: bool) -> None:
        super().__init__(NoRows(run), NOTHING, past, lambda: False)
        self.book = book
        noted = {row.name: row.value for path, row in book.rows if not path and isinstance(row, Noted)}
        once = {**self.once, **noted}
        # These notes pin the files of the original run. With changes, today's files are used.
        self.once = {name: value for name, value in once.items() if not (with_changes and is_of_files(name))}

    async def is_over(self) -> bool:
        """Return False, so that the files of the original run are not removed."""
        return False

    def append(self, path: str, row: AnyRow) -> None:
        """Mark the recorded row as told, or note a difference."""
        # Other rows need no check here: `ReplayedScopes.asked` handles questions, and the book marks intents in
        # advance.
        if isinstance(row, Noted):
            self._came_to(path, row, lambda other: isinstance(other, Noted) and other.name == row.name)
        elif isinstance(row, Answered):
            id = row.answer.question
            self._came_to(path, row, lambda other: isinstance(other, Answered) and other.answer.question == id)
        elif isinstance(row, Over):
            self._came_to(path, row, lambda other: isinstance(other, Over))

    def note_once(self, name: str, value: Any) -> None:
        """Do nothing: the note is in the recorded rows."""

    def spoil(self, why: str) -> None:
        """Do nothing: no row is stored that could be incomplete."""

    def _came_to(self, path: str, row: AnyRow, wanted: Callable[[AnyRow], bool]) -> None:
        book = self.book
        place = book.find(path, wanted)
        if place is not None:
            book.tell(place)
            was = book.row(place)
            if isinstance(row, Over) and isinstance(was, Over) and was.status != row.status:
                book.differs(place + 1, path, f"the run was {was.status}, and is {row.status} now")
        # After the last recorded row, everything is new and no difference.
        elif book.next is not None:
            book.differs(0, path, f"it came to what no row says: {type(row).__name__.lower()}")


class ReplayedScopes(Scopes):
    """Scopes of a replayed run.

    Attributes:
        actors: actors by path of their work or of their deciders.
    """

    def __init__(self, run: JournaledRun, top: Actor, turnstile: ReplayOrder) -> None:
        super().__init__(run, top)
        assert isinstance(run, ReplayedRun)
        self._book = run.book
        self._turnstile = turnstile
        self._looking = top
        self.actors: dict[str, Actor] = {}
        turnstile.scopes = self

    def of(self, actor: Actor) -> Any:
        # `super().of` may call `player`, which needs the actor and does not receive it.
        self._looking = actor
        return super().of(actor)

    def player(self, scope: JournalScope, path: str, past: list[Told]) -> JournalPlayer:
        self.actors[path] = self._looking
        return ReplayedPlayer(scope, path, past, self._book, self._turnstile)

    def begun(self, actor: Actor, player: JournalPlayer, work: Work, *, answered: bool = False) -> None:
        super().begun(actor, player, work, answered=answered)
        self.actors[player.path_of(work)] = actor

    def asked(self, actor: Actor, question: Question) -> Question | Answer:
        """Return the question with its recorded id."""
        path, book = self.of(actor).path, self._book
        place = book.find(path, lambda row: isinstance(row, Asked))
        if place is None:
            if book.next is not None:
                book.differs(0, path, f"it asks what no row says: {question.text}")
            return msgspec.structs.replace(question, id=question.id or self.run.new_question())
        book.tell(place)
        row = book.row(place)
        assert isinstance(row, Asked)
        if row.question.text != question.text:
            book.differs(place + 1, path, f"it asked {row.question.text!r}, and asks {question.text!r} now")
        self._turnstile.open[row.question.id] = path
        return msgspec.structs.replace(question, id=row.question.id)

    def answer(self, actor: Actor, question: Question, answer: Answer) -> None:
        if not question.secret:
            self.run.append(self.of(actor).path, Answered(0, answer))


class ReplayedPlayer(JournalPlayer):
    """Player that gives its decider the recorded messages, in the order of the rows."""

    __slots__ = ("_book", "_told", "_turnstile")
    lines_up = True

    def __init__(
        self, scope: JournalScope, path: str, past: list[Told], book: ReplayBook, turnstile: ReplayOrder
    ) -> None:
        super().__init__(scope, path, past)
        self._book = book
        self._turnstile = turnstile

    def heard_by(self, decider: D, tell: Callable[[FromBelow], None]) -> D:
        """Wrap the decider, so that it receives the recorded messages."""
        self._turnstile.tells[self.path] = tell
        self._told = _Told(decider, self.path, self._book, self._turnstile, folds=bool(self.past))
        return cast("D", self._told)

    def there(self, *, over: bool) -> None:
        self._told.folds = False
        super().there(over=over)

    async def line_up(self, work: Work) -> None:
        """Wait until this work may begin."""
        await self._turnstile.line_up(self.path_of(work))

    async def ends_in_turn(self, ended: int | str) -> None:
        """Wait until the row with this end is next; if no row has it, wait for the end of the rows."""
        book = self._book
        if isinstance(ended, int):
            place = book.end_of(work_path(self.path, ended))
        else:
            place = book.find(self.path, lambda row: isinstance(row, Told) and _is_of_child(row.message, ended))
        if place is None and not book.is_over:
            await trio.sleep_forever()
        elif place is not None and not book.is_given(place):
            book.take(place)
            await self._turnstile.take(place)

    async def mail_first(self, me: Actor, key: int | None) -> None:
        """Wait until mail has arrived that the decider had received by then; see `ReplayBook.is_due`."""
        await self._turnstile.wait_for(lambda: me.has_mail or not self._book.is_due(self.path, key))

    def wrote(self, message: Any, effects: list[Effect]) -> None:
        """Do nothing: a replay stores no rows."""


def _is_of_child(message: Any, id: str) -> bool:
    return isinstance(message, ChildEnded) and message.record.id == id


class _Told:
    """Wrapper of a decider that replaces each message by the recorded one.

    Attributes:
        folds: True during recovery of the history, whose messages are recorded ones already.
    """

    def __init__(self, decider: Any, path: str, book: ReplayBook, turnstile: ReplayOrder, *, folds: bool) -> None:
        self.folds = folds
        self._decider = decider
        self._path = path
        self._book = book
        self._turnstile = turnstile

    @property
    def heard(self) -> bool:
        return bool(self._decider.heard)

    @heard.setter
    def heard(self, heard: bool) -> None:
        self._decider.heard = heard

    def begin(self, request: Any) -> list[Effect]:
        told = request if self.folds else self._book.message(self._path, request)
        effects: list[Effect] = self._decider.begin(told)
        return effects

    def on(self, message: Message) -> list[Effect]:
        told: Message = message
        # The order of messages from other actors is not fixed by the turnstile, so they may have to wait for their
        # rows.
        by_others = isinstance(message, FromBelow | Letter | PersonSays)
        if by_others and not self.folds and self._turnstile.holds(self._path, message):
            return []
        if not self.folds and (not isinstance(message, Idle) or self._is_next(message)):
            told = self._book.message(self._path, message)
        effects: list[Effect] = self._decider.on(told)
        return effects

    def remembers(self) -> Any:
        return self._decider.remembers()

    def _is_next(self, message: Idle) -> bool:
        """Return whether the rows record this `Idle` message, which usually they do not."""
        place = self._book.find(self._path, lambda row: isinstance(row, Told))
        row = None if place is None else self._book.row(place)
        return isinstance(row, Told) and row.message == message
