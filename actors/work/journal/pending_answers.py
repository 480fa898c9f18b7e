"""Open questions of a run that no process executes, and answers that wait for it.

An answer is stored in the inbox of the journal that holds the run. It is used when the run resumes: the first answer to
each question, if it arrived before the question's timeout. Answers to secret questions are refused, because they would
be on the disk.
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
from ....protocol.journal import Answered, AnyRow, Asked, MessageRow, decode
from ....protocol.kernel.questions import Answer, Question, understood
from ....protocol.messages import WorkDone

if TYPE_CHECKING:
    from ....supervisors.journal.row import InboxEntry, Past


class PendingAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Answer to a question of a run that no process executes, stored until the run resumes."""

    answer: Answer


def run_of(question: str) -> str:
    """Return the durable run that has asked the question with this id; "" for an id of another form."""
    mark, _, rest = question.partition("-")
    run, _, number = rest.rpartition("-")
    return f"run-{run}" if mark == "q" and run and number.isdecimal() else ""


def first_answers(letters: Iterable[InboxEntry]) -> dict[str, tuple[Answer, float]]:
    """Return the first answer to each question in the inbox, with its time."""
    found: dict[str, tuple[Answer, float]] = {}
    for letter in letters:
        try:
            pending = msgpack_decoder(PendingAnswer).decode(letter.data)
        except msgspec.MsgspecError:  # written by a later version
            continue
        found.setdefault(pending.answer.question, (pending.answer, letter.at))
    return found


def open_questions(past: Past) -> list[Asked]:
    """Return the open questions of a run that no process executes: neither answered, nor closed, nor timed out."""
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
    """Count the ends of work by key and path of its decider."""
    return Counter(
        (path, row.message.key)
        for path, row in rows
        if isinstance(row, MessageRow) and isinstance(row.message, WorkDone)
    )


def _is_over(path: str, ended: Counter[tuple[str, int]]) -> bool:
    """Return True if the work of a path, or work above it, has ended."""
    while path:
        above, _, name = path.rpartition("/")
        # A path element is `key[.use][:decider]`: the key is free again after each end, and `use` counts its uses.
        key, _, use = name.partition(":")[0].partition(".")
        if key.isdecimal() and ended[above, int(key)] >= int(use or 1):
            return True
        path = above
    return False


def _is_late(row: Asked) -> bool:
    timeout = row.question.timeout
    return timeout is not None and time.time() > row.wall + timeout


def encode_answer(answer: Answer) -> bytes:
    """Encode an answer in the form in which the run's inbox stores it."""
    return msgspec.msgpack.encode(PendingAnswer(answer))


def leave_answer(directory: Path, past: Past, question: Question, value: str | list[str], by: str) -> None:
    """Store an answer for a run that no process executes. Blocks.

    Raises:
        NotFound: a process executes it now, or it is not stored.
        Conflict: the question already has an answer in the inbox, or it is secret.
        Damaged, JournalUnread, OSError: the answer can't be stored.
    """
    from ....supervisors.journal.reading import leave

    if question.secret:
        raise Conflict(
            f"the answer to {question.id} is secret and can't be stored for later: answer it after the run has "
            "been resumed"
        )
    answer = Answer(question=question.id, value=understood(question, value), by=by)

    # Called under the journal's write lock, so two processes can't both store an answer.
    def check(letters: list[bytes]) -> None:
        for letter in letters:
            if msgpack_decoder(PendingAnswer).decode(letter).answer.question == question.id:
                raise Conflict(f"question {question.id} has already been answered")

    if not leave(directory, past.kept.run, encode_answer(answer), check):
        raise NotFound(f"{past.kept.run} has been resumed; send the answer to the process that executes it")
