"""Processes: what they are given, what we get of them, and that each of them ends.

All the ways in which the host can end are in `test_process_faults`. Numbers are those of docs/kernel.md.
"""

from __future__ import annotations

import ast
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import psutil
import pytest
import trio
import trio.testing
from support.waiting import PATIENCE

from callboard.protocol.errors import ProcessError, TimedOut
from callboard.supervisors import Actor, Root
from callboard.supervisors import process as process_module
from callboard.supervisors.process import ProcessStop, run_process, start_process

sys.path.insert(0, str(Path(__file__).parent / "faults"))

from lifeline import Lifeline
from support.messages import fragment, says

MIB = 1024 * 1024
IMPATIENT = ProcessStop(eof=0.05, term=0.05)
POLITE = ProcessStop(eof=0.05, term=PATIENCE)
"""SIGTERM comes soon, and SIGKILL only if the process ignores it."""


@pytest.fixture(autouse=True)
def _limits(request: pytest.FixtureRequest) -> None:
    # The tests of guarantee 77 are about the sweep, which has to be done within the product's own limits.
    if not request.node.name.startswith("test_77"):
        request.getfixturevalue("lenient_limits")


@pytest.fixture
async def root() -> AsyncIterator[Root]:
    with trio.fail_after(PATIENCE):
        async with Root() as root:
            yield root


def shell(script: str, *arguments: str) -> list[str]:
    return ["sh", "-c", script, "sh", *arguments]


# --- what a process is given, and what we get of it -------------------------------------------------------


async def test_89_a_run_reports_status_output_and_stderr(me: Actor) -> None:
    done = await run_process(me, shell("echo out; echo err >&2; exit 3"))
    assert (done.status, done.signal, done.stdout, done.stderr_tail) == (3, None, b"out\n", "err\n")
    assert not done.truncated
    assert done.swept == 0


async def test_death_by_a_signal_is_reported_as_such(me: Actor) -> None:
    done = await run_process(me, shell("kill -USR1 $$"))
    assert (done.status, done.signal) == (-signal.SIGUSR1, signal.SIGUSR1)


async def test_input_is_sent_and_ended(me: Actor) -> None:
    data = os.urandom(MIB)
    done = await run_process(me, ["cat"], input=data)
    assert done.stdout == data


async def test_without_input_stdin_is_at_its_end_from_the_start(me: Actor) -> None:
    assert (await run_process(me, ["cat"])).status == 0


async def test_a_process_starts_in_the_directory_and_environment_it_is_given(me: Actor, tmp_path: Path) -> None:
    done = await run_process(me, ["/bin/sh", "-c", "pwd; echo $COLOUR$HOME"], cwd=tmp_path, env={"COLOUR": "red"})
    assert done.stdout.decode() == f"{tmp_path}\nred\n"


async def test_a_process_leads_a_session_of_its_own(me: Actor) -> None:
    process = await start_process(me, ["cat"], stdin="pipe")
    assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
    await process.stop()


async def test_a_process_has_our_environment_and_nothing_else(me: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOUR", "r\u00e4d")
    done = await run_process(me, [sys.executable, "-c", "import os; print(dict(os.environb))"])
    assert ast.literal_eval(done.stdout.decode()) == dict(os.environb)


async def test_a_request_of_a_megabyte_reaches_the_process_whole(me: Actor) -> None:
    words = [str(number) * 1000 for number in range(300)]
    done = await run_process(me, ["sh", "-c", 'printf %s "$@" | cksum', "sh", *words])
    expected = await run_process(me, ["cksum"], input="".join(words).encode())
    assert done.stdout == expected.stdout


async def test_more_descriptors_than_a_socket_can_pass_on_are_refused(me: Actor) -> None:
    fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(300)]
    try:
        with pytest.raises(ProcessError, match="Invalid argument"):
            await run_process(me, ["true"], pass_fds=fds)
    finally:
        for fd in fds:
            os.close(fd)
    assert (await run_process(me, ["true"])).status == 0


async def test_a_process_is_started_where_our_directory_has_been_removed(
    me: Actor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert (await run_process(me, ["readlink", "/proc/self/cwd"])).stdout == f"{tmp_path}/gone (deleted)\n".encode()


async def test_one_talks_to_a_process_through_its_pipes(me: Actor) -> None:
    process = await start_process(me, ["cat"], stdin="pipe")
    assert process.stdin is not None
    assert process.stdout is not None
    await process.stdin.send_all(b"hello")
    assert await process.stdout.receive_some() == b"hello"
    await process.stdin.aclose()
    assert (await process.wait()).status == 0


async def test_86_what_a_process_wrote_last_can_be_received_after_it_has_ended(me: Actor) -> None:
    process = await start_process(me, shell("head -c 60000 /dev/zero; echo bye >&2"))
    end = await process.wait()
    assert process.stdout is not None
    assert len(b"".join([chunk async for chunk in process.stdout])) == 60000
    assert end.stderr_tail == "bye\n"


async def test_85_stderr_is_told_line_by_line_and_its_tail_is_bounded(me: Actor) -> None:
    lines: list[str] = []
    done = await run_process(me, shell("seq 1 20000 >&2; printf end >&2"), on_stderr=lines.append)
    assert lines == [*map(str, range(1, 20001)), "end"]
    assert len(done.stderr_tail) <= 32 * 1024
    assert done.stderr_tail.startswith("1")  # a whole line
    assert done.stderr_tail.endswith("19999\n20000\nend")


async def test_helpers_may_finish_their_last_line_after_the_leader_has_exited(
    me: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "LINGER", PATIENCE)  # they are not killed however slow they are
    done = await run_process(me, shell("(sleep 0.05; echo late) & echo early"))
    assert done.stdout == b"early\nlate\n"


async def test_87_a_process_that_closes_its_stdout_is_still_waited_for(me: Actor) -> None:
    assert (await run_process(me, shell("exec >&-; sleep 0.05; exit 4"))).status == 4


# --- those that can't be started --------------------------------------------------------------------------


async def test_88_a_process_that_cannot_be_started_says_why(me: Actor, tmp_path: Path) -> None:
    def file(name: str, text: str, mode: int) -> str:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    cases: dict[str, list[str]] = {
        fragment("supervisors.guardian_link._missing"): ["no-such-program"],
        "there is no such file": [str(tmp_path / "missing")],
        "chmod +x": [file("plain", "", 0o644)],
        "the interpreter that its first line": [file("lost", "#!/no/such/interpreter\n", 0o755)],
        "neither a program nor a script": [file("data", "\x01\x02", 0o755)],
        "embedded null byte": ["echo", "a\0b"],
        "too large for this system": ["echo", *["x" * 100_000] * 40],
        "its command line is empty": [],
    }
    for text, argv in cases.items():
        with pytest.raises(ProcessError, match="can't start") as caught:
            await run_process(me, argv)
        assert text in str(caught.value)
    with pytest.raises(ProcessError, match=r"its working directory '/no/where' can't be entered \(No such file"):
        await run_process(me, ["true"], cwd="/no/where")
    assert not me.root.processes.live


async def test_88_too_many_open_files_are_an_error_and_not_a_hang(me: Actor) -> None:
    await run_process(me, ["true"])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(ProcessError, match="raise `ulimit -n`"):
            await start_process(me, ["cat"], stdin="pipe")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (await run_process(me, ["true"])).status == 0


async def test_90_a_process_is_ended_though_too_many_files_are_open(me: Actor) -> None:
    process = await start_process(me, ["sleep", "300"], stop=POLITE)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        end = await process.stop()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert end.signal == signal.SIGTERM


async def test_without_pidfds_processes_are_watched_all_the_same(me: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError("no pidfd")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert (await run_process(me, shell("sleep 300 & exit 5"))).status == 5
    process = await start_process(me, ["sleep", "300"], stop=POLITE)
    assert (await process.stop()).signal == signal.SIGTERM


@pytest.mark.parametrize("ticks", range(4))
async def test_76_a_start_cancelled_right_after_the_fork_leaves_nothing(me: Actor, life: Lifeline, ticks: int) -> None:
    processes = me.root.processes
    pids: list[int] = []

    async def cancel(scope: trio.CancelScope) -> None:
        while not processes.live:
            await trio.lowlevel.checkpoint()
        pids.extend(child.pid for child in processes.live)
        for _ in range(ticks):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel, nursery.cancel_scope)
        await start_process(me, shell("exec sleep 300 3>$1", life.path), stop=IMPATIENT)
        await trio.sleep_forever()
    for ref in me.children:
        await ref.stop()  # had the start just succeeded, the process is an actor like any other
    await life.silent()
    assert not psutil.pid_exists(pids[0])


# --- how they end -----------------------------------------------------------------------------------------


async def test_the_end_of_its_input_is_enough_for_a_polite_process(me: Actor) -> None:
    process = await start_process(me, ["cat"], stdin="pipe", stop=ProcessStop(eof=PATIENCE))
    assert (await process.stop()).status == 0


async def test_a_process_that_ignores_the_end_of_its_input_gets_sigterm(me: Actor) -> None:
    process = await start_process(me, ["sleep", "300"], stdin="pipe", stop=POLITE)
    assert (await process.stop()).signal == signal.SIGTERM


async def test_a_process_without_stdin_gets_sigterm_at_once(me: Actor) -> None:
    process = await start_process(me, ["sleep", "300"], stop=ProcessStop(eof=1000, term=1000))
    assert (await process.stop()).signal == signal.SIGTERM


async def test_79_a_process_that_ignores_sigterm_is_killed_and_reported(me: Actor, life: Lifeline) -> None:
    script = "exec 3>$1; trap '' TERM; echo ready; while :; do sleep 300; done"
    process = await start_process(me, shell(script, life.path), stop=IMPATIENT)
    assert process.stdout is not None
    assert await process.stdout.receive_some() == b"ready\n"
    assert (await process.stop()).signal == signal.SIGKILL
    await life.silent()


async def test_a_process_may_be_ended_less_patiently_than_it_was_started_with_and_not_more(me: Actor) -> None:
    process = await start_process(me, ["sleep", "300"], stdin="pipe", stop=ProcessStop(eof=1000, term=1000))
    process.stop_as(POLITE)
    assert (await process.stop()).signal == signal.SIGTERM
    process = await start_process(me, shell("trap '' TERM; echo up; sleep 300"), stdin="pipe", stop=IMPATIENT)
    assert process.stdout is not None
    await process.stdout.receive_some()
    process.stop_as(ProcessStop(eof=1000, term=1000))
    assert (await process.stop()).signal == signal.SIGKILL


async def test_a_stopped_process_can_be_ended(me: Actor) -> None:
    process = await start_process(me, ["cat"], stdin="pipe", stop=POLITE)
    os.kill(process.pid, signal.SIGSTOP)
    assert (await process.stop()).status in (0, -signal.SIGTERM)


async def test_a_process_that_must_flush_a_full_pipe_before_it_ends_gets_to_its_end(me: Actor) -> None:
    """A server that is blocked in a write can't see the end of its input: somebody has to go on reading."""
    script = "head -c 1000000 /dev/zero; cat; exit 7"
    process = await start_process(me, shell(script), stdin="pipe", stop=ProcessStop(eof=PATIENCE))
    assert (await process.stop()).status == 7


async def test_what_waits_fails_when_a_process_is_stopped(me: Actor) -> None:
    process = await start_process(me, ["sleep", "300"], stdin="pipe", stop=IMPATIENT)
    received: list[bytes] = []

    async def receive() -> None:
        assert process.stdout is not None
        received.append(await process.stdout.receive_some())

    async def send() -> None:
        assert process.stdin is not None
        with pytest.raises(trio.BrokenResourceError, match=says("supervisors.pipes.Input._check")):
            await process.stdin.send_all(bytes(MIB))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        await process.stop()
    assert received == [b""]


async def test_77_a_daemon_in_a_session_of_its_own_is_found_by_its_cookie(me: Actor, life: Lifeline) -> None:
    script = "setsid sh -c 'setsid sleep 300 &' 3>$1 >/dev/null 2>&1; true"  # the shell between is over by then
    done = await run_process(me, shell(script, life.path))
    await life.silent()
    assert (done.status, done.swept) == (0, 1)


async def test_77_what_a_polite_process_leaves_behind_is_ended_and_counted(me: Actor, life: Lifeline) -> None:
    script = "exec 3>$1; sleep 300 & setsid sleep 300 & env -i sleep 300 & (trap '' TERM; exec sleep 300) & echo bye"
    done = await run_process(me, shell(script, life.path))
    await life.silent()
    assert (done.status, done.stdout, done.swept) == (0, b"bye\n", 4)


async def test_77_a_helper_that_left_session_and_environment_is_found_while_its_parent_lives(
    me: Actor, life: Lifeline
) -> None:
    script = "exec 3>$1; env -i setsid sleep 300 & echo up >&3; wait"
    process = await start_process(me, shell(script, life.path), stop=IMPATIENT)
    await life.heard(["up"])
    await process.stop()
    await life.silent()


HIDING = """env -i setsid sh -c 'trap "" TERM; echo up >&3; while :; do sleep 300; done'"""
"""A helper without environment, in a session of its own: known only by its descent."""


@pytest.mark.parametrize(
    ("script", "stdin"),
    [
        (f"{HIDING} & wait", "null"),
        (f"{HIDING} & cat", "pipe"),
        (f"trap '' TERM; {HIDING} & wait", "null"),
        (f"(sh -c '{HIDING.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}; :' &); exec sleep 300", "null"),
    ],
    ids=["sigterm", "end of input", "sigkill", "below an orphan"],
)
async def test_77_a_hidden_helper_is_ended_with_its_process(
    me: Actor, life: Lifeline, script: str, stdin: Literal["null", "pipe"]
) -> None:
    process = await start_process(me, shell(f"exec 3>$1; {script}", life.path), stdin=stdin, stop=IMPATIENT)
    await life.heard(["up"])
    await process.stop()
    await life.silent()


async def test_77_a_hidden_helper_is_found_when_graces_are_skipped(me: Actor, life: Lifeline) -> None:
    process = await start_process(me, shell(f"exec 3>$1; {HIDING} & wait", life.path))
    await life.heard(["up"])
    me.root.hurry.set()
    await process.stop()
    await life.silent()


async def test_77_a_helper_whose_main_thread_has_exited_is_ended(me: Actor, life: Lifeline) -> None:
    """The kernel shows state Z for such a process, and no environment."""
    program = """
import ctypes, os, threading, time
def go_on():
    while open("/proc/self/stat").read().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.001)
    os.write(3, b"up\\n")
    time.sleep(300)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)
"""
    script = 'exec 3>$1; setsid "$2" -c "$3" & sleep 300'
    process = await start_process(me, shell(script, life.path, sys.executable, program), stop=IMPATIENT)
    await life.heard(["up"])
    await process.stop()
    await life.silent()


async def test_79_hurry_skips_the_graces(me: Actor) -> None:
    patient = ProcessStop(eof=1000, term=1000)
    process = await start_process(me, shell("trap '' TERM; echo up; sleep 300"), stdin="pipe", stop=patient)
    assert process.stdout is not None
    await process.stdout.receive_some()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.stop)
        await trio.testing.wait_all_tasks_blocked()
        me.root.hurry.set()
    assert process.ended is not None
    assert process.ended.signal == signal.SIGKILL


async def test_79_twenty_stubborn_processes_are_ended_at_the_same_time(me: Actor, life: Lifeline) -> None:
    """Ended one after the other, the second would get its SIGTERM when the grace of the first is over."""
    script = 'exec 3>$1; trap "echo told$2 >&3" TERM; echo up; while :; do sleep 300; done'
    processes = [
        await start_process(me, shell(script, life.path, str(number)), stop=ProcessStop(term=1000))
        for number in range(20)
    ]
    for process in processes:
        assert process.stdout is not None
        await process.stdout.receive_some()
    async with trio.open_nursery() as nursery:
        for process in processes:
            nursery.start_soon(process.stop)
        await life.heard([f"told{number}" for number in range(20)])
        me.root.hurry.set()
    assert {process.ended.signal for process in processes if process.ended} == {signal.SIGKILL}


async def test_78_a_process_ends_with_the_actor_that_started_it(root: Root, life: Lifeline) -> None:
    async def owner(me: Actor) -> None:
        await start_process(me, shell("exec 3>$1; echo up >&3; exec sleep 300", life.path), stop=IMPATIENT)
        await life.heard(["up"])

    await root.spawn(owner).result()
    await life.silent()


async def test_78_the_crash_of_its_owner_ends_a_process(root: Root, life: Lifeline) -> None:
    async def owner(me: Actor) -> None:
        await start_process(me, shell("exec sleep 300 3>$1", life.path), stop=IMPATIENT)
        raise ValueError("crash")

    ref = root.spawn(owner, link=False)
    assert (await ref.wait()).reason == "crashed"
    await life.silent()


async def test_89_a_process_that_ends_by_itself_tells_whoever_watches_it(me: Actor) -> None:
    process = await start_process(me, shell("exit 9"))
    end = await process.ref.wait()
    assert (end.reason, end.value.status) == ("normal", 9)
    assert (await process.wait()).status == 9


# --- runs that misbehave ----------------------------------------------------------------------------------


async def test_85_a_flood_of_output_is_bounded_and_reported(me: Actor) -> None:
    before = psutil.Process().memory_info().rss
    done = await run_process(me, shell("head -c 1000000000 /dev/zero"), output_limit=MIB)
    assert (done.status, len(done.stdout), done.truncated) == (0, MIB, True)
    assert psutil.Process().memory_info().rss - before < 64 * MIB


async def test_85_a_flood_can_be_ended_instead(me: Actor) -> None:
    done = await run_process(me, ["yes"], output_limit=1000, on_overflow="kill", stop=POLITE)
    assert (done.stdout, done.truncated) == (b"y\n" * 500, True)
    assert done.signal in (signal.SIGTERM, signal.SIGPIPE)


async def test_85_a_flood_of_stderr_does_not_block_the_process(me: Actor) -> None:
    done = await run_process(me, shell("head -c 100000000 /dev/zero >&2"))
    assert done.status == 0
    assert len(done.stderr_tail) == 32 * 1024


async def test_85_of_a_flood_of_lines_on_stderr_only_the_first_are_handed_on(me: Actor) -> None:
    lines: list[str] = []
    script = "yes 12345678 | head -n 100000 >&2; echo the end >&2"
    done = await run_process(me, shell(script), on_stderr=lines.append, stderr_limit=9_000)
    assert done.stderr_tail.endswith("12345678\nthe end\n")
    assert lines[:1_000] == ["12345678"] * 1_000
    assert len(lines) == 1_001
    assert "rest is not shown" in lines[-1]


async def test_85_a_flood_of_lines_on_stderr_leaves_others_their_turn(me: Actor) -> None:
    turns = handed_on = 0

    def count(_: str) -> None:
        nonlocal handed_on
        handed_on += 1

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await run_process(me, shell("yes | head -n 500000 >&2"), on_stderr=count)
        nursery.cancel_scope.cancel()
    assert handed_on == 500_000
    assert handed_on / turns <= 2_048  # lines at once


async def test_85_a_flood_of_stderr_can_be_ended_instead(me: Actor) -> None:
    done = await run_process(me, shell("yes >&2"), stderr_limit=1_000, on_overflow="kill", stop=POLITE)
    assert done.truncated
    assert done.signal in (signal.SIGTERM, signal.SIGPIPE)


async def test_85_one_line_of_fifty_megabytes_arrives_whole(me: Actor) -> None:
    done = await run_process(me, shell("head -c 50000000 /dev/zero; echo"), output_limit=64 * MIB)
    assert len(done.stdout) == 50_000_001
    assert not done.truncated


async def test_85_exactly_the_limit_is_not_truncated(me: Actor) -> None:
    assert not (await run_process(me, shell("head -c 1000 /dev/zero"), output_limit=1000)).truncated
    assert (await run_process(me, shell("head -c 1001 /dev/zero"), output_limit=1000)).truncated


async def test_87_a_process_that_never_reads_its_stdin_can_exit(me: Actor) -> None:
    assert (await run_process(me, shell("exit 2"), input=bytes(10 * MIB))).status == 2


async def test_87_a_process_that_never_reads_its_stdin_is_ended_at_its_timeout(
    mock_clock: trio.testing.MockClock, me: Actor, life: Lifeline
) -> None:
    script = "exec 3>$1; echo stuck here >&2; sleep 300"
    stuck = trio.Event()

    async def time_out() -> None:
        await stuck.wait()
        await trio.testing.wait_all_tasks_blocked()  # it is being talked to: its time has begun
        mock_clock.jump(30)
        mock_clock.rate = 1.0  # for the graces

    async with trio.open_nursery() as nursery:
        nursery.start_soon(time_out)
        said = r"'sh' did not end within 30 s and was ended; it wrote to stderr: stuck here"
        with pytest.raises(TimedOut, match=said):
            await run_process(
                me,
                shell(script, life.path),
                input=bytes(MIB),
                timeout=30,
                on_stderr=lambda _: stuck.set(),
                stop=IMPATIENT,
            )
    await life.silent()


async def test_a_cancelled_run_leaves_nothing(me: Actor, life: Lifeline) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_process, me, shell("exec 3>$1; echo up >&3; sleep 300", life.path))
        await life.heard(["up"])
        nursery.cancel_scope.cancel()
    await life.silent()
    assert not me.root.processes.live


# --- nothing leaks ----------------------------------------------------------------------------------------


async def test_91_after_a_root_all_counts_are_as_before() -> None:
    def counts() -> tuple[int, int, list[psutil.Process]]:
        return (
            len([*Path("/proc/self/fd").iterdir()]),
            threading.active_count(),
            psutil.Process().children(recursive=True),
        )

    async def session() -> None:
        async with Root() as root:
            await run_process(root.actor, shell("sleep 300 &"))
            await start_process(root.actor, ["cat"], stdin="pipe")
            with pytest.raises(ProcessError):
                await start_process(root.actor, ["no-such-program"])

    await session()  # trio's worker threads stay for a while
    files, threads, processes = counts()
    await session()
    now = counts()
    assert (now[0], now[2]) == (files, processes)
    assert now[1] <= threads  # those of earlier tests may end meanwhile


async def test_a_root_without_processes_starts_no_guardian(root: Root) -> None:
    assert root.processes.link.pid is None


async def test_92_a_process_inherits_the_descriptors_it_is_passed_and_no_other(root: Root) -> None:
    ours, theirs = socket.socketpair()
    stray_read, stray_write = os.pipe()
    os.set_inheritable(stray_write, True)
    try:

        async def body(me: Actor) -> bytes:
            script = "import os, sys; print(*os.listdir('/proc/self/fd')); os.write(int(sys.argv[1]), b'hello')"
            argv = [sys.executable, "-c", script, str(theirs.fileno())]
            done = await run_process(me, argv, pass_fds=[theirs.fileno()])
            return done.stdout

        listed = {int(number) for number in (await root.spawn(body).result()).split()}
        assert ours.recv(100) == b"hello"
        assert {0, 1, 2, theirs.fileno()} <= listed
        assert stray_write not in listed
        assert len(listed) == 5  # the fifth is what it reads the directory with
        os.fstat(theirs.fileno())
    finally:
        os.close(stray_read)
        os.close(stray_write)
        ours.close()
        theirs.close()
