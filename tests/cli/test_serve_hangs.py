"""A `callboard serve` whose loop hangs or that has no memory left ends all the same, and its tools with it."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.descendants import is_alive
from support.serve_process import SOON, Serving

from callboard.actors.front.server.serving import CANCEL_WITHIN, LAST_WORDS
from callboard.supervisors.signals import LOOP_HANGS

GRACE = 0.0
STOP_WITHIN = 3.0
ENDS_WITHIN = GRACE + CANCEL_WITHIN + LAST_WORDS + STOP_WITHIN + LOOP_HANGS

GRAPH = """
name: stuck
start: work
nodes:
  work: {type: script, script: work.sh, timeout: 600, next: done}
  done: {type: end, output: done}
"""
BLOCKED = textwrap.dedent(
    """
    import time
    from callboard.actors.front.server.serving import HttpServer
    from callboard.cli.main import main

    def block(self):
        while True:
            time.sleep(1000)

    HttpServer.drain = block
    main()
    """
)

Start = Callable[..., Serving]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Serving] = []
    agent = tmp_path / "config" / "agents" / "stuck"
    agent.mkdir(parents=True)
    (agent / "graph.yaml").write_text(GRAPH)
    (agent / "work.sh").write_text(
        f"trap '' TERM; setsid sleep 600 & echo $$ $! > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pids; wait\n"
    )
    (tmp_path / "config" / "config.yaml").write_text(
        json.dumps({"api": {"shutdown_grace_seconds": GRACE}, "durable": {"by_default": False}})
    )

    def begin(*program: str) -> Serving:
        started.append(Serving(tmp_path, program=program))
        return started[-1]

    yield begin
    for serving in started:
        serving.process.kill()
        serving.process.wait()
        assert serving.process.stderr is not None
        serving.process.stderr.close()


def tools_of(serving: Serving) -> list[psutil.Process]:
    """Start a run, and see the processes of its tool."""
    serving.see("serving at ")
    serving.ask("/v1/runs", {"target": "stuck"})
    pids = serving.home / "pids"
    until = time.monotonic() + SOON
    while not pids.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    return [psutil.Process(int(pid)) for pid in pids.read_text().split()]


def end_of(serving: Serving) -> int:
    """The exit status after a SIGTERM, which came in time."""
    serving.process.send_signal(signal.SIGTERM)
    try:
        return serving.process.wait(ENDS_WITHIN + SOON)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it still lived {ENDS_WITHIN + SOON:g} s after SIGTERM")


def are_gone(tools: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(tools, timeout=SOON)
    return not any(map(is_alive, alive))


def test_a_server_with_a_blocked_loop_is_gone_after_its_grace_and_its_tools_too(start: Start) -> None:
    serving = start(sys.executable, "-c", BLOCKED)
    tools = tools_of(serving)
    assert end_of(serving) == 128 + signal.SIGTERM
    assert are_gone(tools)


def test_a_server_without_any_memory_left_is_gone_after_its_grace_and_its_tools_too(start: Start) -> None:
    serving = start()
    tools = tools_of(serving)
    server = psutil.Process(serving.process.pid)
    taken = server.memory_info().vms
    resource.prlimit(serving.process.pid, resource.RLIMIT_AS, (taken, taken))
    assert end_of(serving) != 0
    assert are_gone(tools)
