"""What a tool writes: its result, and what it prints meanwhile.

The result is what stands in the file `LLM_OUTPUT` when all processes of the call have ended: a JSON object or list as
such, any other text as `{"output": text}`, nothing at all as `"DONE"`. What it prints becomes events, one per line,
up to a limit; beyond it the rest is read and thrown away, so that no full pipe holds the tool up.
"""

from __future__ import annotations

import os
import tty
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec
import trio

from .....protocol.events import ToolDelta
from .....supervisors.tail import Tail
from ..tool import Json

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.pipes import Output
    from .limits import Limits

DONE = "DONE"


class Written(msgspec.Struct, frozen=True):
    """What stood in `LLM_OUTPUT`.

    Attributes:
        data: its beginning, up to the limit.
        size: all of it, in bytes.
    """

    data: bytes
    size: int

    @property
    def text(self) -> str:
        """What was kept, with a word about what was not."""
        if self.size <= len(self.data):
            return self.data.decode("utf-8", "replace")
        kept = self.data.decode("utf-8", "ignore")
        return f"{kept}\n[cut here: the tool wrote {self.size} bytes, of which these are the first {len(self.data)}]"


def read_output(file: Path, limit: int) -> Written:
    """At most `limit` bytes of it; nothing if the tool removed it or put something else in its place."""
    try:
        if not file.is_file():
            return Written(b"", 0)
        with file.open("rb") as opened:
            data = opened.read(limit)
        return Written(data, max(file.stat().st_size, len(data)))
    except OSError:
        return Written(b"", 0)


def result(written: Written) -> Json:
    """The model's result."""
    if not written.size:
        return DONE
    if written.size <= len(written.data):
        try:
            value = msgspec.json.decode(written.data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            value = None
        if isinstance(value, dict | list):
            return value
    return {"output": written.text}


class Printed:
    """Turns what one call prints into events."""

    def __init__(self, me: Actor, tool: str, limits: Limits, end: Callable[[str], None]) -> None:
        self._me = me
        self._tool = tool
        self._left = limits.shown
        self._limits = limits
        self._bytes = self._lines = 0
        self._end = end
        self._stdout = Tail(self.show)

    async def follow(self, stdout: Output) -> None:
        """Read it to the end."""
        while data := await stdout.receive_some():
            self.feed(data)
        self.close()

    def feed(self, data: bytes) -> None:
        """It wrote this to stdout."""
        if self._left > 0 and self._me.stream.heard:
            self._stdout.feed(data)

    def close(self) -> None:
        """It writes no more to stdout."""
        self._stdout.close()

    def stderr(self, line: str) -> None:
        """It wrote this line there."""
        self._bytes += len(line) + 1
        self._lines += 1
        limits = self._limits
        if self._bytes > limits.stderr or self._lines > limits.stderr_lines:
            self._end(f"wrote more than {limits.stderr} bytes or {limits.stderr_lines} lines to stderr")
        else:
            self.show(line)

    def show(self, line: str) -> None:
        """It printed this line, wherever."""
        if self._left <= 0:
            return
        self._left -= len(line) + 1
        self._me.emit(ToolDelta(tool=self._tool, text=line))
        if self._left <= 0:
            self._me.emit(ToolDelta(tool=self._tool, text="[what it prints from here on is not shown]"))


MENTIONED = b"/dev/tty"
CHUNK = 65_536


class Terminal:
    """A pseudo terminal without a person, until the end of the block, for bash tools that write to one.

    Loki's documents teach `name=$(input "Name?" 2>/dev/tty)`. Without a controlling terminal bash can't open
    `/dev/tty`, and then it does not even call `input`. So a file that mentions `/dev/tty` gets a terminal (its runner,
    which leads a session, takes it by opening it), and what is written there counts as printed. It gets no input; the
    questions go over the socket like all others. Other files get none: `ssh` or `git` would wait on it for a password.

    Attributes:
        name: the path that a session leader opens to have it.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)  # or each newline would come with a carriage return
        os.set_blocking(self._ours, False)
        self.name = os.ttyname(self._theirs)
        self._tail = Tail(on_line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        os.close(self._theirs)

    @property
    def text(self) -> str:
        """The last of what was written to it."""
        return self._tail.text

    async def follow(self) -> None:
        """Read what is written, until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._ours)
            self._read()

    def finish(self) -> None:
        """No writer is left."""
        while self._read():
            pass
        self._tail.close()

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, CHUNK)
        except OSError:
            return False
        self._tail.feed(data)
        return bool(data)


def wants_one(file: Path) -> bool:
    """Whether this bash file mentions `/dev/tty`."""
    try:
        return MENTIONED in file.read_bytes()
    except OSError:
        return False
