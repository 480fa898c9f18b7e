"""Output of lines to files, terminals, pipes and syslog from a thread.

A stopped terminal, a full disk or a blocked reader must not delay a run or the server, so callers only queue a line.
The queue is bounded. When it is full, a log drops lines, counts them, and reports the number with the next written
line; a result, in which each line matters, treats its reader as gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, TextIO, final

from .directories import private_directory

MOST = 64 * 1024 * 1024
"""Maximum bytes of a result that wait to be written."""

MOST_OF_LOG = 4 * 1024 * 1024
"""Maximum bytes of a log that wait."""


class Sink(Protocol):
    """Destination of lines. Called by one thread only."""

    def write(self, line: bytes) -> None:
        """Write one line, without its end."""

    def close(self) -> None:
        """Close the destination after the last line."""


def from_any_thread(callback: Callable[[], None]) -> Callable[[], None]:
    """Wrap `callback` for `on_error`: it runs in the current trio loop, or not at all after its end."""
    import trio

    token = trio.lowlevel.current_trio_token()

    def call() -> None:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(callback)

    return call


@final
class ThreadedLines:
    """Sink behind a thread, which starts with the first line.

    Args:
        most: maximum bytes that wait.
        drops: True drops lines if the queue is full or the sink fails; False stops at the first such line.

    Attributes:
        behind: accepted bytes that are not written yet.
        dropped: lines dropped for lack of space since the last written one.
        lost: lines that the sink could not write.
        error: reason why no more can be written, or None.
        on_error: called once when no more can be written, possibly in the writing thread. Must be quick.
    """

    def __init__(self, sink: Sink, *, most: int = MOST_OF_LOG, drops: bool = True, name: str = "lines") -> None:
        self.dropped = 0
        self.lost = 0
        self.error: OSError | None = None
        self.on_error: Callable[[], None] | None = None
        self._sink = sink
        self._most = most
        self._drops = drops
        self._name = f"callboard {name}"
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._counting = threading.Lock()
        self.behind = 0
        self._thread: threading.Thread | None = None

    def put(self, line: str) -> None:
        """Queue a line; never waits, never raises. Thread-safe.

        Without room the line is dropped and counted, or without `drops` sets `error`, after which lines are ignored.
        """
        if self.error is not None:
            return
        data = _encoded(line)
        with self._counting:  # log records come from several threads
            room = self.behind + len(data) <= self._most
            self.behind += len(data) if room else 0
            self.dropped += self._drops and not room
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name=self._name, daemon=True)
                self._thread.start()
        if room:
            self._queue.put(data)
        elif not self._drops:
            self._fail(
                OSError(
                    errno.ENOBUFS, f"the program that reads the output is more than {self._most // 2**20} MiB behind"
                )
            )

    def finish(self, timeout: float | None = None) -> None:
        """Write queued lines and end the thread. Blocks for at most `timeout` seconds; lines may then be unwritten.

        Raises:
            OSError: it can't be written; `BrokenPipeError` if the reader is gone. Never with `drops`.
        """
        if self._thread is not None and self.error is None:
            self._queue.put(None)
            self._thread.join(timeout)
        if self.error is not None:
            raise self.error

    def _write(self) -> None:
        while (data := self._queue.get()) is not None:
            with self._counting:
                dropped, self.dropped = self.dropped, 0
            if dropped:
                self._out(b'{"level":"warning","message":"%d lines before this one were dropped"}' % dropped)
            self._out(data)
            with self._counting:
                self.behind -= len(data)
            if self.error is not None:
                break
        with contextlib.suppress(Exception):  # it may have failed already
            self._sink.close()

    def _out(self, line: bytes) -> None:
        try:
            self._sink.write(line)
        except Exception as error:  # noqa: BLE001 - a log continues after any failure of its sink
            self.lost += 1
            if not self._drops:
                self._fail(error if isinstance(error, OSError) else OSError(errno.EIO, str(error)))

    def _fail(self, error: OSError) -> None:
        self.error = error
        if self.on_error is not None:
            self.on_error()


def line_writer(stream: TextIO) -> ThreadedLines:
    """Return a writer for a result's text, which drops nothing; callers include the line ends."""
    return ThreadedLines(StreamSink(stream, end=b""), most=MOST, drops=False, name="stdout")


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that no file name contains
        return text.encode("utf-8", "backslashreplace")


@final
class StreamSink:
    """Sink for a stream, which it never closes.

    It writes to the file descriptor: a thread that is blocked inside a Python stream would hold its lock and prevent
    the interpreter from exiting.
    """

    def __init__(self, stream: TextIO, *, end: bytes = b"\n") -> None:
        self._stream = stream
        self._end = end
        try:
            self._number: int | None = stream.fileno()
        except (AttributeError, ValueError):  # the stream has no descriptor
            self._number = None

    def write(self, line: bytes) -> None:
        """Write the whole line."""
        line += self._end
        if self._number is None:
            self._stream.write(line.decode("utf-8", "surrogateescape"))
            self._stream.flush()
        else:
            _write_whole(self._number, line)

    def close(self) -> None:
        """Leave the stream open."""


def _write_whole(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


@final
class FileSink:
    """Sink for a file of mode 0600, with rotation: a full file becomes `.1`, and older ones move up.

    A file that was moved or deleted, as logrotate does, is created again.
    """

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self._path = path
        self._max = max_bytes
        self._keep = keep
        self._file: int | None = None
        self._size = 0

    def write(self, line: bytes) -> None:
        """Append a whole line."""
        data = line + b"\n"
        if self._file is not None and self._moved():
            self.close()
        if self._file is None:
            self._open()
        if self._size and self._size + len(data) > self._max:
            self._set_aside()
        assert self._file is not None
        self._size += len(data)
        _write_whole(self._file, data)

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def _open(self) -> None:
        private_directory(self._path.parent)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size

    def _moved(self) -> bool:
        assert self._file is not None
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return True
        mine = os.fstat(self._file)
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)

    def _set_aside(self) -> None:
        self.close()
        for number in range(self._keep, 0, -1):
            older = self._numbered(number - 1) if number > 1 else self._path
            with contextlib.suppress(FileNotFoundError):
                older.replace(self._numbered(number))
        if not self._keep:
            self._path.unlink(missing_ok=True)
        self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


_FACILITIES = {"user": 1, "daemon": 3, "auth": 4, "authpriv": 10, **{f"local{n}": 16 + n for n in range(8)}}
_NOTICE = 5


@final
class SyslogSink:
    """Sink for the system's log, over its socket."""

    def __init__(self, facility: str, address: str = "/dev/log") -> None:
        self._head = f"<{_FACILITIES[facility] * 8 + _NOTICE}>callboard[{os.getpid()}]: ".encode()
        self._address = address
        self._socket: socket.socket | None = None

    def write(self, line: bytes) -> None:
        """Send one message; reconnect if the log was restarted."""
        data = self._head + line
        try:
            self._connected().send(data)
        except OSError:
            self.close()
            self._connected().send(data)

    def close(self) -> None:
        """Close the socket; the next line opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.settimeout(5.0)
            self._socket.connect(self._address)
        return self._socket
