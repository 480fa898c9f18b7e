"""Runs a program for a tool: what it prints becomes events line by line, and a bounded text for the model.

Of a long output the beginning and the end are kept, since the first error and the final summary stand there. A program
that prints without end, starts processes without end, or outlives the time of the call is ended, and what it printed so
far is in the error.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import ProcessError, ToolFailed
from .....protocol.events import ToolDelta
from ..files.limits import MIB, Limits, impose, kill, watch
from .allowed_paths import Setting

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.process import Process

HEAD = 48 * 1024
TAIL = 80 * 1024
"""Bytes kept of the beginning and of the end of what a program prints."""

ENOUGH = 64 * 1024 * 1024
"""Bytes after which a program is ended."""

LINE = 4096
HEARD = 64 * 1024
"""Bytes of a line, and of all lines, that become events."""

FAREWELL = 8 * 1024
"""Bytes of the output that go with an error."""

LIMITS = Limits(processes=1024, file_size=64 * 1024 * MIB)
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


class Printed:
    """The output so far: its beginning and its end, and its lines as they come, until `on_line` wants no more."""

    def __init__(self, on_line: Callable[[str], bool] | None) -> None:
        self.size = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._line = bytearray()
        self._on_line = on_line

    def add(self, data: bytes) -> None:
        """The program printed this."""
        if self._on_line is not None:
            self._tell(data, self._on_line)
        self.size += len(data)
        room = HEAD - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]

    def close(self) -> None:
        """It printed all it will."""
        if self._line and self._on_line is not None:
            self._on_line(self._line.decode(errors="replace"))

    @property
    def text(self) -> str:
        """What is kept."""
        tail = bytes(self._tail[-TAIL:])
        lost = self.size - len(self._head) - len(tail)
        between = b"\n[... %d bytes left out ...]\n" % lost if lost else b""
        return (bytes(self._head) + between + tail).decode(errors="replace")

    def _tell(self, data: bytes, on_line: Callable[[str], bool]) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            wanted = on_line((bytes(self._line) + line)[:LINE].decode(errors="replace"))
            self._line.clear()
            if not wanted:
                self._on_line = None
                return
        self._line += rest[: LINE - len(self._line)]


async def run_program(
    me: Actor, tool: str, argv: Sequence[str], setting: Setting, *, input: bytes | None = None
) -> Ran:
    """Run a program to its end. It writes to stdout only: the caller has joined stderr to it.

    It gets the time that the call has, or `setting.timeout` without a deadline.

    Raises:
        ToolFailed: it could not be started, took too long, printed too much or ran wild; it has been ended.
    """
    from .....supervisors.process import start_process

    try:
        process = await start_process(
            me,
            argv,
            name=tool,
            env=setting.environ,
            cwd=setting.paths.here,
            stdin="null" if input is None else "pipe",
        )
    except ProcessError as error:
        raise ToolFailed(str(error)) from error
    impose(process.pid, LIMITS)
    printed = Printed(_teller(me, tool) if me.stream.heard else None)
    seconds = _time_left(setting.timeout)
    try:
        with trio.move_on_after(seconds) as limit:
            wild = await _until_end(me, process, printed, input)
    finally:
        if process.ended is None:
            process.ref.cancel()
            with me.root.shield(5.0):
                await process.ref.wait()
    # From here to the end nothing waits: the call's own deadline, a moment later, finds it over.
    printed.close()
    if limit.cancelled_caught:
        wild = f"it did not end within {seconds:.3g} s"
    elif printed.size > ENOUGH:
        wild = f"it printed more than {ENOUGH} bytes"
    if wild:
        raise ToolFailed(f"{wild} and was ended", stderr=_end_of(printed))
    end = process.ended
    if end is None:
        raise ToolFailed("it could not be ended in time", stderr=_end_of(printed))
    return Ran(text=printed.text, status=end.status, signal=end.signal)


async def _until_end(me: Actor, process: Process, printed: Printed, input: bytes | None) -> str:
    """Feed and read a program until it ends, or is to be ended; what it did wrong, or nothing."""
    assert process.stdout is not None
    reasons: list[str] = []

    def end(reason: str) -> None:
        reasons.append(f"it {reason}")
        kill(process)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, me, process, NO_FILE, LIMITS, end)
        if input is not None and process.stdin is not None:
            # Only our own workers get input, and they read all of it before they print anything. One that ends at once
            # says why in its output.
            with contextlib.suppress(trio.BrokenResourceError):
                await process.stdin.send_all(input)
                await process.stdin.aclose()
        while printed.size <= ENOUGH and (data := await process.stdout.receive_some()):
            printed.add(data)
        if printed.size <= ENOUGH:
            await process.ref.wait()
        nursery.cancel_scope.cancel()
    return "; ".join(reasons)


def _time_left(usual: float) -> float:
    """Seconds until a moment before the call is cut off, so that what was printed so far can still be told."""
    left = trio.current_effective_deadline() - trio.current_time()
    return usual if left == math.inf else left - min(left / 10, 0.5)


def _teller(me: Actor, tool: str) -> Callable[[str], bool]:
    heard = 0

    def tell(line: str) -> bool:
        nonlocal heard
        heard += len(line) + 1
        wanted = heard <= HEARD
        me.emit(ToolDelta(tool=tool, text=line if wanted else "[more is not shown]"))
        return wanted

    return tell


def _end_of(printed: Printed) -> str:
    text = printed.text
    return text if len(text) <= FAREWELL else "..." + text[-FAREWELL:]
