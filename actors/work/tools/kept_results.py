"""Results of calls that are too long for their conversation, as files that its model can read.

A conversation that is shortened (`work/agent/compaction`) keeps beginning and end of a result; the whole text goes into
a file of this directory. `fs_cat` and the other tools that read files may look into it beside their own directories
(`readable`), and none may write to it. It belongs to one run, or to one session, and goes with it; other runs of the
process can't read it. The files are for their owner alone (0600), and bounded: the oldest make room.
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
"""Seconds after which the directory of a run is taken to be that of one that was killed, if nothing was added to it."""

READERS = frozenset(("fs_cat", "fs_read"))
"""With one of these a model can read what is kept."""

_NUMBERED = re.compile(r"(\d+)-")


class KeptResults:
    """See the module. Its methods block.

    Args:
        directory: made when something is kept.
        temporary: it goes with the run.

    Attributes:
        kept: this run has written something.
    """

    def __init__(self, directory: Path, *, temporary: bool) -> None:
        self.directory = directory
        self.kept = temporary and directory.is_dir()  # then by an earlier life of a durable run
        self._temporary = temporary

    def keep(self, results: Sequence[tuple[str, str]]) -> list[str]:
        """Write each (name of the tool, text) into a file; their paths, "" for one that the disk would not take."""
        try:
            if self._temporary and not self.kept:
                sweep(self.directory.parent, LEFT_FOR)
            private_directory(self.directory)
            self.kept = True
            there = self._there()
        except OSError:
            return [""] * len(results)
        paths = []
        for number, (tool, text) in enumerate(results, 1 + max(there, default=0)):
            name = re.sub(r"[^\w.-]+", "_", tool)[:60]
            paths.append(_written(self.directory / f"{number:04}-{name}.txt", text))
        self._make_room()
        return paths

    @property
    def may_be_read(self) -> bool:
        """Whether there may be something: from this run, or from an earlier turn of the session."""
        return self.kept or not self._temporary

    def remove(self) -> None:
        """The run is over."""
        if self._temporary and self.kept:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _there(self) -> dict[int, Path]:
        found = ((_NUMBERED.match(path.name), path) for path in self.directory.iterdir())
        return {int(match[1]): path for match, path in found if match}

    def _make_room(self) -> None:
        """Remove the oldest files beyond the bounds."""
        with contextlib.suppress(OSError):  # what can't be removed now is beyond the bounds the next time as well
            files = bytes_ = 0
            for _, path in sorted(self._there().items(), reverse=True):
                files, bytes_ = files + 1, bytes_ + path.stat().st_size
                if files > MOST_FILES or bytes_ > MOST_BYTES:
                    path.unlink(missing_ok=True)


readable: ContextVar[Callable[[], KeptResults | None] | None] = ContextVar("callboard_kept_results", default=None)
"""Gives what the tools that are called now may read beside their own directories."""


def _written(path: Path, text: str) -> str:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return ""
    return str(path)
