"""Programs that hide what they start: no descendant survives, whatever it does to get out of sight (77, 81)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import trio
from support.waiting import PATIENCE

from callboard.supervisors import Actor, Root
from callboard.supervisors.process import ProcessStop, start_process

sys.path.insert(0, str(Path(__file__).parent / "faults"))

from hiding import WAYS
from lifeline import Lifeline, heard

pytestmark = pytest.mark.usefixtures("lenient_limits")

PROGRAM = str(Path(__file__).parent / "faults" / "hiding.py")
STOP = ProcessStop(eof=0.1, term=0.1)

HOST = """
import sys, trio
from callboard.supervisors import Root
from callboard.supervisors.process import start_process

async def main():
    async with Root() as root:
        for argv in sys.argv[2:]:
            await start_process(root.actor, [sys.executable, "-I", sys.argv[1], *argv.split("=", 1)])
        print("ready", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.fixture
async def root() -> AsyncIterator[Root]:
    with trio.fail_after(PATIENCE):
        async with Root() as root:
            yield root


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.sample(5)
async def test_77_one_is_stopped_while_another_that_does_the_same_lives(me: Actor, tmp_path: Path, way: str) -> None:
    lives = [Lifeline(tmp_path / name) for name in ("one", "other")]
    one, other = [await start_process(me, [sys.executable, "-I", PROGRAM, way, life.path], stop=STOP) for life in lives]
    for life in lives:
        await life.heard(["hidden"])
    await one.stop()
    await lives[0].silent()
    while len(await other.members()) < 2:  # one that hops has for a moment a parent alone
        await trio.sleep(0.01)
    me.root.hurry.set()
    await other.stop()
    await lives[1].silent()
    for life in lives:
        await life.aclose()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "first", ["nothing", "the guardian is killed", "the guardian is stopped", "reapers are stopped"]
)
async def test_81_the_host_is_killed(tmp_path: Path, first: str) -> None:
    lives = {way: Lifeline(tmp_path / way) for way in WAYS}
    host = await trio.lowlevel.open_process(
        [sys.executable, "-c", HOST, PROGRAM, *(f"{way}={life.path}" for way, life in lives.items())],
        stdout=subprocess.PIPE,
    )
    assert host.stdout is not None
    with trio.fail_after(PATIENCE):
        await heard(host.stdout, ["ready"])
        for life in lives.values():
            await life.heard(["hidden"])
        (guardian,) = psutil.Process(host.pid).children()
        reapers = guardian.children()
        assert len(reapers) >= len(WAYS)
        if first == "the guardian is killed":
            os.kill(host.pid, signal.SIGSTOP)  # it starts no other one
            guardian.kill()
        elif first == "the guardian is stopped":
            guardian.suspend()
        elif first == "reapers are stopped":
            for reaper in reapers:
                reaper.suspend()
        host.kill()
        await host.wait()
        for life in lives.values():
            await life.silent()
            await life.aclose()
    await host.stdout.aclose()
