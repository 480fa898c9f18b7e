"""Writes results to stdout: with `-o json` or `-o stream-json` nothing that is not JSON.

When the reader goes away (`callboard run ... | head -1`), `when_gone` is called: it stops the run quietly.
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
"""Seconds for the reader of a cancelled run to take its last lines."""


class Result:
    """One way of writing a run's result. This one writes nothing before its end.

    Args:
        stream: stdout.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, in whatever thread, once nothing more can be written during the run."""

    def on_event(self, event: Event) -> None:
        """Takes in one event as it happens. Never raises."""

    def finish(self, outcome: Outcome) -> None:
        """Writes what is left to write. Raises `OSError` if it can't be written: `BrokenPipeError` without a reader."""
        raise NotImplementedError


class TextResult(Result):
    """`-o text`: the output of a run that reached its end, and a newline."""

    def finish(self, outcome: Outcome) -> None:
        """Byte for byte into a pipe or file; made harmless on a terminal."""
        if not outcome.output:
            return
        text = safe(outcome.output) if self._stream.isatty() else outcome.output
        self._stream.write(text if text.endswith("\n") else text + "\n")
        self._stream.flush()


class JsonResult(Result):
    """`-o json`: one object, whatever became of the run."""

    def finish(self, outcome: Outcome) -> None:
        """Writes the object on one line."""
        self._stream.write(json.dumps(outcome.to_wire(), ensure_ascii=False, default=str) + "\n")
        self._stream.flush()


class StreamResult(Result):
    """`-o stream-json`: every event as a line, the last one carrying the outcome."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._writer = line_writer(stream)
        self._last = 0
        self._ended = False

    def when_gone(self, callback: Callable[[], None]) -> None:
        self._writer.on_error = callback

    def on_event(self, event: Event) -> None:
        if self._ended:
            return
        self._last, self._ended = event.seq, event.kind in TERMINAL
        self._writer.put(_line(event))

    def finish(self, outcome: Outcome) -> None:
        """Makes sure that the last line carries the outcome, also when the run's own last event got lost."""
        if not self._ended:
            self.on_event(terminal_event(outcome, seq=self._last + 1))
        # After Ctrl-C the program does not wait for a blocked reader.
        self._writer.finish(timeout=CANCELLED_WITHIN if outcome.status == "cancelled" else None)


def terminal_event(outcome: Outcome, *, seq: int) -> Event:
    """The event that ends a run with this outcome."""
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
    except UnicodeEncodeError:  # half a surrogate pair, from a file name or a model: only escapes can carry it
        return json.dumps(to_wire(event), default=str) + "\n"


def for_format(name: str, stream: TextIO) -> Result:
    """The writer for `-o text`, `json` or `stream-json`."""
    if name != "text" and isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8")
    if name == "json":
        return JsonResult(stream)
    if name == "stream-json":
        return StreamResult(stream)
    return TextResult(stream)
