"""Questions of a run that nobody plays, and answers that are left for it.

An answer is left in the journal that has the run (`inbox`), and counts when the run goes on: the first one for each
question, if its time had not passed. Those to secret questions are not left: they would be on the disk.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ....protocol.decoding import msgpack_decoder
from ....protocol.errors import Conflict, NotFound
from ....protocol.journal import Answered, AnyRow, Asked, Told, decode
from ....protocol.kernel.questions import Answer, Question, understood
from ....protocol.messages import WorkDone

if TYPE_CHECKING:
    from ....supervisors.journal.row import Letter, Past


class LeftAnswer(msgspec.Struct, frozen=True, array_like=True):
    """An answer in the inbox of a run."""

    answer: Answer


def run_of(question: str) -> str:
    """The durable run that has asked a question of this id; "" if its id tells none."""
    mark, _, rest = question.partition("-")
    run, _, number = rest.rpartition("-")
    return f"run-{run}" if mark == "q" and run and number.isdecimal() else ""


def first_answers(letters: Iterable[Letter]) -> dict[str, tuple[Answer, float]]:
    """The answers that count of those that were left, by question, and when each was."""
    found: dict[str, tuple[Answer, float]] = {}
    for letter in letters:
        try:
            left = msgpack_decoder(LeftAnswer).decode(letter.data)
        except msgspec.MsgspecError:  # of a later version
            continue
        found.setdefault(left.answer.question, (left.answer, letter.at))
    return found


def open_questions(past: Past) -> list[Asked]:
    """What waits for an answer in a run that nobody plays: what was asked, and neither answered nor given up."""
    rows = [(row.actor, decode(row.data)) for row in past.rows]
    ended = _ended(rows)
    answered = {row.answer.question for _, row in rows if isinstance(row, Answered)}
    answered |= first_answers(past.letters).keys()
    asked = {row.question.id: (path, row) for path, row in rows if isinstance(row, Asked)}
    return [
        row
        for path, row in asked.values()
        if row.question.id not in answered and not _is_over(path, ended) and not _is_late(row)
    ]


def _ended(rows: list[tuple[str, AnyRow]]) -> Counter[tuple[str, int]]:
    """How often work of each key has ended, by the path of its decider."""
    return Counter(
        (path, row.message.key) for path, row in rows if isinstance(row, Told) and isinstance(row.message, WorkDone)
    )


def _is_over(path: str, ended: Counter[tuple[str, int]]) -> bool:
    """Whether the work of a path, or what it is done for, has ended."""
    while path:
        above, _, name = path.rpartition("/")
        key, _, use = name.partition(":")[0].partition(".")
        if key.isdecimal() and ended[above, int(key)] >= int(use or 1):
            return True
        path = above
    return False


def _is_late(row: Asked) -> bool:
    timeout = row.question.timeout
    return timeout is not None and time.time() > row.wall + timeout


def letter_of(answer: Answer) -> bytes:
    """An answer as it lies in the inbox of a run."""
    return msgspec.msgpack.encode(LeftAnswer(answer))


def leave_answer(directory: Path, past: Past, question: Question, value: str | list[str], by: str) -> None:
    """Leave an answer for a run that nobody plays. Blocking.

    Raises:
        NotFound: somebody plays it by now, or nothing is kept of it.
        Conflict: the question was answered before, or its answer must not be kept.
        Damaged: it can't be kept.
    """
    from ....supervisors.journal.reading import leave

    if question.secret:
        raise Conflict(f"the answer to {question.id} is secret, and would be on the disk: give it when the run goes on")
    answer = Answer(question=question.id, value=understood(question, value), by=by)

    def check(letters: list[bytes]) -> None:
        for letter in letters:
            if msgpack_decoder(LeftAnswer).decode(letter).answer.question == question.id:
                raise Conflict(f"question {question.id} is open no more: another answer was left for it before")

    if not leave(directory, past.kept.run, letter_of(answer), check):
        raise NotFound(f"{past.kept.run} goes on by now: ask the process that plays it")
