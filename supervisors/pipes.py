"""Our ends of a child's pipes.

Why not `trio.lowlevel.FdStream`? Two tasks hold each end: the one that talks to the process, and the supervisor that
ends it. The supervisor has to take an end over in the middle of a read or write without either of them
seeing a `BusyResourceError`, must know whether a grandchild still holds the other end, and must not lose what the
process wrote just before it ended.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import termios
from contextlib import suppress

import trio

CHUNK = 65536
REST = 1024 * 1024
"""Bytes that a pipe without writers can still hold: the largest capacity an unprivileged user may give one."""


class Input(trio.abc.SendStream):
    """The child's stdin. One task at a time sends."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._taken = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write everything.

        Raises:
            trio.BrokenResourceError: the process has ended, closed its stdin, or is being ended.
            trio.ClosedResourceError: you closed it.
        """
        await trio.lowlevel.checkpoint()
        view = memoryview(data)
        while view:
            view = view[self.send_nowait(view) :]
            if view:
                await self._room()

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """Write as much as there is room for, and return how many bytes that were. Raises as `send_all`."""
        self._check()
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise trio.BrokenResourceError("the process reads no more: it has ended or closed its stdin") from None

    async def wait_send_all_might_not_block(self) -> None:
        """Wait for room in the pipe."""
        await trio.lowlevel.checkpoint()
        self._check()
        await self._room()

    async def aclose(self) -> None:
        """Close it: the process sees the end of its input."""
        self._close()
        await trio.lowlevel.checkpoint()

    @property
    def unread(self) -> int:
        """Bytes in the pipe that the process has not read; 0 when it is closed."""
        if self._fd < 0:
            return 0
        return int.from_bytes(fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)), sys.byteorder)

    def end(self) -> None:
        """The supervisor closes it; a send that waits fails with `BrokenResourceError`."""
        self._taken = True
        self._close()

    async def _room(self) -> None:
        try:
            await trio.lowlevel.wait_writable(self._fd)
        except trio.ClosedResourceError:
            self._check()

    def _check(self) -> None:
        if self._taken:
            raise trio.BrokenResourceError("the process is being ended")
        if self._fd < 0:
            raise trio.ClosedResourceError("this process' stdin was closed before")

    def _close(self) -> None:
        self._fd = _close(self._fd)


class Output(trio.abc.ReceiveStream):
    """The child's stdout or stderr. One task at a time receives.

    When the process ends by itself, what it wrote last can still be received afterwards. When it is made to end
    (`stop`, cancel), its output ends at once.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._taken = False
        self._dry = False
        self._rest = bytearray()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next bytes, `b""` at the end.

        Raises:
            trio.ClosedResourceError: you closed it.
        """
        await trio.lowlevel.checkpoint()
        return await self.receive_soon(max_bytes)

    async def receive_soon(self, max_bytes: int | None = None) -> bytes:
        """As `receive_some`, but a checkpoint only if nothing is there yet."""
        while not self._taken:
            if self._fd < 0:
                raise trio.ClosedResourceError("this process' output was closed before")
            try:
                if not self._dry:
                    data = os.read(self._fd, max_bytes or CHUNK)
                    self._dry = 0 < len(data) < (max_bytes or CHUNK)  # then the next read would find nothing
                    return data
            except BlockingIOError:
                pass
            self._dry = False
            with suppress(trio.ClosedResourceError):
                await trio.lowlevel.wait_readable(self._fd)
        data = bytes(self._rest[:max_bytes])
        del self._rest[:max_bytes]
        return data

    async def aclose(self) -> None:
        """Close it: the process gets SIGPIPE when it writes on."""
        self._fd = _close(self._fd)
        await trio.lowlevel.checkpoint()

    @property
    def has_writers(self) -> bool:
        """Whether a process could still write to it."""
        if self._fd < 0:
            return False
        poll = select.poll()
        poll.register(self._fd, 0)
        return not any(event & select.POLLHUP for _, event in poll.poll(0))

    async def drain(self) -> None:
        """The supervisor reads and discards all there is to come, so that no write keeps the child from ending."""
        if self._fd >= 0:
            self._taken = True
            trio.lowlevel.notify_closing(self._fd)  # wakes the receiver, who sees the end
            with suppress(trio.ClosedResourceError):
                while await self._more():
                    pass

    def settle(self) -> bytes:
        """No writer is left: keep what the pipe still holds for the receiver, and close it.

        Returns what is kept; nothing the second time.
        """
        if self._fd < 0:
            return b""
        if not self._taken:
            self._rest = self._left()
        self._taken = True
        self._fd = _close(self._fd)
        return bytes(self._rest)

    async def _more(self) -> bool:
        await trio.lowlevel.wait_readable(self._fd)
        try:
            return bool(os.read(self._fd, CHUNK))
        except BlockingIOError:
            return True

    def _left(self) -> bytearray:
        left = bytearray()
        with suppress(BlockingIOError):
            while len(left) < REST and (data := os.read(self._fd, CHUNK)):
                left += data
        return left


def _close(fd: int) -> int:
    if fd >= 0:
        trio.lowlevel.notify_closing(fd)
        os.close(fd)
    return -1
