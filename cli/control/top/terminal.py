"""Terminal of `callboard top`: full-screen rows, and single key presses.

Only rows that differ from the screen are written. The screen is the terminal's alternate one: its previous content
returns at the end, and whenever a prompt needs the terminal. Keys have names: `up`, `enter`, `esc`, or the character
itself.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import termios
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import trio
from rich.cells import cell_len, set_cell_size

from ...render.keyboard import READING, drop_pending
from .table import ScreenRow

_OPEN = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_CLOSE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_STYLES = {"": "", "here": "7", "title": "1", "dim": "2", "question": "1;33", "warning": "33"}
_UNCOLOURED = {"question": "1", "warning": "1"}


class Screen:
    """Full-screen terminal output.

    Args:
        source: file descriptor for key input.
        sink: file descriptor for output.
        coloured: True allows colours. Bold and reverse are always used.
    """

    def __init__(self, source: int, sink: int, *, coloured: bool) -> None:
        self._source = source
        self._sink = sink
        self._coloured = coloured
        self._shown: list[str] = []
        self._modes: Any = None

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            found = os.get_terminal_size(self._sink)
        except OSError:
            return 80, 24
        return found.columns or 80, found.lines or 24

    def open(self) -> None:
        """Switch to the alternate screen and to unbuffered keys; Ctrl-C remains a signal."""
        self._modes = termios.tcgetattr(self._source)
        modes = termios.tcgetattr(self._source)
        modes[0] &= ~(termios.IXON | termios.ICRNL)  # Ctrl-S must not stop output in the middle of a picture
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self._source, termios.TCSADRAIN, modes)
        self._shown = []
        self._write(_OPEN)

    def close(self) -> None:
        """Restore the terminal. Idempotent."""
        if self._modes is None:
            return
        modes, self._modes = self._modes, None
        with contextlib.suppress(OSError, termios.error):  # the terminal is closed
            self._write(_CLOSE)
            termios.tcsetattr(self._source, termios.TCSADRAIN, modes)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Restore the terminal for a prompt for the duration of the `with` block."""
        self.close()
        try:
            yield
        finally:
            self.open()

    def forget(self) -> None:
        """Redraw everything next time, whatever is on the screen."""
        self._shown = []

    def show(self, rows: Sequence[ScreenRow]) -> None:
        """Draw the rows from the top of the screen."""
        width, height = self.size
        lines = [self._painted(row, width) for row in rows[:height]]
        lines += [""] * (height - len(lines))
        changed = [
            f"\x1b[{place + 1};1H\x1b[2K{line}"
            for place, line in enumerate(lines)
            if place >= len(self._shown) or self._shown[place] != line
        ]
        self._shown = lines
        if changed:
            self._write("".join(changed))

    def _painted(self, row: ScreenRow, width: int) -> str:
        text = row.text if cell_len(row.text) <= width else set_cell_size(row.text, width)
        code = _STYLES[row.style] if self._coloured else _UNCOLOURED.get(row.style, _STYLES[row.style])
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def _write(self, text: str) -> None:
        left = memoryview(text.encode("utf-8", "backslashreplace"))
        while left:
            left = left[os.write(self._sink, left) :]


_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[@-~])")
_SPELLINGS = {
    "up": ("\x1b[A", "\x1bOA"),
    "down": ("\x1b[B", "\x1bOB"),
    "pgup": ("\x1b[5~",),
    "pgdn": ("\x1b[6~",),
    "home": ("\x1b[H", "\x1bOH", "\x1b[1~"),
    "end": ("\x1b[F", "\x1bOF", "\x1b[4~"),
    "enter": ("\r", "\n"),
    "backspace": ("\x7f", "\x08"),
    "eof": ("\x04",),
    "esc": ("\x1b",),
}
_NAMES = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings}
_ALONE = 0.05
"""Seconds after which an escape character is the Esc key and not the start of a sequence."""


class KeyReader:
    """Key reader of a terminal without line buffering and echo.

    Args:
        source: file descriptor.
    """

    def __init__(self, source: int) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._keys: deque[str] = deque()

    async def get(self) -> str:
        """Return the next key; `eof` if the terminal is closed."""
        while not self._keys:
            wait = _ALONE if self._text else float("inf")
            with trio.move_on_after(wait) as clock:
                await trio.lowlevel.wait_readable(self._source)
            if clock.cancelled_caught:
                self._split(whole=True)
                continue
            try:
                data = os.read(self._source, 1024)
            except OSError:
                data = b""
            if not data:
                return "eof"
            self._text += self._decoder.decode(data)
            self._split(whole=False)
        return self._keys.popleft()

    def forget(self) -> None:
        """Drop pressed keys: they referred to an earlier picture."""
        self._keys.clear()
        self._text = ""
        drop_pending(self._source)

    async def wait_for_reading(self) -> None:
        """Wait until the user can have read the latest picture and no key was pressed meanwhile (`render.early`)."""
        self.forget()
        while True:
            with trio.move_on_after(READING) as quiet:
                await trio.lowlevel.wait_readable(self._source)
            if quiet.cancelled_caught:
                return
            try:
                if not os.read(self._source, 1024):
                    return
            except OSError:  # the terminal is closed, which `get` reports
                return

    def _split(self, *, whole: bool) -> None:
        """Move complete keys from the text to the queue; `whole` also moves an incomplete sequence."""
        while self._text:
            if self._text[0] != "\x1b":
                length = 1
            elif found := _SEQUENCE.match(self._text):
                length = found.end()
            elif whole or (len(self._text) > 1 and self._text[1] not in "[O"):
                length = 1
            else:
                return
            part, self._text = self._text[:length], self._text[length:]
            name = _NAMES.get(part, part)
            if name.isprintable():  # unknown sequences are dropped
                self._keys.append(name)
