"""Programs as forks of one process that has imported what most of them need: that part is the same in all of them.

A program that begins like this is a process of its own, in a session and at a terminal of its own, with its own
environment and directory, and plays `python -m MODULE` from the first line on. It belongs to the process of the tests,
which takes in orphans (see tests/conftest.py).
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import locale
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

_MODULES = (
    "callboard.actors.front.chat.commands",
    "callboard.actors.front.chat.methods",
    "callboard.actors.front.chat.opening",
    "callboard.actors.front.control.hub",
    "callboard.actors.front.telemetry.export",
    "callboard.actors.runs.begin",
    "callboard.actors.runs.in_role",
    "callboard.actors.runs.in_session",
    "callboard.actors.work.mcp.tools.chosen",
    "callboard.actors.work.models.client",
    "callboard.actors.work.models.openai",
    "callboard.actors.work.models.prices.kept",
    "callboard.actors.work.models.vertex",
    "callboard.actors.work.roles.cast",
    "callboard.actors.work.spending.book",
    "callboard.cli.chat.program",
    "callboard.cli.chat.screen.application",
    "callboard.cli.loki.at_once",
    "callboard.cli.loki.info",
    "callboard.cli.loki.play",
    "callboard.cli.main",
    "callboard.cli.render.menu",
    "callboard.cli.running",
    "callboard.cli.vault",
    "prompt_toolkit.shortcuts",
    "pygments.styles.monokai",
)
"""Of the command line and of the chat; others are imported by the programs themselves."""


class _Wanted(TypedDict):
    """A program that is to begin."""

    module: str
    arguments: list[str]
    environ: dict[str, str]
    cwd: str


class Forked:
    """A program that was begun by fork; as `subprocess.Popen` has it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; raises TimeoutExpired."""
        if self.poll() is None:
            end = os.pidfd_open(self.pid)
            try:
                if not select.select([end], [], [], timeout)[0]:
                    assert timeout is not None
                    raise subprocess.TimeoutExpired(str(self.pid), timeout)
            finally:
                os.close(end)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)


class Starter:
    """The process that forks; it begins when it is first needed, and `close` ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def _begin(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()

    def start(self, module: str, arguments: list[str], environ: dict[str, str], cwd: Path, terminal: int) -> Forked:
        """Begins a program at a terminal."""
        if self._process is None:
            self._begin()
        wanted = _Wanted(module=module, arguments=arguments, environ=environ, cwd=str(cwd))
        socket.send_fds(self._socket, [json.dumps(wanted).encode()], [terminal])
        pid = self._socket.recv(100)
        assert pid, "the process that begins programs has ended"
        return Forked(int(pid))

    def close(self) -> None:
        """Ends it; what it has begun goes on."""
        if self._process is not None:
            self._socket.close()
            self._process.wait(10)
            self._process = None


def _serve(line: socket.socket) -> None:
    for name in _MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(line, 1_000_000, 1)
        if not data:
            return
        told, tells = os.pipe()
        between = os.fork()
        if not between:
            pid = os.fork()
            if not pid:
                _play(json.loads(data), descriptors[0])
                return
            os.write(tells, str(pid).encode())
            os._exit(0)  # and the program has no parent but who takes in orphans
        os.waitpid(between, 0)
        line.send(os.read(told, 100))
        for descriptor in (told, tells, descriptors[0]):
            os.close(descriptor)


def _play(wanted: _Wanted, terminal: int) -> None:
    """Plays the program in this process, which ends when it returns or raises, as any other does."""
    os.login_tty(terminal)
    os.closerange(3, 100)
    os.environ.clear()
    os.environ.update(wanted["environ"])
    os.chdir(wanted["cwd"])
    sys.stdin = sys.__stdin__ = _text(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = sys.__stdout__ = _text(io.BufferedWriter(io.FileIO(1, "w", closefd=False)))
    sys.stderr = sys.__stderr__ = _text(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "backslashreplace")
    sys.argv = ["", *wanted["arguments"]]
    sys.path.insert(0, wanted["cwd"])
    runpy.run_module(wanted["module"], run_name="__main__", alter_sys=True)


def _text(stream: io.BufferedReader | io.BufferedWriter, errors: str = "strict") -> io.TextIOWrapper:
    """A stream as Python has it at a terminal."""
    return io.TextIOWrapper(stream, encoding=locale.getpreferredencoding(False), errors=errors, line_buffering=True)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
