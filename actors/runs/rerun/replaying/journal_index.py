"""Index of the rows of a replayed run, and their use.

A row is used twice, and the two uses are recorded separately:

- It is *given*: its contents were returned to the code that waits for them (for example, a reply to a request). A row
  is given once, so that two equal requests do not get the same reply.
- It is *reached*: the replay has reached the point that the row records.

`next` is the first row that is not reached; nothing later may happen before it. A result of the replay that differs
from its row, or that has no row, is a `Difference`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from .....protocol.journal import (
    Answered,
    AnyRow,
    Asked,
    Began,
    Intends,
    Lived,
    MessageRow,
    Noted,
    Over,
    Spoilt,
)
from .....protocol.messages import (
    ChildEnded,
    EscalationClosed,
    EscalationNoted,
    Failure,
    FamilyCalled,
    Follows,
    FromBelow,
    Interrupted,
    PersonSays,
    TeamMessage,
    WorkDone,
    WorkFailed,
)
from .....protocol.workflow_messages import Gate
from ....work.journal.fork_prefix import Placed
from ....work.journal.run_journal import OF_HOOK

_SHORTER = re.compile("[/:][^/:]*$")

VARYING = ("seconds", "token", "at", "written", "turns", "tool_calls", "shortening")
"""Fields of messages that are taken from the row: times, ids, and counters of the original run."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Deviation of a replay from the run.

    Attributes:
        row: number of the row; 0 if no row records it.
        path: path of the actor.
        what: description.
    """

    row: int
    path: str
    what: str


class JournalIndex:
    """Rows of a replayed run; see the module.

    Args:
        rows: rows of the run.
        after: number of earlier rows, which are recovered instead of replayed.

    Attributes:
        differences: the deviations so far.
        is_over: True if the rows record the end of the run.
        was_killed: True if one of its processes died before the end.
    """

    def __init__(self, rows: Sequence[Placed], after: int = 0) -> None:
        self.rows = rows
        self.after = after
        self.differences: list[Difference] = []
        self._given = [False] * len(rows)
        self._reached = [False] * len(rows)
        self._escalations: dict[tuple[str, str], str] = {}  # recorded escalation id, by path and replayed id
        self._first = 0
        self.is_over = any(isinstance(row, Over) for _, row in rows)
        # Then a message may have been handled without a row: it was not on the disk yet.
        self.was_killed = not self.is_over or any(isinstance(row, Lived) for _, row in rows)
        self._of: dict[str, list[int]] = {}
        self._starts: dict[str, int] = {}  # number of leading rows that were reached, by path
        self._paths: set[str] = set()  # all paths with rows, and their ancestors
        # ends of work, by path and key; `_calls` has calls of its decider
        self._ends: dict[tuple[str, int], list[int]] = {}
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
            elif isinstance(row, MessageRow) and isinstance(row.message, WorkDone):
                self._ends.setdefault((path, row.message.key), []).append(place)
            elif isinstance(row, MessageRow) and isinstance(row.message, FamilyCalled):
                self._calls.setdefault((path, row.message.key), []).append(place)
            self._of.setdefault(path, []).append(place)
            about_unknown = isinstance(row, Asked) and path in intended and row.question.permission is not None
            if isinstance(row, Intends):
                intended.add(path)
            if about_unknown or isinstance(row, Began | Lived | Intends | Spoilt):
                self._reached[place] = self._given[place] = True
                # the question whether a call that was under way at a kill may be repeated
                if isinstance(row, Asked):
                    self._leave_out_answer(row.question.id, place)
            # Notes of the run itself are read at its beginning, in no order; those of hooks are given out in order.
            elif isinstance(row, Noted) and not path and not row.name.startswith(OF_HOOK):
                self._reached[place] = True

    def _leave_out_answer(self, id: str, asked: int) -> None:
        for place in range(asked, len(self.rows)):
            row = self.row(place)
            if isinstance(row, Answered) and row.answer.question == id:
                self._reached[place] = self._given[place] = True

    @property
    def next(self) -> int | None:
        """The index of the first row that is not reached; None if all are."""
        while self._first < len(self.rows) and self._reached[self._first]:
            self._first += 1
        return self._first if self._first < len(self.rows) else None

    def row(self, place: int) -> AnyRow:
        """Return the row at this index."""
        return self.rows[place][1]

    def path(self, place: int) -> str:
        """Return the path of the row at this index."""
        return self.rows[place][0]

    def give(self, path: str, wanted: Callable[[AnyRow], bool]) -> int | None:
        """Return the index of the first unused matching row of this path, and mark it as given; None without one."""
        place = self.free(path, wanted)
        if place is not None:
            self.take(place)
        return place

    def free(self, path: str, wanted: Callable[[AnyRow], bool]) -> int | None:
        """Return the index of the first unused matching row of this path, without marking it; None if there is none."""
        for place in self._unreached(path):
            if not self._given[place] and wanted(self.row(place)):
                return place
        return None

    def take(self, place: int) -> None:
        """Mark the row as given."""
        self._given[place] = True

    def is_given(self, place: int) -> bool:
        """Return whether the row is given."""
        return self._given[place]

    def find(self, path: str, wanted: Callable[[AnyRow], bool]) -> int | None:
        """Return the index of the first matching row of this path that is not reached; None if there is none."""
        return next((place for place in self._unreached(path) if wanted(self.row(place))), None)

    def _unreached(self, path: str) -> Iterator[int]:
        """Yield the indices of rows of this path that are not reached."""
        # `_starts` is advanced, so that a long run is not scanned from its beginning each time.
        places, reached, start = self._of.get(path, []), self._reached, self._starts.get(path, 0)
        while start < len(places) and reached[places[start]]:
            start += 1
        self._starts[path] = start
        return (places[number] for number in range(start, len(places)) if not reached[places[number]])

    def _messages(self, path: str) -> Iterator[Any]:
        """Yield the remaining messages to the decider of this path."""
        rows = map(self.row, self._unreached(path))
        return (row.message for row in rows if isinstance(row, MessageRow))

    def mark_reached(self, place: int) -> None:
        """Mark the row as reached: the replay has reached it."""
        self._reached[place] = True

    def asked(self, path: str, before: int | None) -> list[Asked]:
        """Return the questions of this path before this index that are not reached."""
        rows = [self.row(place) for place in self._unreached(path) if before is None or place < before]
        return [row for row in rows if isinstance(row, Asked)]

    def advance_within(self, path: str, place: int) -> None:
        """Mark the rows of this path and below it, before this index, as reached and given: that work is skipped."""
        for before, (each, _) in enumerate(self.rows[:place]):
            if each == path or each.startswith((f"{path}/", f"{path}:")):
                self._reached[before] = self._given[before] = True

    def advance_to_questions_above(self, path: str, place: int) -> None:
        """Mark the questions and answers of ancestors of this path, before this index, as reached and given."""
        while path:
            path = path.rpartition("/")[0]
            for before in [each for each in self._unreached(path) if each < place]:
                row = self.row(before)
                if isinstance(row, Asked | Answered):
                    self._reached[before] = self._given[before] = True

    def may_begin(self, path: str) -> bool:
        """Return whether work of this path may begin.

        If its first row is a call of its decider or a question, that row must be next.
        """
        asks = self._first_unreached(self._calls, path)
        if asks is None:
            asks = next(self._unreached(path), None)
            # The process was killed before it stored a row of this work: it begins last.
            if asks is None and not self.is_over:
                return path in self._paths or self.end_of(path) is not None
            if asks is None or not isinstance(self.row(asks), Asked):
                return True
        return self.next is None or asks <= self.next

    def end_of(self, path: str) -> int | None:
        """Return the index of the row with the end of this path's work; None if none remains."""
        return self._first_unreached(self._ends, path)

    def result_of(self, path: str) -> int | None:
        """Return the index of the row with the result of this path's work; None if none remains.

        Rows that are given or reached do not count, nor does the end of cancelled work, which has no result.
        """
        for place in self._ends.get(_placed(path), ()):
            row = self.row(place)
            cancelled = isinstance(row, MessageRow) and isinstance(row.message, WorkFailed) and not row.message.crashed
            if not self._given[place] and not self._reached[place] and not cancelled:
                return place
        return None

    def answer_to(self, question: str) -> int | None:
        """Return the index of the answer to this question; None if none remains."""
        return next((place for place in self._answers.get(question, ()) if not self._reached[place]), None)

    def _first_unreached(self, places: dict[tuple[str, int], list[int]], path: str) -> int | None:
        return next((place for place in places.get(_placed(path), ()) if not self._reached[place]), None)

    def is_due(self, path: str, key: int | None) -> bool:
        """Return whether the decider of this path received mail at this point of the original run.

        With a key, this is mail that arrived before the end of the in-place work with this key. With None, it is the
        decider's next message, if that is mail or comes from a descendant.
        """
        for message in self._messages(path):
            if isinstance(message, TeamMessage | PersonSays):
                return True
            if key is None:
                return isinstance(message, FromBelow)
            if isinstance(message, WorkDone) and message.key == key:
                return False
        return False

    def place_of(self, path: str, message: Any) -> int | None:
        """Return the index of the row that records this message to the decider of this path; None if there is none."""
        if isinstance(message, EscalationClosed):
            # A replayed escalation has a new id; the row has the original one.
            id = self._escalations.get((path, message.id), message.id)
            message = msgspec.structs.replace(message, id=id)
        return self.find(path, lambda row: isinstance(row, MessageRow) and _is_same(row.message, message))

    def is_first(self, path: str, place: int) -> bool:
        """Return whether this row is the next message to the decider of this path."""
        return place == self.find(path, lambda row: isinstance(row, MessageRow))

    def message(self, path: str, message: Any) -> Any:
        """Return the recorded message for a message that the decider of this path receives in the replay.

        The decider gets the recorded message, so that it stays in the state of the original run, whatever the replay
        produced. A deviation is noted.
        """
        # Interruptions depend on when this process ends, so they are not compared. After the last row nothing is.
        if isinstance(message, Interrupted) or self.next is None:
            return message
        place = self.place_of(path, message)
        if place is None:
            if self.is_over or next(self._messages(path), None) is not None:
                self.differs(0, path, f"the rows do not have this result: {_short_value(message)}")
            return message  # Otherwise the process was killed before it stored the message.
        self.mark_reached(place)
        row = self.row(place)
        assert isinstance(row, MessageRow)
        if isinstance(message, Follows):  # This message is stored without its contents.
            return message
        if isinstance(row.message, EscalationClosed):
            message = msgspec.structs.replace(message, id=row.message.id)
        elif isinstance(row.message, EscalationNoted):
            self._escalations[path, message.id] = row.message.id
            # the rest of the timeout
            question = msgspec.structs.replace(message.question, timeout=row.message.question.timeout)
            message = msgspec.structs.replace(message, id=row.message.id, question=question)
        if (found := _comparable(message)) != (wanted := _comparable(row.message)):
            self.differs(place + 1, path, f"it was {_first_difference(wanted, found)}")
        return row.message

    def missed(self, place: int) -> None:
        """Note that the replay never reaches this row."""
        self.mark_reached(place)
        self.differs(place + 1, self.path(place), f"the replay did not reach this row: {_short_value(self.row(place))}")

    def differs(self, row: int, path: str, what: str) -> None:
        """Note a deviation; `row` counts from 1, and is 0 if no row records it."""
        self.differences.append(Difference(row=row and row + self.after, path=path, what=what))


def _placed(path: str) -> tuple[str, int]:
    """Return the decider's path and the key of work; -1 for a child of an agent, whose last part is a name."""
    above, _, last = path.rpartition("/")
    number = last.partition(".")[0]
    return above, int(number) if number.isdigit() else -1


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two messages record the same event, whatever their contents."""
    if type(one) is not type(other):
        return False
    if isinstance(one, WorkDone | FamilyCalled):
        return bool(one.key == other.key)
    if isinstance(one, TeamMessage):
        return bool((one.sender, one.payload) == (other.sender, other.payload))
    if isinstance(one, ChildEnded):
        return bool(one.record.id == other.record.id)
    if isinstance(one, EscalationNoted):
        return bool(one.question.id == other.question.id)
    return all(getattr(one, name, None) == getattr(other, name, None) for name in ("id", "name"))


def failure_of(message: Any) -> Failure | None:
    """Return the recorded failure of work, also if its node tolerated it."""
    return getattr(message, "failure", None) or getattr(message, "tolerated", None)


def _comparable(message: Any) -> Any:
    values = {name: value for name, value in msgspec.structs.asdict(message).items() if name not in VARYING}
    if isinstance(gate := values.get("gate"), Gate):
        values["gate"] = msgspec.structs.replace(gate, since=None)
    return msgspec.to_builtins(values, enc_hook=repr, str_keys=True)


def _first_difference(wanted: Any, found: Any) -> str:
    name = next(name for name in wanted if wanted[name] != found.get(name))
    return f"{name} {_cut(wanted[name])}, and is {_cut(found.get(name))} now"


def _short_value(value: Any) -> str:
    inner = value.message if isinstance(value, MessageRow) else value
    return _cut(inner)


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
