"""Process of a tool call: its limits, the lines that it prints, and its result.

**Limits.** The kernel enforces some (`impose`): no core dumps, a maximum file size, and a number of processes. The last
one has two gaps: it counts all processes of the user, including this one, so it is set relative to the current number;
and root is exempt from it. Therefore `watch` polls `/proc/loadavg`, which costs one read. Only when the machine has
many more processes than before does it count the processes of the call.

A fork bomb doubles during the count, so the call's process group is stopped meanwhile. A call beyond its limits is
killed at once, without the usual grace. A poll that fails for lack of file descriptors is skipped.

**Output.** The result is the content of the file `LLM_OUTPUT` after all processes of the call have ended. A JSON object
or list is used as such, any other text as `{"output": text}`, an empty file as `"DONE"`. Printed lines become events up
to a limit. Further output is read and discarded, so that a full pipe never blocks the tool.
"""

from __future__ import annotations

import os
import resource
import signal
import tty
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec
import trio

from .....protocol.events import ToolDelta
from .....protocol.kernel.text_cuts import before_cut
from .....supervisors.pipes import Tail
from ....io.secret_redaction import hidden
from ..tool import Json

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.pipes import ProcessOutput
    from .....supervisors.process import Process


DONE = "DONE"


class OutputFile(msgspec.Struct, frozen=True):
    """Content of `LLM_OUTPUT`.

    Attributes:
        data: its beginning, up to the limit.
        size: the size of all of it, in bytes.
    """

    data: bytes
    size: int

    @property
    def text(self) -> str:
        """The content as text, with a note if it was cut."""
        if self.size <= len(self.data):
            return self.data.decode("utf-8", "replace")
        # Redact before the cut: half a secret would not be recognised.
        kept = before_cut(hidden(self.data.decode("utf-8", "ignore")))
        return f"{kept}\n[cut: the tool wrote {self.size} bytes, and these are the first {len(self.data)}]"


def read_output(file: Path, limit: int) -> OutputFile:
    """Read at most `limit` bytes; empty if the tool removed the file or replaced it with something else."""
    try:
        if not file.is_file():
            return OutputFile(b"", 0)
        with file.open("rb") as opened:
            data = opened.read(limit)
        return OutputFile(data, max(file.stat().st_size, len(data)))
    except OSError:
        return OutputFile(b"", 0)


def result(written: OutputFile) -> Json:
    """Return the tool's result for the model: a JSON object or list as such, other text as `{"output": text}`.

    `"DONE"` for an empty output. JSON that was cut at the limit counts as text.
    """
    if not written.size:
        return DONE
    if written.size <= len(written.data):
        try:
            value = msgspec.json.decode(written.data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            value = None
        if isinstance(value, dict | list):
            return value
    return {"output": written.text}


class Printed:
    """Conversion of one call's printed output to events."""

    def __init__(self, me: Actor, tool: str, limits: CallLimits, end: Callable[[str], None]) -> None:
        self._me = me
        self._tool = tool
        self._left = limits.shown
        self._limits = limits
        self._bytes = self._lines = 0
        self._end = end
        self._stdout = Tail(self.show)

    async def follow(self, stdout: ProcessOutput) -> None:
        """Read stdout to its end, and emit its lines."""
        while data := await stdout.receive_some():
            self.feed(data)
        self.close()

    def feed(self, data: bytes) -> None:
        """Emit the lines that end in these bytes of stdout, unless the limit is reached or no listener exists."""
        # Without a listener, splitting the output into lines would be wasted work.
        if self._left > 0 and self._me.stream.heard:
            self._stdout.feed(data)

    def close(self) -> None:
        """Flush the last line of stdout."""
        self._stdout.close()

    def stderr(self, line: str) -> None:
        """Process a line from stderr. Ends the call if stderr exceeds its limits."""
        self._bytes += len(line) + 1
        self._lines += 1
        limits = self._limits
        if self._bytes > limits.stderr or self._lines > limits.stderr_lines:
            self._end(f"wrote more than {limits.stderr} bytes or {limits.stderr_lines} lines to stderr")
        else:
            self.show(line)

    def show(self, line: str) -> None:
        """Emit a printed line. The first line that reaches the limit is followed by a note; later ones are dropped."""
        if self._left <= 0:
            return
        self._left -= len(line) + 1
        self._me.emit(ToolDelta(tool=self._tool, text=line))
        if self._left <= 0:
            self._me.emit(ToolDelta(tool=self._tool, text="[further output of the tool is not shown]"))


MENTIONED = b"/dev/tty"
CHUNK = 65_536


class Terminal:
    """Pseudo terminal without a user, for bash tools that write to `/dev/tty`. A context manager.

    Loki's documents teach `name=$(input "Name?" 2>/dev/tty)`. Without a controlling terminal, bash cannot open
    `/dev/tty` and does not even call `input`. A file that mentions `/dev/tty` therefore gets a terminal: its runner
    leads a session, and acquires the terminal by opening it. Text written there counts as printed output. The terminal
    has no input; questions use the socket as usual. Other files get no terminal, because `ssh` or `git` would wait on
    it for a password.

    Attributes:
        descriptor: the tool's end; a session leader opens it again to acquire the terminal.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)  # Raw mode: otherwise each newline arrives with a carriage return.
        os.set_blocking(self._ours, False)
        self.descriptor = self._theirs
        self._tail = Tail(on_line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        os.close(self._theirs)

    @property
    def text(self) -> str:
        """The last part of the text written to it."""
        return self._tail.text

    async def follow(self) -> None:
        """Pass text written to the terminal on by lines, until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._ours)
            self._read()

    def finish(self) -> None:
        """Read the remaining text after the last writer has exited."""
        while self._read():
            pass
        self._tail.close()

    def _read(self) -> bool:
        try:
            # Nonblocking: an error means that nothing is left to read now.
            data = os.read(self._ours, CHUNK)
        except OSError:
            return False
        self._tail.feed(data)
        return bool(data)


def wants_one(file: Path) -> bool:
    """Return True if this bash file mentions `/dev/tty`, so that its calls need a pseudo terminal."""
    try:
        return MENTIONED in file.read_bytes()
    except OSError:
        return False


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
    before its children are listed, so none is missed but one: a child that copied its parent's limits before, and is
    listed by the kernel only afterwards. `watch` repeats the walk and finds it.
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
    """Poll until cancelled, or until the call exceeds a limit on processes, memory, or the size of its result file.

    Each poll also sets the kernel's limits on processes that `impose` missed.

    Then call `end` with the reason, and return.

    Args:
        output: the file for its result, if there is one.
    """
    before = running_tasks()
    wait = LOOK_FIRST
    while True:
        await trio.sleep(wait)
        wait = min(wait * 2, LOOK_EVERY)
        impose(process.pid, limits)
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
                end(f"had {len(members)} processes at the same time ({limits.processes} are allowed)")
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
