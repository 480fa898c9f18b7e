"""`callboard run` with a state directory that takes nothing: limits hold, and one line says what to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import PATIENCE

PROGRAM = str(Path(sys.executable).with_name("callboard"))

GRAPH = """
name: g
start: one
nodes:
  one: {type: script, script: one.sh, LIMIT next: done}
  done: {type: end, output: done}
"""


class Home:
    """A home whose state directory takes nothing.

    Args:
        prefix: of command lines, if it is the process that can't write.
    """

    def __init__(self, directory: Path, prefix: tuple[str, ...]) -> None:
        self.directory = directory
        self._prefix = prefix
        self.agent("")

    def agent(self, limit: str) -> None:
        agent = self.directory / "agents" / "g"
        agent.mkdir(parents=True, exist_ok=True)
        (agent / "graph.yaml").write_text(GRAPH.replace("LIMIT", limit))
        (agent / "one.sh").write_text(f"mkdir {self.directory}/happened\necho '{{}}'\n")

    def start(self, *words: str) -> subprocess.Popen[str]:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "CALLBOARD_CONFIG_DIR": str(self.directory),
            "XDG_STATE_HOME": str(self.directory / "state"),
            "CALLBOARD_SANDBOX": "off",
        }
        argv = [*self._prefix, PROGRAM, "run", "g", "x", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words: str) -> tuple[int, list[str]]:
        """The exit code, and the lines on stderr."""
        process = self.start(*words)
        try:
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
        return process.returncode, err.splitlines()

    @property
    def happened(self) -> bool:
        return (self.directory / "happened").exists()


@pytest.fixture(params=["disk", "limit"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """With a small file system, or with a process that may write no file of more than some kilobytes."""
    state = tmp_path / "state"
    state.mkdir()
    if request.param == "limit":
        yield Home(tmp_path, ("sh", "-c", 'ulimit -f 8; exec "$@"', "sh"))
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", state]
    mounts = os.getuid() == 0 and shutil.which("mount") is not None
    if not mounts or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    yield Home(tmp_path, ())
    subprocess.run(["umount", "--lazy", state], check=True)


def check_told(home: Home, line: str) -> None:
    """A line names the directory, and both remedies."""
    assert str(home.directory / "state" / "callboard" / "journal") in line
    assert "free some disk space" in line
    assert "--ephemeral" in line


@pytest.mark.sample(1)
def test_the_time_of_the_run_holds(home: Home) -> None:
    code, lines = home.run("--timeout", "3")
    assert code == 1
    check_told(home, lines[-1])
    assert not home.happened


@pytest.mark.sample(1)
def test_the_time_of_a_node_holds(home: Home) -> None:
    home.agent("timeout: 3,")
    code, lines = home.run()
    assert code == 4
    check_told(home, lines[-1])
    assert lines[-1].count("--ephemeral") == 1
    assert not home.happened


@pytest.mark.sample(1)
def test_ctrl_c_ends_it(home: Home) -> None:
    process = home.start()
    assert process.stderr is not None
    try:
        check_told(home, next(line for line in process.stderr if "durable runs wait" in line))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 130
    assert out == ""
    assert "Error" not in err
    assert "callboard resume" not in err, "nothing of it is on the disk"
    assert not home.happened


@pytest.mark.sample(1)
def test_without_a_journal_it_runs(home: Home) -> None:
    assert home.run("--ephemeral")[0] == 0
    assert home.happened
