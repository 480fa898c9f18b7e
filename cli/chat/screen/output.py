"""prompt_toolkit output that combines several writes into one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from ...render.markdown.rows import BEGIN, CLEAR_BELOW, DONE, RESTORE
from ...render.markdown.terminal import TerminalWriter, size_of


class TerminalOutput(Vt100_Output):
    """prompt_toolkit output on a terminal; `together` combines writes.

    Args:
        stream: terminal.
        colours: True writes colours.
        draws: False writes nothing, for a terminal without cursor control.

    Attributes:
        taken: rows that prompt_toolkit must not use.
        waits: True while the cursor is hidden above prompt_toolkit's area.
        shortened: True if a row has become shorter.
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
        """True if writing to the terminal has failed."""
        return self._writer.error is not None

    @property
    def stream(self) -> TextIO:
        return self._stream

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the terminal."""
        return size_of(self._stream)

    def get_size(self) -> Size:
        """Return the size that prompt_toolkit may use."""
        columns, rows = self.size
        return Size(rows=max(rows - self.taken, 1), columns=columns)

    def erase_down(self) -> None:
        """Clear from the cursor's row, with the cursor in its first column, to the bottom."""
        self.write_raw(CLEAR_BELOW)

    def erase_end_of_line(self) -> None:
        """Clear the rest of a row. tmux retains blanks there, which become rows of their own when it gets narrower."""
        self.shortened = True
        super().erase_end_of_line()

    def show_cursor(self) -> None:
        """Show the cursor, unless it waits elsewhere."""
        if not self.waits:
            super().show_cursor()

    def flush(self) -> None:
        """Write the buffer, unless writes are being combined."""
        if self._holding or not self._buffer:
            return
        data = "".join(self._buffer)
        self._buffer = []
        if self._draws:
            self._writer.write(data)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Combine all writes in the block into one synchronised picture."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1
            if not self._holding and self._buffer:
                self._buffer = [BEGIN, *self._buffer, DONE]
                self.flush()
