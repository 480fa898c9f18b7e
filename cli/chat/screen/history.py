"""Input history by directory: a bounded private file with one JSON string per line.

Answers to questions are not stored, and secrets from the vault are removed before a line is stored.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prompt_toolkit.history import History

from ....actors.io.directories import private_directory, state_dir
from ....actors.io.secret_redaction import hidden

MOST = 1_000
"""Maximum number of lines."""

LONGEST = 20_000
"""Longest line that is stored, in characters."""


def history_file(environ: Mapping[str, str], directory: str) -> Path:
    """Return the path of the history for a working directory."""
    name = hashlib.sha256(os.path.realpath(directory).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return state_dir(environ) / "history" / f"{name}.jsonl"


class DirectoryHistory(History):
    """History of one directory.

    Args:
        file: None stores nothing.

    Attributes:
        whole: returns a line with its pastes expanded, as the file stores it.
    """

    def __init__(self, file: Path | None) -> None:
        super().__init__()
        self._file = file
        self._count = 0
        self.whole: Callable[[str], str] = str

    def load_history_strings(self) -> Iterable[str]:
        """Return the stored lines, newest first."""
        lines = self._read()
        self._count = len(lines)
        if len(lines) > 2 * MOST:
            self._rewrite(lines[-MOST:])
        return reversed(lines[-MOST:])

    def store_string(self, string: str) -> None:
        """Append a line. Write errors are ignored: the line is then lost with the process."""
        if self._file is None or string.startswith(" ") or len(string := self.whole(string)) > LONGEST:
            return
        try:
            private_directory(self._file.parent)
            handle = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                # A process that was killed may have left an incomplete last line.
                torn = (size := os.fstat(handle).st_size) and os.pread(handle, 1, size - 1) != b"\n"
                file.write(("\n" if torn else "") + json.dumps(hidden(string)) + "\n")
        except OSError:
            return

    def _read(self) -> list[str]:
        if self._file is None:
            return []
        try:
            raw = self._file.read_text("utf-8", "replace").splitlines()
        except OSError:
            return []
        lines: list[str] = []
        for text in raw:
            try:
                line = json.loads(text)
            except ValueError:  # an incomplete line of a killed process
                continue
            if isinstance(line, str):
                lines.append(line)
        return lines

    def _rewrite(self, lines: list[str]) -> None:
        assert self._file is not None
        new = self._file.with_suffix(f".{os.getpid()}")
        try:
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
            new.replace(self._file)
        except OSError:
            new.unlink(missing_ok=True)
