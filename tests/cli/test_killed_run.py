"""Files of a `callboard run` that is killed: the next command removes them, and not those of a run that is alive."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import trio
from support.descendants import is_alive
from support.fake_models import FakeModels, Reply
from support.mcp_processes import SERVERS
from support.starter import CALLBOARD
from support.waiting import until

SCRIPT = """
name: g
start: one
nodes:
  one: {type: script, script: one.sh, next: done}
  done: {type: end, output: done}
"""

BIG = """
head -c 2000000 /dev/zero > "${TMPDIR:-/tmp}/big"
touch begun
while [ -e begun ]; do sleep 0.1; done
echo '{}'
"""

WORKFLOW = "graph: {start: [P], nodes: [{id: P, type: python, config: {timeout_seconds: 1000}}], edges: []}"

CODE = """
open('big', 'w').write('x' * 2_000_000)
open('BEGUN', 'w').close()
import time
time.sleep(1000)
"""


class Machine:
    """A home with agents, of which each is a way to leave files."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        self.home = home
        self.work = home / "work"
        config = models.config_dir(home / "config")
        for name, file, text in (
            ("script", "graph.yaml", SCRIPT),
            ("server", "config.yaml", "name: server\nmcp_servers: [s]\nmcp_tools: direct\n"),
        ):
            (config / "agents" / name).mkdir(parents=True)
            (config / "agents" / name / file).write_text(text)
        (config / "agents" / "script" / "one.sh").write_text(BIG)
        tiny = str(SERVERS / "tiny.sh")
        (config / "mcp.json").write_text(f'{{"mcpServers": {{"s": {{"command": "/bin/sh", "args": ["{tiny}"]}}}}}}')
        for name in ("tmp", "state", "run", "work"):
            (home / name).mkdir(mode=0o700)
        self._environ = {
            **os.environ,
            "TMPDIR": str(home / "tmp"),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "CALLBOARD_CONFIG_DIR": str(config),
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.home / "err").open("ab") as err:
            process = subprocess.Popen(
                [*CALLBOARD, *words],
                env=self._environ,
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
            )
        self.started.append(process)
        return process

    async def say(self, *words: str) -> int:
        return await trio.to_thread.run_sync(self.start(*words).wait)

    async def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill it, and wait until all that it has started is gone."""
        below = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        await trio.to_thread.run_sync(process.wait)
        await until(lambda: not any(map(is_alive, below)))

    def temporary(self) -> list[Path]:
        """Files and directories that should not outlive their process."""
        places = (self.home / "tmp", self.home / "state" / "callboard" / "tmp", self.home / "run" / "callboard")
        found = [path for place in places if place.is_dir() for path in place.rglob("*")]
        found = [path for path in found if path.parent != self.home / "tmp"]  # of a script without a sandbox, and ours
        present = self.home / "state" / "callboard" / "present"
        return found + list(present.iterdir() if present.is_dir() else ())

    def named(self, name: str) -> bool:
        return any(path.name.startswith(name) for path in self.temporary())


@pytest.fixture
def machine(tmp_path: Path, fake_model: FakeModels) -> Iterator[Machine]:
    machine = Machine(tmp_path, fake_model)
    yield machine
    for process in machine.started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("command", [("runs",), ("agents", "list"), ("run", "script", "x")])
@pytest.mark.parametrize("sandbox", ["off", "workspace"])
@pytest.mark.sample(2)
async def test_the_next_command_removes_the_files_of_a_killed_run(
    machine: Machine, fake_model: FakeModels, sandbox: str, command: tuple[str, ...]
) -> None:
    begun = machine.work / "begun"
    killed = machine.start("run", "script", "x" * 100_000, "--sandbox", sandbox, "--yes")
    await until(begun.exists)
    assert machine.named("big" if sandbox == "workspace" else "state-")
    assert machine.named("run-"), "its sign is in `present`"
    await machine.kill(killed)
    begun.unlink()
    assert machine.temporary() != []
    if command[0] == "run":
        ended = machine.start(*command, "--sandbox", sandbox)
        await until(begun.exists)
        begun.unlink()
        assert await trio.to_thread.run_sync(ended.wait) == 0
    else:
        assert await machine.say(*command) == 0
    assert machine.temporary() == []


async def test_the_workspace_of_a_killed_workflow_is_removed(machine: Machine) -> None:
    (machine.work / "flow.yaml").write_text(WORKFLOW)
    begun = machine.home / "begun"
    code = CODE.replace("BEGUN", str(begun))
    killed = machine.start("run", "flow.yaml", code, "--yes", "--ephemeral", "--sandbox", "off")
    await until(begun.exists)
    assert machine.named("big")
    await machine.kill(killed)
    assert machine.named("big")
    assert await machine.say("runs") == 0
    assert machine.temporary() == []


async def test_the_socket_of_a_killed_pool_is_removed(machine: Machine, fake_model: FakeModels) -> None:
    held = trio.Event()
    fake_model.script(Reply(calls=[("s__pid", {})]), Reply(text="never", hold=held))
    killed = machine.start("run", "server", "x", "--yes", "--ephemeral")
    await fake_model.arrived(2)
    await until(lambda: machine.named("mcp-"))
    await machine.kill(killed)
    assert machine.named("mcp-")
    assert await machine.say("runs") == 0
    assert machine.temporary() == []
    held.set()


async def test_the_files_of_a_live_run_stay(machine: Machine) -> None:
    begun = machine.work / "begun"
    live = machine.start("run", "script", "x", "--sandbox", "workspace", "--yes")
    await until(begun.exists)
    before = sorted(machine.temporary())
    assert await machine.say("runs") == 0
    assert sorted(machine.temporary()) == before
    begun.unlink()
    assert await trio.to_thread.run_sync(live.wait) == 0
    assert machine.temporary() == []
