"""The rows of a run that is replayed, and which of them were used.

A row is used twice. It is *given* to what waits for it (a reply to a request for one), and it is *told*: the replay has
come to what it says. What a replay comes to otherwise, or not at all, is a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from .....protocol.journal import Answered, AnyRow, Asked, Began, Intends, Lived, Noted, Spoilt, Told
from .....protocol.messages import Follows, Interrupted, WorkDone
from ....work.journal.prefix import Placed

VARYING = ("seconds", "token", "at", "written", "turns", "tool_calls", "shortening")
"""Fields of messages that are taken from the row: times, ids, and what was counted then."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a replay came to otherwise than the run.

    Attributes:
        row: the number of the row; 0 for what no row says.
        path: whose it is.
        what: in words.
    """

    row: int
    path: str
    what: str


class Book:
    """See the module.

    Args:
        rows: of the run, from its first.

    Attributes:
        differences: so far.
    """

    def __init__(self, rows: Sequence[Placed]) -> None:
        self.rows = rows
        self.differences: list[Difference] = []
        self._given = [False] * len(rows)
        self._told = [False] * len(rows)
        self._first = 0
        self._of: dict[str, list[int]] = {}
        intended: set[str] = set()
        for place, (path, row) in enumerate(rows):
            self._of.setdefault(path, []).append(place)
            about_unknown = isinstance(row, Asked) and path in intended and row.question.permission is not None
            if isinstance(row, Intends):
                intended.add(path)
            if about_unknown or isinstance(row, Began | Lived | Intends | Spoilt):
                self._told[place] = self._given[place] = True
                if isinstance(row, Asked):  # whether what was under way at a kill may be done again
                    self._leave_out_answer(row.question.id, place)
            elif isinstance(row, Noted) and not path:
                self._told[place] = True

    def _leave_out_answer(self, id: str, asked: int) -> None:
        for place in range(asked, len(self.rows)):
            row = self.rows[place][1]
            if isinstance(row, Answered) and row.answer.question == id:
                self._told[place] = self._given[place] = True

    @property
    def next(self) -> int | None:
        """The place of the first row that the replay has not come to; None if there is none."""
        while self._first < len(self.rows) and self._told[self._first]:
            self._first += 1
        return self._first if self._first < len(self.rows) else None

    def row(self, place: int) -> AnyRow:
        """The row at this place."""
        return self.rows[place][1]

    def path(self, place: int) -> str:
        """Whose it is."""
        return self.rows[place][0]

    def give(self, path: str, wanted: Callable[[AnyRow], bool]) -> int | None:
        """The place of the first row of this path that is wanted and was not used yet; it is given now."""
        place = self.free(path, wanted)
        if place is not None:
            self.take(place)
        return place

    def free(self, path: str, wanted: Callable[[AnyRow], bool]) -> int | None:
        """As `give`, but it stays to be given."""
        for place in self._of.get(path, ()):
            if not self._given[place] and not self._told[place] and wanted(self.row(place)):
                return place
        return None

    def take(self, place: int) -> None:
        """It is given."""
        self._given[place] = True

    def find(self, path: str, wanted: Callable[[AnyRow], bool]) -> int | None:
        """The place of the first row of this path that is wanted, and that the replay has not come to."""
        for place in self._of.get(path, ()):
            if not self._told[place] and wanted(self.row(place)):
                return place
        return None

    def tell(self, place: int) -> None:
        """The replay has come to this row."""
        self._told[place] = True

    def message(self, path: str, message: Any) -> Any:
        """What the run's decider of this path was told when that of the replay is told this."""
        if isinstance(message, Interrupted) or self.next is None:
            return message
        place = self.find(path, lambda row: isinstance(row, Told) and _is_same(row.message, message))
        if place is None:
            self.differs(0, path, f"it came to what no row says: {_shown(message)}")
            return message
        self.tell(place)
        row = self.row(place)
        assert isinstance(row, Told)
        if isinstance(message, Follows):  # kept empty
            return message
        if (found := _comparable(message)) != (wanted := _comparable(row.message)):
            self.differs(place + 1, path, f"it was {_first_difference(wanted, found)}")
        return row.message

    def missed(self, place: int) -> None:
        """The replay never comes to this row."""
        self.tell(place)
        self.differs(place + 1, self.path(place), f"the replay does not come to it: {_shown(self.row(place))}")

    def differs(self, row: int, path: str, what: str) -> None:
        """Note a difference."""
        self.differences.append(Difference(row=row, path=path, what=what))


def _is_same(one: Any, other: Any) -> bool:
    """Whether two messages are about the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, WorkDone):
        return bool(one.key == other.key)
    return all(getattr(one, name, None) == getattr(other, name, None) for name in ("id", "name"))


def _comparable(message: Any) -> Any:
    values = {name: value for name, value in msgspec.structs.asdict(message).items() if name not in VARYING}
    return msgspec.to_builtins(values, enc_hook=repr, str_keys=True)


def _first_difference(wanted: Any, found: Any) -> str:
    name = next(name for name in wanted if wanted[name] != found.get(name))
    return f"{name} {_cut(wanted[name])}, and is {_cut(found.get(name))} now"


def _shown(value: Any) -> str:
    inner = value.message if isinstance(value, Told) else value
    return _cut(inner)


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
