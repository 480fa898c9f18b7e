"""Files with tool results that are too long for their conversation, readable by its model.

A conversation that is shortened (`work/agent/history`) contains only the beginning and end of a long result; a file
of this directory contains the whole text. `fs_cat` and the other tools that read files may open it in addition to their
own directories (`readable`), and no tool may write to it. The directory belongs to one run or one session and is
removed with it; other runs of the process cannot read it. The files are readable by their owner only (0600), and
bounded in number and size: the oldest are removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path

from ...io.directories import private_directory, sweep

MOST_FILES = 200
MOST_BYTES = 32 * 1024 * 1024

LEFT_FOR = 7 * 24 * 3600
"""Seconds without a new file after which a run's directory is treated as left over from a killed run."""

READERS = frozenset(("fs_cat", "fs_read"))
"""Tools with which a model can read stored results."""

_NUMBERED = re.compile(r"(\d+)-")


class StoredResults:
    """Stored results of one run or session. All methods block.

    Args:
        directory: created with the first result.
        temporary: the directory is removed with the run.

    Attributes:
        kept: True if this object has written a result, or a run's directory exists from an earlier incarnation.
    """

    def __init__(self, directory: Path, *, temporary: bool) -> None:
        self.directory = directory
        # The directory then comes from an earlier incarnation of a durable run.
        self.kept = temporary and directory.is_dir()
        self._temporary = temporary

    def keep(self, results: Sequence[tuple[str, str]]) -> list[str]:
        """Write each (tool name, text) pair to a file. Return the paths, "" for each that could not be written."""
        try:
            if self._temporary and not self.kept:
                sweep(self.directory.parent, LEFT_FOR)
            private_directory(self.directory)
            self.kept = True
            there = self._there()
        except OSError:
            return [""] * len(results)
        paths = []
        # Numbers continue after the highest one, since the oldest files may have been removed.
        for number, (tool, text) in enumerate(results, 1 + max(there, default=0)):
            name = re.sub(r"[^\w.-]+", "_", tool)[:60]
            paths.append(_written(self.directory / f"{number:04}-{name}.txt", text))
        self._make_room()
        return paths

    @property
    def may_be_read(self) -> bool:
        """Return True if results may exist: from this run, or from an earlier turn of the session."""
        return self.kept or not self._temporary

    def remove(self) -> None:
        """Remove the directory of a run that has ended. Does nothing for a session."""
        if self._temporary and self.kept:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _there(self) -> dict[int, Path]:
        found = ((_NUMBERED.match(path.name), path) for path in self.directory.iterdir())
        return {int(match[1]): path for match, path in found if match}

    def _make_room(self) -> None:
        # A file that cannot be removed now is still over the limit at the next call.
        with contextlib.suppress(OSError):
            files = bytes_ = 0
            for _, path in sorted(self._there().items(), reverse=True):
                files, bytes_ = files + 1, bytes_ + path.stat().st_size
                if files > MOST_FILES or bytes_ > MOST_BYTES:
                    path.unlink(missing_ok=True)


readable: ContextVar[Callable[[], StoredResults | None] | None] = ContextVar("callboard_kept_results", default=None)
"""Returns the stored results that the currently running tools may read in addition to their own directories."""


def _written(path: Path, text: str) -> str:
    try:
        # O_EXCL and O_NOFOLLOW: never write through a link or into an existing file.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return ""
    return str(path)
