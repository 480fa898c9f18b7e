"""Flag `-e`: a shell command from words, and a menu to execute, revise, describe or copy it.

Three rules. The executed command is exactly the displayed one: a command with control characters, or with marks that
reorder a line, is displayed escaped and can't be executed, copied or printed for a shell. Nothing is executed without a
key that was pressed after the command could be read. And if stdout is not a terminal, as in the scripts behind Alt-e,
the command is only printed.

The command replaces this process: it owns the terminal, Ctrl-C and Ctrl-Z, and its exit code is that of `callboard`.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import NoReturn

import click

from ...actors.io.shell import shell_of
from ...protocol.errors import CallboardError, UsageError
from ...protocol.kernel.questions import Question
from ...protocol.outcome import Outcome
from .. import clipboard
from ..actions.run import execute_run
from ..render.result import ResultFormat
from ..render.text import colours, paint, safe
from .code import code_of
from .loki_args import Given
from .shell_history import add_to_history

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
    taken_by = clipboard.copy(_harmless(command), sys.stderr)
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
