"""Records docs/pictures/demo.svg: `python tests/packaging/demo_picture.py` (or `make docs`).

The picture shows a real run of `callboard demo` in a terminal of 80 x 24. The script answers the question. It needs the
extra `local` and the weights of the local model.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parents[2]
sys.path.insert(0, str(HERE / "tests"))  # as a script, it finds the helpers of the tests there

from qa.terminal import ENTER, Terminal  # noqa: E402 - see above
from support.terminal_svg import Coloured, drawn, recording, rows_of  # noqa: E402
from support.waiting import PATIENCE, READING  # noqa: E402

from callboard.actors.work.models import weights  # noqa: E402

PICTURE = HERE / "docs" / "pictures" / "demo.svg"
COLUMNS, ROWS = 80, 24

LONGEST, AT_THE_END = 1.5, 8.0
"""Seconds that a screen is shown at most, and the last one."""

SHORTEST = 0.15


class Recorder:
    """Output of a terminal with times."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._seen: list[tuple[float, int]] = []

    def until(self, pattern: str) -> None:
        """Record until this is shown below the terminal's mark."""
        self._terminal.sees(lambda: self._look() and re.search(pattern, self._terminal.shown()), pattern)

    def until_end(self) -> None:
        """Record until the program has ended."""
        end = time.monotonic() + PATIENCE
        while self._terminal.alive and time.monotonic() < end:
            self._terminal.rows()
            self._look()
            time.sleep(0.02)
        self._terminal.rows()
        self._look()

    def _look(self) -> bool:
        now, size = time.monotonic(), len(self._terminal.raw)
        if not self._seen or self._seen[-1][1] != size:
            if self._seen and now - self._seen[-1][0] < SHORTEST:
                self._seen[-1] = (self._seen[-1][0], size)
            else:
                self._seen.append((now, size))
        return True

    def frames(self) -> list[tuple[float, Coloured]]:
        """Return the screens, each with its duration in seconds."""
        found = []
        for number, (at, size) in enumerate(self._seen):
            following = self._seen[number + 1][0] if number + 1 < len(self._seen) else at
            seconds = min(LONGEST, following - at) if following > at else AT_THE_END
            found.append((seconds, drawn(self._terminal.raw[:size], COLUMNS, ROWS)))
        return found


def recorded(directory: Path) -> list[tuple[float, Coloured]]:
    """Run a demo in an empty directory and return its screens."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "XDG_CACHE_HOME": str(weights.directory(os.environ).parents[1]),
    }
    callboard = shutil.which("callboard") or str(Path(sys.executable).with_name("callboard"))
    environ["PATH"] = f"{Path(callboard).parent}{os.pathsep}{environ['PATH']}"
    with Terminal(["demo"], environ, directory, columns=COLUMNS, rows=ROWS, anew=True) as terminal:
        recorder = Recorder(terminal)
        recorder.until("The run continues")
        terminal.mark()
        recorder.until(r"(?i)\b1\W+yes")
        time.sleep(READING + LONGEST)
        terminal.press("1")
        time.sleep(READING)
        recorder.until("1")
        terminal.press(ENTER)
        recorder.until_end()
        return recorder.frames()


def main() -> None:
    """Record it."""
    with tempfile.TemporaryDirectory() as directory:
        frames = recorded(Path(directory))
    PICTURE.write_text(recording(frames))
    print(f"{PICTURE}: {PICTURE.stat().st_size} bytes, {len(frames)} screens", *rows_of(frames[-1][1]), sep="\n")


if __name__ == "__main__":
    main()
