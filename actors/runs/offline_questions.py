"""Questions of interrupted runs, and answers that users store for them. Blocking; needs no root."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...protocol.errors import NotFound
from ...protocol.kernel.errors import JournalError
from ...protocol.kernel.questions import Question
from ..io.directories import journal_dir
from ..io.tenancy import environ
from ..work.journal.pending_answers import leave_answer, open_questions, run_of
from .orphaned_runs import interrupted


def parked_questions(environ: Mapping[str, str]) -> list[Question]:
    """Return the open questions of all interrupted runs that can be resumed, oldest run first."""
    found: list[Question] = []
    for run in interrupted(environ):
        if not run.why_not:
            found += questions_of(run.run, environ)
    return found


def questions_of(run: str, environ: Mapping[str, str]) -> list[Question]:
    """Return the open questions of one run, in the order in which it asked them.

    The list is empty if a process executes the run, or if its journal cannot be read.
    """
    from ...supervisors.journal.reading import read_run
    from ...supervisors.journal.row import State

    try:
        past = read_run(journal_dir(environ), run)
    except JournalError:
        return []
    if past is None or past.kept.state is not State.INTERRUPTED:
        return []
    return [msgspec.structs.replace(asked.question, run=run) for asked in open_questions(past)]


def has_asked(question: str, environ: Mapping[str, str]) -> bool:
    """Return whether the run that asked this question is interrupted, whatever became of the question."""
    run = run_of(question)
    return bool(run) and any(each.run == run for each in interrupted(environ))


def leave_for(run: str, question: str, value: str | list[str], by: str) -> bool:
    """Store an answer for an interrupted run; return False if it has no such question.

    Raises:
        NotFound, Conflict, Damaged: see `leave_answer`.
    """
    from ...supervisors.journal.reading import read_run
    from ...supervisors.journal.row import State

    directory = journal_dir(environ())
    past = read_run(directory, run)
    if past is None or past.kept.state is not State.INTERRUPTED:
        return False
    for asked in open_questions(past):
        if asked.question.id == question:
            try:
                leave_answer(directory, past, asked.question, value, by)
            except NotFound:
                return False
            return True
    return False
