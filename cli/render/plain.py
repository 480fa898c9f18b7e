"""Progress as plain lines, for pipes, files, CI logs and terminals that can't be redrawn; and which way is chosen."""

from __future__ import annotations

from typing import TextIO

from ...protocol.events import Event
from .narration import Line, Narrator
from .progress import Progress
from .text import colours, paint, redrawable


class PlainLines(Progress):
    """Writes the narration, line by line, as it happens.

    A stream that can't be written any more (its reader has gone) ends the narration, not the run.
    """

    def __init__(
        self, stream: TextIO, *, verbose: bool = False, prompting: bool = False, by_hand: bool = False
    ) -> None:
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

    def _write(self, lines: list[Line]) -> None:
        if not lines or self._broken:
            return
        text = "".join((paint(line.text, line.style) if self._colours else line.text) + "\n" for line in lines)
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._broken = True


def mark_for(stream: TextIO) -> str:
    """The sign a line of narration begins with, in an alphabet the stream can carry."""
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    return "▸" if encoding.startswith("utf") else ">"


def choose(
    stream: TextIO,
    *,
    quiet: bool,
    verbose: bool,
    prompting: bool = False,
    shared: bool = False,
    by_hand: bool = False,
) -> Progress:
    """The way to show progress that fits the stream and the flags; `prompting` and `by_hand` as for `Narrator`.

    `shared` says that others write to the same screen meanwhile, which a tree that is redrawn would wipe away.
    """
    if quiet:
        return Progress()
    if redrawable(stream) and not shared:
        from .tree import LiveTree

        return LiveTree(stream, verbose=verbose, prompting=prompting, by_hand=by_hand)
    return PlainLines(stream, verbose=verbose, prompting=prompting, by_hand=by_hand)
