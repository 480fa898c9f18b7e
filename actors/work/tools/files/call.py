"""Execution of one call of a tool file's function, from start to result.

The file runs in place under the process supervisor, in the run's working directory and without a terminal. Its runner
waits until the kernel's limits are set. Then four tasks run concurrently: the process itself, the conversion of its
output to events, the answers to its questions, and the watch on its resources. Waiting for a user does not count for
its time limit. However the call ends, all of its processes end.

**Interpreter.** A `#!` line of the file decides, unless it is missing or names only the language (`env python3`). Then
bash files run with `bash`. Python files run with `./.venv/bin/python` of the working directory if it exists, else with
`python3`. TypeScript files run with `tsx`, or with a node that supports types. A `#!/bin/sh` is ignored: tool files
need bash. The command line ends with the runner of this package.

The `tsx` command itself is not used: it starts a second node, which inherits no descriptors. Its loader is loaded into
the first node instead (`node --import <its loader>`), as its documentation offers.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import CallboardError, ProcessError, ToolFailed
from .....supervisors.guardian_link import WHY
from .....supervisors.process import QUICK_STOP
from ....io import temporary
from ....io.directories import private_directory
from ....io.secret_redaction import hidden_tail
from ...call_clock import Clock
from ...journal.unknown_outcome import call_key
from ...library import PROMPT_UTILS
from ...sandbox.policy import WITHIN, Beyond
from ...sandbox.run_sandbox import played, sandboxed
from ..tool import TIMEOUT, Arguments, Json, Tool, ToolSpec
from .call_process import (
    MIB,
    USUAL,
    CallLimits,
    OutputFile,
    Printed,
    Terminal,
    ended,
    impose,
    kill,
    read_output,
    result,
    wants_one,
    watch,
)
from .environment import Home, caches, environment, raw_names
from .runner_protocol import AskSocket, Host, handed_over, memory_file, raw_json

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.process import Process, ProcessEnd
    from ...sandbox.launch import HeldProcess
    from ..declare.declaration import Declaration


CALL_KEY = "CALLBOARD_CALL_KEY"
"""Environment variable with the idempotency key of the call, for a keyed tool."""

NO_TYPES = 86
"""Exit status of the runner if node cannot read TypeScript."""


async def play(
    me: Actor,
    declaration: Declaration,
    arguments: Arguments,
    home: Home,
    *,
    timeout: float | None = None,
    limits: CallLimits = USUAL,
    host: Host | None = None,
    writes: Sequence[Path] = (),
) -> OutputFile:
    """Call the function on behalf of `me`, and return the content of `LLM_OUTPUT`.

    Args:
        timeout: seconds, without the time spent waiting for a user.
        host: for a Python function that was written for another program.
        writes: directories that it may write in any sandbox.

    Raises:
        ToolFailed: the function could not be started, failed, timed out or exceeded its limits.
    """
    if not declaration.file.is_file():
        raise ToolFailed(f"Tool '{declaration.name}' can't be run: the file {declaration.file} does not exist")
    call = _Call(me, declaration, limits, home.cwd)
    with _system_errors(declaration), _place(home, declaration) as (home, output):
        call.writes = (output, *caches(home, declaration), *writes)
        raw = raw_json(arguments, declaration)
        environ = environment(home, declaration, output=output, raw=raw)
        if declaration.repeats == "keyed":
            environ[CALL_KEY] = call_key(me)
        argv = command(declaration, environ)
        given = handed_over(declaration, arguments, environ, raw=dict.fromkeys(raw_names(home), raw), host=host)

        async def attempt(beyond: Beyond) -> tuple[ProcessEnd, HeldProcess | None]:
            call.beyond = beyond
            if beyond != WITHIN:
                # A repeated attempt with more permissions must not append to the output of the first.
                await trio.to_thread.run_sync(output.write_bytes, b"")
            end = await call.run(argv, environ, given, output, timeout)
            if declaration.language == "typescript" and end.status == NO_TYPES:
                end = await call.run(await command_by_npx(me, declaration, environ), environ, given, output, timeout)
            return end, call.held

        def failure_text(end: ProcessEnd) -> str | None:
            failed = end.status != 0 and not call.out_of_hand
            return f"{read_output(output, limits.result).text}\n{end.stderr_tail}" if failed else None

        end, call.note = await played(me, attempt, failure_text)
        written = read_output(output, limits.result)
        call.check(end, written.text)
        return written


_CACHES = temporary.LazyDirectory("caches")
"""Cache directory for tools where the usual one is not writable."""


@contextmanager
def _system_errors(declaration: Declaration) -> Iterator[None]:
    """Convert errors of the operating system to failures of the call: many concurrent calls exhaust the open files."""
    try:
        yield
    except OSError as error:
        why = WHY[error.errno] if error.errno in (errno.EMFILE, errno.ENFILE) else str(error)
        raise ToolFailed(f"Tool '{declaration.name}' can't be run: {why}") from error


@contextmanager
def _place(home: Home, declaration: Declaration) -> Iterator[tuple[Home, Path]]:
    """Create the caches, which persist, and the file for the result, which is removed after the call."""
    try:
        for directory in caches(home, declaration):
            private_directory(directory)
    except OSError:  # A read-only home: the caches then last as long as this process.
        home = msgspec.structs.replace(home, cache=_CACHES.path())
        for directory in caches(home, declaration):
            private_directory(directory)
    with temporary.file("output-") as path:
        yield home, path


class _Call:
    """A running call.

    Attributes:
        writes: paths that its process needs to write in any sandbox.
        beyond: accesses outside of the sandbox that the user allows.
        held: the sandbox of its process.
        note: text about the sandbox for the model.
        out_of_hand: the exceeded limit; "" for none.
    """

    def __init__(self, me: Actor, declaration: Declaration, limits: CallLimits, cwd: Path | None) -> None:
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
        self.held: HeldProcess | None = None
        self.note = ""
        self._shows = (declaration.file.parent, PROMPT_UTILS.parent)

    async def run(
        self, argv: Sequence[str], environ: Mapping[str, str], given: bytes, output: Path, timeout: float | None
    ) -> ProcessEnd:
        # Memory and not a pipe: the runner can read it at any time, and no process has to keep writing.
        fd = memory_file(given)
        printed = Printed(self._me, self._tool, self._limits, self._end)
        clock = Clock(timeout)
        try:
            with clock.counting(), AskSocket() as asking, self._terminal(printed) as terminal:
                passed = {"CALLBOARD_CALL_FD": str(fd), "CALLBOARD_ASK_FD": str(asking.theirs)}
                fds = [fd, asking.theirs]
                # Pass the terminal by its descriptor, since the sandbox has a /dev/pts of its own.
                if terminal is not None:
                    fds.append(terminal.descriptor)
                    passed["CALLBOARD_TTY_FD"] = str(terminal.descriptor)
                process = await self._start(argv, {**environ, **passed}, printed, fds)
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
        """Raise `ToolFailed` if the process did not end successfully.

        The error includes its output, such as a compiler's messages.
        """
        stderr = f"{end.stderr_tail.rstrip()}\n{self.note}\n" if self.note else end.stderr_tail
        told = partial(ToolFailed, stderr=stderr, output=written)
        if self.out_of_hand:
            raise told(f"Tool call '{self._tool}' {self.out_of_hand}, and was stopped")
        if end.status == 0:
            return
        if end.signal is None:
            raise told(f"Tool call '{self._tool}' exited with code {end.status}")
        message = f"Tool call '{self._tool}' was killed by the signal {_name(end.signal)}"
        if end.signal == signal.SIGXFSZ:
            message += f": it wrote a file of more than {self._limits.file_size // MIB} MiB"
        raise told(message)

    async def _start(
        self, argv: Sequence[str], environ: Mapping[str, str], printed: Printed, fds: Sequence[int]
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
            with suppress(OSError):  # The system has no pseudo terminal available: continue without one.
                return Terminal(printed.show)
        return nullcontext()

    async def _follow(
        self, process: Process, printed: Printed, clock: Clock, beside: Sequence[Callable[[], Awaitable[None]]]
    ) -> ProcessEnd:
        assert process.stdout is not None
        async with ended(self._me, process, QUICK_STOP.within):
            with clock.scope:
                clock.start()
                # Before `asking.serve` sends `go`, so that no code of the tool runs without limits.
                impose(process.pid, self._limits)
                async with trio.open_nursery() as nursery:
                    for body in beside:
                        nursery.start_soon(body)
                    await printed.follow(process.stdout)
                    await process.ref.wait()
                    # All processes of the call have ended, so nothing can ask or print any more.
                    nursery.cancel_scope.cancel()
                return await process.wait()
        late = f"Tool call '{self._tool}' was stopped: it did not finish within {clock.seconds:g} s"
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
"""Maximum lines and characters of stderr in an error message."""


def file_tool(
    declaration: Declaration, home: Home, *, timeout: float | None = TIMEOUT, limits: CallLimits = USUAL
) -> Tool:
    """Return the tool that calls this function in its own process.

    Args:
        timeout: seconds of one call; None for no limit. This clock pauses while the tool waits for a user, so the
            tool's own `timeout` is None.
    """

    async def run(me: Actor, arguments: Arguments) -> Json:
        return result(await play(me, declaration, arguments, home, timeout=timeout, limits=limits))

    spec = ToolSpec(name=declaration.name, description=declaration.description, parameters=declaration.parameters)
    return Tool(
        spec=spec, run=run, origin="file", timeout=None, repeats=declaration.repeats, file=declaration.file.absolute()
    )


_NODE_FRAME = re.compile(r"at .+:\d+:\d+\)?( \{)?$|Node\.js v\d|- /|Require stack:")


async def instructions(me: Actor, declaration: Declaration, home: Home, *, timeout: float | None = TIMEOUT) -> str:
    """Return the output of the function `_instructions` of an agent's tool file.

    Raises:
        ToolFailed: it could not be started, or failed. No model reads its stderr, so the message quotes it.
    """
    try:
        return (await play(me, declaration, {}, home, timeout=timeout)).text
    except ToolFailed as failed:
        lines = [line.strip() for line in failed.stderr.splitlines() if line.strip()]
        # Node prints the reason first and then many stack frames of its own files, which would displace it.
        lines = [line for line in lines if not _NODE_FRAME.match(line)][-_LINES:]
        if not lines:
            raise
        said = hidden_tail("\n".join(lines), _CHARACTERS)
        raise ToolFailed(f"{failed}; it wrote to stderr: {said}", stderr=failed.stderr) from failed


RUNNERS = Path(__file__).parent / "runners"
FUNCTIONS = PROMPT_UTILS.parent

PLAIN_PYTHON = ((), ("python",), ("python3",))

NEEDS_TSX = "it needs `tsx` (npm install -g tsx) or node 22.18 or later"

NPX_WITHIN = 120.0
"""Seconds for npx to download tsx, the first time."""


def command(declaration: Declaration, environ: Mapping[str, str]) -> list[str]:
    """Return the command line of one call.

    Raises:
        ToolFailed: the interpreter does not exist.
    """
    named = declaration.interpreter
    if declaration.language == "bash":
        program = named if named and Path(named[0]).name == "bash" else ("bash",)
        runner = "\n".join(part.read_text() for part in (FUNCTIONS / "ask.sh", RUNNERS / "run.sh"))
        # With -c, `$0` is the user's file, as if it had been started directly.
        return [*_located(program, declaration, environ), "-c", runner, str(declaration.file.absolute())]
    if declaration.language == "python":
        own = Path(".venv/bin/python")
        python = str(own.absolute()) if own.exists() else "python3"
        program = (python,) if named in PLAIN_PYTHON else named
        return [*_located(program, declaration, environ), str(RUNNERS / "run.py")]
    if not named or Path(named[-1]).name in ("tsx", "node"):
        return [*_node(declaration, environ), str(RUNNERS / "run.mjs")]
    return [*_located(named, declaration, environ), str(RUNNERS / "run.mjs")]


async def command_by_npx(me: Actor, declaration: Declaration, environ: Mapping[str, str]) -> list[str]:
    """Return the command line for a TypeScript file with tsx from npx.

    For machines with neither tsx nor a node that supports types.

    Raises:
        ToolFailed: npx is missing, or could not install tsx.
    """
    from .....supervisors.process import run_process

    npx = shutil.which("npx", path=environ.get("PATH"))
    if npx is None:
        raise ToolFailed(f"Tool '{declaration.name}' can't be run: {NEEDS_TSX}")
    ask_for_it = [npx, "--yes", "--package=tsx", "--call", "command -v tsx"]
    try:
        done = await run_process(me, ask_for_it, name="npx", env=environ, timeout=NPX_WITHIN)
    except CallboardError as error:
        raise ToolFailed(
            f"Tool '{declaration.name}' can't be run: {NEEDS_TSX}; npx could not install tsx: {error}"
        ) from error
    words = done.stdout.decode(errors="replace").split()
    loader = _loader(words[-1]) if done.status == 0 and words else None
    if loader is None:
        message = f"Tool '{declaration.name}' can't be run: {NEEDS_TSX}; npx could not install tsx"
        raise ToolFailed(message, stderr=done.stderr_tail)
    node = _found("node", declaration, environ)
    return [node, "--import", loader, str(RUNNERS / "run.mjs")]


def _node(declaration: Declaration, environ: Mapping[str, str]) -> list[str]:
    places = [Path(home, "node_modules", ".bin") for home in (Path.cwd(), *declaration.file.absolute().parents)]
    node = _found("node", declaration, environ)
    for directory in (*map(str, places), environ.get("PATH")):
        tsx = shutil.which("tsx", path=directory)
        if tsx is not None and (loader := _loader(tsx)) is not None:
            return [node, "--import", loader]
    return [node]


def _loader(tsx: str) -> str | None:
    """Return the URL of the module that makes node read TypeScript, from the package of this `tsx` command."""
    loader = Path(tsx).resolve().with_name("loader.mjs")
    return loader.as_uri() if loader.is_file() else None


def _located(program: tuple[str, ...], declaration: Declaration, environ: Mapping[str, str]) -> tuple[str, ...]:
    return (_found(program[0], declaration, environ), *program[1:])


def _found(program: str, declaration: Declaration, environ: Mapping[str, str]) -> str:
    found = shutil.which(program, path=environ.get("PATH"))
    if found is None:
        named = ", named in the first line of its file," if declaration.interpreter else ""
        missing = "does not exist" if "/" in program else "is not on the PATH"
        hint = f"; {NEEDS_TSX}" if program == "node" else ""
        raise ToolFailed(f"Tool '{declaration.name}' can't be run: '{program}'{named} {missing}{hint}")
    return found
