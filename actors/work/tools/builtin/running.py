"""Runs a program for a tool: what it prints becomes events line by line, and a bounded text for the model.

Of a long output the beginning and the end are kept, since the first error and the final summary stand there. A program
that prints without end, starts processes without end, or outlives the time of the call is ended, and what it printed so
far is in the error.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import ProcessError, ToolFailed
from ...call_clock import Clock
from ...sandbox.current import played, sandboxed
from ...sandbox.place import Beyond
from ..files.limits import MIB, Limits, ended, impose, kill, watch
from ..files.output import Printed
from .allowed_paths import Setting

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.process import Process
    from ...sandbox.held import Held

HEAD = 48 * 1024
TAIL = 80 * 1024
"""Bytes kept of the beginning and of the end of what a program prints."""

ENOUGH = 64 * 1024 * 1024
"""Bytes after which a program is ended."""

HEARD = 64 * 1024
"""Bytes of its lines that become events."""

FAREWELL = 8 * 1024
"""Bytes of the output that go with an error."""

LIMITS = Limits(processes=1024, file_size=64 * 1024 * MIB, shown=HEARD)
"""What the user allowed is not held back; only what would bring the machine down is."""

NO_FILE = Path(os.devnull)
"""These programs have no result file to be watched."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a program: what it printed, and its exit status or the signal that ended it."""

    text: str
    status: int | None
    signal: int | None

    def told(self) -> str:
        """For the model: the output; the exit status too unless it is 0; `DONE` if there is nothing to tell."""
        if self.status == 0:
            return self.text or "DONE"
        how = f"signal {self.signal}" if self.signal is not None else f"exit status {self.status}"
        return f"{self.text}\n[{how}]" if self.text and not self.text.endswith("\n") else f"{self.text}[{how}]"


class Kept:
    """The output so far: its beginning and its end."""

    def __init__(self) -> None:
        self.size = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """The program printed this."""
        self.size += len(data)
        room = HEAD - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]

    @property
    def text(self) -> str:
        """What is kept."""
        tail = bytes(self._tail[-TAIL:])
        lost = self.size - len(self._head) - len(tail)
        between = b"\n[... %d bytes left out ...]\n" % lost if lost else b""
        return (bytes(self._head) + between + tail).decode(errors="replace")


async def run_program(
    me: Actor, tool: str, argv: Sequence[str], setting: Setting, *, input: bytes | None = None
) -> Ran:
    """Run a program to its end. It writes to stdout only: the caller has joined stderr to it.

    It gets the time that the call has, or `setting.timeout` without a deadline. Where it fails for its sandbox alone, a
    person may let it do more, and it is run again.

    Raises:
        ToolFailed: it could not be started, took too long, printed too much or ran wild; it has been ended.
    """

    async def attempt(beyond: Beyond) -> tuple[Ran, Held | None]:
        clock = Clock(_time_left(setting.timeout))
        with clock.counting():
            try:
                held = await sandboxed(me, tool, beyond=beyond)
            except ProcessError as error:
                raise ToolFailed(str(error)) from error
            return await _run(me, tool, argv, setting, input, held, clock), held

    ran, note = await played(me, attempt, lambda ran: None if ran.status == 0 else ran.text)
    return msgspec.structs.replace(ran, text=f"{ran.text.rstrip()}\n{note}\n") if note else ran


async def _run(
    me: Actor,
    tool: str,
    argv: Sequence[str],
    setting: Setting,
    input: bytes | None,
    held: Held | None,
    clock: Clock,
) -> Ran:
    from .....supervisors.child import QUICK_STOP
    from .....supervisors.process import start_process

    try:
        process = await start_process(
            me,
            argv,
            name=tool,
            env=setting.environ,
            cwd=setting.paths.here,
            stdin="null" if input is None else "pipe",
            stop=QUICK_STOP,
            confinement=held,
        )
    except ProcessError as error:
        raise ToolFailed(str(error)) from error
    impose(process.pid, LIMITS)
    kept = Kept()
    async with ended(me, process, 5.0):
        with clock.scope as limit:
            wild = await _until_end(me, tool, process, kept, input)
    # From here to the end nothing waits: the call's own deadline, a moment later, finds it over.
    if limit.cancelled_caught:
        wild = f"it did not end within {clock.seconds:.3g} s"
    elif kept.size > ENOUGH:
        wild = f"it printed more than {ENOUGH} bytes"
    if wild:
        raise ToolFailed(f"{wild} and was ended", stderr=_end_of(kept))
    end = process.ended
    if end is None:
        raise ToolFailed("it could not be ended in time", stderr=_end_of(kept))
    return Ran(text=kept.text, status=end.status, signal=end.signal)


async def _until_end(me: Actor, tool: str, process: Process, kept: Kept, input: bytes | None) -> str:
    """Feed and read a program until it ends, or is to be ended; what it did wrong, or nothing."""
    assert process.stdout is not None
    reasons: list[str] = []

    def end(reason: str) -> None:
        reasons.append(f"it {reason}")
        kill(process)

    printed = Printed(me, tool, LIMITS, end)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, process, NO_FILE, LIMITS, end)
        if input is not None and process.stdin is not None:
            # Only our own workers get input, and they read all of it before they print anything. One that ends at once
            # says why in its output.
            with contextlib.suppress(trio.BrokenResourceError):
                await process.stdin.send_all(input)
                await process.stdin.aclose()
        try:
            while kept.size <= ENOUGH and (data := await process.stdout.receive_some()):
                kept.add(data)
                printed.feed(data)
        finally:
            printed.close()
        if kept.size <= ENOUGH:
            await process.ref.wait()
        nursery.cancel_scope.cancel()
    return "; ".join(reasons)


def _time_left(usual: float) -> float:
    """Seconds until a moment before the call is cut off, so that what was printed so far can still be told."""
    left = trio.current_effective_deadline() - trio.current_time()
    return usual if left == math.inf else left - min(left / 10, 0.5)


def _end_of(kept: Kept) -> str:
    text = kept.text
    return text if len(text) <= FAREWELL else "..." + text[-FAREWELL:]
