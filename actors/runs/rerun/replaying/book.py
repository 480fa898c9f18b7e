"""The rows of a run that is replayed, and which of them were used.

A row is used twice. It is *given* to what waits for it (a reply to a request for one), and it is *told*: the replay has
come to what it says. What a replay comes to otherwise, or not at all, is a difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from .....protocol.failure import Failure
from .....protocol.journal import Answered, AnyRow, Asked, Began, Intends, Lived, Noted, Over, Spoilt, Told
from .....protocol.messages import (
    ChildEnded,
    EscalationClosed,
    EscalationNoted,
    FamilyCalled,
    Follows,
    FromBelow,
    Interrupted,
    Letter,
    PersonSays,
    WorkDone,
    WorkFailed,
)
from .....protocol.workflow_messages import Gate
from ....work.journal.of_run import OF_HOOK
from ....work.journal.prefix import Placed

_SHORTER = re.compile("[/:][^/:]*$")

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
        rows: of the run.
        after: how many rows come before them: a past that is not played.

    Attributes:
        differences: so far.
        is_over: whether the run has come to its end in them; was_killed: whether one of its processes has ended before.
    """

    def __init__(self, rows: Sequence[Placed], after: int = 0) -> None:
        self.rows = rows
        self.after = after
        self.differences: list[Difference] = []
        self._given = [False] * len(rows)
        self._told = [False] * len(rows)
        self._escalations: dict[tuple[str, str], str] = {}  # the id that the run has given it, by path and ours
        self._first = 0
        self.is_over = any(isinstance(row, Over) for _, row in rows)
        self.was_killed = not self.is_over or any(isinstance(row, Lived) for _, row in rows)
        self._of: dict[str, list[int]] = {}
        self._starts: dict[str, int] = {}  # of each path, how many of its first rows are told
        self._paths: set[str] = set()  # of all that has rows, and of what these are a part of
        self._ends: dict[tuple[str, int], list[int]] = {}  # of work, by path and key; `_calls` of its decider as well
        self._calls: dict[tuple[str, int], list[int]] = {}
        self._answers: dict[str, list[int]] = {}  # by question
        intended: set[str] = set()
        for place, (path, row) in enumerate(rows):
            whole = path
            while whole not in self._paths:
                self._paths.add(whole)
                whole = _SHORTER.sub("", whole)
            if isinstance(row, Answered):
                self._answers.setdefault(row.answer.question, []).append(place)
            elif isinstance(row, Told) and isinstance(row.message, WorkDone):
                self._ends.setdefault((path, row.message.key), []).append(place)
            elif isinstance(row, Told) and isinstance(row.message, FamilyCalled):
                self._calls.setdefault((path, row.message.key), []).append(place)
            self._of.setdefault(path, []).append(place)
            about_unknown = isinstance(row, Asked) and path in intended and row.question.permission is not None
            if isinstance(row, Intends):
                intended.add(path)
            if about_unknown or isinstance(row, Began | Lived | Intends | Spoilt):
                self._told[place] = self._given[place] = True
                if isinstance(row, Asked):  # whether what was under way at a kill may be done again
                    self._leave_out_answer(row.question.id, place)
            elif isinstance(row, Noted) and not path and not row.name.startswith(OF_HOOK):
                self._told[place] = True

    def _leave_out_answer(self, id: str, asked: int) -> None:
        for place in range(asked, len(self.rows)):
            row = self.row(place)
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
        for place in self._untold(path):
            if not self._given[place] and wanted(self.row(place)):
                return place
        return None

    def take(self, place: int) -> None:
        """It is given."""
        self._given[place] = True

    def is_given(self, place: int) -> bool:
        """Whether it is."""
        return self._given[place]

    def find(self, path: str, wanted: Callable[[AnyRow], bool]) -> int | None:
        """The place of the first row of this path that is wanted, and that the replay has not come to."""
        return next((place for place in self._untold(path) if wanted(self.row(place))), None)

    def _untold(self, path: str) -> Iterator[int]:
        """The places of the rows of this path that the replay has not come to."""
        places, told, start = self._of.get(path, []), self._told, self._starts.get(path, 0)
        while start < len(places) and told[places[start]]:
            start += 1
        self._starts[path] = start
        return (places[number] for number in range(start, len(places)) if not told[places[number]])

    def _messages(self, path: str) -> Iterator[Any]:
        """What the decider of this path is still to be told."""
        rows = map(self.row, self._untold(path))
        return (row.message for row in rows if isinstance(row, Told))

    def tell(self, place: int) -> None:
        """The replay has come to this row."""
        self._told[place] = True

    def asked(self, path: str, before: int | None) -> list[Asked]:
        """The questions of this path, before this place, that the replay has not come to."""
        rows = [self.row(place) for place in self._untold(path) if before is None or place < before]
        return [row for row in rows if isinstance(row, Asked)]

    def tell_within(self, path: str, place: int) -> None:
        """The replay has come to all that is below this path, or of it, before this row: it plays none of that."""
        for before, (each, _) in enumerate(self.rows[:place]):
            if each == path or each.startswith((f"{path}/", f"{path}:")):
                self._told[before] = self._given[before] = True

    def tell_asked_above(self, path: str, place: int) -> None:
        """The replay has come to what was asked before this row by what this path is a part of, and to the answers."""
        while path:
            path = path.rpartition("/")[0]
            for before in [each for each in self._untold(path) if each < place]:
                row = self.row(before)
                if isinstance(row, Asked | Answered):
                    self._told[before] = self._given[before] = True

    def may_begin(self, path: str) -> bool:
        """Whether work of this path may begin: if it asks its decider or a person first, that has its turn."""
        asks = self._first_untold(self._calls, path)
        if asks is None:
            asks = next(self._untold(path), None)
            if asks is None and not self.is_over:  # killed before anything was kept of it: then it comes last
                return path in self._paths or self.end_of(path) is not None
            if asks is None or not isinstance(self.row(asks), Asked):
                return True
        return self.next is None or asks <= self.next

    def end_of(self, path: str) -> int | None:
        """The place of the row that tells how the work of this path ends; None if none is left."""
        return self._first_untold(self._ends, path)

    def result_of(self, path: str) -> int | None:
        """As `end_of`, if that is not given yet and the work has ended by itself: what was cancelled had no result."""
        for place in self._ends.get(_placed(path), ()):
            row = self.row(place)
            cancelled = isinstance(row, Told) and isinstance(row.message, WorkFailed) and not row.message.crashed
            if not self._given[place] and not self._told[place] and not cancelled:
                return place
        return None

    def answer_to(self, question: str) -> int | None:
        """The place of its answer; None if none is left."""
        return next((place for place in self._answers.get(question, ()) if not self._told[place]), None)

    def _first_untold(self, places: dict[tuple[str, int], list[int]], path: str) -> int | None:
        return next((place for place in places.get(_placed(path), ()) if not self._told[place]), None)

    def is_due(self, path: str, key: int | None) -> bool:
        """Whether the decider of this path was told something by others first: before the end of the work of this key,
        which it does in place, by mail; with None before all else, by mail or from below."""
        for message in self._messages(path):
            if isinstance(message, Letter | PersonSays):
                return True
            if key is None:
                return isinstance(message, FromBelow)
            if isinstance(message, WorkDone) and message.key == key:
                return False
        return False

    def place_of(self, path: str, message: Any) -> int | None:
        """Where it is told that the decider of this path was told this."""
        if isinstance(message, EscalationClosed):
            id = self._escalations.get((path, message.id), message.id)
            message = msgspec.structs.replace(message, id=id)
        return self.find(path, lambda row: isinstance(row, Told) and _is_same(row.message, message))

    def is_first(self, path: str, place: int) -> bool:
        """Whether this is what the decider of this path is to be told next."""
        return place == self.find(path, lambda row: isinstance(row, Told))

    def message(self, path: str, message: Any) -> Any:
        """What the run's decider of this path was told when that of the replay is told this."""
        if isinstance(message, Interrupted) or self.next is None:
            return message
        place = self.place_of(path, message)
        if place is None:
            if self.is_over or next(self._messages(path), None) is not None:
                self.differs(0, path, f"it came to what no row says: {_shown(message)}")
            return message  # else it was killed before that was kept
        self.tell(place)
        row = self.row(place)
        assert isinstance(row, Told)
        if isinstance(message, Follows):  # kept empty
            return message
        if isinstance(row.message, EscalationClosed):
            message = msgspec.structs.replace(message, id=row.message.id)
        elif isinstance(row.message, EscalationNoted):
            self._escalations[path, message.id] = row.message.id
            question = msgspec.structs.replace(message.question, timeout=row.message.question.timeout)  # what was left
            message = msgspec.structs.replace(message, id=row.message.id, question=question)
        if (found := _comparable(message)) != (wanted := _comparable(row.message)):
            self.differs(place + 1, path, f"it was {_first_difference(wanted, found)}")
        return row.message

    def missed(self, place: int) -> None:
        """The replay never comes to this row."""
        self.tell(place)
        self.differs(place + 1, self.path(place), f"the replay does not come to it: {_shown(self.row(place))}")

    def differs(self, row: int, path: str, what: str) -> None:
        """Note a difference; `row` counts from 1, and 0 is for what no row says."""
        self.differences.append(Difference(row=row and row + self.after, path=path, what=what))


def _placed(path: str) -> tuple[str, int]:
    """The path of the decider of work, and its key; no work has the key of a child of an agent, whose name is one."""
    above, _, last = path.rpartition("/")
    number = last.partition(".")[0]
    return above, int(number) if number.isdigit() else -1


def _is_same(one: Any, other: Any) -> bool:
    """Whether two messages are about the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, WorkDone | FamilyCalled):
        return bool(one.key == other.key)
    if isinstance(one, Letter):
        return bool((one.sender, one.payload) == (other.sender, other.payload))
    if isinstance(one, ChildEnded):
        return bool(one.record.id == other.record.id)
    if isinstance(one, EscalationNoted):
        return bool(one.question.id == other.question.id)
    return all(getattr(one, name, None) == getattr(other, name, None) for name in ("id", "name"))


def failure_of(message: Any) -> Failure | None:
    """What the end of work says that it failed with, also if its node went on over that."""
    return getattr(message, "failure", None) or getattr(message, "tolerated", None)


def _comparable(message: Any) -> Any:
    values = {name: value for name, value in msgspec.structs.asdict(message).items() if name not in VARYING}
    if isinstance(gate := values.get("gate"), Gate):
        values["gate"] = msgspec.structs.replace(gate, since=None)
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
