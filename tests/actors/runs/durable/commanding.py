"""`callboard` with these words, killed when so many rows of its runs are on the disk, or at a moment with a name."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from playing import kill_after_row

from callboard.actors.runs.batch.journal import TaskRuns
from callboard.cli.main import main


def kill_once_kept() -> None:
    """Between the result of a batch's task and the word that its run is over."""

    def mark_over(_: TaskRuns, __: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    TaskRuns.mark_over = mark_over  # type: ignore[method-assign]


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    if order["kill"] == "kept":
        kill_once_kept()
    elif order["kill"]:
        kill_after_row(order["kill"])
    sys.argv = ["callboard", *order["words"]]
    main()
