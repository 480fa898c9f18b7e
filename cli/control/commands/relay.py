"""Output formats of `attach` and `logs`."""

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
from ...render.progress import mark_for
from ...render.result import for_format
from ...render.text import colours, paint
from .stored_runs import ending

_CANCELLED = 130


class Relay:
    """Output format that receives a run's events one by one."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = line_writer(stream)

    def on_write_error(self, callback: Callable[[], None]) -> None:
        """Register a callback for a write error. It may be called in any thread.

        Errors are a closed pipe, a reader that has stopped reading for good, or a full disk.
        """
        self._writer.on_error = callback

    def put(self, line: bytes) -> None:
        """Process an event in wire form. Never blocks."""
        raise NotImplementedError

    def finish(self, outcome: Outcome | None) -> None:  # noqa: ARG002 - the events contain it
        """Write the remaining output; there may be no outcome.

        Raises:
            OSError: the output can't be written.
        """
        self._writer.finish()


class AtTheEnd(Relay):
    """Formats `-o text` and `-o json`: the result, as `run` writes it."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._result = for_format(name, stream)

    def on_write_error(self, callback: Callable[[], None]) -> None:
        """Do nothing: no output is written before the end."""

    def put(self, line: bytes) -> None:
        """Do nothing: no output is written before the end."""

    def finish(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            self._result.finish(outcome)


class LineRelay(Relay):
    """Format `-o stream-json`: every event unchanged, including kinds that only the server knows."""

    def __init__(self, stream: TextIO) -> None:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
        super().__init__(stream)

    def put(self, line: bytes) -> None:
        self._writer.put(line.decode("utf-8", "surrogateescape") + "\n")


class RelayedStory(Relay):
    """Narration as `run` prints it on a stream that can't be redrawn, and the end of the run.

    Texts are cut only on a terminal.
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
        """Report that the log of a lost run has no end."""
        if run.status == "lost":
            self._end(ending(run))

    def _end(self, lines: list[str]) -> None:
        for line in lines:
            self._put(line, "error")

    def _put(self, text: str, style: str) -> None:
        self._writer.put((paint(text, style) if self._colours else text) + "\n")


def outcome_of(event: Event) -> Outcome | None:
    """Return the outcome in a run's last event, with its exit code; None for any other event."""
    if event.kind not in TERMINAL:
        return None
    outcome = convert(getattr(event.data, "outcome", None), Outcome, strict=False)
    if outcome.status == "cancelled":
        outcome.exit_code = _CANCELLED
    elif outcome.error is not None:
        outcome.exit_code = exit_codes().get(outcome.error.code, 1)
    return outcome
