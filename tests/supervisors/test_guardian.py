"""The guardian and its reapers: what they end when we are gone, and what happens when one of them dies or stands still.

Numbers are those of docs/kernel.md.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
import trio.testing
from support.descendants import name_of
from support.waiting import PATIENCE, until

from callboard.protocol.errors import ProcessError
from callboard.protocol.events import Event, Warned
from callboard.supervisors import Actor, Root, guardian, guardian_link
from callboard.supervisors.guardian import ProcessInfo, descendants, read_process, send
from callboard.supervisors.guardian_link import IDLE
from callboard.supervisors.process import run_process, start_process

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
                with suppress(psutil.NoSuchProcess):  # it has ended with its parent
                    child.kill()
        process.kill()
        process.communicate()


# --- descendants ------------------------------------------------------------------------------------------


def test_descendants_are_found_in_sessions_of_their_own_and_without_environment(start: Starter) -> None:
    process = start("env -i setsid sh -c 'sleep 300 & echo up; wait' & wait")
    tree = psutil.Process(process.pid).children(recursive=True)
    assert len(tree) == 2
    assert {seen.pid for seen in descendants(process.pid)} == {child.pid for child in tree}


def test_descendants_are_found_where_the_kernel_keeps_no_lists_of_children(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start("setsid sh -c 'sleep 300 & echo up; wait' & wait")
    read = guardian._read
    monkeypatch.setattr(guardian, "_read", lambda path: None if path.endswith("/children") else read(path))
    tree = psutil.Process(process.pid).children(recursive=True)
    assert {seen.pid for seen in descendants(process.pid)} == {child.pid for child in tree}


@pytest.mark.parametrize("pidfds", [True, False])
def test_83_a_signal_reaches_only_the_process_that_was_seen(
    start: Starter, monkeypatch: pytest.MonkeyPatch, pidfds: bool
) -> None:
    """A pid that was given to somebody else since must not bring him into danger."""
    if not pidfds:
        monkeypatch.setattr(os, "pidfd_open", lambda _: os.close(-1))
    process = start("echo up; exec sleep 300")
    seen = read_process(process.pid)
    assert seen is not None
    another = read_process(process.pid)
    assert another is not None
    another.start -= 1
    send(another, signal.SIGKILL)
    assert process.poll() is None
    send(seen, signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM


def test_the_name_of_a_program_may_hold_brackets_and_blanks() -> None:
    seen = ProcessInfo(7, b"7 (a) R 1 (b) c) S 3 4 5 " + b"0 " * 15 + b"99 0 0")
    assert (seen.parent, seen.start, seen.dead) == (3, 99, False)


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


async def test_the_guardian_and_a_reaper_are_small_and_have_a_session_of_their_own(
    me: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "xyz")
    process = await start_process(me, ["cat"], stdin="pipe")
    pid = me.root.processes.link.pid
    assert pid is not None
    guardian, reaper = psutil.Process(pid), psutil.Process(reaper_of(process.pid))
    assert os.getsid(pid) == pid == os.getsid(reaper.pid) == reaper.ppid()
    assert "SECRET" not in guardian.environ()
    assert guardian.cwd() == reaper.cwd() == "/"
    assert guardian.memory_full_info().uss < 8 * 1024 * 1024
    assert reaper.memory_full_info().uss < 2 * 1024 * 1024
    assert (guardian.name(), reaper.name()) == ("guardian", "reaper")
    assert reaper.cmdline()[0] == f"reaper of {os.getpid()}"
    await process.stop()


def reaper_of(pid: int) -> int:
    return psutil.Process(pid).ppid()


async def test_the_guardian_leaves_when_the_root_is_closed() -> None:
    async with Root() as root:
        await run_process(root.actor, ["true"])
        pid = root.processes.link.pid
        assert pid is not None
    assert not psutil.pid_exists(pid)


async def test_75_no_process_is_started_without_a_guardian(me: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(ProcessError, match="/no/such/python"):
        await start_process(me, ["no-such-program"])  # it did not even come to that


async def test_75_a_process_that_was_just_started_is_ended_when_we_are_gone(me: Actor, life: Lifeline) -> None:
    process = await start_process(me, ["sh", "-c", "exec env -i sleep 300 3>$1", "sh", life.path])
    reaper = reaper_of(process.pid)
    (child,) = me.root.processes.live
    child.reaper.close()  # as the kernel does when we die
    await until(lambda: not psutil.pid_exists(reaper))
    await life.silent()


def warnings_of(root: Root) -> tuple[list[str], Callable[[Event], None]]:
    codes: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event.data, Warned):
            codes.append(event.data.code)

    return codes, listen


async def test_82_a_guardian_that_is_killed_is_replaced_and_processes_go_on(me: Actor, life: Lifeline) -> None:
    link = me.root.processes.link
    codes, listen = warnings_of(me.root)
    process = await start_process(me, ["sh", "-c", "exec env -i sleep 300 3>$1", "sh", life.path])
    first = link.pid
    assert first is not None
    with me.root.bus.listen(listen):
        os.kill(first, signal.SIGKILL)
        await until(lambda: link.pid not in (first, None))
        assert (await run_process(me, ["true"])).status == 0
        assert codes == ["guardian_died"]
    assert process.ended is None
    end = await process.stop()
    assert end.signal == signal.SIGTERM
    await life.silent()


async def test_82_a_guardian_that_stands_still_is_continued(me: Actor) -> None:
    link = me.root.processes.link
    busy = [await start_process(me, ["cat"], stdin="pipe") for _ in range(IDLE + 1)]
    first = link.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    assert (await run_process(me, ["true"])).status == 0
    assert link.pid == first
    for process in busy:
        await process.stop()


async def test_82_a_guardian_that_hangs_is_replaced(me: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    link = me.root.processes.link
    busy = [await start_process(me, ["cat"], stdin="pipe") for _ in range(IDLE + 1)]
    first = link.pid
    assert first is not None
    monkeypatch.setattr(guardian_link, "_signal", lambda *_: None)  # it can't be continued
    monkeypatch.setattr(guardian_link, "ANSWER_WITHIN", 1.0)
    popen = guardian_link._popen

    def start_patiently(*args: Any) -> Any:
        monkeypatch.setattr(guardian_link, "ANSWER_WITHIN", PATIENCE)
        return popen(*args)

    monkeypatch.setattr(guardian_link, "_popen", start_patiently)
    os.kill(first, signal.SIGSTOP)
    assert (await run_process(me, ["true"])).status == 0
    assert link.pid != first
    for process in busy:
        await process.stop()


async def test_a_reaper_that_stands_still_is_continued(me: Actor, life: Lifeline) -> None:
    process = await start_process(me, ["sh", "-c", "exec 3>$1; echo up >&3; exec sleep 300", "sh", life.path])
    await life.heard(["up"])
    os.kill(reaper_of(process.pid), signal.SIGSTOP)
    assert await process.members() == [process.pid]
    await process.stop()
    await life.silent()


async def test_a_reaper_that_can_not_be_continued_is_killed_and_the_start_refused(
    me: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await start_process(me, ["cat"], stdin="pipe")
    reaper = reaper_of(process.pid)
    await process.stop()
    send = guardian_link._signal
    monkeypatch.setattr(guardian_link, "_signal", lambda pid, number: number == signal.SIGKILL and send(pid, number))
    os.kill(reaper, signal.SIGSTOP)
    with monkeypatch.context() as hurried:
        hurried.setattr(guardian_link, "CONTINUED_AFTER", 0.1)
        hurried.setattr(guardian_link, "START_WITHIN", 0.5)
        with pytest.raises(ProcessError, match="it did not begin within"):
            await run_process(me, ["true"])
    await until(lambda: not psutil.pid_exists(reaper))
    assert (await run_process(me, ["true"])).status == 0


async def test_what_a_killed_reaper_leaves_is_ended_by_the_guardian(me: Actor, life: Lifeline) -> None:
    script = "exec 3>$1; env -i setsid sleep 300 & trap '' TERM; echo up >&3; sleep 300; sleep 300"
    process = await start_process(me, ["sh", "-c", script, "sh", life.path])
    sibling = await start_process(me, ["cat"], stdin="pipe")
    await life.heard(["up"])
    os.kill(reaper_of(process.pid), signal.SIGKILL)
    end = await process.wait()
    assert end.signal == signal.SIGKILL
    await life.silent()
    assert sibling.ended is None
    await sibling.stop()


async def test_a_reaper_that_was_killed_while_it_had_nothing_to_do_is_replaced(me: Actor) -> None:
    process = await start_process(me, ["cat"], stdin="pipe")
    reaper = reaper_of(process.pid)
    await process.stop()
    os.kill(reaper, signal.SIGKILL)
    await until(lambda: not psutil.pid_exists(reaper))
    assert (await run_process(me, ["true"])).status == 0


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
        await link.new_reaper()


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


@pytest.mark.parametrize("how", ["a reaper", "the guardian", "both"])
async def test_81_a_host_is_killed_after_its_guardian_or_a_reaper_was_stopped(life: Lifeline, how: str) -> None:
    script = "exec 3>$1; trap '' TERM; env -i setsid sleep 300 & echo up >&3; wait"
    host = await trio.lowlevel.open_process(
        [sys.executable, "-c", HOST, life.path, script, ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert host.stdin is not None
    assert host.stdout is not None
    with trio.fail_after(PATIENCE):
        await life.heard(["up"])
        await heard(host.stdout, ["ready"])
        (guardian,) = psutil.Process(host.pid).children()
        (reaper,) = guardian.children()
        if how != "the guardian":
            reaper.suspend()
        if how != "a reaper":
            guardian.suspend()
        host.kill()
        await host.wait()
        if how == "both":  # nobody of ours runs: what we promise is that one of them is enough
            guardian.resume()
        await life.silent()
    await host.stdin.aclose()
    await host.stdout.aclose()


async def test_84_an_outer_callboard_ends_the_children_of_an_inner_one(me: Actor, life: Lifeline) -> None:
    """Even when the inner host, its guardian, and its reaper are killed at once."""
    process = await start_process(
        me, [sys.executable, "-c", HOST, life.path, "exec 3>$1; echo up >&3; exec sleep 300", ""], stdin="pipe"
    )
    assert process.stdout is not None
    await life.heard(["up"])
    await heard(process.stdout, ["ready"])
    inner = psutil.Process(process.pid)
    for each in [*(each for each in inner.children(recursive=True) if name_of(each) != "sleep"), inner]:
        with suppress(psutil.NoSuchProcess):  # a reaper may end with the guardian
            each.kill()
    await process.wait()
    await life.silent()
