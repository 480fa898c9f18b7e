"""Durable runs in the journals of this machine, without a root: list, answer, remove, and export.

    interrupted        the runs whose process is dead; `durable` resumes them
    parked_questions   their open questions; `leave_for` stores an answer, which the run finds when it is resumed
    prune_if_due       removes runs beyond the limits that the settings define
    write_export         writes one run to a file, to move it to another machine; `insert_export` inserts it there

Every function blocks, except `prune_regularly`. trio and the parts of a run's journal are imported at first use,
because completion of run ids lists interrupted runs.

A server prunes every `PRUNE_EVERY` seconds. Other programs prune at their end, at most once a day, unless there are
clearly more journals than runs to retain.

An exported run is lines of JSON: a header, its rows, and a checksum of both, so that a truncated or changed file is
refused. Other files that the run needs (agents, scripts, its directory) are not exported.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.errors import Conflict, NotFound, UsageError
from ...protocol.journal import BATCH, BY_SERVER, STUCK, About, decode_about
from ...protocol.kernel.errors import JournalError
from ...protocol.kernel.questions import Question
from ...protocol.requests import ID
from ..io.directories import journal_dir, private_directory
from ..io.tenancy import environ as tenant_environ

if TYPE_CHECKING:
    from ...protocol.settings import Settings
    from ...supervisors.journal.row import StoredRunRecord


class InterruptedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Durable run whose process was killed, or ended before the run did.

    Attributes:
        sign: name of that process (`liveness_lock`).
        life: number of processes that have executed the run.
        about: summary stored with the run; None if it cannot be read.
        damage: reason why the run cannot be read, or "".
    """

    run: str
    sign: str
    began: float
    life: int
    rows: int
    about: About | None
    damage: str = ""

    @property
    def why_not(self) -> str:
        """The known reason why the run cannot be resumed, or ""."""
        return self.damage or ("" if self.about is None else self.about.spoilt)

    @property
    def stuck(self) -> bool:
        """True if `STUCK` processes in a row died without adding a row. Only a user may resume such a run."""
        about = self.about
        return about is not None and about.is_idle(self.rows) and self.life - about.since + 1 >= STUCK


def interrupted(environ: Mapping[str, str]) -> list[InterruptedRun]:
    """Return all interrupted runs, oldest first, including those that cannot be resumed (`why_not`)."""
    return InterruptedRunsCache().interrupted(environ)


class InterruptedRunsCache:
    """Cache for repeated listings: reads only databases that have changed since the last call."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, list[InterruptedRun]]] = {}

    def interrupted(self, environ: Mapping[str, str]) -> list[InterruptedRun]:
        directory = journal_dir(environ)
        if not directory.is_dir():
            return []
        from ...supervisors.journal.liveness_lock import is_alive
        from ...supervisors.journal.reading import interrupted_in
        from ...supervisors.journal.store import databases, path_of

        now: dict[str, tuple[object, list[InterruptedRun]]] = {}
        for sign in databases(directory, unsettled=True):
            # A live process still executes its runs, or will mark their ends.
            if is_alive(directory, sign):
                continue
            found = self._known.get(sign)
            stamp = _database_stamp(path_of(directory, sign))
            if found is None or found[0] != stamp:
                found = stamp, [_interrupted_run(kept) for kept in interrupted_in(directory, sign)]
            # Only databases found in this pass are retained, so that the cache does not grow with removed files.
            now[sign] = found
        self._known = now
        return sorted((run for _, runs in now.values() for run in runs), key=lambda run: run.began)


def _database_stamp(path: Path) -> object:
    """Return a value that differs after each change of the database."""
    stamps: list[object] = []
    # In WAL mode a commit changes only the `-wal` file until the next checkpoint.
    for file in (path, path.with_name(path.name + "-wal")):
        try:
            found = file.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return stamps


def _interrupted_run(kept: StoredRunRecord) -> InterruptedRun:
    about, damage = None, kept.damage
    try:
        about = decode_about(kept.about) if kept.about else None
    except msgspec.MsgspecError as error:
        damage = damage or f"it was written by another version of callboard: {error}"
    return InterruptedRun(
        run=kept.run,
        sign=kept.sign,
        began=kept.began,
        life=kept.life,
        rows=kept.rows,
        about=about,
        damage=damage,
    )


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
    from ..work.journal.pending_answers import open_questions

    try:
        past = read_run(journal_dir(environ), run)
    except JournalError:
        return []
    if past is None or past.kept.state is not State.INTERRUPTED:
        return []
    return [msgspec.structs.replace(asked.question, run=run) for asked in open_questions(past)]


def has_asked(question: str, environ: Mapping[str, str]) -> bool:
    """Return whether the run that asked this question is interrupted; the question itself may be closed."""
    from ..work.journal.pending_answers import run_of

    run = run_of(question)
    return bool(run) and any(each.run == run for each in interrupted(environ))


def leave_for(run: str, question: str, value: str | list[str], by: str) -> bool:
    """Store an answer for an interrupted run; return False if it has no such question.

    Raises:
        Conflict, Damaged: see `leave_answer`.
    """
    from ...supervisors.journal.reading import read_run
    from ...supervisors.journal.row import State
    from ..work.journal.pending_answers import leave_answer, open_questions

    directory = journal_dir(tenant_environ())
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


PRUNE_EVERY = 3_600.0
"""Seconds between two prunes of a server."""

DAY = 86_400.0
PRUNE_MARGIN = 20
"""Tolerance: if journals exceed `keep_runs` by more than 1/20, they are pruned before a day has passed."""

PRUNED_STAMP = ".pruned"


async def prune_regularly(settings: Settings, sign: str) -> None:
    """Prune every `PRUNE_EVERY` seconds until cancelled."""
    import trio

    while True:
        await trio.to_thread.run_sync(partial(prune_now, settings, sign), abandon_on_cancel=True)
        await trio.sleep(PRUNE_EVERY)


def prune_now(settings: Settings, sign: str) -> int:
    """Remove runs beyond the retention limits; return the number of runs removed. Blocking."""
    from ...supervisors.journal.retention import prune
    from ..work.journal.directory import remove_abandoned

    directory = journal_dir(tenant_environ())
    if not directory.is_dir():
        return 0
    removed = prune(
        directory,
        sign,
        keep=settings.api.keep_runs,
        days=settings.durable.keep_days,
        most=settings.durable.max_bytes,
        forsaken=_is_forsaken,
    )
    if removed:
        remove_abandoned()
    with suppress(OSError):
        (directory / PRUNED_STAMP).touch(mode=0o600)
    return removed


def remove_stored_run(run: str) -> bool:
    """Remove a stored run that no process executes, with its directory; return False if it is not stored. Blocking.

    Raises:
        Damaged, JournalUnread: it cannot be read or written.
    """
    directory = journal_dir(tenant_environ())
    if not directory.is_dir():
        return False
    from ...supervisors.journal.retention import remove_run
    from ..work.journal.directory import remove

    removed = remove_run(directory, run)
    if removed:
        remove(run)
    return removed


def prune_if_due(settings: Settings, sign: str) -> int:
    """Call `prune_now` if it is due; otherwise only list the directory. Blocking."""
    from ...supervisors.journal.store import databases

    directory, keep = journal_dir(tenant_environ()), settings.api.keep_runs
    many = keep > 0 and len(databases(directory)) > keep + keep // PRUNE_MARGIN
    return prune_now(settings, sign) if many or _age(directory / PRUNED_STAMP) > DAY else 0


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")


def _is_forsaken(run: StoredRunRecord) -> bool:
    """Return whether no process will resume a run by itself, so that it may be removed like a run that is over.

    That holds if it cannot be resumed, or if it was stopped together with a program other than a server. It also
    holds for a task of a batch, which continues without it.
    """
    try:
        about = decode_about(run.about)
    except msgspec.MsgspecError:
        return False
    return bool(about.spoilt) or about.by == BATCH or (about.left and about.by != BY_SERVER)


EXPORT_FORMAT = 1


class ExportedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Exported run; `rows` and `letters` as the journal stores them."""

    run: str
    life: int
    began: float
    ended: float | None
    about: bytes
    rows: list[tuple[str, bytes]]
    letters: list[tuple[bytes, float]]


class _ExportHead(msgspec.Struct, kw_only=True):
    callboard_run: int
    run: str
    life: int
    began: float
    ended: float | None
    about: bytes
    letters: list[tuple[bytes, float]]


class _ExportRow(msgspec.Struct, array_like=True):
    path: str
    data: bytes


class _ExportFoot(msgspec.Struct):
    rows: int
    sum: int


def write_export(run: str, file: Path, environ: Mapping[str, str]) -> int | None:
    """Write a run to a new file that only its user can read; return its number of rows, None if it does not exist.
    Blocking.

    Raises:
        UsageError: the file exists, or cannot be written.
        Damaged: the run's rows do not match their checksums.
    """
    from ...supervisors.journal.reading import read_run

    past = read_run(journal_dir(environ), run)
    if past is None:
        return None
    kept = past.kept
    letters = [(letter.data, letter.at) for letter in past.letters]
    head = _ExportHead(
        callboard_run=EXPORT_FORMAT,
        run=run,
        life=kept.life,
        began=kept.began,
        ended=kept.ended,
        about=kept.about,
        letters=letters,
    )
    lines = [msgspec.json.encode(head)] + [msgspec.json.encode(_ExportRow(row.actor, row.data)) for row in past.rows]
    lines.append(msgspec.json.encode(_ExportFoot(len(past.rows), zlib.crc32(b"\n".join(lines)))))
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
            written.write(b"\n".join(lines) + b"\n")
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error.strerror or error}") from error
    return len(past.rows)


def read_export(file: Path) -> ExportedRun:
    """Read an exported run. Blocking.

    Raises:
        UsageError: the file is no exported run, or is damaged.
    """
    try:
        *lines, last = file.read_bytes().removesuffix(b"\n").split(b"\n")
        foot = _read_line(last, _ExportFoot)
        head, rows = _read_line(lines[0], _ExportHead), [_read_line(line, _ExportRow) for line in lines[1:]]
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror or error}") from error
    except (ValueError, IndexError, msgspec.MsgspecError) as error:
        raise UsageError(f"{file} was not written by `callboard runs export`: {error}") from error
    if head.callboard_run != EXPORT_FORMAT or not ID.fullmatch(head.run):
        raise UsageError(f"{file} was written by another version of callboard")
    if foot.rows != len(rows) or foot.sum != zlib.crc32(b"\n".join(lines)):
        raise UsageError(f"{file} is damaged: its checksum does not match")
    return ExportedRun(
        run=head.run,
        life=head.life,
        began=head.began,
        ended=head.ended,
        about=head.about,
        rows=[(row.path, row.data) for row in rows],
        letters=head.letters,
    )


def _read_line(line: bytes, kind: Any) -> Any:
    from ...protocol.decoding import decode_json

    return decode_json(line, kind)


def insert_export(moved: ExportedRun, environ: Mapping[str, str]) -> None:
    """Insert an exported run into the journal, as a run of a process that has ended. Blocking.

    Raises:
        Conflict: the run is in the journal already.
        JournalError: the journal cannot be written.
    """
    from ...supervisors.journal.reading import stored_runs
    from ...supervisors.journal.store import import_run

    directory = journal_dir(environ)
    private_directory(directory)
    if any(kept.run == moved.run for kept in stored_runs(directory)):
        raise Conflict(f"{moved.run} is already stored here; `callboard runs delete {moved.run}` removes it")
    import_run(directory, moved.run, moved.life, (moved.began, moved.ended), moved.about, moved.rows, moved.letters)
