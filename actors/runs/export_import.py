"""Export of a durable run to a file, to move it to another machine: lines of JSON, a header and then its rows.

The last line has a checksum of all others, so that a truncated or changed file is refused. Other files that the run
needs (agents, scripts, its directory) are not exported.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...protocol.errors import Conflict, UsageError
from ...protocol.requests import ID
from ..io.directories import journal_dir, private_directory

FORMAT = 1


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Exported run; `rows` and `letters` as the journal stores them."""

    run: str
    life: int
    began: float
    ended: float | None
    about: bytes
    rows: list[tuple[str, bytes]]
    letters: list[tuple[bytes, float]]


class _Head(msgspec.Struct, kw_only=True):
    callboard_run: int
    run: str
    life: int
    began: float
    ended: float | None
    about: bytes
    letters: list[tuple[bytes, float]]


class _Row(msgspec.Struct, array_like=True):
    path: str
    data: bytes


class _Foot(msgspec.Struct):
    rows: int
    sum: int


def write_file(run: str, file: Path, environ: Mapping[str, str]) -> int | None:
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
    head = _Head(
        callboard_run=FORMAT,
        run=run,
        life=kept.life,
        began=kept.began,
        ended=kept.ended,
        about=kept.about,
        letters=letters,
    )
    lines = [msgspec.json.encode(head)] + [msgspec.json.encode(_Row(row.actor, row.data)) for row in past.rows]
    lines.append(msgspec.json.encode(_Foot(len(past.rows), zlib.crc32(b"\n".join(lines)))))
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
            written.write(b"\n".join(lines) + b"\n")
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error.strerror or error}") from error
    return len(past.rows)


def read_file(file: Path) -> Moved:
    """Read an exported run. Blocking.

    Raises:
        UsageError: the file is no exported run, or is damaged.
    """
    try:
        *lines, last = file.read_bytes().removesuffix(b"\n").split(b"\n")
        foot = _read(last, _Foot)
        head, rows = _read(lines[0], _Head), [_read(line, _Row) for line in lines[1:]]
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror or error}") from error
    except (ValueError, IndexError, msgspec.MsgspecError) as error:
        raise UsageError(f"{file} is no run that `callboard runs export` has written: {error}") from error
    if head.callboard_run != FORMAT or not ID.fullmatch(head.run):
        raise UsageError(f"{file} is of another version of callboard")
    if foot.rows != len(rows) or foot.sum != zlib.crc32(b"\n".join(lines)):
        raise UsageError(f"{file} is damaged: it is not as it was written")
    return Moved(
        run=head.run,
        life=head.life,
        began=head.began,
        ended=head.ended,
        about=head.about,
        rows=[(row.path, row.data) for row in rows],
        letters=head.letters,
    )


def _read(line: bytes, kind: Any) -> Any:
    from ...protocol.decoding import decode_json

    return decode_json(line, kind)


def take_in(moved: Moved, environ: Mapping[str, str]) -> None:
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
        raise Conflict(f"{moved.run} is kept here already: callboard runs rm {moved.run} removes it")
    import_run(directory, moved.run, moved.life, (moved.began, moved.ended), moved.about, moved.rows, moved.letters)
