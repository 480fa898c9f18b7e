"""What `attach` and `logs` write to stdout."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TextIO

from ....actors.io.lines import line_writer
from ....protocol.control.things import RunInfo
from ....protocol.decoding import convert
from ....protocol.errors import exit_codes
from ....protocol.events import TERMINAL, Event
from ....protocol.events.decode import decode
from ....protocol.outcome import Outcome
from ...render.narration import Narrator
from ...render.plain import mark_for
from ...render.result import for_format
from ...render.text import colours, paint
from .kept import ending

_CANCELLED = 130


class Relay:
    """One way of writing what a run says: line by line."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = line_writer(stream)

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, in whatever thread, once nothing more can be written.

        That is so when the reader has closed its end or stands still for good, or the disk is full.
        """
        self._writer.on_error = callback

    def put(self, line: bytes) -> None:
        """Takes in an event in its wire form. Never waits."""
        raise NotImplementedError

    def finish(self, outcome: Outcome | None) -> None:  # noqa: ARG002 - it was among the events
        """Writes what is left to write; there may be no outcome. Raises `OSError` if it can't be written."""
        self._writer.finish()


class AtTheEnd(Relay):
    """`-o text`, `-o json`: the result, as `run` writes it."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._result = for_format(name, stream)

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Nothing is written before the end."""

    def put(self, line: bytes) -> None:
        """Nothing is written before the end."""

    def finish(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            self._result.finish(outcome)


class LineRelay(Relay):
    """`-o stream-json`: every event as it came, kinds included that only the server knows."""

    def __init__(self, stream: TextIO) -> None:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
        super().__init__(stream)

    def put(self, line: bytes) -> None:
        self._writer.put(line.decode("utf-8", "surrogateescape") + "\n")


class Story(Relay):
    """Events as the lines that `run` tells on a stream that can't be redrawn, and how the run ended.

    On a stream that is no terminal nothing is cut.
    """

    def __init__(self, stream: TextIO, *, verbose: bool) -> None:
        self._narrator = Narrator(
            verbose=verbose, mark=mark_for(stream), whole=not stream.isatty(), thoughts=stream.isatty()
        )
        self._colours = colours(stream)
        super().__init__(stream)

    def put(self, line: bytes) -> None:
        event = decode(line)
        if event is None:
            return
        for told in self._narrator.lines(event):
            self._put(told.text, told.style)
        outcome = outcome_of(event)
        if outcome is not None:
            self._end(ending(outcome))

    def lost(self, run: RunInfo) -> None:
        """Tells of a run whose log has no end that there will be none."""
        if run.status == "lost":
            self._end(ending(run))

    def _end(self, lines: list[str]) -> None:
        for line in lines:
            self._put(line, "error")

    def _put(self, text: str, style: str) -> None:
        self._writer.put((paint(text, style) if self._colours else text) + "\n")


def outcome_of(event: Event) -> Outcome | None:
    """The outcome that a run's last event carries, with the exit code that belongs to it; None of any other event."""
    if event.kind not in TERMINAL:
        return None
    outcome = convert(getattr(event.data, "outcome", None), Outcome, strict=False)
    if outcome.status == "cancelled":
        outcome.exit_code = _CANCELLED
    elif outcome.error is not None:
        outcome.exit_code = exit_codes().get(outcome.error.code, 1)
    return outcome
