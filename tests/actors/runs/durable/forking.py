"""Programs that play durable runs (`playing`), as forks of a process that has imported all they need.

Each is a process of its own, which is killed alone; a start of Python and its imports take most of its time.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__)

MODULES = (
    "playing",
    "callboard.actors.engine.workflow.job",
    "callboard.actors.engine.workflow.nodes.agent",
    "callboard.actors.engine.workflow.run",
    "callboard.actors.runs.durable",
    "callboard.actors.runs.devall_loader",
    "callboard.actors.runs.session_run",
    "callboard.actors.runs.first_row",
    "callboard.actors.work.models.client",
    "callboard.actors.work.models.openai",
    "callboard.supervisors.journal.claiming",
    "callboard.supervisors.journal.journal",
    "callboard.supervisors.journal.reading",
    "callboard.supervisors.journal.store",
)


class Forks:
    """The process that forks, from the first program on; one program at a time."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def play(self, order: Mapping[str, Any], environ: Mapping[str, str], out: Path) -> int:
        """Have a program carry out an order, in this environment; its exit status, and in `out` what it said."""
        with self._turn:
            if self._process is None:
                command, pipe = [sys.executable, str(HERE)], subprocess.PIPE
                self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            told = {"order": order, "environ": dict(environ), "out": str(out)}
            self._process.stdin.write(json.dumps(told) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.communicate()
            self._process = None


FORKS = Forks()


def serve() -> None:
    """Be that process."""
    sys.path.insert(0, str(HERE.parent))
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        told = json.loads(line)
        child = os.fork()
        if not child:
            play(told)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def play(told: dict[str, Any]) -> NoReturn:
    """Be a program."""
    import trio
    from playing import main

    os.setsid()
    os.environ.clear()
    os.environ.update(told["environ"])
    tempfile.tempdir = None  # looked up again, in this environment
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(told["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    status = 1
    try:
        trio.run(main, told["order"])
        sys.stdout.flush()
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, it is told, and the process ends
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve()
