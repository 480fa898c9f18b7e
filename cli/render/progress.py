"""Progress displays of a run on stderr.

`ProgressDisplay` is the interface, and the display of `-q`. `PlainLines` prints the narration line by line, for pipes,
files, CI logs and terminals that can't be redrawn. `tree` and `story` have other displays; `frame.choose_display`
selects one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Self, TextIO

from ...protocol.events import Event
from .text import colours, paint

if TYPE_CHECKING:
    from .narration import StyledLine


class ProgressDisplay:
    """Display of a run on stderr; this one (`-q`) prints nothing.

    Enter it before the run and exit it after the run's end.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        return None

    def on_event(self, event: Event) -> None:
        """Process one event. Never raises: a display error must not end a run."""

    def note(self, text: str) -> None:
        """Print one line that is not an event. Never raises."""

    def aside(self) -> AbstractContextManager[None]:
        """Clear the terminal for a prompt or a menu for the duration of the `with` block."""
        return nullcontext()

    async def animate(self) -> None:
        """Update elapsed times until cancelled; returns at once if the display has none."""


class PlainLines(ProgressDisplay):
    """Progress display that prints the narration line by line.

    A write error (its reader has closed the pipe) ends the narration, not the run.
    """

    def __init__(
        self, stream: TextIO, *, verbose: bool = False, prompting: bool = False, by_hand: bool = False
    ) -> None:
        # Imported late: every command with a root imports this module, and many narrate nothing.
        from .narration import Narrator

        self._stream = stream
        self._colours = colours(stream)
        self._narrator = Narrator(
            verbose=verbose,
            prompting=prompting,
            by_hand=by_hand,
            mark=mark_for(stream),
            thoughts=stream.isatty(),
        )
        self._broken = False

    def on_event(self, event: Event) -> None:
        self._write(self._narrator.lines(event))

    def note(self, text: str) -> None:
        self._write([self._narrator.note(text)])

    def _write(self, lines: list[StyledLine]) -> None:
        if not lines or self._broken:
            return
        text = "".join((paint(line.text, line.style) if self._colours else line.text) + "\n" for line in lines)
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._broken = True


def mark_for(stream: TextIO) -> str:
    """Return the first character of narration lines, in an encoding that the stream supports."""
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    return "▸" if encoding.startswith("utf") else ">"
