"""Bounds the bytes that wait for all connections of one key together.

A connection buffers little (see `outbox`), but a key may have many, and may request a large answer on each. So the
bytes that wait for a key are counted over all its connections, and its next request waits while there are too many.
Requests whose answer may be long and is made in steps take turns besides: each of them holds what it has made.

    with unread.of(caller.subject) as mine:
        await mine.room()
        mine.add(len(frame))    # and `mine.taken` when the client has it
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import final

import trio

MOST_BYTES = 4 * 1024 * 1024
"""Of one key; a frame that is begun below it may go beyond."""

TURNS = 4
"""Long answers of one key that are in the making, or wait to be sent, at a time."""


@final
class Unread:
    """Of one key. See the module.

    Attributes:
        bytes: how many wait.
        turn: a block for making a long answer and sending it.
        connections: how many share it.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.turn = trio.Semaphore(TURNS)
        self.connections = 0
        self._less = trio.lowlevel.ParkingLot()

    async def room(self) -> None:
        """Wait until more may be made for this key. A checkpoint only if it has to wait."""
        while self.bytes >= MOST_BYTES:
            await self._less.park()

    def add(self, size: int) -> None:
        """So much is on its way."""
        self.bytes += size

    def taken(self, size: int) -> None:
        """So much was taken by the client, or is dropped."""
        self.bytes -= size
        if self.bytes < MOST_BYTES:
            self._less.unpark_all()


@final
class UnreadOfAll:
    """By key. See the module."""

    def __init__(self) -> None:
        self._of: dict[str, Unread] = {}

    @contextlib.contextmanager
    def of(self, subject: str) -> Iterator[Unread]:
        """What is shared by the connections of this key, while the block of one of them lasts."""
        mine = self._of.setdefault(subject, Unread())
        mine.connections += 1
        try:
            yield mine
        finally:
            mine.connections -= 1
            if not mine.connections:
                del self._of[subject]
