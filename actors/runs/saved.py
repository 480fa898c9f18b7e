"""Saves a run as files (`--save DIR`): `DIR/<run id>/`, readable by its owner alone.

log.jsonl       every event, as it came
outcome.json    what `-o json` prints
outputs.json    per node of a workflow, all it has said
usage.json      tokens and cost per model
workspace/      of a workflow, where its python nodes have worked
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from ...protocol.errors import UsageError
from ...protocol.events import Event, encode, to_wire
from ...protocol.outcome import Message, Outcome


class Saved:
    """See the module. What can't be written ends the saving, never the run.

    Attributes:
        error: why it is not all there, or None.

    Raises:
        UsageError: the directory can't be made.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.error: str | None = None
        try:
            self.directory.mkdir(mode=0o700, parents=True)
            self._log = (self.directory / "log.jsonl").open("wb", buffering=0)  # a kill costs no event
        except OSError as error:
            raise UsageError(f"the run can't be saved to {self.directory}: {error.strerror or error}") from error

    @property
    def workspace(self) -> Path:
        """Where python nodes work."""
        return self.directory / "workspace"

    def on_event(self, event: Event) -> None:
        """Write it down."""
        if self.error is not None:
            return
        try:
            data = encode(event)
        except UnicodeEncodeError:  # half a surrogate pair, from a file name or a model: only escapes can carry it
            data = json.dumps(to_wire(event), default=str).encode()
        rest = memoryview(data + b"\n")
        try:
            while rest:
                rest = rest[self._log.write(rest) :]
        except OSError as error:
            self._failed(error)

    def keep(self, outcome: Outcome, outputs: dict[str, list[Message]] | None) -> None:
        """How it ended."""
        wire = outcome.to_wire()
        self._write("outcome.json", wire)
        self._write("usage.json", wire["usage"])
        if outputs is not None:
            self._write("outputs.json", msgspec.to_builtins(outputs))

    def close(self) -> None:
        """It is over, and so is its log."""
        self._log.close()

    def _write(self, name: str, value: Any) -> None:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
        try:
            (self.directory / name).write_text(text, encoding="utf-8", errors="replace")
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        self.error = self.error or f"the run could not be saved to {self.directory}: {error.strerror or error}"
