"""Results on stdout. `-o json` and `-o stream-json` write nothing but JSON.

When the reader closes the pipe (`callboard run ... | head -1`), `on_write_error` is called: it stops the run quietly.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

from ...actors.io.lines import line_writer
from ...protocol.events import TERMINAL, Event, RunCancelled, RunFailed, RunFinished, encode, to_wire
from ...protocol.outcome import Outcome
from .text import safe

CANCELLED_WITHIN = 0.3
"""Seconds that the reader of a cancelled run gets to consume its last lines."""


class ResultFormat:
    """Output format of a run's result. This base class writes nothing before the end.

    Args:
        stream: stdout.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def on_write_error(self, callback: Callable[[], None]) -> None:
        """Register a callback for the first write error during the run. It may be called in any thread."""

    def on_event(self, event: Event) -> None:
        """Process one event as it happens. Never raises."""

    def finish(self, outcome: Outcome) -> None:
        """Write the remaining output.

        Raises:
            OSError: the output can't be written; `BrokenPipeError` if the reader has closed the pipe.
        """
        raise NotImplementedError


class TextResult(ResultFormat):
    """Format `-o text`: the output of the run, with a newline at its end; nothing without an output."""

    def finish(self, outcome: Outcome) -> None:
        """Write the output unchanged to a pipe or file, and escaped to a terminal."""
        if not outcome.output:
            return
        text = safe(outcome.output) if self._stream.isatty() else outcome.output
        self._stream.write(text if text.endswith("\n") else text + "\n")
        self._stream.flush()


class JsonResult(ResultFormat):
    """Format `-o json`: one object, whatever the outcome."""

    def finish(self, outcome: Outcome) -> None:
        self._stream.write(json.dumps(outcome.to_wire(), ensure_ascii=False, default=str) + "\n")
        self._stream.flush()


class StreamResult(ResultFormat):
    """Format `-o stream-json`: every event as a line, the last one with the outcome."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._writer = line_writer(stream)
        self._last = 0
        self._ended = False

    def on_write_error(self, callback: Callable[[], None]) -> None:
        self._writer.on_error = callback

    def on_event(self, event: Event) -> None:
        if self._ended:
            return
        self._last, self._ended = event.seq, event.kind in TERMINAL
        self._writer.put(_line(event))

    def finish(self, outcome: Outcome) -> None:
        """Ensure that the last line contains the outcome, even if the run's own last event is missing."""
        if not self._ended:
            self.on_event(terminal_event(outcome, seq=self._last + 1))
        # After Ctrl-C the program does not wait for a blocked reader.
        self._writer.finish(timeout=CANCELLED_WITHIN if outcome.status == "cancelled" else None)


def terminal_event(outcome: Outcome, *, seq: int) -> Event:
    """Return the terminal event of a run with this outcome."""
    kind = {"done": RunFinished, "failed": RunFailed, "cancelled": RunCancelled}[outcome.status]
    return Event(
        seq=seq,
        ts=datetime.now(UTC),
        run=outcome.run_id,
        actor=f"/{outcome.run_id}",
        kind=kind.kind,
        data=kind(outcome=outcome.to_wire()),
    )


def _line(event: Event) -> str:
    try:
        return encode(event).decode() + "\n"
    except UnicodeEncodeError:  # a lone surrogate, from a file name or a model, which only a JSON escape can represent
        return json.dumps(to_wire(event), default=str) + "\n"


def for_format(name: str, stream: TextIO) -> ResultFormat:
    """Return the writer for `-o text`, `json` or `stream-json`. The JSON formats switch the stream to UTF-8."""
    if name != "text" and isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8")
    if name == "json":
        return JsonResult(stream)
    if name == "stream-json":
        return StreamResult(stream)
    return TextResult(stream)
