"""A run kept as files, when somebody asks for it (`--save DIR`): `DIR/<run id>/`, readable by its owner alone.

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
from ...protocol.events import Event, encode
from ...protocol.outcome import Message, Outcome


class Saved:
    """See the module.

    Raises:
        UsageError: the directory can't be made.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        try:
            self.directory.mkdir(mode=0o700, parents=True)
            self._log = (self.directory / "log.jsonl").open("wb")
        except OSError as error:
            raise UsageError(f"the run can't be saved to {self.directory}: {error.strerror or error}") from error

    @property
    def workspace(self) -> Path:
        """Where python nodes work."""
        return self.directory / "workspace"

    def on_event(self, event: Event) -> None:
        """Write it down."""
        self._log.write(encode(event) + b"\n")

    def close(self, outcome: Outcome, outputs: dict[str, list[Message]] | None) -> None:
        """It is over."""
        self._log.close()
        wire = outcome.to_wire()
        self._write("outcome.json", wire)
        self._write("usage.json", wire["usage"])
        if outputs is not None:
            self._write("outputs.json", msgspec.to_builtins(outputs))

    def _write(self, name: str, value: Any) -> None:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
        (self.directory / name).write_text(text, encoding="utf-8", errors="replace")
