"""Output of a tool: its result, and the lines that it prints.

The result is the content of the file `LLM_OUTPUT` after all processes of the call have ended. A JSON object or list is
used as such, any other text as `{"output": text}`, an empty file as `"DONE"`. Printed lines become events up to a
limit. Further output is read and discarded, so that a full pipe never blocks the tool.
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
from .....protocol.kernel.text_cuts import before_cut
from .....supervisors.pipes import Tail
from ....io.secret_redaction import hidden
from ..tool import Json

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.pipes import ProcessOutput
    from .limits import CallLimits

DONE = "DONE"


class OutputFile(msgspec.Struct, frozen=True):
    """Content of `LLM_OUTPUT`.

    Attributes:
        data: its beginning, up to the limit.
        size: the size of all of it, in bytes.
    """

    data: bytes
    size: int

    @property
    def text(self) -> str:
        """The content as text, with a note if it was cut."""
        if self.size <= len(self.data):
            return self.data.decode("utf-8", "replace")
        # Redact before the cut: half a secret would not be recognised.
        kept = before_cut(hidden(self.data.decode("utf-8", "ignore")))
        return f"{kept}\n[cut here: the tool wrote {self.size} bytes, of which these are the first {len(self.data)}]"


def read_output(file: Path, limit: int) -> OutputFile:
    """Read at most `limit` bytes; empty if the tool removed the file or replaced it with something else."""
    try:
        if not file.is_file():
            return OutputFile(b"", 0)
        with file.open("rb") as opened:
            data = opened.read(limit)
        return OutputFile(data, max(file.stat().st_size, len(data)))
    except OSError:
        return OutputFile(b"", 0)


def result(written: OutputFile) -> Json:
    """Return the tool's result for the model."""
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
    """Conversion of one call's printed output to events."""

    def __init__(self, me: Actor, tool: str, limits: CallLimits, end: Callable[[str], None]) -> None:
        self._me = me
        self._tool = tool
        self._left = limits.shown
        self._limits = limits
        self._bytes = self._lines = 0
        self._end = end
        self._stdout = Tail(self.show)

    async def follow(self, stdout: ProcessOutput) -> None:
        """Read stdout to its end."""
        while data := await stdout.receive_some():
            self.feed(data)
        self.close()

    def feed(self, data: bytes) -> None:
        """Process bytes from stdout."""
        # Without a listener, splitting the output into lines would be wasted work.
        if self._left > 0 and self._me.stream.heard:
            self._stdout.feed(data)

    def close(self) -> None:
        """Flush the last line of stdout."""
        self._stdout.close()

    def stderr(self, line: str) -> None:
        """Process a line from stderr. Ends the call if stderr exceeds its limits."""
        self._bytes += len(line) + 1
        self._lines += 1
        limits = self._limits
        if self._bytes > limits.stderr or self._lines > limits.stderr_lines:
            self._end(f"wrote more than {limits.stderr} bytes or {limits.stderr_lines} lines to stderr")
        else:
            self.show(line)

    def show(self, line: str) -> None:
        """Emit a printed line, up to the limit."""
        if self._left <= 0:
            return
        self._left -= len(line) + 1
        self._me.emit(ToolDelta(tool=self._tool, text=line))
        if self._left <= 0:
            self._me.emit(ToolDelta(tool=self._tool, text="[what it prints from here on is not shown]"))


MENTIONED = b"/dev/tty"
CHUNK = 65_536


class Terminal:
    """Pseudo terminal without a user, for bash tools that write to `/dev/tty`. A context manager.

    Loki's documents teach `name=$(input "Name?" 2>/dev/tty)`. Without a controlling terminal, bash cannot open
    `/dev/tty` and does not even call `input`. A file that mentions `/dev/tty` therefore gets a terminal: its runner
    leads a session, and acquires the terminal by opening it. Text written there counts as printed output. The terminal
    has no input; questions use the socket as usual. Other files get no terminal, because `ssh` or `git` would wait on
    it for a password.

    Attributes:
        descriptor: the tool's end; a session leader opens it again to acquire the terminal.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)  # Raw mode: otherwise each newline arrives with a carriage return.
        os.set_blocking(self._ours, False)
        self.descriptor = self._theirs
        self._tail = Tail(on_line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        os.close(self._theirs)

    @property
    def text(self) -> str:
        """The last part of the text written to it."""
        return self._tail.text

    async def follow(self) -> None:
        """Read until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._ours)
            self._read()

    def finish(self) -> None:
        """Read the remaining text after the last writer has exited."""
        while self._read():
            pass
        self._tail.close()

    def _read(self) -> bool:
        try:
            # Nonblocking: an error means that nothing is left to read now.
            data = os.read(self._ours, CHUNK)
        except OSError:
            return False
        self._tail.feed(data)
        return bool(data)


def wants_one(file: Path) -> bool:
    """Return True if this bash file mentions `/dev/tty`."""
    try:
        return MENTIONED in file.read_bytes()
    except OSError:
        return False
