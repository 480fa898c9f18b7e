"""Prefix of a run as the first rows of another run: the rows that `callboard fork` copies.

Rows are copied unchanged, except where they refer to the original run:

- The first row names the original and the row at which the fork begins.
- Questions get ids of the new run, in their order. An open one counts as asked now.
- Unfinished work has not begun in the fork. Its side effects are to happen again, so no question about their outcome
  makes sense: `Intends` rows and such questions are left out.
- Rows about the processes that executed the run, and about its end, are left out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ....protocol.journal import (
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
    decode,
    encode,
)
from ....protocol.messages import EscalationNoted, WorkDone
from .run_journal import PART, CannotGoOn, question_id

if TYPE_CHECKING:
    from ....protocol.kernel.questions import Question
    from ....supervisors.journal.row import StoredRow

Placed = tuple[str, AnyRow]
"""A row with its path."""


def read(rows: Sequence[StoredRow]) -> list[Placed]:
    """Decode the rows of a journal.

    Raises:
        CannotGoOn: the rows are of an unknown version, or the first one is missing.
    """
    found: list[Placed] = []
    for each in rows:
        try:
            found.append((each.actor, decode(each.data)))
        except (msgspec.DecodeError, ValueError) as error:
            raise CannotGoOn(
                f"row {each.seq} of the journal can't be read: {error}. A newer version of Callboard may "
                "have written it"
            ) from None
    if not found or not isinstance(found[0][1], Began):
        raise CannotGoOn("the first row of the journal is not the beginning of a run")
    return found


def written(rows: Sequence[Placed]) -> list[StoredRow]:
    """Encode rows as a journal stores them, numbered from 1; the inverse of `read`."""
    from ....supervisors.journal.row import StoredRow

    return [StoredRow(number, path, encode(row)) for number, (path, row) in enumerate(rows, 1)]


def began(rows: Sequence[Placed]) -> Began:
    """Return the first row of a run."""
    first = rows[0][1]
    assert isinstance(first, Began)
    return first


class ForkPrefix(msgspec.Struct, frozen=True):
    """Prefix of a run as rows of its fork.

    Attributes:
        rows: rows of the fork.
        ids: new ids of its questions, by their old ids.
    """

    rows: list[Placed]
    ids: dict[str, str]


def prefix(rows: Sequence[Placed], at: int, run: str) -> ForkPrefix:
    """Return the first `at` rows as rows of a fork with this run id.

    Raises:
        CannotGoOn: some earlier state could not be stored.
    """
    for number, (_, row) in enumerate(rows[:at], 1):
        if isinstance(row, Spoilt):
            raise CannotGoOn(
                f"the run can't be forked at row {at}: row {number} of its journal could not store the state "
                f"({row.why})"
            )
    retained = [rows[place] for place in _retained_rows(rows, at)]
    asked = (row.question.id for _, row in retained if isinstance(row, Asked))
    ids = {old: question_id(run, number) for number, old in enumerate(asked, 1)}
    of = began(rows)
    request = msgspec.structs.replace(of.request, id=run)
    id = of.request.id or ""
    first = msgspec.structs.replace(of, request=request, wall=time.time(), forked_from=id, forked_at=at)
    return ForkPrefix([("", first), *((path, _renamed(row, ids)) for path, row in retained[1:])], ids)


def done_again(rows: Sequence[Placed], at: int) -> list[int]:
    """Return the numbers, from 1, of the rows with side effects that a fork after row `at` repeats.

    These are all later rows, and earlier rows of unfinished work.
    """
    retained = set(_retained_rows(rows, at))
    return [place + 1 for place, (_, row) in enumerate(rows) if isinstance(row, Intends) and place not in retained]


def part_ids(rows: Sequence[Placed], at: int) -> set[str]:
    """Return the ids of the remote children whose results a fork after row `at` reuses, and does not execute again."""
    finished: set[str] = set()
    ends: dict[str, list[str]] = {}  # by the work that waited for them and has not ended
    for place, (path, row) in enumerate(rows):
        if isinstance(row, Noted) and row.name.startswith(PART) and place < at:
            id = row.name.removeprefix(PART)
            finished.add(id)
            ends.setdefault(_first_use(path), []).append(id)
        elif isinstance(row, MessageRow) and isinstance(row.message, WorkDone):
            waited = ends.pop(work_path(path, row.message.key), ())
            if place >= at:
                finished.difference_update(waited)
    return finished


def open_questions(rows: Sequence[Placed]) -> dict[str, tuple[str, Question]]:
    """Return the questions without an answer in these rows, by id, each with its path."""
    asked: dict[str, tuple[str, Question]] = {}
    for path, row in rows:
        if isinstance(row, Asked):
            asked[row.question.id] = path, row.question
        elif isinstance(row, Answered):
            asked.pop(row.answer.question, None)
        elif isinstance(row, MessageRow) and isinstance(row.message, WorkDone):
            # The end of the work closes its open questions.
            ended = work_path(path, row.message.key)
            asked = {id: each for id, each in asked.items() if not _is_of(each[0], ended)}
    return asked


def work_path(decider: str, key: int) -> str:
    """Return the path of a decider's work: the first under this key."""
    return f"{decider}/{key}" if decider else str(key)


def _first_use(path: str) -> str:
    """Return the path of the first work under the same key as this path."""
    above, slash, last = path.rpartition("/")
    return f"{above}{slash}{last.partition('.')[0].partition(':')[0]}"


def _is_of(path: str, work: str) -> bool:
    """Return True if a path is work of that key in any of its uses, or a part of such work."""
    return path.startswith(work) and path[len(work) : len(work) + 1] in ("", "/", ".", ":")


def _retained_rows(rows: Sequence[Placed], at: int) -> list[int]:
    """Return the indexes among the first `at` rows that a fork keeps."""
    begun: dict[str, int] = {}  # work with side effects that has not ended, and its first row
    for place, (path, row) in enumerate(rows[:at]):
        if isinstance(row, Intends):
            begun.setdefault(path, place)
        elif isinstance(row, MessageRow) and isinstance(row.message, WorkDone):
            ended = work_path(path, row.message.key)
            begun = {work: since for work, since in begun.items() if not _is_of(work, ended)}
    retained = []
    for place, (path, row) in enumerate(rows[:at]):
        # Intents and questions of unfinished side effects, from their first intent on.
        about_it = isinstance(row, Intends | Asked | Answered) and place >= begun.get(path, at)
        if not about_it and not isinstance(row, Lived | Over):
            retained.append(place)
    return retained


def _renamed(row: AnyRow, ids: Mapping[str, str]) -> AnyRow:
    if isinstance(row, Asked):
        question = msgspec.structs.replace(row.question, id=ids[row.question.id])
        return msgspec.structs.replace(row, question=question, wall=time.time())
    if isinstance(row, Answered):
        answer = msgspec.structs.replace(row.answer, question=ids.get(row.answer.question, row.answer.question))
        return msgspec.structs.replace(row, answer=answer)
    if isinstance(row, MessageRow) and isinstance(row.message, EscalationNoted) and row.message.question.id in ids:
        question = msgspec.structs.replace(row.message.question, id=ids[row.message.question.id])
        return msgspec.structs.replace(row, message=msgspec.structs.replace(row.message, question=question))
    return row
