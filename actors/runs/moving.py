"""A durable run as a file, to take it to another machine: lines of JSON, the first about the run, then its rows.

The last line has a sum over all of them, so that a file that was cut or changed is refused. What a run needs beside its
rows (agents, scripts, its directory) does not go along.
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
    """A run in such a file; `rows` and `letters` as the journal has them."""

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
    """Write a run into a new file, for its user alone; how many rows it has, None if there is no such run. Blocking.

    Raises:
        UsageError: the file is there, or can't be written.
        Damaged: the run is not as it was written.
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
    """The run in a file. Blocking.

    Raises:
        UsageError: it is no such file, or not as it was written.
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
    """Have a run in the journal, as one of a process that has ended. Blocking.

    Raises:
        Conflict: it is there already.
        JournalError: no run can be kept here.
    """
    from ...supervisors.journal.moving import put_in
    from ...supervisors.journal.reading import kept_runs

    directory = journal_dir(environ)
    private_directory(directory)
    if any(kept.run == moved.run for kept in kept_runs(directory)):
        raise Conflict(f"{moved.run} is kept here already: callboard runs rm {moved.run} removes it")
    put_in(directory, moved.run, moved.life, (moved.began, moved.ended), moved.about, moved.rows, moved.letters)
