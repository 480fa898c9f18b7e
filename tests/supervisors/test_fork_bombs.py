"""Sweeps that are late, and ends that fork bombs try to outrun.

Numbers are those of docs/kernel.md.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from support.waiting import PATIENCE, until

from callboard.protocol.errors import ProcessError
from callboard.protocol.events import Event, Warned
from callboard.supervisors import Actor, Root
from callboard.supervisors import process as process_module
from callboard.supervisors.guardian_link import ReaperLink
from callboard.supervisors.process import ProcessStop, start_process

sys.path.insert(0, str(Path(__file__).parent / "faults"))

from lifeline import Lifeline
from support.messages import says


@pytest.fixture
async def root() -> AsyncIterator[Root]:
    with trio.fail_after(PATIENCE):
        async with Root() as root:
            yield root


def shell(script: str, *arguments: str) -> list[str]:
    return ["sh", "-c", script, "sh", *arguments]


# --- a sweep that is late ---------------------------------------------------------------------------------


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> ProcessStop:
    """The time for an end is over as it begins, as after an event loop that stood still."""
    monkeypatch.setattr(process_module, "KILL_WITHIN", 0.0)
    monkeypatch.setattr(process_module, "LINGER", 0.0)
    return ProcessStop(eof=0.0, term=0.0)


def reaper_of(me: Actor) -> ReaperLink:
    (child,) = me.root.processes.live
    return child.reaper


async def test_77_the_status_of_a_process_is_reported_though_the_sweep_is_late_and_the_sweep_goes_on(
    me: Actor, life: Lifeline, no_time: ProcessStop
) -> None:
    warned: list[Warned] = []

    def listen(event: Event) -> None:
        if isinstance(event.data, Warned):
            warned.append(event.data)

    script = "exec 3>$1; setsid sleep 300 & sleep 300 & echo up >&3; read line; echo done"
    with me.root.bus.listen(listen):
        process = await start_process(me, shell(script, life.path), stdin="pipe", stop=no_time)
        assert process.stdin is not None
        await life.heard(["up"])
        reaper = reaper_of(me)
        await process.stdin.send_all(b"\n")
        await reaper.exited.wait()
        os.kill(reaper.pid, signal.SIGSTOP)
        end = await process.wait()
    assert (end.status, end.unswept) == (0, True)
    assert [(each.code, "exited with status 0; processes that it left" in each.message) for each in warned] == [
        ("process_left", True)
    ]
    os.kill(reaper.pid, signal.SIGCONT)
    await life.silent()
    await until(lambda: not me.root.processes.live)


async def test_a_process_whose_time_is_over_before_its_end_begins_is_killed_all_the_same(
    me: Actor, life: Lifeline, no_time: ProcessStop
) -> None:
    script = 'trap "" TERM; exec 3>$1; echo up >&3; sleep 300; sleep 300'
    process = await start_process(me, shell(script, life.path), stop=no_time)
    await life.heard(["up"])
    process.ref.cancel()
    await process.ref.wait()
    await life.silent()


async def test_what_waits_for_a_process_that_did_not_end_in_time_gets_one_plain_error(
    me: Actor, life: Lifeline, no_time: ProcessStop
) -> None:
    """As of a process that hangs in the kernel, there is no end to tell of: its reaper tells nothing."""
    script = "exec 3>$1; echo up >&3; exec sleep 300"
    process = await start_process(me, shell(script, life.path), stop=no_time)
    await life.heard(["up"])
    reaper = reaper_of(me)
    os.kill(reaper.pid, signal.SIGSTOP)
    process.ref.cancel()
    with pytest.raises(ProcessError, match=says("supervisors.process._late")):
        await process.wait()
    os.kill(reaper.pid, signal.SIGCONT)
    await life.silent()


# --- bombs ------------------------------------------------------------------------------------------------

BOMB = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
purse, most, apart = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT), int(sys.argv[2]), sys.argv[3]
life = os.open(sys.argv[4], os.O_WRONLY)
signal.alarm(300)  # longer than the test waits for its end
while os.fstat(purse).st_size < most:  # it is bounded, should the test fail
    os.write(purse, b".")
    if os.fork() == 0:
        signal.alarm(300)
        if apart == "apart":
            os.setsid()
    if os.fstat(purse).st_size >= 24:
        os.write(life, b"lit\\n")
    time.sleep(0.02)
signal.pause()
"""
MOST = 400


def bomb(tmp_path: Path, how: str, life: Lifeline) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", BOMB, str(tmp_path / "purse"), str(MOST), how, life.path]


@pytest.mark.parametrize("how", ["together", "apart"])
async def test_79_a_fork_bomb_is_gone_after_it_was_told_to_end(
    me: Actor, life: Lifeline, tmp_path: Path, how: str
) -> None:
    process = await start_process(me, bomb(tmp_path, how, life))
    await life.heard(["lit"])
    await process.stop()
    await life.silent()
    await until(lambda: not me.root.processes.live)


async def test_79_who_answers_sigterm_with_processes_has_no_grace(me: Actor, life: Lifeline) -> None:
    """The grace would be longer than the test may take."""
    answer = "for i in $(seq 100); do for j in 1 2 3 4; do setsid sleep 300 & done; sleep 0.05; done"
    script = f"exec 3>$1; trap '{answer}' TERM; "
    process = await start_process(
        me, shell(script + "echo up >&3; while :; do sleep 0.05; done", life.path), stop=ProcessStop(term=1000)
    )
    await life.heard(["up"])
    end = await process.stop()
    assert end.signal == signal.SIGKILL
    await life.silent()


HOST = """
import sys, trio
from callboard.supervisors import Root
from callboard.supervisors.process import start_process

async def main():
    async with Root() as root:
        await start_process(root.actor, sys.argv[1:])
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.parametrize("how", ["together", "apart"])
async def test_81_a_fork_bomb_is_gone_after_its_host_was_killed(life: Lifeline, tmp_path: Path, how: str) -> None:
    with trio.fail_after(PATIENCE):
        argv = [sys.executable, "-c", HOST, *bomb(tmp_path, how, life)]
        host = await trio.lowlevel.open_process(argv, start_new_session=True)
        await life.heard(["lit"])
        host.kill()
        await host.wait()
        await life.silent()
