"""Draws rows of text on the whole screen of a terminal, and gives it back as it was.

Of a picture only the rows that are not there already are written. The screen is the terminal's alternate one: what was
on it before comes back at the end, and while a prompt needs the terminal in between.
"""

from __future__ import annotations

import contextlib
import os
import termios
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from .table import Row

_OPEN = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_CLOSE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_STYLES = {"": "", "here": "7", "title": "1", "dim": "2", "question": "1;33", "warning": "33"}
_UNCOLOURED = {"question": "1", "warning": "1"}


class Screen:
    """The terminal at these file descriptors.

    Args:
        coloured: whether rows may have colours. Bold and reverse are none.
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
        """Take the screen, and have keys come one by one; Ctrl-C stays a signal."""
        self._modes = termios.tcgetattr(self._source)
        modes = termios.tcgetattr(self._source)
        modes[0] &= ~(termios.IXON | termios.ICRNL)  # Ctrl-S must not stop us in the middle of a picture
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self._source, termios.TCSADRAIN, modes)
        self._shown = []
        self._write(_OPEN)

    def close(self) -> None:
        """Give it back; does nothing if that is done."""
        if self._modes is None:
            return
        modes, self._modes = self._modes, None
        with contextlib.suppress(OSError, termios.error):  # the terminal has gone
            self._write(_CLOSE)
            termios.tcsetattr(self._source, termios.TCSADRAIN, modes)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the terminal to a prompt for the length of the `with` block."""
        self.close()
        try:
            yield
        finally:
            self.open()

    def forget(self) -> None:
        """Whatever is on the screen, draw all of it next time."""
        self._shown = []

    def show(self, rows: Sequence[Row]) -> None:
        """Draw the rows, from the top of the screen on."""
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

    def _painted(self, row: Row, width: int) -> str:
        text = row.text if cell_len(row.text) <= width else set_cell_size(row.text, width)
        code = _STYLES[row.style] if self._coloured else _UNCOLOURED.get(row.style, _STYLES[row.style])
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def _write(self, text: str) -> None:
        left = memoryview(text.encode("utf-8", "backslashreplace"))
        while left:
            left = left[os.write(self._sink, left) :]
