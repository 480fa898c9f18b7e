"""Lines for files, stderr and syslog, written by a thread.

A terminal that is stopped, a full disk or a slow network disk must not hold the server up, so whoever has a line leaves
it here and goes on. What waits is bounded: beyond that lines are dropped and counted, and the next one that is written
says how many.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
from pathlib import Path
from typing import Protocol, TextIO, final

WAITING = 10_000
"""Lines that may wait to be written."""


class Sink(Protocol):
    """Where lines go. Called by one thread only."""

    def write(self, line: str) -> None:
        """Write one line, without its end."""

    def close(self) -> None:
        """There are no more."""


@final
class Lines:
    """A sink behind a thread.

    Attributes:
        dropped: lines that found no room since the last one that was written.
        lost: lines that the sink could not write.
    """

    def __init__(self, sink: Sink, *, waiting: int = WAITING, name: str = "lines") -> None:
        self.dropped = 0
        self.lost = 0
        self._sink = sink
        self._queue: queue.Queue[str | None] = queue.Queue(waiting)
        self._thread = threading.Thread(target=self._write, name=f"callboard {name}", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        """Have a line written; never waits."""
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    def close(self, seconds: float = 1.0) -> None:
        """Write what waits, for so long at most; nothing after it. May wait: call it in a thread, or at the end."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=seconds)
        self._thread.join(seconds)

    def _write(self) -> None:
        while (line := self._queue.get()) is not None:
            if self.dropped:
                dropped, self.dropped = self.dropped, 0
                self._out(f'{{"level":"warning","message":"{dropped} lines before this one were dropped"}}')
            self._out(line)
        with contextlib.suppress(Exception):
            self._sink.close()

    def _out(self, line: str) -> None:
        try:
            self._sink.write(line)
        except Exception:  # noqa: BLE001 - whatever became of the sink: the thread goes on with the next line
            self.lost += 1


@final
class StreamSink:
    """Lines on a stream that somebody else owns."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> None:
        """Write and flush."""
        self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Leaves the stream open."""


@final
class FileSink:
    """Lines in a file of mode 0600; one that has grown is set aside as `.1`, the older ones count up.

    A file that was moved or deleted meanwhile, as logrotate does, is made anew.
    """

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self._path = path
        self._max = max_bytes
        self._keep = keep
        self._file: int | None = None
        self._size = 0

    def write(self, line: str) -> None:
        """Append a line, whole."""
        data = (line + "\n").encode("utf-8", "backslashreplace")
        if self._file is not None and self._moved():
            self.close()
        if self._file is None:
            self._open()
        if self._size and self._size + len(data) > self._max:
            self._set_aside()
        assert self._file is not None
        self._size += len(data)
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
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
    """Lines for the system's log, over its socket."""

    def __init__(self, facility: str, address: str = "/dev/log") -> None:
        self._head = f"<{_FACILITIES[facility] * 8 + _NOTICE}>callboard[{os.getpid()}]: "
        self._address = address
        self._socket: socket.socket | None = None

    def write(self, line: str) -> None:
        """Send one message; a log that was restarted meanwhile is connected to again."""
        data = (self._head + line).encode("utf-8", "backslashreplace")
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
