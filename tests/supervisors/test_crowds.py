"""Where many processes live: what a look costs beside strangers, and ends that bombs try to outrun.

Numbers are those of docs/kernel.md.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio
from waiting import PATIENCE, until

from callboard.protocol.errors import ProcessError
from callboard.protocol.events import Event, Warned
from callboard.supervisors import Actor, Root, child, guardian
from callboard.supervisors.child import Child
from callboard.supervisors.forks import FORKS
from callboard.supervisors.guardian import Census, Strangers
from callboard.supervisors.process import ProcessStop, run_process, start_process
from callboard.supervisors.spawn import wait_for_death

sys.path.insert(0, str(Path(__file__).parent / "faults"))

from lifeline import Lifeline
from support.messages import says


@pytest.fixture
async def root() -> AsyncIterator[Root]:
    with trio.fail_after(PATIENCE):
        async with Root() as root:
            yield root


@pytest.fixture
def me(root: Root) -> Actor:
    return root.actor


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[Lifeline]:
    life = Lifeline(tmp_path / "life")
    yield life
    await life.aclose()


def shell(script: str, *arguments: str) -> list[str]:
    return ["sh", "-c", script, "sh", *arguments]


# --- strangers --------------------------------------------------------------------------------------------


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process that is not below `NO_HOST`; and no process is too young to be known as a stranger."""
    monkeypatch.setattr(guardian, "SETTLED", -1.0)
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process.pid
        process.kill()


NO_HOST = 2**30


def learned(strangers: Strangers, host: int = NO_HOST) -> Census:
    census = Census(strangers)
    strangers.learn(census, set(), host)
    return census


def test_a_stranger_is_read_once(stranger: int) -> None:
    strangers = Strangers()
    assert stranger in learned(strangers).seen
    assert stranger not in Census(strangers).seen


def test_descendants_of_the_host_and_young_processes_are_read_each_time(
    stranger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    strangers = Strangers()
    learned(strangers, os.getpid())
    assert {os.getpid(), stranger} <= Census(strangers).seen.keys()
    monkeypatch.setattr(guardian, "SETTLED", 1000.0 * 365 * 24 * 3600)
    learned(strangers)
    assert stranger in Census(strangers).seen


def test_who_gets_the_pid_of_a_stranger_is_read(stranger: int) -> None:
    strangers = Strangers()
    inodes = learned(strangers).inodes
    strangers.keep({**inodes, stranger: inodes[stranger] + 1})  # a new process, hence a new directory in /proc
    assert stranger not in strangers
    assert stranger in Census(strangers).seen


def test_83_a_stranger_that_got_the_pid_of_a_leader_does_not_make_its_session_ours(stranger: int) -> None:
    strangers = Strangers()
    seen = learned(strangers).seen[stranger]
    with subprocess.Popen(["sleep", "300"]) as new:
        census = Census(strangers)
        census.seen[new.pid].session = stranger
        found = [census.belonging(b"none", {stranger: start}, NO_HOST) for start in (seen.start - 1, seen.start)]
        new.kill()
    assert [[one.pid for one in each] for each in found] == [[], [new.pid]]


# --- a sweep that is late ---------------------------------------------------------------------------------


async def test_77_what_a_process_did_is_told_though_the_sweep_is_late_and_the_sweep_goes_on(
    me: Actor, life: Lifeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes, warned = me.root.processes, []
    look, looks = processes.census, trio.Event()

    async def census(seize: bytes | None = None) -> Census:
        await looks.wait()
        return await look(seize)

    def listen(event: Event) -> None:
        if isinstance(event.data, Warned):
            warned.append(event.data)

    await run_process(me, ["true"])
    monkeypatch.setattr(processes, "census", census)
    script = "exec 3>$1; setsid sleep 300 & sleep 300 & echo up >&3; echo done"
    with me.root.bus.listen(listen):
        done = await run_process(me, shell(script, life.path), stop=ProcessStop(eof=0.05, term=0.05))
    assert (done.status, done.stdout, done.unswept) == (0, b"done\n", True)
    assert [(each.code, "exited with status 0; processes that it left" in each.message) for each in warned] == [
        ("process_left", True)
    ]
    looks.set()
    await life.silent()
    await until(lambda: not processes.live)


@pytest.fixture
def no_looks(me: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    """No look at `/proc` comes to its end."""

    async def census(seize: bytes | None = None) -> Census:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(me.root.processes, "census", census)


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> ProcessStop:
    """The time for an end is over as it begins, as after an event loop that stood still."""
    monkeypatch.setattr(child, "KILL_WITHIN", 0.0)
    monkeypatch.setattr(child, "LINGER", 0.0)
    return ProcessStop(eof=0.0, term=0.0)


async def test_a_process_whose_time_is_over_before_its_end_begins_is_killed_all_the_same(
    me: Actor, life: Lifeline, no_looks: None, no_time: ProcessStop
) -> None:
    script = 'trap "" TERM; exec 3>$1; echo up >&3; sleep 300; sleep 300'
    process = await start_process(me, shell(script, life.path), stop=no_time)
    await life.heard(["up"])
    process.ref.cancel()
    await process.ref.wait()
    await life.silent()


async def test_what_waits_for_a_process_that_did_not_end_in_time_gets_one_plain_error(
    me: Actor, no_looks: None, no_time: ProcessStop, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = Child.leave

    def hangs(child: Child) -> None:
        leave(child)  # as of a process that hangs in the kernel, there is no end to tell of

    monkeypatch.setattr(Child, "leave", hangs)
    with pytest.raises(ProcessError, match=says("supervisors.process._late")):
        await run_process(me, ["yes"], stop=no_time, output_limit=10, on_overflow="kill")


async def test_a_slow_look_does_not_hold_up_the_signals(me: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    process = await start_process(me, ["sleep", "300"])
    looking, go_on = threading.Event(), threading.Event()

    def slow(strangers: Strangers | None = None, seize: frozenset[bytes] = frozenset()) -> Census:
        looking.set()
        go_on.wait(PATIENCE)
        return Census(strangers, seize)

    monkeypatch.setattr("callboard.supervisors.processes.Census", slow)
    try:
        process.ref.cancel()
        await wait_for_death(process.pid)
        assert looking.is_set()
    finally:
        go_on.set()
    await process.ref.wait()


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


async def test_a_look_that_could_not_be_taken_makes_no_fork_bomb_of_a_large_family(
    me: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Census:
        raise OSError(errno.EMFILE, "too many open files")

    process = await start_process(me, ["sleep", "300"])
    processes = me.root.processes
    family = processes.live[process.pid]
    assert not family.count_forks(FORKS)
    monkeypatch.setattr("callboard.supervisors.forks.Census", full)
    with processes.forks.over(family):
        processes.forks.look_closer()
    assert not family.count_forks(FORKS + 1)


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
