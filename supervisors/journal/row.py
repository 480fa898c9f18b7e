"""The journal's data: runs and their rows, packed into blocks with chained checksums.

**Blocks.** Rows of a run that are written together form one *block*, which is one row of the database: that takes a
third of the time. A block of one row is that row; a block of several holds them one after another, each preceded by its
two lengths.

**Checksums.** The checksum of a block is a CRC32 of the block and of the checksum before it; the first one continues
from the run's id. So one checksum covers all rows up to there, their order, and that none is missing. SQLite itself
detects damage in its log but hardly any in the main file: of 150 bits flipped there, 131 gave wrong data, and
`integrity_check` found no fault.
"""

from __future__ import annotations

import enum
import hashlib
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ...protocol.kernel.errors import Damaged, JournalBroken, JournalError

OPEN, OVER, CLAIMING = range(3)
"""States of a run in a database. `CLAIMING`: a copy, valid only once the source database names the new owner."""

LARGE = 16 * 1024
"""Size in bytes above which a row's data is stored as a blob."""


class Unwritten(Exception):
    """A write failed that may succeed later; the text says why."""


class Unstorable(Exception):
    """A group holds a value that the database can never store. The other runs of the group can be written."""


class State(enum.Enum):
    """State of a stored run: executed by a living process, interrupted, or ended."""

    PLAYED = "played"
    INTERRUPTED = "interrupted"
    OVER = "over"


class StoredRow(msgspec.Struct, frozen=True, gc=False):
    """A row of a run, as stored.

    Attributes:
        seq: its number, from 1.
        actor: path of the actor that it belongs to; any text.
        data: its content.
    """

    seq: int
    actor: str
    data: bytes


class InboxEntry(msgspec.Struct, frozen=True, gc=False):
    """Data left for a run while no process executed it, with its time (seconds since 1970)."""

    data: bytes
    at: float


class StoredRunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a journal.

    Attributes:
        run: its id.
        sign: unique name of the process whose database holds it.
        state: ended, or else whether that process lives.
        life: number of its incarnation, from 1: one process's execution of the run.
        rows: number of rows.
        began, ended: seconds since 1970; `ended` is None for a run that has not ended.
        about: its last summary.
        damage: reason why it can't be read, or "".
    """

    run: str
    sign: str
    state: State
    life: int
    rows: int
    began: float
    ended: float | None
    about: bytes
    damage: str = ""


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """A run with all its rows, and the entries of its inbox (`letters`)."""

    kept: StoredRunRecord
    rows: list[StoredRow]
    letters: list[InboxEntry] = []


def first_sum(run: str) -> int:
    """Return the checksum that precedes a run's first block."""
    return zlib.crc32(run.encode())


class RowBlock(msgspec.Struct, frozen=True, gc=False):
    """Rows that were written together.

    Attributes:
        seq: number of the first row.
        count: number of rows.
        actor: actor of the row; "" if there are several.
        data: content of the row; of several, all rows in sequence.
        crc: the checksum.
    """

    seq: int
    count: int
    actor: str
    data: bytes
    crc: int


def packed(seq: int, rows: Sequence[tuple[str, bytes]], before: int) -> RowBlock:
    """Pack rows into a block; `before` is the checksum of the previous block."""
    if len(rows) == 1:
        actor, data = rows[0]
    else:
        actor, data = "", b"".join([_framed(actor.encode(), data) for actor, data in rows])
    return RowBlock(seq, len(rows), actor, data, sum_of_block(before, seq, len(rows), actor, data))


def pieces(rows: Sequence[tuple[str, bytes]]) -> Iterator[Sequence[tuple[str, bytes]]]:
    """Split rows into the contents of blocks: a large row is a block of its own."""
    begin = size = 0
    for position, (_, data) in enumerate(rows):
        # A block of its own, so that `values_of` can store the data as a blob, once for all rows with this content.
        large = len(data) > LARGE
        if position > begin and (large or size + len(data) > LARGE):
            yield rows[begin:position]
            begin, size = position, 0
        size += len(data)
        if large:
            yield rows[begin : position + 1]
            begin, size = position + 1, 0
    if begin < len(rows):
        yield rows[begin:]


def checked(blocks: Iterable[tuple[Any, ...]], run: str, rows: int, crc: int, where: str) -> Iterator[RowBlock]:
    """Yield the blocks of a run, checking each one.

    Args:
        blocks: number, count, actor, data, checksum, and the hash of the data (None if it is not a blob).
        rows, crc: number of rows of the run, and the last checksum.
        where: the run's name in an error.

    Raises:
        Damaged: the next block is not as it was written, or is missing.
    """
    sum, seq = first_sum(run), 0
    for number, count, actor, data, stored, hash in blocks:
        if number != seq + 1:
            raise Damaged(f"{where} is damaged: after row {seq} of {rows} comes row {number}")
        if not isinstance(count, int) or not isinstance(actor, str) or not isinstance(data, bytes):
            raise Damaged(f"{where} is damaged: row {number} of {rows} can't be read")
        sum = sum_of_block(sum, number, count, actor, data)
        if sum != stored or (hash is not None and hash != hash_of(data)):
            raise Damaged(f"{where} is damaged: the checksum of row {number} of {rows} does not match")
        seq += count
        if seq > rows:
            raise Damaged(f"{where} is damaged: there are more than its {rows} rows")
        yield RowBlock(number, count, actor, data, sum)
    if seq != rows or sum != crc:
        raise Damaged(f"{where} is damaged: only {seq} of its {rows} rows are there")


def hash_of(data: bytes) -> bytes:
    """Return the hash that identifies a blob."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _framed(actor: bytes, data: bytes) -> bytes:
    return b"%d %d\n%b%b" % (len(actor), len(data), actor, data)


def unpacked(block: RowBlock) -> list[StoredRow]:
    """Return the rows of a block.

    Raises:
        ValueError: the data is not a block.
    """
    if block.count == 1:
        return [StoredRow(block.seq, block.actor, block.data)]
    rows, data, position = [], block.data, 0
    for number in range(block.count):
        end = data.index(b"\n", position)
        actor, size = map(int, data[position:end].split())
        begin = end + 1 + actor
        position = begin + size
        rows.append(StoredRow(block.seq + number, data[end + 1 : begin].decode(), data[begin:position]))
    if position != len(data):
        raise ValueError("it is longer than its rows")
    return rows


def sum_of_block(before: int, seq: int, count: int, actor: str, data: bytes) -> int:
    """Return the checksum of a block; `before` is the previous one."""
    return zlib.crc32(data, zlib.crc32(f"{seq} {count} {len(data)} {actor}\0".encode(), before))


def sum_of_run(
    run: str, state: int, owner: str, life: int, rows: int, crc: int, began: float, ended: float | None, about: bytes
) -> int:
    """Return the checksum of a run's own entry in a database."""
    return zlib.crc32(about, zlib.crc32(f"{run} {state} {owner} {life} {rows} {crc} {began} {ended}".encode()))


def entry_checksum(run: str, data: bytes, at: float) -> int:
    """Return the checksum of an inbox entry of a run."""
    return zlib.crc32(data, zlib.crc32(f"{run} {at}".encode()))


class RunRecord:
    """The writer thread's state of a run that this process executes.

    Attributes:
        run: its id.
        key: its number in the database; 0 before it was inserted.
        rows: number of written rows.
        crc: checksum of the last of them.
        state: `OPEN` or `OVER`.
        origin: name of the database that it was copied from, or "".
        about: its summary.
        checked: the last check of its ownership, in the store's own count.
        refused: error because of which nothing more of it is written, or None.
    """

    __slots__ = (
        "about",
        "began",
        "checked",
        "crc",
        "ended",
        "key",
        "life",
        "origin",
        "refused",
        "rows",
        "run",
        "state",
    )

    def __init__(self, run: str, about: bytes = b"") -> None:
        self.run: str = run
        self.key: int = 0
        self.rows: int = 0
        self.crc: int = first_sum(run)
        self.state: int = OPEN
        self.origin: str = ""
        self.life: int = 1
        self.began: float = time.time()
        self.ended: float | None = None
        self.about: bytes = about
        self.checked: int = 0
        self.refused: JournalError | None = None


class RunRows:
    """The changes of one run in a group.

    Attributes:
        rows: actor and data of each new row, in order.
        beside: kind, key and data that are written together with them, for stores that hold more than rows.
        about: its new summary; None if unchanged.
        over: True if it has ended.
    """

    __slots__ = ("about", "beside", "over", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[str, bytes]] = []
        self.beside: list[tuple[str, str, bytes]] = []
        self.about: bytes | None = None
        self.over = False

    @property
    def empty(self) -> bool:
        """True if there is nothing to write."""
        return not self.rows and not self.beside and self.about is None and not self.over

    def drop_written(self, record: RunRecord, there: int, crc: int, where: str) -> None:
        """Remove rows that are stored already: a commit that reported an error may still have taken effect.

        Args:
            there, crc: number of rows of the run in `where`, and the last checksum. The record takes them over.

        Raises:
            JournalBroken: the stored rows differ from the written rows.
        """
        ahead = there - record.rows
        if not 0 <= ahead <= len(self.rows):
            raise JournalBroken(f"{where} has {there} rows of '{record.run}' where {record.rows} were written")
        seq, sum = record.rows, record.crc
        for rows in pieces(self.rows[:ahead]):  # later rows were appended after that attempt
            sum, seq = packed(seq + 1, rows, sum).crc, seq + len(rows)
        if sum != crc:
            raise JournalBroken(f"{where} has other rows of '{record.run}' than were written")
        record.rows, record.crc = there, crc
        del self.rows[:ahead]


def id_taken(run: str) -> JournalError:
    """Return the error for a new run whose id an unfinished run of this store has already."""
    return JournalError(f"this run can't be stored: another run with the id '{run}' is under way; choose another id")


class RowStore(Protocol):
    """Storage for rows: `store.SqliteStore`, this process's file, or `cluster.store.ClusterStore`, a shared database.

    `store.SqliteStore` documents the methods.
    """

    sign: str
    directory: Path
    checked: float

    def write(self, group: Mapping[RunRecord, RunRows], *, full: bool) -> None: ...

    def add_to_inbox(self, run: str, data: bytes) -> None: ...

    def record(self, run: str) -> RunRecord: ...

    @property
    def is_open(self) -> bool: ...

    def close(self) -> bool: ...
