"""`-e`: a command of the user's shell from words, and a menu of what to do with it.

Three rules. What is executed is what was shown, to the last character: a command with control characters in it, or with
marks that reorder a line, is shown spelled out and can't be executed, copied or printed for a shell to take. Nothing is
executed without a key that was pressed after the command could be read. And where stdout is no terminal, as in the
scripts behind Alt-e, the command is printed and that is all.

The command replaces this process: it has the terminal, Ctrl-C and Ctrl-Z to itself, and its exit code is ours.
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
from ..render.result import Result
from ..render.text import colours, paint, safe
from ..running import play_run
from .code import code_of
from .given import Given
from .shell_history import add_to_history

_MENU = "execute | revise | describe | copy | quit"
_KEYS = {"e": "execute", "y": "execute", "\n": "execute", "r": "revise", "d": "describe", "c": "copy", "q": "quit"}
"""Key to what it means; `y` is for those who take the menu for a question."""


class _Kept(Result):
    """Keeps the outcome of a run in the place of writing it."""

    outcome: Outcome | None = None

    def finish(self, outcome: Outcome) -> None:
        self.outcome = outcome


def execute(text: str, given: Given) -> int:
    """Ask for a command and have the person say what becomes of it; the exit code.

    Raises:
        CallboardError: the run could not start, or the model has given no command.
        KeyboardInterrupt: Ctrl-C.
    """
    if given.dry_run:
        return play_run(given.request(text), given.run_flags(role="shell"))
    terminal = _terminal()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)  # which a run raises, and a command may rely on
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
    """The command in a model's answer, which is to be that alone but may have fences, backquotes or a prompt sign."""
    command = code_of(answer).strip()
    if len(command) > 1 and command[0] == command[-1] == "`" and "`" not in command[1:-1]:
        command = command[1:-1].strip()
    if "\n" not in command:
        command = command.removeprefix("$ ")
    return command


def _asked(text: str, given: Given, *, quiet: bool) -> tuple[int, str]:
    """The exit code of the run, and the command if that is 0."""
    kept = _Kept(sys.stdout)
    code = play_run(given.request(text), given.run_flags(role="shell", quiet=quiet), kept)
    if code:
        return code, ""
    command = command_of(kept.outcome.output if kept.outcome is not None else "")
    if not command:
        raise CallboardError("the model has given no command; say it in other words, or with -m ask another model")
    return 0, command


def _terminal() -> int | None:
    """The terminal, if a person sits at it. It is standard input from now on, whatever was piped in there before."""
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
    """Have the person choose until something comes of it; the exit code. `limit` is of files that may be open."""
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
    from ..render.one_key import read_key

    shown = safe(command)
    coloured = colours(sys.stderr)
    sys.stderr.write(f"{paint(shown, 'question') if coloured else shown}\n")
    menu = _MENU if shown == command else _MENU.replace("execute | ", "").replace("copy | ", "")
    if shown != command:
        sys.stderr.write("it holds characters that a terminal would obey, so it can't be executed or copied\n")
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
    """Have it explained, in no session; the exit code."""
    plain = Given(model=given.model, no_stream=given.no_stream, config_dir=given.config_dir)
    return play_run(plain.request(command), plain.run_flags(role="explain-shell"))


def _revised(text: str, command: str) -> str:
    """The text for another command. Ctrl-D leaves it as it was, and the model tries again."""
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
        raise UsageError(f"the model's command holds characters that a terminal would obey: {safe(command)}")
    return command


def _run(command: str, given: Given) -> NoReturn:
    shell = shell_of(os.environ)
    add_to_history(command, shell, given.config_dir)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what is ignored stays so in a new program
    replace_process(shell, [shell, "-c", command])


def replace_process(program: str, arguments: list[str]) -> NoReturn:
    """Become another program.

    Raises:
        UsageError: there is no such program.
    """
    try:
        os.execvp(program, arguments)  # noqa: S606 - the shell itself is what is started
    except OSError as error:
        raise UsageError(f"$SHELL is '{program}', which can't be started: {error.strerror}") from error
