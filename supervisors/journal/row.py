"""What a journal keeps: runs, and the rows of each, with sums that tell when one is not as it was written.

Rows of a run that are written together are one *block*, a row of the database: that takes a third of the time. A block
of one row is that row; one of several has them one after another, each behind its two lengths.

The sum of a block is a CRC32 over it and over the sum of the block before, so that it holds for all rows up to there:
in their order, none missing. What it begins with is the run's own id. SQLite finds damage in its log, and in the main
file next to none: of 150 bits flipped there 131 gave wrong data, and `integrity_check` found the file in order.
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
"""States of a run. `CLAIMING`: a copy that counts only if the database it was copied from has given the run up."""


LARGE = 16 * 1024
"""Bytes of data from which on it is a blob."""


class Unwritten(Exception):
    """It could not be written now, and may be later; the text says why."""


class State(enum.Enum):
    """How a kept run stands."""

    PLAYED = "played"
    INTERRUPTED = "interrupted"
    OVER = "over"


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of a run.

    Attributes:
        seq: its number, from 1.
        actor: whose it is; any text.
        data: what it says.
    """

    seq: int
    actor: str
    data: bytes


class Letter(msgspec.Struct, frozen=True, gc=False):
    """What was left for a run that nobody played, and when (seconds since 1970)."""

    data: bytes
    at: float


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a journal.

    Attributes:
        run: its id.
        sign: of the process in whose database it is.
        state: whether it is over, else whether that process lives.
        life: which process after the first plays it, or was the last to; from 1.
        rows: how many it has.
        began, ended: seconds since 1970; `ended` is None for one that is not over.
        about: what was said of it last.
        damage: why it can't be read, or "".
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
    """All that is kept of a run: its rows, and what was left for it."""

    kept: Kept
    rows: list[Row]
    letters: list[Letter] = []


def first_sum(run: str) -> int:
    """What the sum of a run's first block goes on from."""
    return zlib.crc32(run.encode())


class Block(msgspec.Struct, frozen=True, gc=False):
    """Rows that were written together.

    Attributes:
        seq: the number of the first.
        count: how many.
        actor: whose the one row is; "" if there are several.
        data: what it says; of several, all of them.
        crc: the sum.
    """

    seq: int
    count: int
    actor: str
    data: bytes
    crc: int


def packed(seq: int, rows: Sequence[tuple[str, bytes]], before: int) -> Block:
    """Rows as a block; `before` is the sum of the block before it."""
    if len(rows) == 1:
        actor, data = rows[0]
    else:
        actor, data = "", b"".join([_framed(actor.encode(), data) for actor, data in rows])
    return Block(seq, len(rows), actor, data, sum_of_block(before, seq, len(rows), actor, data))


def pieces(rows: Sequence[tuple[str, bytes]]) -> Iterator[Sequence[tuple[str, bytes]]]:
    """Rows that are written together, in pieces: what is large is one by itself."""
    begin = size = 0
    for place, (_, data) in enumerate(rows):
        large = len(data) > LARGE
        if place > begin and (large or size + len(data) > LARGE):
            yield rows[begin:place]
            begin, size = place, 0
        size += len(data)
        if large:
            yield rows[begin : place + 1]
            begin, size = place + 1, 0
    if begin < len(rows):
        yield rows[begin:]


def checked(blocks: Iterable[tuple[Any, ...]], run: str, rows: int, crc: int, where: str) -> Iterator[Block]:
    """The rows of a run, each block checked as it comes.

    Args:
        blocks: number, count, actor, data, sum and the hash of the data, which is None where it is no blob.
        rows, crc: how many rows the run has, and the sum of the last.
        where: what a message calls it.

    Raises:
        Damaged: the next one is not as it was written, or is missing.
    """
    sum, seq = first_sum(run), 0
    for number, count, actor, data, told, hash in blocks:
        if number != seq + 1:
            raise Damaged(f"{where} is damaged: after row {seq} of {rows} comes row {number}")
        if not isinstance(count, int) or not isinstance(actor, str) or not isinstance(data, bytes):
            raise Damaged(f"{where} is damaged: row {number} of {rows} can't be read")
        sum = sum_of_block(sum, number, count, actor, data)
        if sum != told or (hash is not None and hash != hash_of(data)):
            raise Damaged(f"{where} is damaged: row {number} of {rows} is not as it was written")
        seq += count
        if seq > rows:
            raise Damaged(f"{where} is damaged: there are more than its {rows} rows")
        yield Block(number, count, actor, data, sum)
    if seq != rows or sum != crc:
        raise Damaged(f"{where} is damaged: only {seq} of its {rows} rows are there")


def hash_of(data: bytes) -> bytes:
    """What a blob is found by."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _framed(actor: bytes, data: bytes) -> bytes:
    return b"%d %d\n%b%b" % (len(actor), len(data), actor, data)


def unpacked(block: Block) -> list[Row]:
    """Its rows.

    Raises:
        ValueError: it is none.
    """
    if block.count == 1:
        return [Row(block.seq, block.actor, block.data)]
    rows, data, place = [], block.data, 0
    for number in range(block.count):
        end = data.index(b"\n", place)
        actor, size = map(int, data[place:end].split())
        begin = end + 1 + actor
        place = begin + size
        rows.append(Row(block.seq + number, data[end + 1 : begin].decode(), data[begin:place]))
    if place != len(data):
        raise ValueError("it is longer than its rows")
    return rows


def sum_of_block(before: int, seq: int, count: int, actor: str, data: bytes) -> int:
    """The sum of a block."""
    return zlib.crc32(data, zlib.crc32(f"{seq} {count} {len(data)} {actor}\0".encode(), before))


def sum_of_run(
    run: str, state: int, owner: str, life: int, rows: int, crc: int, began: float, ended: float | None, about: bytes
) -> int:
    """The sum of what a database says of a run as a whole."""
    return zlib.crc32(about, zlib.crc32(f"{run} {state} {owner} {life} {rows} {crc} {began} {ended}".encode()))


def sum_of_letter(run: str, data: bytes, at: float) -> int:
    """The sum of a letter."""
    return zlib.crc32(data, zlib.crc32(f"{run} {at}".encode()))


class RunRecord:
    """What the thread that writes knows of a run that this process plays.

    Attributes:
        run: its id.
        key: its number in the database; 0 before it is there.
        rows: how many are written.
        crc: the sum of the last of them.
        state: `OPEN` or `OVER`.
        origin: the sign of the database that it was copied from, or "".
        about: what is said of it.
        checked: when it was last seen to be ours, in the store's own count.
        refused: why nothing more of it is written, or None.
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
        self.run = run
        self.key = 0
        self.rows = 0
        self.crc = first_sum(run)
        self.state = OPEN
        self.origin = ""
        self.life = 1
        self.began = time.time()
        self.ended: float | None = None
        self.about = about
        self.checked = 0
        self.refused: JournalError | None = None


class Part:
    """What a group has of one run.

    Attributes:
        rows: actor and data of each, in order.
        beside: kind, key and data of what is written together with them, for stores that keep more than rows.
        about: what is said of it from now on; None for as before.
        over: it is over.
    """

    __slots__ = ("about", "beside", "over", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[str, bytes]] = []
        self.beside: list[tuple[str, str, bytes]] = []
        self.about: bytes | None = None
        self.over = False

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.rows and not self.beside and self.about is None and not self.over

    def drop_written(self, record: RunRecord, there: int, crc: int, where: str) -> None:
        """Take out what is there: a commit that has failed may count all the same. The record says so from now on.

        Args:
            there, crc: how many rows the run has in `where`, and the sum of the last of them.

        Raises:
            JournalBroken: those are others than were written.
        """
        ahead = there - record.rows
        if not 0 <= ahead <= len(self.rows):
            raise JournalBroken(f"{where} has {there} rows of '{record.run}' where {record.rows} were written")
        seq, sum = record.rows, record.crc
        for rows in pieces(self.rows[:ahead]):  # the rest came after that try
            sum, seq = packed(seq + 1, rows, sum).crc, seq + len(rows)
        if sum != crc:
            raise JournalBroken(f"{where} has other rows of '{record.run}' than were written")
        record.rows, record.crc = there, crc
        del self.rows[:ahead]


class Store(Protocol):
    """Where rows go: `store.Store` is a file of this process, `cluster.store.ClusterStore` a database of many."""

    sign: str
    directory: Path
    checked: float

    def write(self, group: Mapping[RunRecord, Part], *, full: bool) -> None:
        """See `store.Store`."""

    def letter(self, run: str, data: bytes) -> None:
        """See `store.Store`."""

    def record(self, run: str) -> RunRecord:
        """See `store.Store`."""

    @property
    def is_open(self) -> bool:
        """See `store.Store`."""

    def close(self) -> bool:
        """See `store.Store`."""
