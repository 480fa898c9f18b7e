"""The terminal as prompt_toolkit writes to it; what is written together is one write, and one picture."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from ...render.markdown.rows import BEGIN, CLEAR_BELOW, DONE, RESTORE
from ...render.markdown.terminal import size_of
from ...render.markdown.writer import TerminalWriter


class TerminalOutput(Vt100_Output):
    """The terminal as prompt_toolkit writes to it; writes can be held together.

    Args:
        stream: the terminal.
        colours: whether colours are written.
        draws: whether anything is: not where the terminal has lines alone.

    Attributes:
        taken: rows that are not prompt_toolkit's.
        waits: whether the cursor waits elsewhere, hidden.
        shortened: whether a row has got shorter.
    """

    def __init__(self, stream: TextIO, *, colours: bool, draws: bool = True) -> None:
        depth = None if colours else ColorDepth.DEPTH_1_BIT
        super().__init__(
            stream, self.get_size, term=os.environ.get("TERM"), default_color_depth=depth, enable_cpr=False
        )
        self.taken = 0
        self.waits = self.shortened = False
        self._stream = stream
        self._holding = 0
        self._draws = draws
        self._writer = TerminalWriter(stream, RESTORE)

    @property
    def broken(self) -> bool:
        """Whether the terminal is gone."""
        return self._writer.error is not None

    @property
    def stream(self) -> TextIO:
        """The terminal itself."""
        return self._stream

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the terminal."""
        return size_of(self._stream)

    def get_size(self) -> Size:
        """What prompt_toolkit may use."""
        columns, rows = self.size
        return Size(rows=max(rows - self.taken, 1), columns=columns)

    def erase_down(self) -> None:
        """Wipes the row, where the cursor is in the first column, and all below."""
        self.write_raw(CLEAR_BELOW)

    def erase_end_of_line(self) -> None:
        """Wipes the rest of a row; tmux keeps blanks there, which it breaks into rows when it gets narrower."""
        self.shortened = True
        super().erase_end_of_line()

    def show_cursor(self) -> None:
        """Shows it, unless it waits elsewhere."""
        if not self.waits:
            super().show_cursor()

    def flush(self) -> None:
        """Writes what has gathered, unless it is held."""
        if self._holding or not self._buffer:
            return
        data = "".join(self._buffer)
        self._buffer = []
        if self._draws:
            self._writer.write(data)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written in the block is one write, and one picture."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1
            if not self._holding and self._buffer:
                self._buffer = [BEGIN, *self._buffer, DONE]
                self.flush()
