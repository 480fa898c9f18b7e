"""`callboard serve` in a real terminal that is closed, and SIGHUPs that come from elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.descendants import is_alive
from support.serve_process import CALLBOARD
from support.waiting import PATIENCE, until

SOON = PATIENCE
IN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Makes the terminal on stdin the session's, and becomes the program."""

GRAPH = """
name: stuck
start: work
nodes:
  work: {type: script, script: work.sh, timeout: 600, next: done}
  done: {type: end, output: done}
"""


class Terminal:
    """A pseudo-terminal with a program that leads its session, and the server that is started in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.audit = home / "audit.log"
        agent = home / "config" / "agents" / "stuck"
        agent.mkdir(parents=True)
        (agent / "graph.yaml").write_text(GRAPH)
        (agent / "work.sh").write_text(f"echo $$ > {home}/new && mv {home}/new {home}/pid; sleep 600\n")
        self.settings = {"audit": {"sink": "file", "file": str(self.audit)}, "shutdown_grace_seconds": 0}
        (home / "config" / "config.yaml").write_text(json.dumps({"api": self.settings}))
        self.serve = [CALLBOARD, "serve", "--port", "0", "--config-dir", str(home / "config")]
        self.master: int | None = None
        self.leader: subprocess.Popen[bytes] | None = None
        self._server: psutil.Process | None = None

    def lead(self, *argv: str) -> None:
        """Start the program that leads the session."""
        self.master, slave = pty.openpty()
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "XDG_STATE_HOME": str(self.home / "state")}
        environ["CALLBOARD_SANDBOX"] = "off"  # the pids that its runs tell are those of the machine
        command = [sys.executable, "-c", IN_TERMINAL, *argv]
        self.leader = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environ, cwd=self.home, start_new_session=True
        )
        os.close(slave)

    def shell(self, line: str) -> None:
        """Start an interactive shell, and type a line into it in which SERVE is the server's command."""
        self.lead("bash", "--norc", "--noprofile", "-i")
        assert self.master is not None
        os.write(self.master, (line.replace("SERVE", " ".join(self.serve)) + "\n").encode())

    async def server(self) -> psutil.Process:
        """The server, once it listens."""
        servers = self.home / "state" / "callboard" / "servers"
        await until(lambda: list(servers.glob("*.json")), SOON)
        (file,) = servers.glob("*.json")
        self._server = psutil.Process(json.loads(file.read_text())["pid"])
        return self._server

    async def begin_run(self) -> psutil.Process:
        """A process that a run of the server has started."""
        environ = {**os.environ, "HOME": str(self.home), "XDG_STATE_HOME": str(self.home / "state")}
        (file,) = (self.home / "state" / "callboard" / "servers").glob("*.json")
        server = json.loads(file.read_text())
        argv = ["curl", "-sS", "--noproxy", "*", "-H", f"Authorization: Bearer {server['token']}"]
        argv += [f"{server['url']}/v1/runs", "-d", '{"target": "stuck"}']
        subprocess.run(argv, env=environ, check=True, capture_output=True, timeout=SOON)
        await until((self.home / "pid").exists, SOON)
        return psutil.Process(int((self.home / "pid").read_text()))

    def close(self) -> None:
        """Close the window."""
        if self.master is not None:
            os.close(self.master)
            self.master = None

    def reloads(self) -> int:
        """How many times the settings were read again."""
        return self.audit.read_text().count("ConfigReload") if self.audit.exists() else 0

    def end(self) -> None:
        """Nothing stays."""
        self.close()
        with contextlib.suppress(psutil.NoSuchProcess):
            if self._server is not None:
                self._server.kill()
        if self.leader is not None:
            self.leader.kill()
            self.leader.wait()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    there = Terminal(tmp_path)
    yield there
    there.end()


async def test_a_server_ends_with_the_terminal_it_leads_and_its_exit_code_is_that_of_a_drained_one(
    terminal: Terminal,
) -> None:
    terminal.lead(*terminal.serve)
    await terminal.server()
    terminal.close()
    assert terminal.leader is not None
    assert terminal.leader.wait(SOON) == 0
    assert terminal.reloads() == 0
    assert not list((terminal.home / "state" / "callboard" / "servers").iterdir())


@pytest.mark.parametrize("line", ["SERVE", "SERVE &"], ids=["in the foreground", "in the background"])
async def test_a_server_that_a_shell_has_started_ends_with_the_terminal_and_so_do_its_runs(
    terminal: Terminal, line: str
) -> None:
    terminal.shell(line)
    server = await terminal.server()
    tool = await terminal.begin_run()
    terminal.close()
    await until(lambda: not is_alive(server), SOON)
    await until(lambda: not is_alive(tool), SOON)
    assert terminal.reloads() == 0


@pytest.mark.parametrize("line", ["setsid SERVE &", "nohup SERVE &"], ids=["setsid", "nohup"])
async def test_a_server_that_was_to_outlive_its_terminal_does_and_still_reloads(terminal: Terminal, line: str) -> None:
    terminal.shell(line)
    server = await terminal.server()
    assert terminal.leader is not None
    terminal.close()
    terminal.leader.wait(SOON)
    before = terminal.reloads()
    server.send_signal(signal.SIGHUP)
    await until(lambda: terminal.reloads() > before, SOON)
    server.send_signal(signal.SIGTERM)
    await until(lambda: not is_alive(server), SOON)


async def test_a_server_that_was_to_outlive_its_terminal_does_even_if_that_closes_before_it_listens(
    terminal: Terminal,
) -> None:
    terminal.master, slave = pty.openpty()
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(terminal.home), "XDG_STATE_HOME": str(terminal.home / "state")}
    environ["CALLBOARD_SANDBOX"] = "off"
    terminal.leader = subprocess.Popen(  # as setsid does: it writes to a terminal that is not its session's
        terminal.serve, stdin=slave, stdout=slave, stderr=slave, env=environ, cwd=terminal.home, start_new_session=True
    )
    terminal.close()
    os.close(slave)
    server = await terminal.server()
    server.send_signal(signal.SIGHUP)
    await until(lambda: terminal.reloads() > 0, SOON)
    server.send_signal(signal.SIGTERM)
    assert terminal.leader.wait(SOON) == 0


async def test_a_hangup_from_elsewhere_reloads_as_long_as_the_terminal_is_there(terminal: Terminal) -> None:
    terminal.lead(*terminal.serve)
    server = await terminal.server()
    for count in (1, 2):
        server.send_signal(signal.SIGHUP)
        await until(lambda: terminal.reloads() == count, SOON)  # noqa: B023 - looked at before the next one
    assert is_alive(server)
