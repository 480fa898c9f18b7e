"""Limits of one tool call, and their enforcement.

The kernel enforces what it can (`impose`): no core dumps, no file larger than `file_size`, and a number of processes.
That last one counts all processes of the user, ours included, so it is set relative to what is there; and root is
exempt from it. Hence the watch: it looks at `/proc/loadavg`, which costs one read, and only when this machine has got
many more processes than before does it count those of the call.

A fork bomb doubles while one counts, so the call's group is stopped for as long as that takes. What is beyond the
limits is killed at once, without the usual grace. A look that we have too many files open for is left out.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.process import Process

MIB = 1024 * 1024

LOOK_FIRST, LOOK_EVERY = 0.02, 0.2
"""Seconds between two looks, at the beginning of a call and later."""

ROOM = 1024
"""Processes of other work that the user may start while the call runs, on top of the call's own."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Of one call.

    Attributes:
        processes: that may be alive at once.
        file_size: bytes of any file it writes.
        result_file: bytes it may write to `LLM_OUTPUT`.
        result: bytes of that which are read.
        shown: bytes of its stdout and stderr that become events.
        stderr: bytes it may write to stderr.
        stderr_lines: lines it may write there; each is looked at, so they cost more than their bytes.
        memory: bytes that its processes may have in memory together, and each of them may ask for; None for no limit.
    """

    processes: int = 512
    file_size: int = 8192 * MIB
    result_file: int = 64 * MIB
    result: int = MIB
    shown: int = MIB
    stderr: int = 64 * MIB
    stderr_lines: int = 250_000
    memory: int | None = None


USUAL = Limits()


def impose(pid: int, limits: Limits) -> None:
    """Have the kernel hold this process, and what it starts and has started, to the limits.

    One that has ended is no error. A sandbox's program has started others by now; each is held before its children are
    looked for, so that none is missed.
    """
    wanted = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: limits.file_size}
    tasks = running_tasks()
    if tasks is not None:
        wanted[resource.RLIMIT_NPROC] = tasks + ROOM + limits.processes
    if limits.memory is not None:
        wanted[resource.RLIMIT_DATA] = limits.memory
    todo = [pid]
    while todo:
        held = todo.pop()
        for kind, most in wanted.items():
            # Gone already, or the kernel knows better what we may set: then the watch is all there is.
            with suppress(OSError, ValueError):
                _, hard = resource.prlimit(held, kind)
                bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.prlimit(held, kind, (bound, bound))
        with suppress(OSError):
            todo += map(int, Path(f"/proc/{held}/task/{held}/children").read_text().split())


async def watch(process: Process, output: Path | None, limits: Limits, end: Callable[[str], None]) -> None:
    """Call `end` with the reason when the call has gone beyond what the kernel does not see to.

    Args:
        output: the file for its result, if it is given one.
    """
    before = running_tasks()
    wait = LOOK_FIRST
    while True:
        await trio.sleep(wait)
        wait = min(wait * 2, LOOK_EVERY)
        if output is not None and _size_of(output) > limits.result_file:
            end(f"wrote more than {_in_words(limits.result_file)} to LLM_OUTPUT")
            return
        now = running_tasks()
        if now is None:
            continue
        before = now if before is None else min(before, now)
        if limits.memory is not None:
            # If no process was added, the call is its leader.
            members = await process.members() if now > before else [process.pid]
            if _resident(members) > limits.memory:
                end(f"used more than {_in_words(limits.memory)} of memory")
                return
        if now - before > limits.processes // 2:
            process.send_signal(signal.SIGSTOP)
            members = await process.members()
            if len(members) > limits.processes:
                end(f"had {len(members)} processes at once; {limits.processes} are allowed")
                return
            process.send_signal(signal.SIGCONT)
            before = now - len(members)


def kill(process: Process) -> None:
    """End a process that is out of hand: its group at once, the rest by the usual ladder."""
    process.send_signal(signal.SIGKILL)
    process.ref.cancel()


@asynccontextmanager
async def ended(me: Actor, process: Process, within: float) -> AsyncIterator[None]:
    """Have the process ended after the block, whatever happens in it, and wait for that as long as `within`."""
    try:
        yield
    finally:
        if process.ended is None:
            process.ref.cancel()
            with me.root.shield(within):
                await process.ref.wait()


def running_tasks() -> int | None:
    """Return how many processes and threads this machine has, or only its processes; None if we can't look."""
    with suppress(OSError, ValueError, IndexError):
        told = int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
        if told:
            return told
    with suppress(OSError):
        return sum(name.isdigit() for name in os.listdir("/proc"))  # noqa: PTH208 - half the time
    return None


def _resident(members: list[int]) -> int:
    """Bytes these processes have in memory; what they share counts for each."""
    pages = 0
    for pid in members:
        with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _in_words(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size} bytes"
