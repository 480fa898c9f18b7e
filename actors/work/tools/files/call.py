"""One call of a tool file's function, from start to result.

The file runs in place under the process supervisor, with our working directory and without a terminal. Its runner is
held at the start until the kernel's limits are on it. Then four things go on at once: the process runs, what it
prints becomes events, its questions are answered, and the watch looks whether it is out of hand. Waiting for a person
does not count against its time. Whatever ends the call ends every process of it.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import ProcessError, ToolFailed
from .....supervisors.child import QUICK_STOP
from .....supervisors.spawn import WHY
from ....io import temporary
from ....io.directories import private_directory
from ...call_clock import Clock
from ...journal.unknown import call_key
from ...library import PROMPT_UTILS
from ...sandbox.current import played, sandboxed
from ...sandbox.place import WITHIN, Beyond
from ..tool import TIMEOUT, Arguments, Json, Tool, ToolSpec
from .call_file import Host, handed_over, memory_file, raw_json
from .environment import Home, caches, environment, raw_names
from .interpreters import command, command_by_npx
from .limits import MIB, USUAL, Limits, ended, impose, kill, watch
from .output import Printed, Terminal, Written, read_output, result, wants_one
from .questions import AskSocket

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.process import Process, ProcessEnd
    from ...sandbox.held import Held
    from ..declare.declaration import Declaration

CALL_KEY = "CALLBOARD_CALL_KEY"
"""The variable in which a tool that does its work once for each key finds that of the call."""

NO_TYPES = 86
"""Exit status of the runner when node can't read TypeScript."""


async def play(
    me: Actor,
    declaration: Declaration,
    arguments: Arguments,
    home: Home,
    *,
    timeout: float | None = None,
    limits: Limits = USUAL,
    host: Host | None = None,
) -> Written:
    """Call the function, on behalf of `me`; what it wrote to `LLM_OUTPUT`.

    Args:
        timeout: seconds, those left out in which it waits for a person.
        host: of a Python function that was written for another program.

    Raises:
        ToolFailed: it could not be started, failed, took too long or was out of hand.
    """
    if not declaration.file.is_file():
        raise ToolFailed(f"Tool '{declaration.name}' can't be run: there is no file {declaration.file}")
    call = _Call(me, declaration, limits, home.cwd)
    with _told(declaration), _place(home, declaration) as (home, output):
        call.writes = (output, *caches(home, declaration))
        raw = raw_json(arguments, declaration)
        environ = environment(home, declaration, output=output, raw=raw)
        if declaration.repeats == "keyed":
            environ[CALL_KEY] = call_key(me)
        argv = command(declaration, environ)
        given = handed_over(declaration, arguments, environ, raw=dict.fromkeys(raw_names(home), raw), host=host)

        async def attempt(beyond: Beyond) -> tuple[ProcessEnd, Held | None]:
            call.beyond = beyond
            if beyond != WITHIN:
                await trio.to_thread.run_sync(output.write_bytes, b"")
            end = await call.run(argv, environ, given, output, timeout)
            if declaration.language == "typescript" and end.status == NO_TYPES:
                end = await call.run(await command_by_npx(me, declaration, environ), environ, given, output, timeout)
            return end, call.held

        def said(end: ProcessEnd) -> str | None:
            failed = end.status != 0 and not call.out_of_hand
            return f"{read_output(output, limits.result).text}\n{end.stderr_tail}" if failed else None

        end, call.note = await played(me, attempt, said)
        written = read_output(output, limits.result)
        call.check(end, written.text)
        return written


_CACHES = temporary.LazyDirectory("caches")
"""The caches of tools where the usual directory can't be written to."""


@contextmanager
def _told(declaration: Declaration) -> Iterator[None]:
    """What the system refuses us becomes the failure of the call: where many are played at once, files run out."""
    try:
        yield
    except OSError as error:
        why = WHY[error.errno] if error.errno in (errno.EMFILE, errno.ENFILE) else str(error)
        raise ToolFailed(f"Tool '{declaration.name}' can't be run: {why}") from error


@contextmanager
def _place(home: Home, declaration: Declaration) -> Iterator[tuple[Home, Path]]:
    """Make the caches, which stay, and the file for the result, which is removed after the call."""
    try:
        for directory in caches(home, declaration):
            private_directory(directory)
    except OSError:  # a read-only home: then caches last as long as this process
        home = msgspec.structs.replace(home, cache=_CACHES.path())
        for directory in caches(home, declaration):
            private_directory(directory)
    with temporary.file("output-") as path:
        yield home, path


class _Call:
    """One call.

    Attributes:
        writes: what its process writes by its nature, whatever sandbox it is in.
        beyond: what a person lets it do besides.
        held: how its process is held.
        note: what the model is to know of that.
        out_of_hand: what was the matter with it; "" for nothing.
    """

    def __init__(self, me: Actor, declaration: Declaration, limits: Limits, cwd: Path | None) -> None:
        self._me = me
        self._cwd = cwd
        self._tool = declaration.name
        self._file = declaration.file
        self._language = declaration.language
        self._limits = limits
        self._process: Process | None = None
        self.out_of_hand = ""
        self.writes: tuple[Path, ...] = ()
        self.beyond = WITHIN
        self.held: Held | None = None
        self.note = ""
        self._shows = (declaration.file.parent, PROMPT_UTILS.parent)

    async def run(
        self, argv: Sequence[str], environ: Mapping[str, str], given: bytes, output: Path, timeout: float | None
    ) -> ProcessEnd:
        fd = memory_file(given)
        printed = Printed(self._me, self._tool, self._limits, self._end)
        clock = Clock(timeout)
        try:
            with clock.counting(), AskSocket() as asking, self._terminal(printed) as terminal:
                passed = {"CALLBOARD_CALL_FD": str(fd), "CALLBOARD_ASK_FD": str(asking.theirs)}
                if terminal is not None:
                    passed["CALLBOARD_TTY"] = terminal.name
                process = await self._start(argv, {**environ, **passed}, printed, (fd, asking.theirs))
                asking.handed_over()
                self._process = process
                beside: list[Callable[[], Awaitable[None]]] = [
                    partial(asking.serve, self._me, clock, self._tool),
                    partial(watch, process, output, self._limits, self._end),
                ]
                if terminal is not None:
                    beside.append(terminal.follow)
                end = await self._follow(process, printed, clock, beside)
                if terminal is not None:
                    terminal.finish()
                    end = msgspec.structs.replace(end, stderr_tail=end.stderr_tail + terminal.text)
                return end
        finally:
            os.close(fd)

    def check(self, end: ProcessEnd, written: str) -> None:
        """Raise what is wrong with how it ended, if anything is. What it has written says more: a build's errors."""
        stderr = f"{end.stderr_tail.rstrip()}\n{self.note}\n" if self.note else end.stderr_tail
        told = partial(ToolFailed, stderr=stderr, output=written)
        if self.out_of_hand:
            raise told(f"Tool call '{self._tool}' {self.out_of_hand}, and was ended")
        if end.status == 0:
            return
        if end.signal is None:
            raise told(f"Tool call '{self._tool}' exited with code {end.status}")
        message = f"Tool call '{self._tool}' was ended by the signal {_name(end.signal)}"
        if end.signal == signal.SIGXFSZ:
            message += f": it wrote a file of more than {self._limits.file_size // MIB} MiB"
        raise told(message)

    async def _start(
        self, argv: Sequence[str], environ: Mapping[str, str], printed: Printed, fds: tuple[int, int]
    ) -> Process:
        from .....supervisors.process import start_process

        try:
            self.held = await sandboxed(
                self._me, self._tool, writes=self.writes, shows=self._shows, file=self._file, beyond=self.beyond
            )
            return await start_process(
                self._me,
                argv,
                name=self._tool,
                env=environ,
                cwd=self._cwd,
                on_stderr=printed.stderr,
                stop=QUICK_STOP,
                pass_fds=fds,
                confinement=self.held,
            )
        except ProcessError as error:
            raise ToolFailed(f"Tool '{self._tool}' can't be run: {error}") from error

    def _terminal(self, printed: Printed) -> AbstractContextManager[Terminal | None]:
        if self._language == "bash" and wants_one(self._file):
            with suppress(OSError):  # this machine has none to give
                return Terminal(printed.show)
        return nullcontext()

    async def _follow(
        self, process: Process, printed: Printed, clock: Clock, beside: Sequence[Callable[[], Awaitable[None]]]
    ) -> ProcessEnd:
        assert process.stdout is not None
        async with ended(self._me, process, QUICK_STOP.within):
            with clock.scope:
                clock.start()
                impose(process.pid, self._limits)
                async with trio.open_nursery() as nursery:
                    for body in beside:
                        nursery.start_soon(body)
                    await printed.follow(process.stdout)
                    await process.ref.wait()
                    nursery.cancel_scope.cancel()
                return await process.wait()
        late = f"Tool call '{self._tool}' did not end within {clock.seconds:g} s and was ended"
        raise ToolFailed(late, stderr=process.stderr_tail)

    def _end(self, reason: str) -> None:
        if not self.out_of_hand and self._process is not None:
            self.out_of_hand = reason
            kill(self._process)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


_LINES, _CHARACTERS = 5, 500
"""Of stderr that an error quotes."""


def file_tool(declaration: Declaration, home: Home, *, timeout: float | None = TIMEOUT, limits: Limits = USUAL) -> Tool:
    """The tool that calls this function in a process of its own.

    Args:
        timeout: seconds of one call; None for no end. It stands still while the tool waits for a person, which is why
            the tool's own `timeout` is None.
    """

    async def run(me: Actor, arguments: Arguments) -> Json:
        return result(await play(me, declaration, arguments, home, timeout=timeout, limits=limits))

    spec = ToolSpec(name=declaration.name, description=declaration.description, parameters=declaration.parameters)
    return Tool(
        spec=spec, run=run, origin="file", timeout=None, repeats=declaration.repeats, file=declaration.file.absolute()
    )


async def instructions(me: Actor, declaration: Declaration, home: Home, *, timeout: float | None = TIMEOUT) -> str:
    """What the function `_instructions` of an agent's tool file writes.

    Raises:
        ToolFailed: it could not be started, or failed. There is no model to read its stderr, so the message quotes it.
    """
    try:
        return (await play(me, declaration, {}, home, timeout=timeout)).text
    except ToolFailed as failed:
        lines = [line.strip() for line in failed.stderr.splitlines() if line.strip()][-_LINES:]
        if not lines:
            raise
        said = "\n".join(lines)[-_CHARACTERS:]
        raise ToolFailed(f"{failed}; it wrote to stderr: {said}", stderr=failed.stderr) from failed
