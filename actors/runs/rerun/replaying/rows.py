"""A durable run that is replayed: its parts write no rows, but are held against those of the run.

Deciders are told what the rows say, in the order in which the replay comes to it: so they are where those of the run
were, whatever the replay has made of it. Work begins one by one, so that the order of what happens does not depend on
trio, which has none of its own.
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
from ....work.journal.of_run import OfRun, RunPast, is_of_files
from ....work.journal.prefix import work_path
from ....work.journal.scope import D, Player, Scope, Scopes
from .book import Book

if TYPE_CHECKING:
    from .....protocol.messages import Message
    from .....supervisors import Actor
    from .turnstile import Turnstile


NOTHING = About(target="", name="", prompt="", cwd="", config_dir="", owner="")
"""Nothing is said of a replay in lists."""


class NoRows:
    """Where rows would go."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.rows = 0

    def append(self, actor: str, data: bytes) -> int:
        """Keep nothing."""
        del actor, data
        return 0

    def tell(self, about: bytes, *, over: bool = False) -> None:
        """Say nothing."""

    def beside(self, kind: str, key: str, data: bytes) -> None:
        """Keep nothing."""

    @property
    def trouble(self) -> str:
        """Nothing is written, so nothing fails."""
        return ""

    def hurry(self) -> None:
        """Nobody waits."""

    def stop(self) -> None:
        """There is nothing to stop."""

    async def barrier(self) -> None:
        """Wait for nothing."""


class ReplayedRun(OfRun):
    """See the module.

    Args:
        past: what came before the rows of the book; None for nothing.
        with_changes: with the files of today.
    """

    def __init__(self, run: str, book: Book, past: RunPast | None, *, with_changes: bool) -> None:
        super().__init__(NoRows(run), NOTHING, past, lambda: False)
        self.book = book
        noted = {row.name: row.value for path, row in book.rows if not path and isinstance(row, Noted)}
        once = {**self.once, **noted}
        self.once = {name: value for name, value in once.items() if not (with_changes and is_of_files(name))}

    async def is_over(self) -> bool:
        """What the run has beside its rows is not ours, and stays."""
        return False

    def append(self, path: str, row: AnyRow) -> None:
        """The replay has come to this."""
        if isinstance(row, Noted):
            self._came_to(path, row, lambda other: isinstance(other, Noted) and other.name == row.name)
        elif isinstance(row, Answered):
            id = row.answer.question
            self._came_to(path, row, lambda other: isinstance(other, Answered) and other.answer.question == id)
        elif isinstance(row, Over):
            self._came_to(path, row, lambda other: isinstance(other, Over))

    def note_once(self, name: str, value: Any) -> None:
        """It is noted."""

    def spoil(self, why: str) -> None:
        """Nothing is kept, so nothing can't be kept."""

    def _came_to(self, path: str, row: AnyRow, wanted: Callable[[AnyRow], bool]) -> None:
        book = self.book
        place = book.find(path, wanted)
        if place is not None:
            book.tell(place)
            was = book.row(place)
            if isinstance(row, Over) and isinstance(was, Over) and was.status != row.status:
                book.differs(place + 1, path, f"the run was {was.status}, and is {row.status} now")
        elif book.next is not None:
            book.differs(0, path, f"it came to what no row says: {type(row).__name__.lower()}")


class ReplayedScopes(Scopes):
    """See the module.

    Attributes:
        actors: who does the work of a path, or has its deciders.
    """

    def __init__(self, run: OfRun, top: Actor, turnstile: Turnstile) -> None:
        super().__init__(run, top)
        assert isinstance(run, ReplayedRun)
        self._book = run.book
        self._turnstile = turnstile
        self._looking = top
        self.actors: dict[str, Actor] = {}
        turnstile.scopes = self

    def of(self, actor: Actor) -> Any:
        """See `Scopes`."""
        self._looking = actor
        return super().of(actor)

    def player(self, scope: Scope, path: str, past: list[Told]) -> Player:
        """See `Scopes`."""
        self.actors[path] = self._looking
        return ReplayedPlayer(scope, path, past, self._book, self._turnstile)

    def begun(self, actor: Actor, player: Player, work: Work, *, answered: bool = False) -> None:
        """See `Scopes`."""
        super().begun(actor, player, work, answered=answered)
        self.actors[player.path_of(work)] = actor

    def asked(self, actor: Actor, question: Question) -> Question | Answer:
        """The question, under the id that it had."""
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
        """See `Scopes`."""
        if not question.secret:
            self.run.append(self.of(actor).path, Answered(0, answer))


class ReplayedPlayer(Player):
    """See the module."""

    __slots__ = ("_book", "_told", "_turnstile")
    lines_up = True

    def __init__(self, scope: Scope, path: str, past: list[Told], book: Book, turnstile: Turnstile) -> None:
        super().__init__(scope, path, past)
        self._book = book
        self._turnstile = turnstile

    def heard_by(self, decider: D, tell: Callable[[FromBelow], None]) -> D:
        """One that tells the decider what the rows say."""
        self._turnstile.tells[self.path] = tell
        self._told = _Told(decider, self.path, self._book, self._turnstile, folds=bool(self.past))
        return cast("D", self._told)

    def there(self, *, over: bool) -> None:
        """See `Player`."""
        self._told.folds = False
        super().there(over=over)

    async def line_up(self, work: Work) -> None:
        """Wait until all that was begun before has come to rest."""
        await self._turnstile.line_up(self.path_of(work))

    async def ends_in_turn(self, ended: int | str) -> None:
        """Wait until it is the turn of the row with that end; without one, for the end of the rows."""
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
        """Wait until mail is there that its decider was told of before; see `Book.is_due`."""
        await self._turnstile.wait_for(lambda: me.has_mail or not self._book.is_due(self.path, key))

    def wrote(self, message: Any, effects: list[Effect]) -> None:
        """Nothing is kept."""


def _is_of_child(message: Any, id: str) -> bool:
    return isinstance(message, ChildEnded) and message.record.id == id


class _Told:
    """In the place of a decider: tells it what the rows say, in place of what the replay has come to.

    Attributes:
        folds: it is told its past, which is that of the run as it is.
    """

    def __init__(self, decider: Any, path: str, book: Book, turnstile: Turnstile, *, folds: bool) -> None:
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
        """Whether it is in the rows that no mail waited: mostly it is left out."""
        place = self._book.find(self._path, lambda row: isinstance(row, Told))
        row = None if place is None else self._book.row(place)
        return isinstance(row, Told) and row.message == message
