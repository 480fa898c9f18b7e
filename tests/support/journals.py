"""Small disks, and programs that keep runs in a journal and are killed or stopped in the midst of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.starter import forked

WRITING = Path(__file__).parents[1] / "supervisors" / "journal" / "writing.py"


class Disk:
    """A disk of a megabyte."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filling = path / "filling"

    def fill(self) -> None:
        """Take all room there is."""
        with self._filling.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(512))

    def clear(self) -> None:
        """Give it back."""
        self._filling.unlink()


@contextlib.contextmanager
def small_disk(path: Path, size: str = "1m") -> Iterator[Disk]:
    """A real one; the test is skipped where none can be mounted."""
    path.mkdir()
    mounts = os.getuid() == 0 and shutil.which("mount") is not None
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path]
    if not mounts or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


class World:
    """A directory of journals, and what programs that keep runs there have done."""

    def __init__(self, home: Path) -> None:
        self.directory = home / "journal"
        self.file = home / "world"
        self.file.touch()

    @property
    def effects(self) -> list[str]:
        """What was done, in order."""
        return self.file.read_text().splitlines()

    def start(self, **order: Any) -> subprocess.Popen[str]:
        """A program as `supervisors/journal/writing.py` describes it."""
        told = json.dumps({"directory": str(self.directory), "world": str(self.file), **order})
        return subprocess.Popen([*forked(WRITING), told], stdout=subprocess.PIPE, text=True)

    def play(self, **order: Any) -> tuple[str, bool]:
        """Have one come to its end; its sign, and whether it was killed."""
        program = self.start(**order)
        said, _ = program.communicate()
        assert program.returncode in (0, -signal.SIGKILL), program.returncode
        return said.splitlines()[0] if said else "", program.returncode != 0
