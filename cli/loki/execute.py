"""Flags `-e` and `-c`: a shell command from words, with a menu to execute, revise, describe or copy it; only the code.

Three rules. The executed command is exactly the displayed one: a command with control characters, or with marks that
reorder a line, is displayed escaped and can't be executed, copied or printed for a shell. Nothing is executed without a
key that was pressed after the command could be read. And if stdout is not a terminal, as in the scripts behind Alt-e,
the command is only printed.

The command replaces this process: it owns the terminal, Ctrl-C and Ctrl-Z, and its exit code is that of `callboard`.

An executed command is added to the shell's history, so that the arrow up finds it. Each shell has a file in its own
format. A line is appended with one write, as shells do that share their history between windows; a missing file is not
created. A running shell may read it late (bash: `history -n`) or overwrite it at its end (bash without `histappend`),
which is the user's setting for all windows alike.
"""

from __future__ import annotations

import fcntl
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import click
import msgspec

from ...actors.io.directories import config_dir as configured
from ...actors.io.environment import shell_of
from ...actors.io.settings import load_settings
from ...protocol.errors import CallboardError, UsageError
from ...protocol.kernel.questions import Question
from ...protocol.outcome import Outcome
from ..actions.run import execute_run
from ..desktop import copy_text
from ..render.result import ResultFormat, TextResult
from ..render.text import colours, paint, safe
from .loki_args import Given

_MENU = "execute | revise | describe | copy | quit"
_KEYS = {"e": "execute", "y": "execute", "\n": "execute", "r": "revise", "d": "describe", "c": "copy", "q": "quit"}
"""Menu entry of each key; `y` is for users who read the menu as a question."""


class _OutcomeOnly(ResultFormat):
    """Result format that stores the outcome of a run and writes nothing."""

    outcome: Outcome | None = None

    def finish(self, outcome: Outcome) -> None:
        self.outcome = outcome


def execute(text: str, given: Given) -> int:
    """Generate a command and let the user decide what to do with it; return the exit code.

    Raises:
        CallboardError: the run could not start, or the model gave no command.
        KeyboardInterrupt: the user pressed Ctrl-C.
    """
    if given.dry_run:
        return execute_run(given.request(text), given.run_flags(role="shell"))
    terminal = _terminal()
    # a run raises the limit, and a command may depend on the original
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    code, command = _asked(text, given, quiet=terminal is None)
    if code:
        return code
    if terminal is None:
        sys.stdout.write(f"{_harmless(command)}\n")
        return 0
    try:
        return _menu(text, command, given, terminal, limit)
    finally:
        os.close(terminal)


def command_of(answer: str) -> str:
    """Return the command in a model's answer, without the fences, backquotes or prompt sign that models add."""
    command = code_of(answer).strip()
    if len(command) > 1 and command[0] == command[-1] == "`" and "`" not in command[1:-1]:
        command = command[1:-1].strip()
    if "\n" not in command:
        command = command.removeprefix("$ ")
    return command


def _asked(text: str, given: Given, *, quiet: bool) -> tuple[int, str]:
    """Return the exit code of the run, and the command if the code is 0."""
    kept = _OutcomeOnly(sys.stdout)
    code = execute_run(given.request(text), given.run_flags(role="shell", quiet=quiet), kept)
    if code:
        return code, ""
    command = command_of(kept.outcome.output if kept.outcome is not None else "")
    if not command:
        raise CallboardError("the model replied without a command; rephrase TEXT, or use another model with -m")
    return 0, command


def _terminal() -> int | None:
    """Open the terminal, if there is one, and make it standard input, even if input was piped."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return None
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    if not sys.stdin.isatty():
        os.dup2(fd, 0)
        sys.stdin = open(0, encoding=sys.stdin.encoding, closefd=False)  # noqa: SIM115 - lives as long as we
    return fd


def _menu(text: str, command: str, given: Given, terminal: int, limit: tuple[int, int]) -> int:
    """Show the menu until an entry ends it; return the exit code. `limit` is the original limit of open files."""
    while True:
        choice = _choice(command, terminal)
        if choice == "quit":
            return 0
        if choice == "describe":
            code = _describe(command, given)
        elif choice == "revise":
            text = _revised(text, command)
            code, command = _asked(text, given, quiet=False)
        elif choice == "copy":
            return _copy(command)
        else:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            _run(_harmless(command), given)
        if code:
            return code


def _choice(command: str, terminal: int) -> str:
    from ..render.keyboard import read_key

    shown = safe(command)
    coloured = colours(sys.stderr)
    sys.stderr.write(f"{paint(shown, 'question') if coloured else shown}\n")
    menu = _MENU if shown == command else _MENU.replace("execute | ", "").replace("copy | ", "")
    if shown != command:
        sys.stderr.write("it contains control characters of terminals, so it can't be executed or copied\n")
    sys.stderr.write(f"{paint(menu, 'dim') if coloured else menu}: ")
    sys.stderr.flush()
    try:
        while True:
            choice = _KEYS.get(read_key(terminal).lower(), "")
            if choice and choice in menu:
                sys.stderr.write(f"{choice}\n")
                return choice
    except EOFError:
        sys.stderr.write("quit\n")
        return "quit"
    except (
        KeyboardInterrupt,
        click.exceptions.Exit,
    ):  # the shell's prompt gets a row of its own
        sys.stderr.write("\n")
        raise


def _describe(command: str, given: Given) -> int:
    """Explain the command in a run without a session; return its exit code."""
    plain = Given(model=given.model, no_stream=given.no_stream, config_dir=given.config_dir)
    return execute_run(plain.request(command), plain.run_flags(role="explain-shell"))


def _revised(text: str, command: str) -> str:
    """Return the text for a revised command. Ctrl-D leaves it unchanged, and the model tries again."""
    from ..render.dialog import Dialog

    try:
        words = Dialog(Question(id="", actor="", node="", text="What should be different?")).run()
    except EOFError:
        return text
    return f"{text}\n\nYou have answered:\n{command}\n\nChange it: {words}"


def _copy(command: str) -> int:
    taken_by = copy_text(_harmless(command), sys.stderr)
    sys.stderr.write(f"callboard: copied ({taken_by})\n")
    return 0


def _harmless(command: str) -> str:
    if safe(command) != command:
        raise UsageError(f"the command of the model contains control characters of terminals: {safe(command)}")
    return command


def _run(command: str, given: Given) -> NoReturn:
    shell = shell_of(os.environ)
    add_to_history(command, shell, given.config_dir)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores SIGPIPE, and a new program would inherit that
    replace_process(shell, [shell, "-c", command])


def replace_process(program: str, arguments: list[str]) -> NoReturn:
    """Replace this process with another program.

    Raises:
        UsageError: there is no such program.
    """
    try:
        os.execvp(program, arguments)  # noqa: S606 - the shell itself is started
    except OSError as error:
        raise UsageError(f"$SHELL is '{program}', which can't be started: {error.strerror}") from error


_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")


def code_of(text: str) -> str:
    """Return the contents of a Markdown text's fenced blocks, one after the other; the whole text if there is none.

    A block without an end (the reply was cut off) extends to the end. Models that are asked for code alone often omit
    the fences.
    """
    blocks: list[list[str]] = []
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence:
            closes = mark is not None and mark[1].startswith(fence) and not mark[2].strip()
            if closes:
                fence = ""
            else:
                blocks[-1].append(line)
        elif mark is not None and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
            blocks.append([])
    if not blocks:
        return text.strip("\n")
    return "\n\n".join("\n".join(lines).strip("\n") for lines in blocks)


class CodeResult(TextResult):
    """Result format that writes only the code of the answer."""

    def finish(self, outcome: Outcome) -> None:
        """Write the code as `TextResult` writes a text."""
        super().finish(msgspec.structs.replace(outcome, output=code_of(outcome.output)))


_TAIL = 4096
_METAFIED = {code: bytes((0x83, code ^ 0x20)) for code in (0, *range(0x83, 0xA3))}
"""Encoding of the bytes that zsh reserves for itself."""


def add_to_history(command: str, shell: str, config_dir: str | None) -> None:
    """Append the command, unless `save_shell_history` is false. Write errors are ignored."""
    settings, _ = load_settings(configured(config_dir, os.environ)[0])
    if settings.other.get("save_shell_history") is False:
        return
    kind = _KINDS.get(Path(shell).name)
    if kind is None:
        return
    where, entry = kind
    file = where(os.environ)
    with suppress(OSError):
        end = _end_of(file)
        cut_off = b"\n" if end and not end.endswith(b"\n") else b""
        _append(file, cut_off + entry(command, end))


def _append(file: Path, data: bytes) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fish holds this lock while it rewrites the file
        os.write(fd, data)
    finally:
        os.close(fd)


def _end_of(file: Path) -> bytes:
    with file.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(stream.tell() - _TAIL, 0))
        return stream.read()


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home())


def _of_bash(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HISTFILE") or _home(environ) / ".bash_history")


def _in_bash(command: str, end: bytes) -> bytes:
    """Return the entry, with a timestamp if others have one. Only with timestamps do several lines form one command."""
    timed = any(line.startswith(b"#") and line[1:].isdigit() for line in end.splitlines())
    return (f"#{int(time.time())}\n" if timed else "").encode() + command.encode() + b"\n"


def _of_zsh(environ: Mapping[str, str]) -> Path:
    if named := environ.get("HISTFILE"):
        return Path(named)
    home = Path(environ.get("ZDOTDIR") or _home(environ))
    return next(
        (file for name in (".zsh_history", ".histfile") if (file := home / name).is_file()), home / ".zsh_history"
    )


def _in_zsh(command: str, end: bytes) -> bytes:
    """Return the entry in extended format (`: time:0;command`) if recent entries use it, with zsh's escapes."""
    extended = any(line.startswith(b": ") and b";" in line for line in end.splitlines()[-5:])
    ends = " " if command.endswith("\\") else ""  # otherwise the entry would continue on the next line
    text = (command.replace("\n", "\\\n") + ends).encode()
    head = f": {int(time.time())}:0;".encode() if extended else b""
    return head + b"".join(_METAFIED.get(code, bytes((code,))) for code in text) + b"\n"


def _of_fish(environ: Mapping[str, str]) -> Path:
    data = Path(environ.get("XDG_DATA_HOME") or _home(environ) / ".local" / "share")
    return data / "fish" / f"{environ.get('fish_history') or 'fish'}_history"


def _in_fish(command: str, _end: bytes) -> bytes:
    text = command.replace("\\", "\\\\").replace("\n", "\\n")
    return f"- cmd: {text}\n  when: {int(time.time())}\n".encode()


_KINDS: dict[str, tuple[Callable[[Mapping[str, str]], Path], Callable[[str, bytes], bytes]]] = {
    "bash": (_of_bash, _in_bash),
    "zsh": (_of_zsh, _in_zsh),
    "fish": (_of_fish, _in_fish),
}
"""History file of each shell, and the function that formats a command, given the end of the file."""
