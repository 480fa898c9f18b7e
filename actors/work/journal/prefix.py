"""The beginning of a run as the rows of another: what `callboard fork` copies.

Rows are taken as they are, but for what belongs to the run that they were of:

- the first one says of what, and up to which row, it is a fork
- questions have ids of the new run, in their order; one that is open is asked as if just now
- work that was under way has not begun: what it was about to do to the world is to be done again, so nobody is asked or
  told whether it was (`Intends` is left out, and the questions about it)
- how many processes played it, and that it was over, is left out
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
    Noted,
    Over,
    Spoilt,
    Told,
    decode,
    encode,
)
from ....protocol.messages import EscalationNoted, WorkDone
from .of_run import PART, CannotGoOn, question_id

if TYPE_CHECKING:
    from ....protocol.kernel.questions import Question
    from ....supervisors.journal.row import Row

Placed = tuple[str, AnyRow]
"""A row, and the path that it is of."""


def read(rows: Sequence[Row]) -> list[Placed]:
    """Rows as they were read.

    Raises:
        CannotGoOn: they are of another program.
    """
    found: list[Placed] = []
    for each in rows:
        try:
            found.append((each.actor, decode(each.data)))
        except (msgspec.DecodeError, ValueError) as error:
            raise CannotGoOn(
                f"row {each.seq} is of a version of callboard that this one does not know: {error}"
            ) from None
    if not found or not isinstance(found[0][1], Began):
        raise CannotGoOn("its first row does not say what it is a run of")
    return found


def written(rows: Sequence[Placed]) -> list[Row]:
    """Rows as a journal has them, from the first: what `read` reads."""
    from ....supervisors.journal.row import Row

    return [Row(number, path, encode(row)) for number, (path, row) in enumerate(rows, 1)]


def began(rows: Sequence[Placed]) -> Began:
    """The first row of a run."""
    first = rows[0][1]
    assert isinstance(first, Began)
    return first


class Prefix(msgspec.Struct, frozen=True):
    """The beginning of a run as that of another.

    Attributes:
        rows: of the other.
        ids: those that its questions had, and have.
    """

    rows: list[Placed]
    ids: dict[str, str]


def prefix(rows: Sequence[Placed], at: int, run: str) -> Prefix:
    """The first `at` rows as those of the run with this id.

    Raises:
        CannotGoOn: before there something happened that can't be kept.
    """
    for number, (_, row) in enumerate(rows[:at], 1):
        if isinstance(row, Spoilt):
            raise CannotGoOn(f"it can't go on from row {at}, as since row {number} not all of it is kept: {row.why}")
    kept = [rows[place] for place in _kept(rows, at)]
    asked = (row.question.id for _, row in kept if isinstance(row, Asked))
    ids = {old: question_id(run, number) for number, old in enumerate(asked, 1)}
    of = began(rows)
    request = msgspec.structs.replace(of.request, id=run)
    id = of.request.id or ""
    first = msgspec.structs.replace(of, request=request, wall=time.time(), forked_from=id, forked_at=at)
    return Prefix([("", first), *((path, _renamed(row, ids)) for path, row in kept[1:])], ids)


def done_again(rows: Sequence[Placed], at: int) -> list[int]:
    """The numbers of the rows that say what a run was about to do to the world, and its fork behind row `at` does anew:
    all behind there, and those of work that was under way."""
    kept = set(_kept(rows, at))
    return [place + 1 for place, (_, row) in enumerate(rows) if isinstance(row, Intends) and place not in kept]


def parts_kept(rows: Sequence[Placed], at: int) -> set[str]:
    """The ids of the parts whose results are in the first `at` rows: a fork has no other worker play them again."""
    kept: set[str] = set()
    ends: dict[str, list[str]] = {}  # by the work that has waited for them and has not ended
    for place, (path, row) in enumerate(rows):
        if isinstance(row, Noted) and row.name.startswith(PART) and place < at:
            id = row.name.removeprefix(PART)
            kept.add(id)
            ends.setdefault(_first_use(path), []).append(id)
        elif isinstance(row, Told) and isinstance(row.message, WorkDone):
            waited = ends.pop(work_path(path, row.message.key), ())
            if place >= at:
                kept.difference_update(waited)
    return kept


def open_questions(rows: Sequence[Placed]) -> dict[str, tuple[str, Question]]:
    """Those that have no answer in these rows, by id, each with its path."""
    asked: dict[str, tuple[str, Question]] = {}
    for path, row in rows:
        if isinstance(row, Asked):
            asked[row.question.id] = path, row.question
        elif isinstance(row, Answered):
            asked.pop(row.answer.question, None)
        elif isinstance(row, Told) and isinstance(row.message, WorkDone):
            ended = work_path(path, row.message.key)
            asked = {id: each for id, each in asked.items() if not _is_of(each[0], ended)}
    return asked


def work_path(decider: str, key: int) -> str:
    """The path of work that was given to a decider, the first under this key."""
    return f"{decider}/{key}" if decider else str(key)


def _first_use(path: str) -> str:
    """The path of the first work under the key of this one."""
    above, slash, last = path.rpartition("/")
    return f"{above}{slash}{last.partition('.')[0].partition(':')[0]}"


def _is_of(path: str, work: str) -> bool:
    """Whether this is work of that key, whichever of those under it, or a part of it."""
    return path.startswith(work) and path[len(work) : len(work) + 1] in ("", "/", ".", ":")


def _kept(rows: Sequence[Placed], at: int) -> list[int]:
    """The places of the first `at` rows that are rows of a fork as well."""
    begun: dict[str, int] = {}  # what is about to change the world, and since when
    for place, (path, row) in enumerate(rows[:at]):
        if isinstance(row, Intends):
            begun.setdefault(path, place)
        elif isinstance(row, Told) and isinstance(row.message, WorkDone):
            ended = work_path(path, row.message.key)
            begun = {work: since for work, since in begun.items() if not _is_of(work, ended)}
    kept = []
    for place, (path, row) in enumerate(rows[:at]):
        about_it = isinstance(row, Intends | Asked | Answered) and place >= begun.get(path, at)
        if not about_it and not isinstance(row, Lived | Over):
            kept.append(place)
    return kept


def _renamed(row: AnyRow, ids: Mapping[str, str]) -> AnyRow:
    if isinstance(row, Asked):
        question = msgspec.structs.replace(row.question, id=ids[row.question.id])
        return msgspec.structs.replace(row, question=question, wall=time.time())
    if isinstance(row, Answered):
        answer = msgspec.structs.replace(row.answer, question=ids.get(row.answer.question, row.answer.question))
        return msgspec.structs.replace(row, answer=answer)
    if isinstance(row, Told) and isinstance(row.message, EscalationNoted) and row.message.question.id in ids:
        question = msgspec.structs.replace(row.message.question, id=ids[row.message.question.id])
        return msgspec.structs.replace(row, message=msgspec.structs.replace(row.message, question=question))
    return row
