"""Runs cells of the fault matrix: a host, its child of some kind, and some end of the host.

Nothing is polled and nobody sleeps: the test holds the reading end of the cell's fifo, which ends when the last
process that holds it open for writing is dead. Besides, the host is started with a mark in its environment, which those
below it inherit.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import trio
from kinds import ROLES, SCRIPTS, STUBBORN
from lifeline import Lifeline, heard
from support.starter import forked

HOST = str(Path(__file__).parent / "host.py")

SIGNALS: dict[str, tuple[signal.Signals, ...]] = {
    "SIGINT": (signal.SIGINT,),
    "double SIGINT": (signal.SIGINT, signal.SIGINT),
    "SIGTERM": (signal.SIGTERM,),
    "SIGHUP": (signal.SIGHUP,),
    "SIGKILL": (signal.SIGKILL,),
}
ENDINGS = ("normal", "crash", *SIGNALS, "cancel")
KINDS = tuple(SCRIPTS)
CELLS = [(kind, ending) for kind in KINDS for ending in ENDINGS]
GIVE_UP = 120.0

__all__ = ["CELLS", "ENDINGS", "HOST", "KINDS", "SIGNALS", "STUBBORN", "Outcome", "run_cells"]


@dataclass
class Outcome:
    """What became of one cell.

    Attributes:
        status: the host's exit status, negative for a signal.
        stderr: all it wrote there.
        to_exit: seconds from its end being brought about to its exit.
        to_silence: seconds from its exit to the death of the last process below it; None if one was still alive
            after `GIVE_UP` seconds.
        orphans: pids found by their mark after that.
    """

    status: int | None
    stderr: str
    to_exit: float
    to_silence: float | None
    orphans: list[int]


async def run_cells(
    cells: Iterable[tuple[str, str]], directory: Path, at_once: int = 4, program: Sequence[str] | None = None
) -> dict[tuple[str, str], Outcome]:
    """Run these cells, some at a time. `program` starts a host; by default it is a fork, which begins faster."""
    outcomes: dict[tuple[str, str], Outcome] = {}
    limit = trio.CapacityLimiter(at_once)

    async def one(kind: str, ending: str) -> None:
        async with limit:
            outcomes[kind, ending] = await run_cell(kind, ending, directory / f"{kind} {ending}.fifo", program)

    async with trio.open_nursery() as nursery:
        for kind, ending in cells:
            nursery.start_soon(one, kind, ending)
    _bury_the_dead()
    return outcomes


def _bury_the_dead() -> None:
    """Reap what the cells' hosts left to this program, their subreaper.

    A thousand zombies after a few dozen passes make every look at `/proc` slow, and later passes fail by the clock.
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


async def run_cell(kind: str, ending: str, fifo: Path, program: Sequence[str] | None = None) -> Outcome:
    """Run one cell."""
    life = Lifeline(fifo)
    mark = f"CALLBOARD_TEST_CELL={secrets.token_hex(8)}"
    host = await trio.lowlevel.open_process(
        [*(program or forked(HOST)), kind, ending, str(fifo)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, mark.partition("=")[0]: mark.partition("=")[2]},
        start_new_session=True,
    )
    try:
        return await _watch(host, ending, life, mark)
    finally:
        host.kill()  # a fork has the mark in `os.environ` but not in `/proc/PID/environ`
        for pid in _marked(mark):
            os.kill(pid, signal.SIGKILL)
        await life.aclose()


async def _watch(host: trio.Process, ending: str, life: Lifeline, mark: str) -> Outcome:
    assert host.stdin is not None
    assert host.stdout is not None
    assert host.stderr is not None
    errors: list[bytes] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_collect, host.stderr, errors)
        with trio.move_on_after(GIVE_UP):
            if ending != "cancel":
                await life.heard(ROLES)
                await heard(host.stdout, ["ready"])
            began = trio.current_time()
            if ending in SIGNALS:
                await _send(host, SIGNALS[ending])
            await host.stdin.aclose()
            await host.wait()
        to_exit = trio.current_time() - began
        exited = trio.current_time()
        silent = None
        with trio.move_on_after(GIVE_UP):
            await life.silent()
            silent = trio.current_time() - exited
        orphans = _marked(mark)
        if silent is None:
            nursery.cancel_scope.cancel()
    return Outcome(host.returncode, b"".join(errors).decode(), to_exit, silent, orphans)


def _marked(mark: str) -> list[int]:
    """Return the living processes that were started with this in their environment."""
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended, or is another user's
            if place.name.isdigit() and mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found


async def _send(host: trio.Process, signals: tuple[signal.Signals, ...]) -> None:
    assert host.stdout is not None
    for position, number in enumerate(signals):
        if position:
            await heard(host.stdout, ["signal"])
        host.send_signal(number)


async def _collect(stream: trio.abc.ReceiveStream, into: list[bytes]) -> None:
    into.extend([data async for data in stream])
