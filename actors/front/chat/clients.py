"""Clients of a chat: the sender of a line, watchers, and a backlog of output for late watchers.

A chat never waits for a watcher. The unsent frames are counted in bytes: at most `MOST_BEHIND` per watcher, and
`outbox.MOST_BYTES` for all unread output of an API key. A frame beyond either limit ends the watcher: its queue is
dropped, and the client is notified. All watchers of a chat share the bytes of a frame, but each counts them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, final

import trio

from ....protocol.control import chat as frames
from ....protocol.control.caller import Caller
from ...io.outbox import MOST_BYTES, Unread

MOST_BEHIND = 1024 * 1024
"""Bytes queued for one watcher."""

OF_FRAME = 64
"""Overhead in bytes that a queued frame counts."""


@final
class Watcher:
    """Bounded queue: `put` frames, and read them by `async for frame in watcher`.

    Args:
        unread: counter of the unread output of the API key.

    Attributes:
        lagged: whether it fell behind and was ended.
        left: whether the client has unsubscribed and needs no final notification.
        bytes: queued bytes, including the frame being sent.
    """

    def __init__(self, unread: Unread) -> None:
        self.lagged = False
        self.left = False
        self.bytes = 0
        self._unread = unread
        self._frames: deque[bytes] = deque()
        self._sending = 0
        self._ended = False
        self._news = trio.lowlevel.ParkingLot()

    def put(self, frame: bytes) -> bool:
        """Queue a frame without waiting; returns False if the watcher has ended or falls behind by this frame."""
        if self._ended:
            return False
        size = len(frame) + OF_FRAME
        # Two limits: one watcher that does not read, and many watchers of one API key.
        if self.bytes + size > MOST_BEHIND or self._unread.bytes + size > MOST_BYTES:
            self.lagged = True
            self.drop()
            return False
        self.bytes += size
        self._unread.add(size)
        self._frames.append(frame)
        self._news.unpark_all()
        return True

    def end(self) -> None:
        """End the queue after the frames in it."""
        self._ended = True
        self._news.unpark_all()

    def leave(self) -> None:
        """End the queue because the client unsubscribed."""
        self.left = True
        self.drop()

    def drop(self) -> None:
        """End the queue and drop the frames in it."""
        self._frames.clear()
        # The frame being sent is in the outbox, which counts it until the transport has accepted it.
        self._unread.taken(self.bytes - self._sending)
        self.bytes = self._sending
        self.end()

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> bytes:
        self.bytes -= self._sending
        self._sending = 0
        while not self._frames:
            if self._ended:
                raise StopAsyncIteration
            await self._news.park()
        frame = self._frames.popleft()
        self._sending = len(frame) + OF_FRAME
        self._unread.taken(self._sending)  # from here on, the connection's outbox counts it
        return frame


Given = str | list[str]


class ClientPort(Protocol):
    """Sender of a line, for example a connection's client (`methods.ConnectedClient`) or `callboard macro`.

    Attributes:
        caller: identity and scopes.
    """

    caller: Caller

    async def began(self, told: frames.Began) -> None:
        """Report that a run has begun to answer a prompt."""

    async def show(self, told: frames.Said) -> None:
        """Show the output of a command."""

    async def changed(self, told: frames.Changed) -> None:
        """Report a changed state of the chat."""

    async def ask(self, asked: frames.AskPerson) -> Given | None:
        """Ask a question and return the answer; None if the user declines or cannot be asked."""

    async def edit(self, asked: frames.EditText) -> str | None:
        """Open a text in an editor and return the result; None if it is unchanged or no editor is available."""

    async def copy(self, asked: frames.CopyText) -> None:
        """Copy a text to the clipboard.

        Raises:
            CallboardError: the client cannot do so.
        """


MOST = 1000
MOST_TEXT = 256 * 1024
"""Characters of all stored output."""


class _BacklogEntry(NamedTuple):
    told: frames.Began | frames.Said
    scopes: tuple[str, ...]
    size: int


class NotificationBacklog:
    """Latest output of a chat, for clients that begin to watch it later.

    It has at most `MOST` items and `MOST_TEXT` characters; beyond these, the oldest are dropped.

    Attributes:
        last: number of the newest output.
    """

    def __init__(self) -> None:
        self.last = 0
        self._kept: deque[_BacklogEntry] = deque()
        self._size = 0

    def keep(self, told: frames.Began | frames.Said, scopes: tuple[str, ...]) -> None:
        """Assign the next number to an output of the chat, and store the output."""
        self.last += 1
        told.seq = self.last
        size = len(told.prompt if isinstance(told, frames.Began) else told.text)
        self._kept.append(_BacklogEntry(told, scopes, size))
        self._size += size
        # The newest output always stays, even if it alone exceeds the limit.
        while len(self._kept) > MOST or (self._size > MOST_TEXT and len(self._kept) > 1):
            self._size -= self._kept.popleft().size

    def after(self, seq: int, has: Callable[[str], bool]) -> list[frames.Told]:
        """Return the output after this number that a caller with these scopes may see, oldest first."""
        return [
            frames.Told(began=each.told) if isinstance(each.told, frames.Began) else frames.Told(said=each.told)
            for each in self._kept
            if each.told.seq > seq and all(has(scope) for scope in each.scopes)
        ]
