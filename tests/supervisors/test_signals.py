"""Effect of signals on a program with a root, in real processes. Numbers are those of docs/kernel.md.

The hosts are forks of a warm process (see starter.py). The three tests of inherited signal dispositions start Python
itself, because a fork inherits those of the process that forks and not those of the test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.starter import forked
from support.waiting import PATIENCE

PROGRAM = Path(__file__).with_name("signalled.py")
FORKED = forked(PROGRAM)
PYTHON = (sys.executable, str(PROGRAM))

Start = Callable[..., "Host"]


class Host:
    """One run of signalled.py."""

    def __init__(self, program: Sequence[str], name: str, stop_within: float) -> None:
        argv = [*program, name, str(stop_within)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.see("ready")

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def see(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == line + "\n"

    def end(self) -> tuple[int, list[str]]:
        """Exit status, and what it still said; it must have said nothing on stderr."""
        out, err = self.process.communicate(timeout=PATIENCE)
        assert err == ""
        return self.process.returncode, out.splitlines()

    def ends_at_its_deadline(self) -> int:
        """Exit status of a host that cannot stop; on a slow machine it may not get to print anything before that."""
        status, said = self.end()
        assert set(said) <= {"signal 1", "draining"}
        return status


@pytest.fixture
def start() -> Iterator[Start]:
    hosts: list[Host] = []

    def begin(name: str, stop_within: float, program: Sequence[str] = FORKED) -> Host:
        hosts.append(Host(program, name, stop_within))
        return hosts[-1]

    yield begin
    for host in hosts:
        host.process.kill()
        host.process.wait()
        for stream in (host.process.stdout, host.process.stderr):
            if stream is not None:
                stream.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_51_the_first_signal_stops_the_tree_and_clean_up_runs(start: Start, number: int) -> None:
    host = start("polite", PATIENCE)
    host.send(number)
    assert host.end() == (128 + number, ["signal 1", "cleaned up", "left the block"])


def test_51_a_hangup_may_mean_reload(start: Start) -> None:
    host = start("reloads", PATIENCE)
    host.send(signal.SIGHUP)
    host.see("reloaded")
    host.send(signal.SIGTERM)
    assert host.end() == (143, ["signal 1", "cleaned up", "left the block"])


def test_51_the_first_signal_may_mean_that_work_is_to_end_by_itself(start: Start) -> None:
    host = start("drains", PATIENCE)
    host.send(signal.SIGTERM)
    host.see("signal 1")
    host.see("draining")
    host.send(signal.SIGINT)
    assert host.end() == (128 + signal.SIGTERM, ["signal 2", "cleaned up", "left the block"])


def test_51_so_it_may_for_as_long_as_a_block_lasts(start: Start) -> None:
    host = start("drains_in_a_block", PATIENCE)
    host.send(signal.SIGUSR1)
    host.see("the block begins")
    host.send(signal.SIGTERM)
    host.see("signal 1")
    host.see("draining")
    host.send(signal.SIGUSR1)
    host.see("the block is over")
    host.send(signal.SIGINT)
    assert host.end() == (128 + signal.SIGTERM, ["signal 2", "cleaned up", "left the block"])


def test_52_the_second_signal_skips_the_graces(start: Start) -> None:
    host = start("slow", 1000)
    host.send(signal.SIGINT)
    host.see("signal 1")
    host.send(signal.SIGINT)
    assert host.end() == (130, ["signal 2", "cut short", "left the block"])


def test_53_the_third_signal_ends_the_process_at_once(start: Start) -> None:
    host = start("shielded", 1000)
    for count in (1, 2):
        host.send(signal.SIGINT)
        host.see(f"signal {count}")
    host.send(signal.SIGINT)
    assert host.end() == (130, [])


def test_53_also_if_the_event_loop_is_blocked(start: Start) -> None:
    host = start("busy", 1000)
    for count in (1, 2):
        host.send(signal.SIGINT)
        host.see(f"signal {count}")
    host.send(signal.SIGINT)
    assert host.end() == (130, [])


def test_54_a_blocked_event_loop_dies_by_the_deadline(start: Start) -> None:
    host = start("busy", 0.05)
    host.send(signal.SIGTERM)
    assert host.ends_at_its_deadline() == 143


def test_54_so_does_one_whose_actors_shield_themselves(start: Start) -> None:
    host = start("shielded", 0.05)
    host.send(signal.SIGINT)
    assert host.ends_at_its_deadline() == 130


def test_54_so_does_one_that_was_to_let_its_work_end_first(start: Start) -> None:
    host = start("drains_for_ever", 0.05)
    host.send(signal.SIGTERM)
    assert host.ends_at_its_deadline() == 143


def test_54_so_does_one_that_has_no_memory_left(start: Start) -> None:
    host = start("starved", 0.05)
    host.send(signal.SIGTERM)
    out, err = host.process.communicate(timeout=PATIENCE)
    assert out == ""
    # Where the thread has no memory for a single step, the interpreter may say so, and the timer is what ends it.
    assert (host.process.returncode, err) == (143, "") or (
        host.process.returncode in (143, -signal.SIGALRM) and "MemoryError" in err
    )


def test_54_one_that_holds_the_interpreters_lock_is_ended_by_the_timer(start: Start) -> None:
    host = start("native", 0.05)
    host.send(signal.SIGTERM)
    assert host.end() == (-signal.SIGALRM, [])


def test_54_an_ignored_sigalrm_that_was_inherited_changes_nothing(start: Start) -> None:
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        host = start("native", 0.05, PYTHON)
    finally:
        signal.signal(signal.SIGALRM, before)
    host.send(signal.SIGTERM)
    assert host.end() == (-signal.SIGALRM, [])


def test_51_a_hangup_may_mean_reload_and_the_next_one_the_end(start: Start) -> None:
    host = start("ends_at_the_second_hangup", PATIENCE)
    host.send(signal.SIGHUP)
    host.see("reloaded")
    host.send(signal.SIGHUP)
    assert host.end() == (128 + signal.SIGHUP, ["signal 1", "cleaned up", "left the block"])


def test_51_a_hangup_that_comes_twice_is_one_signal(start: Start) -> None:
    """A terminal that is closed sends it by the kernel, and its shell sends it again."""
    host = start("slow", 1000)
    host.send(signal.SIGHUP)
    host.see("signal 1")
    host.send(signal.SIGHUP)
    host.send(signal.SIGTERM)
    host.see("signal 2")
    assert host.end() == (128 + signal.SIGHUP, ["cut short", "left the block"])


def test_51_a_hangup_that_was_ignored_before_still_reloads(start: Start) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        host = start("reloads", PATIENCE, PYTHON)
    finally:
        signal.signal(signal.SIGHUP, before)
    host.send(signal.SIGHUP)
    host.see("reloaded")
    host.send(signal.SIGTERM)
    assert host.end() == (143, ["signal 1", "cleaned up", "left the block"])


def test_51_a_hangup_that_was_ignored_before_stays_ignored(start: Start) -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited by the host
    try:
        host = start("polite", PATIENCE, PYTHON)
    finally:
        signal.signal(signal.SIGHUP, before)
    host.send(signal.SIGHUP)
    host.send(signal.SIGTERM)
    assert host.end() == (128 + signal.SIGTERM, ["signal 1", "cleaned up", "left the block"])
