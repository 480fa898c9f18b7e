"""The program `callboard`: finds the command, runs it, turns whatever happens into an exit code.

Start-up time is part of the promise (`callboard --help` and completion cost little more than Python itself),
so this module and the command modules import only click and the light half of `protocol`. A test lists what
may not be imported here.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from ..actors.io.temporary import sweep
from .loki.routing import before_command, is_prompt, nearest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

BROKEN_PIPE = 141
"""Exit code when the reader of our output went away: 128 + SIGPIPE, as for any Unix filter."""

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""How a write to stdout fails through no fault of ours."""

COMMANDS = {
    "setup": "setting_up",
    "chat": "chat.command",
    **dict.fromkeys(("run", "ask", "batch"), "run"),
    **{name: name for name in ("resume", "fork", "replay", "test")},
    **dict.fromkeys(("macro", "macros"), "macro"),
    **{name: name for name in ("agents", "roles", "tools", "permissions", "skills")},
    **{name: name for name in ("mcp", "auth", "vault", "kb", "sessions", "install", "trust")},
    **dict.fromkeys(("serve", "worker"), "serve"),
    "cluster": "cluster",
    **dict.fromkeys(("acp", "keys"), "serve"),
    **dict.fromkeys(("ps", "top", "attach", "answer", "stop", "logs"), "remote"),
    **{name: name for name in ("runs", "show", "usage")},
    **dict.fromkeys(("validate", "graph", "convert", "schema"), "files"),
    **{name: name for name in ("init", "demo")},
    **dict.fromkeys(("models", "doctor"), "models"),
    "loki": "loki.flags",
    **dict.fromkeys(("completion", "shell-init"), "shells.commands"),
}
"""Command name to module of this package, in the order `--help` shows them.

A module with one command calls it `command`; those with several call each by its name.
"""

_ONE_PROMPT = f"{__name__}.one_prompt"
"""What a context remembers of a command line that is one prompt."""


class _Commands(click.Group):
    """Imports a command's module when the command is asked for, not before. What names no command is one prompt."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        home, args = before_command(args, COMMANDS)
        if home is not None:
            _set_for_context(ctx, "CALLBOARD_CONFIG_DIR", home)
        if is_prompt(args, COMMANDS) and (args or not ctx.resilient_parsing):
            ctx.meta[_ONE_PROMPT] = True
            args = ["--", *(args or ["--"])]
        return super().parse_args(ctx, args)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = import_module(f".{COMMANDS[name]}", __package__)
        command = module.command if hasattr(module, "command") else getattr(module, name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if _ONE_PROMPT in ctx.meta:
            return "", _one_prompt(), args
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(_unknown(args), ctx)
        found = super().resolve_command(ctx, args)
        if found[1] is not None and not ctx.resilient_parsing and _takes_no_directory(found[1]):
            from .settings_warnings import load_env

            load_env(None)
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            found += _one_prompt().shell_complete(click.Context(_one_prompt()), incomplete)
        return found


def _takes_no_directory(command: click.Command) -> bool:
    """Whether a command has no `--config-dir`, which else says whose `.env` is read, as the flag is."""
    return not isinstance(command, click.Group) and all(each.name != "config_dir" for each in command.params)


def _one_prompt() -> click.Command:
    command = import_module(".loki.flags", __package__).one_prompt
    assert isinstance(command, click.Command)
    return command


def _set_for_context(ctx: click.Context, name: str, value: str) -> None:
    """Set a variable of the environment until the context ends."""
    before = os.environ.get(name)
    os.environ[name] = value

    def restore() -> None:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before

    ctx.call_on_close(restore)


def _unknown(arguments: Sequence[str]) -> str:
    name = arguments[0]
    near = nearest(name, COMMANDS)
    if near is None:
        hint = f"To run an agent or a file: callboard run {name}; as a prompt: callboard -- {name}"
        return f"There is no command '{name}'. {hint}"
    question = f"There is no command '{name}'; did you mean '{near}'?"
    return f"{question} As a prompt: callboard -- {name} ..." if len(arguments) > 1 else question


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(None, "-V", "--version", package_name="callboard", message="callboard %(version)s")
def cli() -> None:
    """Runs many LLM agents, written in YAML, in one supervised process.

    What names no command is one prompt, Loki's way: callboard [FLAGS] TEXT (callboard loki --help has the flags).

    \b
    To begin with:
      callboard demo
      callboard "Say hello"
      callboard agents new my-agent
      callboard run my-agent "How many words has this sentence?"

    Without a command it begins a conversation at the terminal (callboard chat).
    """


def main() -> NoReturn:
    """Runs the process's own command line, which `start` has begun; always ends the process.

    A terminal that was closed meanwhile ends it by 129, silently, as its SIGHUP does. The signal often comes a moment
    after the first read or write that fails, so what the command made of that failure does not count. What is no
    failure does: a server that has drained, or that has outlived its terminal and was stopped by SIGTERM later.
    """
    terminals = [fd for fd in range(3) if os.isatty(fd)]
    hangup_ends = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN  # not under nohup
    code = run(sys.argv[1:])
    if not all(os.isatty(fd) for fd in terminals):
        _drop_output()
        if hangup_ends and 0 < code < 128:
            code = 128 + signal.SIGHUP
    if code == 128 + signal.SIGINT:
        # Python gives SIGINT back its default action on the way out; one Ctrl-C more would change how we end.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. Nothing a command raises gets past it."""
    _write_all_or_fail()
    _tolerate_any_text()
    if "_CALLBOARD_COMPLETE" in os.environ:
        import_module(".shells.completing", __package__).register()
        cli.main(list(arguments), prog_name="callboard")
    try:
        with cli.make_context("callboard", list(arguments)) as context:
            sweep()  # not for `--help`, `--version` and completion, which have ended here
            ended: int | str = cli.invoke(context)  # an exit code, or what is to be printed
        code = 0 if isinstance(ended, str) else ended
        if isinstance(ended, str):
            sys.stdout.write(ended)
        sys.stdout.flush()
    except click.exceptions.Exit as exit_:
        return _flushed(exit_.exit_code)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the last stop before the user, who gets a line and no traceback
        return _failed(error, arguments)
    return code


def _failed(error: Exception, arguments: Sequence[str]) -> int:
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno in _UNWRITABLE):
        return _unwritable(error)
    from .failure import report

    try:
        return report(error, arguments)
    except OSError as failed:
        return _unwritable(failed)


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError as error:
        return _unwritable(error)
    return code


def _unwritable(error: OSError) -> int:
    """Ends after stdout took no more: quietly if its reader left, with a line if its disk is full."""
    _drop_output(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    with suppress(OSError):  # stderr may be the same closed terminal
        sys.stderr.write(f"callboard: the output can't be written: {error.strerror}\n")
        sys.stderr.flush()
    return 1


def _drop_output(*streams: TextIO) -> None:
    """Lead `streams` (both, if none is named) to /dev/null: Python flushes once more at exit, and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams or (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def _write_all_or_fail() -> None:
    """With PYTHONUNBUFFERED, Python drops what a pipe did not take of one write, and does not say so. A buffer does."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        raw = getattr(stream, "buffer", None)
        if isinstance(raw, io.RawIOBase):
            buffer = io.BufferedWriter(raw)
            unbuffered = io.TextIOWrapper(buffer, encoding=stream.encoding, errors=stream.errors, line_buffering=True)
            setattr(sys, name, unbuffered)


def _tolerate_any_text() -> None:
    """A model may write what the terminal's encoding lacks; show it escaped and go on."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
