"""The parent's ends of a subprocess's pipes, and the tail of its stderr.

Why not `trio.lowlevel.FdStream`? Two tasks use each end: the one that talks to the process, and the supervisor that
ends it. The supervisor must take an end over in the middle of a read or write without a `BusyResourceError` in either
task. It must know whether a grandchild still holds the other end. And it must not lose output that the process
wrote just before it ended.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import termios
from collections.abc import Callable
from contextlib import suppress

import trio

from ..protocol.kernel.text_cuts import BREAKS, LONGEST_WORD, after_cut

CHUNK = 65536

LARGEST_PIPE = 1024 * 1024
"""Bytes that a pipe without writers may still hold: the largest capacity that an unprivileged user may set."""

TAIL_LIMIT = 32 * 1024
"""Bytes of stderr that are kept."""

LINE = 8 * 1024
"""Longest line that `Tail` passes on whole; a longer one is split into pieces of this many bytes."""

_BREAKS = frozenset(ord(char) for char in BREAKS)

_FEED_SIZE = 4 * 1024
"""Bytes whose lines are passed on between two checkpoints."""


class Input(trio.abc.SendStream):
    """The process's stdin. One task sends at a time."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._ended = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write everything.

        Raises:
            trio.BrokenResourceError: the process has ended, closed its stdin, or is being ended.
            trio.ClosedResourceError: the caller has closed it.
        """
        await trio.lowlevel.checkpoint()
        view = memoryview(data)
        while view:
            view = view[self.send_nowait(view) :]
            if view:
                await self._wait_for_room()

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """Write as much as there is room for, and return the number of bytes. Raises like `send_all`."""
        self._check()
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise trio.BrokenResourceError("the process reads no more: it has ended or closed its stdin") from None

    async def wait_send_all_might_not_block(self) -> None:
        """Wait for room in the pipe. Raises like `send_all`."""
        await trio.lowlevel.checkpoint()
        self._check()
        await self._wait_for_room()

    async def aclose(self) -> None:
        """Close it: the process reads the end of its input."""
        self._fd = _close(self._fd)
        await trio.lowlevel.checkpoint()

    @property
    def unread(self) -> int:
        """Bytes in the pipe that the process has not read; 0 when it is closed."""
        if self._fd < 0:
            return 0
        return int.from_bytes(fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)), sys.byteorder)

    def end(self) -> None:
        """Close it from the supervisor: a waiting send fails with `BrokenResourceError`."""
        self._ended = True
        self._fd = _close(self._fd)

    async def _wait_for_room(self) -> None:
        try:
            await trio.lowlevel.wait_writable(self._fd)
        except trio.ClosedResourceError:
            self._check()

    def _check(self) -> None:
        if self._ended:
            raise trio.BrokenResourceError("the process is being ended")
        if self._fd < 0:
            raise trio.ClosedResourceError("this process' stdin was closed before")


class ProcessOutput(trio.abc.ReceiveStream):
    """The process's stdout or stderr. One task receives at a time.

    When the process ends by itself, its last output can still be received afterwards. When the supervisor ends it
    (`stop`, cancel), the output ends at once for the receiver.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._taken_over = False
        self._empty = False
        self._remaining = bytearray()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the next bytes, `b""` at the end.

        Raises:
            trio.ClosedResourceError: the caller has closed it.
        """
        await trio.lowlevel.checkpoint()
        return await self.receive_soon(max_bytes)

    async def receive_soon(self, max_bytes: int | None = None) -> bytes:
        """Return the next bytes like `receive_some`; a checkpoint only if there are none yet."""
        while not self._taken_over:
            if self._fd < 0:
                raise trio.ClosedResourceError("this process' output was closed before")
            try:
                if not self._empty:
                    data = os.read(self._fd, max_bytes or CHUNK)
                    self._empty = 0 < len(data) < (max_bytes or CHUNK)  # a short read: the next one would find nothing
                    return data
            except BlockingIOError:
                pass
            self._empty = False
            with suppress(trio.ClosedResourceError):
                await trio.lowlevel.wait_readable(self._fd)
        data = bytes(self._remaining[:max_bytes])
        del self._remaining[:max_bytes]
        return data

    async def aclose(self) -> None:
        """Close it: the process gets SIGPIPE when it writes."""
        self._fd = _close(self._fd)
        await trio.lowlevel.checkpoint()

    @property
    def has_writers(self) -> bool:
        """True if a process holds the other end."""
        if self._fd < 0:
            return False
        poll = select.poll()
        poll.register(self._fd, 0)
        return not any(event & select.POLLHUP for _, event in poll.poll(0))

    async def drain(self) -> None:
        """Take the output over from the receiver, and discard it until its end.

        Called by the supervisor that ends the process: a full pipe would keep it from ending. The receiver sees the end
        of the output at once.
        """
        if self._fd < 0:
            return
        self._taken_over = True
        trio.lowlevel.notify_closing(self._fd)  # wakes the receiver, which then sees the end
        with suppress(trio.ClosedResourceError):
            while True:
                await trio.lowlevel.wait_readable(self._fd)
                with suppress(BlockingIOError):
                    if not os.read(self._fd, CHUNK):
                        return

    def finish(self) -> bytes:
        """Store the rest of the pipe's data for the receiver, and close it. No writer remains.

        Returns the stored bytes; nothing on a second call.
        """
        if self._fd < 0:
            return b""
        if not self._taken_over:
            with suppress(BlockingIOError):
                while len(self._remaining) < LARGEST_PIPE and (data := os.read(self._fd, CHUNK)):
                    self._remaining += data
        self._taken_over = True
        self._fd = _close(self._fd)
        return bytes(self._remaining)


def _close(fd: int) -> int:
    if fd >= 0:
        trio.lowlevel.notify_closing(fd)
        os.close(fd)
    return -1


class Tail:
    """Keeps the last bytes of a stream (stderr) and passes on each line without its newline.

    Args:
        on_line: called with each line.
        limit: bytes that are kept.
        most: bytes whose lines are passed on; None for all. A last line then says that there was more.

    Attributes:
        overflowed: set once there were more than `most` bytes.
    """

    def __init__(
        self, on_line: Callable[[str], None] | None = None, *, limit: int = TAIL_LIMIT, most: int | None = None
    ) -> None:
        self.overflowed = trio.Event()
        self._kept = bytearray()
        self._line = bytearray()
        self._cut = False
        self._limit = limit
        self._on_line = on_line
        self._most = most
        self._remaining = most

    async def pump(self, data: bytes) -> None:
        """Process a chunk, with a checkpoint after every few KiB if lines are passed on.

        When cancelled it processes all of `data` first: the last output of a process matters most.
        """
        size = len(data) if self._on_line is None else _FEED_SIZE
        taken = 0
        while taken < len(data):
            self.feed(data[taken : taken + size])
            taken += size
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled:
                self.feed(data[taken:])
                raise

    def feed(self, data: bytes) -> None:
        """Process a chunk without a checkpoint."""
        self._kept += data
        if len(self._kept) > self._limit:
            del self._kept[: -self._limit]
            self._cut = True
        if self.overflowed.is_set():
            return
        if self._remaining is not None:
            data, self._remaining = data[: self._remaining], self._remaining - len(data)
        if self._on_line is not None:
            *lines, rest = data.split(b"\n")
            for line in lines:
                self._line += line
                self._pass_on_pieces(self._on_line)
                self._on_line(_text(self._line))
                self._line.clear()
            self._line += rest
            self._pass_on_pieces(self._on_line)
        if self._remaining is not None and self._remaining < 0:
            self._overflow()

    def close(self) -> None:
        """Pass on the last line, which may lack a newline. The process writes nothing more."""
        if self._line and self._on_line is not None:
            self._on_line(_text(self._line))
            self._line.clear()

    @property
    def text(self) -> str:
        """The kept bytes as text; if the beginning was dropped, it starts with a whole line."""
        kept = bytes(self._kept)
        if self._cut and b"\n" in kept[:-1]:
            kept = kept[kept.index(b"\n") + 1 :]
        elif self._cut:
            return after_cut(_text(kept))
        return _text(kept)

    def _overflow(self) -> None:
        assert self._most is not None
        self.overflowed.set()
        self.close()
        if self._on_line is not None:
            self._on_line(f"[more than {self._most // 1024} KiB on stderr: the rest is not shown]")

    def _pass_on_pieces(self, on_line: Callable[[str], None]) -> None:
        while len(self._line) > LINE:
            # A piece ends between words if possible: a redactor finds no secret that is split between two pieces.
            size = LINE
            while size > LINE - LONGEST_WORD and self._line[size - 1] not in _BREAKS:
                size -= 1
            size = size if size > LINE - LONGEST_WORD else LINE
            on_line(_text(self._line[:size]))
            del self._line[:size]


def _text(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "replace")
