"""The guardian: who belongs to us, who is killed when we are gone, what happens when it is the guardian that dies.

Numbers are those of docs/kernel.md.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest
import trio
import trio.testing
from waiting import PATIENCE

from callboard.protocol.errors import ProcessError
from callboard.protocol.events import Event, Warned
from callboard.supervisors import Actor, Root, guardian_link
from callboard.supervisors.guardian import Census, Seen, kill, look
from callboard.supervisors.process import Process, run_process, start_process
from callboard.supervisors.spawn import VARIABLE, wait_for_death

sys.path.insert(0, str(Path(__file__).parent / "faults"))

from lifeline import Lifeline, heard

Starter = Callable[..., subprocess.Popen[bytes]]


pytestmark = pytest.mark.usefixtures("lenient_limits")


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


@pytest.fixture
def start() -> Iterator[Starter]:
    """Start processes behind the kernel's back, that say `up` when they run; they are killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(script: str, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["/bin/sh", "-c", script],
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **environment},
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    yield start
    for process in started:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.communicate()


def found(token: str, known: dict[int, int] | None = None) -> set[int]:
    return {seen.pid for seen in Census().belonging(token.encode(), known or {}, os.getpid()) if not seen.dead}


# --- who belongs to us ------------------------------------------------------------------------------------


def test_a_process_is_found_by_each_whole_token_of_its_cookie_and_by_no_part(start: Starter) -> None:
    process = start("echo up; exec sleep 300", **{VARIABLE: "outer:inner"})
    assert found("outer") == found("inner") == {process.pid}
    assert found("oute") == found("nner") == found("outer:inner") == set()
    assert found("", {}) == set()


def test_a_cookie_in_another_variable_means_nothing(start: Starter) -> None:
    start("echo up; exec sleep 300", NOT_CALLBOARD_COOKIE="token", CALLBOARD_COOKIES="token")
    assert found("token") == set()


def test_the_whole_session_of_whoever_carries_the_cookie_belongs_to_it(start: Starter) -> None:
    process = start("env -i sleep 300 & echo up; wait", **{VARIABLE: "token"})
    assert found("token") == {process.pid, *(child.pid for child in psutil.Process(process.pid).children())}


def test_descendants_belong_even_without_cookie_and_in_a_session_of_their_own(start: Starter) -> None:
    process = start("env -i setsid sh -c 'sleep 300 & echo up; wait' & wait", **{VARIABLE: "token"})
    tree = psutil.Process(process.pid).children(recursive=True)
    assert len(tree) == 2
    assert found("token") == {process.pid, *(child.pid for child in tree)}


def test_83_the_session_of_a_leader_is_ours_only_if_the_leader_began_when_it_should(start: Starter) -> None:
    """A pid that was given to somebody else since must not bring him into danger."""
    process = start("echo up; exec sleep 300")
    leader = look(process.pid)
    assert leader is not None
    assert found("none", {process.pid: leader.start}) == {process.pid}
    assert found("none", {process.pid: leader.start - 1}) == set()


def test_83_a_signal_reaches_only_the_process_that_was_seen(start: Starter) -> None:
    process = start("echo up; exec sleep 300")
    stat = Path(f"/proc/{process.pid}/stat").read_bytes()
    another = Seen(process.pid, stat)
    another.start -= 1
    kill(another, signal.SIGKILL)
    assert process.poll() is None
    kill(Seen(process.pid, stat), signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM


def test_a_name_with_brackets_and_blanks_is_no_riddle() -> None:
    seen = Seen(7, b"7 (a) R 1 (b) c) S 3 4 5 " + b"0 " * 15 + b"99 0 0")
    assert (seen.parent, seen.group, seen.session, seen.start, seen.dead) == (3, 4, 5, 99, False)


# --- the guardian and its host ----------------------------------------------------------------------------


async def test_the_guardian_is_deaf_to_polite_signals(me: Actor) -> None:
    await run_process(me, ["true"])
    link = me.root.processes.link
    first = link.pid
    assert first is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGTSTP):
        os.kill(first, number)
    await run_process(me, ["true"])  # it answered again
    assert link.pid == first


async def test_the_guardian_is_small_and_has_its_own_session_and_no_cookie(
    me: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "outer")
    await run_process(me, ["true"])
    pid = me.root.processes.link.pid
    assert pid is not None
    guardian = psutil.Process(pid)
    assert os.getsid(pid) == pid
    assert VARIABLE not in guardian.environ()
    assert guardian.cwd() == "/"
    assert guardian.memory_full_info().uss < 8 * 1024 * 1024


async def test_the_guardian_leaves_when_the_root_is_closed() -> None:
    async with Root() as root:
        await run_process(root.actor, ["true"])
        pid = root.processes.link.pid
        assert pid is not None
    assert not psutil.pid_exists(pid)


async def test_75_a_process_is_handed_over_only_when_the_guardian_knows_it(me: Actor, life: Lifeline) -> None:
    await run_process(me, ["true"])
    processes, guardian = me.root.processes, me.root.processes.link.pid
    assert guardian is not None
    started: list[Process] = []

    async def start() -> None:
        argv = ["sh", "-c", "exec env -i sh -c 'echo up >&3; exec sleep 300' 3>$1", "sh", life.path]
        started.append(await start_process(me, argv))

    async with trio.open_nursery() as nursery:
        os.kill(guardian, signal.SIGSTOP)
        nursery.start_soon(start)
        await life.heard(["up"])
        while not processes.live:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert not started  # it runs, but the guardian has not answered
        os.kill(guardian, signal.SIGCONT)
    processes.link.abandon()  # as if we had died; the process has no cookie any more
    assert (await started[0].wait()).signal == signal.SIGKILL
    await life.silent()


async def test_75_the_guardian_knows_the_token_of_the_root_before_anything_is_executed(
    me: Actor, life: Lifeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_guardian:
        without_guardian.setattr(sys, "executable", "/no/such/python")
        with pytest.raises(ProcessError, match="/no/such/python"):
            await start_process(me, ["no-such-program"])  # it did not even come to that
    process = await start_process(me, ["sh", "-c", "exec sleep 300 3>$1", "sh", life.path])
    await me.root.processes.link.forget(process.pid)
    me.root.processes.link.abandon()  # as if we had died before the guardian was told of this process
    assert (await process.wait()).signal == signal.SIGKILL
    await life.silent()


def warnings_of(root: Root) -> tuple[list[str], Callable[[Event], None]]:
    codes: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event.data, Warned):
            codes.append(event.data.code)

    return codes, listen


async def test_82_a_guardian_that_is_killed_is_replaced_and_told_everything_again(me: Actor, life: Lifeline) -> None:
    link = me.root.processes.link
    codes, listen = warnings_of(me.root)
    process = await start_process(me, ["sh", "-c", "exec env -i sleep 300 3>$1", "sh", life.path])
    first = link.pid
    assert first is not None
    with me.root.bus.listen(listen):
        os.kill(first, signal.SIGKILL)
        await wait_for_death(first)
        while link.pid in (first, None):
            await trio.lowlevel.checkpoint()
        await link.ensure()  # waits until it is told
        assert codes == ["guardian_died"]
    link.abandon()  # as if we had died
    assert (await process.wait()).signal == signal.SIGKILL
    await life.silent()


async def test_82_a_guardian_that_hangs_is_replaced_when_it_does_not_answer(
    mock_clock: trio.testing.MockClock, me: Actor
) -> None:
    mock_clock.rate = 1.0
    link = me.root.processes.link
    await run_process(me, ["true"])
    first = link.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)

    async def time_out() -> None:
        while not me.root.processes.live:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()  # the guardian was told of the process
        mock_clock.jump(guardian_link.ANSWER_WITHIN)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(time_out)
        assert (await run_process(me, ["true"])).status == 0
    assert link.pid != first


async def test_82_a_guardian_that_cannot_be_kept_alive_is_given_up_loudly(me: Actor) -> None:
    link = me.root.processes.link
    codes, listen = warnings_of(me.root)
    await run_process(me, ["true"])
    with me.root.bus.listen(listen):
        victims: set[int] = set()
        while "guardian_lost" not in codes:
            if link.pid is not None and link.pid not in victims:  # there is none while the next one starts
                victims.add(link.pid)
                os.kill(link.pid, signal.SIGKILL)
            await trio.sleep(0.001)
    assert codes[-1] == "guardian_lost"
    assert codes.count("guardian_died") == guardian_link.LIVES
    with pytest.raises(ProcessError, match="the guardian process ended 5 times within 600 s"):
        await start_process(me, ["true"])


HOST = """
import os, sys, time, trio
from callboard.supervisors import Root
from callboard.supervisors.process import start_process

async def main():
    async with Root() as root:
        await start_process(root.actor, ["sh", "-c", sys.argv[2], "sh", sys.argv[1]])
        if sys.argv[3] == "fork" and os.fork() == 0:
            os.closerange(0, 3)
            time.sleep(300)
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
        os._exit(7)

trio.run(main)
"""


@pytest.mark.parametrize("how", ["killed", "killed after a fork", "os._exit"])
async def test_81_a_host_that_is_killed_takes_everything_with_it(life: Lifeline, how: str) -> None:
    """Also when a forked copy of the host still holds the socket to the guardian open."""
    script = "exec 3>$1; trap '' TERM; setsid sleep 300 & env -i setsid sleep 300 & echo up >&3; wait"
    host = await trio.lowlevel.open_process(
        [sys.executable, "-c", HOST, life.path, script, "fork" if "fork" in how else ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert host.stdin is not None
    assert host.stdout is not None
    with trio.fail_after(PATIENCE):
        await life.heard(["up"])
        await heard(host.stdout, ["ready"])
        if how == "os._exit":
            await host.stdin.aclose()
        else:
            host.kill()
        assert await host.wait() == (7 if how == "os._exit" else -signal.SIGKILL)
        await life.silent()
    if "fork" in how:
        os.killpg(host.pid, signal.SIGKILL)
    await host.stdin.aclose()
    await host.stdout.aclose()


async def test_84_an_outer_callboard_ends_the_children_of_an_inner_one(me: Actor, life: Lifeline) -> None:
    """Even when the inner host and its guardian are both killed at once."""
    process = await start_process(
        me, [sys.executable, "-c", HOST, life.path, "exec 3>$1; echo up >&3; exec sleep 300", ""], stdin="pipe"
    )
    assert process.stdout is not None
    await life.heard(["up"])
    await heard(process.stdout, ["ready"])
    for inner in [*psutil.Process(process.pid).children(), psutil.Process(process.pid)]:
        if "guardian" in " ".join(inner.cmdline()) or inner.pid == process.pid:
            inner.kill()
    end = await process.wait()
    await life.silent()
    assert end.swept in (1, 2)  # the inner guardian may be dying still as it is counted
