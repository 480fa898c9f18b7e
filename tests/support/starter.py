"""`callboard` as a fork of a process that has imported most of it already: that takes a third of a start's time.

    process = subprocess.Popen([*CALLBOARD, "ask", "hello"], env=environ, stdout=subprocess.PIPE)

A command that begins with `CALLBOARD` is started so wherever this process starts one, `trio.run_process` included: the
program is a process of its own, with its own arguments, environment, directory, files, session and terminal, and plays
`python -m callboard.cli` from the first line on; or, after `forked(path)`, a program of a test, as `python path` does.
Signals, exit codes and waiting are as with any other, since it belongs to the process of the tests, which takes in
orphans (see tests/conftest.py).

How a program starts is not tested so: the imports, what Python reads of its environment before the first line, and the
installed `callboard` itself. A test that is about those takes `sys.executable` or the installed one, and a start that
asks for what only a real one can do (see `_needs_python`) is a real one.

For shells, which start programs themselves, `STARTER.program(path)` writes an executable that has one forked and stands
for it: files, arguments, environment and directory are handed over, signals passed on, and it ends as the fork does.
The fork reads and writes the terminal but is not controlled by it: a test of that starts a real one.

The process that forks begins when it is first needed, and lives as long as that of the tests.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import json
import locale
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypedDict

FORK = "a fork of"

CALLBOARD = (FORK, "callboard")
"""The beginning of a command."""


def forked(program: str | Path) -> tuple[str, str]:
    """The beginning of a command that is this file, which ends in `.py`."""
    return FORK, os.fspath(program)


def forked_code(code: str) -> tuple[str, str, str]:
    """Beginning of a command that runs this text as `python -c` does."""
    return FORK, "-c", code


_MODULES = (
    "callboard.actors.front.access",
    "callboard.actors.front.access.access_control",
    "callboard.actors.front.acp",
    "callboard.actors.front.acp.agent",
    "callboard.actors.front.chat.commands",
    "callboard.actors.front.chat.methods",
    "callboard.actors.front.cluster.gateway",
    "callboard.actors.front.cluster.shared_limits",
    "callboard.actors.front.cluster.worker",
    "callboard.actors.front.control.hub",
    "callboard.actors.front.control.methods",
    "callboard.actors.front.http.app",
    "callboard.actors.front.metrics",
    "callboard.actors.front.page",
    "callboard.actors.front.server.serving",
    "callboard.actors.front.server.listener",
    "callboard.actors.front.telemetry.export",
    "callboard.actors.runs.begin",
    "callboard.actors.runs.role_run",
    "callboard.actors.runs.session_run",
    "callboard.actors.work.workspace",
    "callboard.actors.work.knowledge.service",
    "callboard.actors.work.labels.call_labels",
    "callboard.actors.work.mcp.client",
    "callboard.actors.work.mcp.links.stdio",
    "callboard.actors.work.mcp.pool.servers",
    "callboard.actors.work.mcp.tools.chosen",
    "callboard.actors.work.mcp.tools.tool_list",
    "callboard.actors.work.models.aws",
    "callboard.actors.work.models.client",
    "callboard.actors.work.models.openai",
    "callboard.actors.work.models.prices.price_lookup",
    "callboard.actors.work.models.responses",
    "callboard.actors.work.models.vertex",
    "callboard.actors.work.models.vertex.location",
    "callboard.actors.work.roles",
    "callboard.actors.work.sandbox.backends",
    "callboard.actors.work.sandbox.egress",
    "callboard.actors.work.sandbox.launch",
    "callboard.actors.work.sandbox.protected_paths",
    "callboard.actors.work.skills",
    "callboard.actors.work.skills",
    "callboard.actors.work.spending.book",
    "callboard.actors.work.spending.days",
    "callboard.actors.work.spending.ledger",
    "callboard.actors.work.tools.builtin.commands",
    "callboard.actors.work.tools.declare.bash",
    "callboard.actors.work.tools.declare.python",
    "callboard.actors.work.tools.declare.read",
    "callboard.actors.work.tools.files.call",
    "callboard.actors.work.tools.files.runner_protocol",
    "callboard.actors.work.trust",
    "callboard.actors.work.workspace",
    "callboard.cli.actions.models",
    "callboard.cli.actions.run",
    "callboard.cli.actions.serve",
    "callboard.cli.chat.bridge",
    "callboard.cli.chat.conversation",
    "callboard.cli.chat.local",
    "callboard.cli.chat.program",
    "callboard.cli.chat.screen.application",
    "callboard.cli.commands.runs",
    "callboard.cli.commands.serve",
    "callboard.cli.commands.credentials",
    "callboard.cli.control.client",
    "callboard.cli.control.commands",
    "callboard.cli.desktop",
    "callboard.cli.loki.play",
    "callboard.cli.loki.flags",
    "callboard.cli.loki.info",
    "callboard.cli.main",
    "callboard.cli.render.dialog",
    "callboard.cli.render.text",
    "callboard.cli.render.menu",
    "callboard.cli.render.tree",
    "callboard.cli.wizard.setup",
    "callboard.supervisors.journal.claiming",
    "callboard.supervisors.journal.journal",
    "callboard.supervisors.journal.reading",
    "callboard.supervisors.journal.retention",
    "callboard.supervisors.journal.store",
    "encodings.idna",
    "hypercorn.protocol.h11",
    "hypercorn.trio.run",
    "jsonschema",
    "prometheus_client",
    "prompt_toolkit.input.vt100",
    "prompt_toolkit.shortcuts",
    "psycopg",
    "pygments.styles.monokai",
    "structlog",
)
"""Of the command line, of the chat and of servers; others are imported by the programs themselves."""

_SETTINGS = "clients: [{type: openai-compatible, name: a, api_base: http://a, models: [{name: m}]}]"

MOST_BYTES = 1_000_000
"""Of what is said of a program: its arguments and its environment."""


class _Wanted(TypedDict):
    """A program that is to begin; its files 0, 1 and 2 are sent along.

    Attributes:
        program: `callboard`, a file, or `-c`; the code is the first argument then.
        session: it has one of its own.
        login: file 0 is its terminal, and it has a session of its own.
    """

    program: str
    arguments: list[str]
    environ: dict[str, str]
    cwd: str
    session: bool
    login: bool


_LAUNCHER = """#!{python} -SEI
import os, sys
import _signal, _socket, marshal
words = sys.argv[1:]
if any(name in os.environ for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONIOENCODING", "PYTHONUTF8")):
    os.execv({python!r}, [{python!r}, "-m", "callboard.cli", *words])
line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
line.connect({address!r})
told = marshal.dumps((words, dict(os.environ), os.getcwd()))
files = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
line.sendmsg([told], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
pid = int(line.recv(100))
for number in (1, 2, 3, 10, 12, 15, 28):
    _signal.signal(number, lambda number, _: os.kill(pid, number))
code = os.waitstatus_to_exitcode(int(line.recv(100) or 9))
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""In place of `callboard`; it imports next to nothing, so it is there in a few milliseconds."""


class Starter:
    """The process that forks."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget the process of the parent; for a process that was forked."""
        self._process: subprocess.Popen[bytes] | None = None
        self._place = Path(tempfile.gettempdir(), f"starter-{uuid.uuid4().hex[:12]}")
        self._lock = threading.Lock()

    def start(self, wanted: _Wanted, files: list[int]) -> int:
        """Begins a program; its process id."""
        with self._lock:  # trio starts programs in threads
            if self._process is None:
                self._begin()
            socket.send_fds(self._line, [json.dumps(wanted).encode()], files)
            pid = self._line.recv(100)
        assert pid, "the process that begins programs has ended"
        return int(pid)

    def program(self, path: Path) -> None:
        """Writes an executable that stands for a fork."""
        with self._lock:
            if self._process is None:
                self._begin()
        path.write_text(_LAUNCHER.format(python=sys.executable, address=str(self._place)))
        path.chmod(0o755)

    def _begin(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as shells:
            shells.bind(str(self._place))
            shells.listen(100)
            ends = [theirs.fileno(), shells.fileno()]
            argv = [sys.executable, "-P", __file__, *map(str, ends)]
            self._process = subprocess.Popen(argv, pass_fds=ends, stdin=subprocess.DEVNULL)

    def close(self) -> None:
        """Ends it; what it has begun goes on."""
        if self._process is not None:
            self._line.close()
            self._process.wait(10)
            self._process = None
            self._place.unlink()


STARTER = Starter()


def listen() -> None:
    """From now on a command of this process that begins with `CALLBOARD`, or as `forked` has it, is a fork."""
    usual: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined] # as typeshed has it, there is none

    def begin(self: Any, args: Any, executable: Any, *options: Any) -> None:
        if isinstance(args, str | bytes | os.PathLike) or args[0] != FORK:
            usual(self, args, executable, *options)
            return
        _, program, *arguments = (os.fspath(each) for each in args)
        if _needs_python(*options):
            named = ["-m", "callboard.cli"] if program == CALLBOARD[1] else [program]
            usual(self, [sys.executable, *named, *arguments], None, *options)
        else:
            _fork(self, program, arguments, *options)

    subprocess.Popen._execute_child = begin  # type: ignore[attr-defined] # for the suite


def _needs_python(preexec: Any, close_fds: bool, pass_fds: Any, cwd: Any, env: Any, *_: Any) -> bool:
    """Whether it is asked for what a fork can't do."""
    given = os.environ if env is None else env
    return (
        bool(pass_fds)
        or not (preexec is None or _logs_in(preexec))
        or any(name.startswith("PYTHON") and os.environ.get(name) != value for name, value in given.items())
    )


def _logs_in(preexec: Any) -> bool:
    return isinstance(preexec, partial) and preexec.func is os.login_tty


def _fork(process: Any, program: str, arguments: list[str], *options: Any) -> None:
    """As `Popen._execute_child`, whose arguments it has from the third on."""
    preexec, _, _, cwd, env = options[:5]
    wanted = _Wanted(
        program=program,
        arguments=arguments,
        environ={os.fsdecode(name): os.fsdecode(value) for name, value in (os.environ if env is None else env).items()},
        cwd=os.fspath(cwd or Path.cwd()),
        session=bool(options[-2]),
        login=preexec is not None,
    )
    given = options[8], options[11], options[13]
    files = [number if each == -1 else each for number, each in enumerate(given)]
    process.pid = STARTER.start(wanted, files)
    process._child_created = True
    process._close_pipe_fds(*options[8:14])


def _serve(line: socket.socket, shells: socket.socket) -> None:
    for name in _MODULES:
        importlib.import_module(name)
    # What msgspec finds out about the types of the settings is kept, as the programs would keep it.
    importlib.import_module("callboard.protocol.settings.read").read_settings(_SETTINGS, "config.yaml", {})
    gc.collect()
    gc.freeze()
    while True:
        ready, _, _ = select.select([line, shells], [], [])
        with suppress(ChildProcessError):  # those that stand beside the programs of shells
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if shells in ready:
            _for_shell(shells.accept()[0])
        if line in ready and not _for_test(line):
            return


def _for_test(line: socket.socket) -> bool:
    """Begins a program of ours; whether there may be more."""
    data, files, _, _ = socket.recv_fds(line, MOST_BYTES, 3)
    if not data:
        return False
    told, tells = os.pipe()
    between = os.fork()
    if not between:
        pid = os.fork()
        if not pid:
            _play(json.loads(data), files)
        os.write(tells, str(pid).encode())
        os._exit(0)  # and the program has no parent but who takes in orphans
    os.waitpid(between, 0)
    line.send(os.read(told, 100))
    for descriptor in (told, tells, *files):
        os.close(descriptor)
    return True


def _for_shell(line: socket.socket) -> None:
    """Begins a program of a shell, with a process beside it that tells how it ends, and ends it with the shell's."""
    data, files, _, _ = socket.recv_fds(line, MOST_BYTES, 3)
    if data and not os.fork():
        pid = os.fork()
        if not pid:
            words, environ, cwd = marshal.loads(data)
            told = {"arguments": words, "environ": environ, "cwd": cwd}
            _play(_Wanted(program=CALLBOARD[1], session=True, login=False, **told), files)
        for descriptor in files:
            os.close(descriptor)
        line.send(str(pid).encode())
        end = os.pidfd_open(pid)
        if line in select.select([line, end], [], [])[0]:  # who stood for it was killed
            os.kill(pid, signal.SIGHUP)
        _, status = os.waitpid(pid, 0)
        with suppress(OSError):
            line.send(str(status).encode())
        os._exit(0)
    line.close()
    for descriptor in files:
        os.close(descriptor)


def _play(wanted: _Wanted, files: list[int]) -> NoReturn:
    """Plays the program in this process, and ends with it."""
    if wanted["login"]:
        os.login_tty(os.dup(files[0]))
    elif wanted["session"]:
        os.setsid()
    files = [fcntl.fcntl(each, fcntl.F_DUPFD, 3) for each in files]  # none of them is 0, 1 or 2
    for number, each in enumerate(files):
        os.dup2(each, number)
    os.closerange(3, 100)
    os.environ.clear()
    os.environ.update(wanted["environ"])
    tempfile.tempdir = None  # looked up again, in this environment
    os.chdir(wanted["cwd"])
    sys.stdin = sys.__stdin__ = _text(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = sys.__stdout__ = _text(io.BufferedWriter(io.FileIO(1, "w", closefd=False)))
    sys.stderr = sys.__stderr__ = _text(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "backslashreplace")
    program, code = wanted["program"], 0
    ours = program == CALLBOARD[1]
    given, code_given = wanted["arguments"], program == "-c"
    sys.argv = ["" if ours else program, *(given[1:] if code_given else given)]
    sys.path.insert(0, wanted["cwd"] if ours or code_given else str(Path(program).parent))
    try:
        if code_given:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(given[0], "<string>", "exec"), main.__dict__)
        elif ours:
            runpy.run_module("callboard.cli", run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        code = ended.code or 0
    # As Python ends, but for taking every module apart, which takes longer than most of these programs.
    threading._shutdown()  # type: ignore[attr-defined] # as typeshed has it, there is none
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code & 0xFF)


def _text(
    stream: io.BufferedReader | io.BufferedWriter, errors: str = "strict", lines: bool = False
) -> io.TextIOWrapper:
    """A stream as Python has it: line by line at a terminal."""
    encoding = locale.getpreferredencoding(False)
    return io.TextIOWrapper(stream, encoding=encoding, errors=errors, line_buffering=lines or stream.isatty())


if __name__ == "__main__":
    _serve(*(socket.socket(fileno=int(each)) for each in sys.argv[1:]))
