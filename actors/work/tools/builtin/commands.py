"""Built-in tools that run programs: execute_command, execute_py_code and execute_sql_code.

The programs inherit the environment and start in the working directory, the base of relative paths for `fs_*`. They
have neither a terminal nor input. An exit status other than 0 is not a failure of the tool, but a result that the model
reads; only a failed SQL statement is a failure. `run_program` turns the output into events line by line, and into a
bounded text for the model. Of a long output, the beginning and the end are kept, since they contain the first error and
the final summary. A program is killed if it prints without end, starts processes without end, or outlives the call's
time limit. The error then contains its output so far.

SQL runs on SQLite. The database is the first of: the `database` argument (a file within the allowed paths), `USQL_DSN`
as Loki's tool reads it (`sqlite3:path`, `sqlite3:///absolute/path`), `DATABASE_URL` as most programs read it
(`sqlite:///relative/path`, `sqlite:////absolute/path`). Statements cannot open other files.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import ProcessError, ToolFailed
from .....protocol.kernel.text_cuts import after_cut, before_cut
from ....io.secret_redaction import hidden, hidden_tail
from ...call_clock import Clock
from ...sandbox.policy import Beyond
from ...sandbox.run_sandbox import played, sandboxed
from ..files.call_process import MIB, CallLimits, Printed, ended, impose, kill, watch
from ..tool import Arguments
from .allowed_paths import AllowedPaths, Setting, in_thread

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.process import Process
    from ...sandbox.launch import HeldProcess

HEAD = 48 * 1024
TAIL = 80 * 1024
"""Bytes kept of the beginning and of the end of a program's output."""

ENOUGH = 64 * 1024 * 1024
"""Bytes of output after which a program is killed."""

HEARD = 64 * 1024
"""Bytes of output lines that become events."""

FAREWELL = 8 * 1024
"""Bytes of output in an error."""

LIMITS = CallLimits(processes=1024, file_size=64 * 1024 * MIB, shown=HEARD)
"""Wide limits: an allowed program is stopped only before it endangers the machine."""

NO_FILE = Path(os.devnull)
"""Placeholder for `watch`: these programs have no result file."""


class ProgramResult(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a program: its output, and its exit status or the signal that killed it."""

    text: str
    status: int | None
    signal: int | None

    def as_text(self) -> str:
        """Return the text for the model: the output, and the exit status unless it is 0; `DONE` if there is neither."""
        if self.status == 0:
            return self.text or "DONE"
        how = f"signal {self.signal}" if self.signal is not None else f"exit status {self.status}"
        return f"{self.text}\n[{how}]" if self.text and not self.text.endswith("\n") else f"{self.text}[{how}]"


class BoundedOutput:
    """Beginning and end of a program's output."""

    def __init__(self) -> None:
        self.size = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Append output; beyond `HEAD` and `TAIL` bytes its middle is dropped."""
        self.size += len(data)
        room = HEAD - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Trimmed only at twice the size, so that each byte is moved at most once on average.
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]

    @property
    def text(self) -> str:
        """The stored output, with a note for the omitted middle."""
        tail = bytes(self._tail[-TAIL:])
        lost = self.size - len(self._head) - len(tail)
        if not lost:
            return (bytes(self._head) + tail).decode(errors="replace")
        head = before_cut(hidden(self._head.decode(errors="replace")))
        return f"{head}\n[... {lost} bytes left out ...]\n{after_cut(hidden(tail.decode(errors='replace')))}"


async def run_program(
    me: Actor, tool: str, argv: Sequence[str], setting: Setting, *, input: bytes | None = None
) -> ProgramResult:
    """Run a program to its end. The caller must have redirected its stderr to stdout.

    The time limit ends shortly before the call's deadline; without a deadline it is `setting.timeout`. If the program
    fails and its sandbox may be the reason, the user may grant it more access, and it runs again.

    Raises:
        ToolFailed: it could not be started, or exceeded its time, output or process limits and was killed.
    """

    async def attempt(beyond: Beyond) -> tuple[ProgramResult, HeldProcess | None]:
        clock = Clock(_remaining_seconds(setting.timeout))
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
    held: HeldProcess | None,
    clock: Clock,
) -> ProgramResult:
    from .....supervisors.process import QUICK_STOP, start_process

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
    kept = BoundedOutput()
    async with ended(me, process, 5.0):
        with clock.scope as limit:
            wild = await _until_end(me, tool, process, kept, input)
    # No checkpoint from here on: the call's own deadline, a moment later, cannot replace this error by its own.
    if limit.cancelled_caught:
        wild = f"the program did not finish within {clock.seconds:.3g} s"
    elif kept.size > ENOUGH:
        wild = f"the program printed more than {ENOUGH} bytes"
    if wild:
        raise ToolFailed(f"{wild} and was stopped", stderr=_end_of(kept))
    end = process.ended
    if end is None:
        raise ToolFailed("the program could not be stopped in time", stderr=_end_of(kept))
    return ProgramResult(text=kept.text, status=end.status, signal=end.signal)


async def _until_end(me: Actor, tool: str, process: Process, kept: BoundedOutput, input: bytes | None) -> str:
    """Feed and read a program until it ends or exceeds a limit. Return the exceeded limits; "" for none."""
    assert process.stdout is not None
    reasons: list[str] = []

    def end(reason: str) -> None:
        reasons.append(f"it {reason}")
        kill(process)

    printed = Printed(me, tool, LIMITS, end)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, process, NO_FILE, LIMITS, end)
        if input is not None and process.stdin is not None:
            # Only this package's workers get input, and they read all of it before they print. A worker that exits at
            # once reports the reason in its output.
            with contextlib.suppress(trio.BrokenResourceError):
                await process.stdin.send_all(input)
                await process.stdin.aclose()
        try:
            # The limit holds between reads; a pipe delivers at most some KiB more.
            while kept.size <= ENOUGH and (data := await process.stdout.receive_some()):
                kept.add(data)
                printed.feed(data)
        finally:
            printed.close()
        if kept.size <= ENOUGH:
            await process.ref.wait()
        nursery.cancel_scope.cancel()
    return "; ".join(reasons)


def _remaining_seconds(usual: float) -> float:
    """Return the seconds until shortly before the call's deadline, so that the output so far can still be reported."""
    left = trio.current_effective_deadline() - trio.current_time()
    return usual if left == math.inf else left - min(left / 10, 0.5)


def _end_of(kept: BoundedOutput) -> str:
    text = kept.text
    return text if len(text) <= FAREWELL else "..." + hidden_tail(text, FAREWELL)


WORKERS = Path(__file__).with_name("workers")

ROWS = 500
"""Maximum rows of one statement in the result."""

_JOINED = 'exec 2>&1; exec bash -c "$1" bash'
"""Shell line with one pipe for stdout and stderr, so that errors appear where they occurred.

The command is an argument, never part of this text.
"""

_DSN = re.compile(r"^(?:sqlite3?|sq):(.*)$", re.DOTALL)


async def execute_command(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Run a command with bash; return its output, stderr included, and its exit status unless that is 0.

    Raises:
        ToolFailed: the command is empty or has a NUL, or as `run_program`.
    """
    command = arguments["command"]
    if "\0" in command:
        raise ToolFailed("a command can't contain a NUL character")
    if not command.strip():
        raise ToolFailed("the command is empty")
    ran = await run_program(me, "execute_command", ["bash", "-c", _JOINED, "bash", command], setting)
    return ran.as_text()


async def execute_py_code(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Run code with the Python of the working directory's .venv, or else of the PATH; return as `execute_command`.

    Raises:
        ToolFailed: the code is no valid Unicode, or as `run_program`.
    """
    own = setting.paths.here / ".venv" / "bin" / "python"
    python = str(own) if own.is_file() else shutil.which("python3", path=setting.environ.get("PATH")) or sys.executable
    # No isolated mode: the code runs in the user's own Python environment.
    argv = [python, "-B", str(WORKERS / "python_code.py")]
    ran = await run_program(me, "execute_py_code", argv, setting, input=_utf8(arguments["code"]))
    return ran.as_text()


async def execute_sql_code(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Run statements; the result contains the rows of each as a small table.

    Raises:
        ToolFailed: a statement failed, or no database is given. The text has the results of the statements before it.
    """
    named = arguments.get("database", "")
    if named:
        database = await in_thread(lambda: _database(setting.paths, named))
    else:
        database = configured(setting.environ)
    task = msgspec.json.encode({"database": database, "code": _utf8(arguments["code"]).decode(), "rows": ROWS})
    # Isolated mode: neither the user's site packages nor a module in the working directory may replace an import.
    argv = [sys.executable, "-I", "-S", "-B", str(WORKERS / "sql.py")]
    ran = await run_program(me, "execute_sql_code", argv, setting, input=task)
    if ran.status != 0:
        raise ToolFailed(ran.text.strip() or "the SQL statements failed")
    return ran.as_text()


def configured(environ: Mapping[str, str]) -> str:
    """Return the database that the user has configured: a path, or `:memory:`.

    Raises:
        ToolFailed: none is configured, or it is not SQLite.
    """
    for name in ("USQL_DSN", "DATABASE_URL"):
        dsn = environ.get(name, "").strip()
        if not dsn:
            continue
        match = _DSN.match(dsn)
        if match is None and (":" in dsn and dsn != ":memory:"):
            scheme = dsn.split(":", 1)[0]
            raise ToolFailed(f"{name} names a database of the kind '{scheme}'; only SQLite is supported (sqlite3:PATH)")
        path = dsn if match is None else match[1].split("?", 1)[0]
        if path.startswith("//"):
            path = path[3:] if name == "DATABASE_URL" else path[2:]
        return path or ":memory:"
    raise ToolFailed(
        "no database is given: pass `database`, a SQLite file, or ask the user to set USQL_DSN=sqlite3:PATH"
    )


def _database(paths: AllowedPaths, text: str) -> str:
    path = paths.find(text).path
    if path.exists() and not path.is_file():
        raise ToolFailed(f"'{text}' is not a regular file, so it can't be a database")
    return str(path)


def _utf8(code: str) -> bytes:
    try:
        return code.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed(f"the code can't be written as UTF-8: {error}") from error
