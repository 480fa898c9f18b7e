"""Limits of one tool call, and their enforcement.

The kernel enforces some limits (`impose`): no core dumps, a maximum file size, and a number of processes. The last one
has two gaps: it counts all processes of the user, including this one, so it is set relative to the current number; and
root is exempt from it. Therefore `watch` polls `/proc/loadavg`, which costs one read. Only when the machine has many
more processes than before does it count the processes of the call.

A fork bomb doubles during the count, so the call's process group is stopped meanwhile. A call beyond its limits is
killed at once, without the usual grace. A poll that fails for lack of file descriptors is skipped.
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
"""Seconds between two polls, at the beginning of a call and later."""

ROOM = 1024
"""Processes that other programs of the user may start while the call runs, in addition to the call's own."""


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one call.

    Attributes:
        processes: maximum number of concurrent processes.
        file_size: maximum bytes of any file that it writes.
        result_file: maximum bytes written to `LLM_OUTPUT`.
        result: bytes of `LLM_OUTPUT` that are read.
        shown: bytes of its stdout and stderr that become events.
        stderr: maximum bytes written to stderr.
        stderr_lines: maximum lines written to stderr; each line is processed, so lines cost more than their bytes.
        memory: maximum resident bytes of all its processes together, and data segment of each; None for no limit.
    """

    processes: int = 512
    file_size: int = 8192 * MIB
    result_file: int = 64 * MIB
    result: int = MIB
    shown: int = MIB
    stderr: int = 64 * MIB
    stderr_lines: int = 250_000
    memory: int | None = None


USUAL = CallLimits()


def impose(pid: int, limits: CallLimits) -> None:
    """Set the kernel's limits on this process and its descendants.

    A process that has ended is no error. A sandbox's program may already have started others. Each process is limited
    before its children are listed, so that none is missed.
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
            # The process has ended, or the kernel refuses the limit: then only the watch remains.
            with suppress(OSError, ValueError):
                _, hard = resource.prlimit(held, kind)
                bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.prlimit(held, kind, (bound, bound))
        with suppress(OSError):
            todo += map(int, Path(f"/proc/{held}/task/{held}/children").read_text().split())


async def watch(process: Process, output: Path | None, limits: CallLimits, end: Callable[[str], None]) -> None:
    """Call `end` with the reason when the call exceeds a limit that the kernel does not enforce.

    Args:
        output: the file for its result, if there is one.
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
        # The lowest number seen so far: other programs' processes that end must not hide the call's.
        before = now if before is None else min(before, now)
        if limits.memory is not None:
            # Without an added process, the call consists of its leader alone.
            members = await process.members() if now > before else [process.pid]
            if _resident(members) > limits.memory:
                end(f"used more than {_in_words(limits.memory)} of memory")
                return
        if now - before > limits.processes // 2:
            # Stop the group while counting: a fork bomb would outrun the count.
            process.send_signal(signal.SIGSTOP)
            members = await process.members()
            if len(members) > limits.processes:
                end(f"had {len(members)} processes at once; {limits.processes} are allowed")
                return
            # The count was within the limit: let the call continue.
            process.send_signal(signal.SIGCONT)
            before = now - len(members)


def kill(process: Process) -> None:
    """Kill a process that exceeds its limits: its group with SIGKILL at once, the rest by the usual ladder."""
    process.send_signal(signal.SIGKILL)
    process.ref.cancel()


@asynccontextmanager
async def ended(me: Actor, process: Process, within: float) -> AsyncIterator[None]:
    """End the process after the block, whatever happens in it, and wait for its end for at most `within` seconds."""
    try:
        yield
    finally:
        if process.ended is None:
            process.ref.cancel()
            with me.root.shield(within):
                await process.ref.wait()


def running_tasks() -> int | None:
    """Return the machine's number of processes and threads, or only of processes; None if it cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        told = int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
        if told:
            return told
    with suppress(OSError):
        return sum(name.isdigit() for name in os.listdir("/proc"))  # noqa: PTH208 - half the time
    return None


def _resident(members: list[int]) -> int:
    """Return the resident bytes of these processes; shared pages count for each."""
    pages = 0
    for pid in members:
        with suppress(OSError, ValueError, IndexError):  # The process has ended meanwhile.
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _in_words(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size} bytes"
