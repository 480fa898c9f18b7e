"""Program `callboard`: finds the command, runs it, and turns every outcome into an exit code.

Start-up time is a requirement: `callboard --help` and completion take little longer than Python itself. So this module
and the command modules import only click and the light half of `protocol`. A test lists the modules that may not be
imported here.
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
from .loki.routing import CONFIG_DIR_NAMED, before_command, is_prompt, nearest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


BROKEN_PIPE = 141
"""Exit code after the reader of stdout has closed the pipe: 128 + SIGPIPE, as for any Unix filter."""

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Write errors of stdout with an external cause."""

COMMANDS = {
    "setup": "commands.setup",
    "chat": "commands.chat",
    "run": "commands.run",
    "ask": "commands.run",
    "batch": "commands.run",
    "resume": "commands.durable",
    "fork": "commands.durable",
    "replay": "commands.durable",
    "test": "commands.test",
    "macro": "commands.macro",
    "macros": "commands.macro",
    "agents": "commands.agents",
    "roles": "commands.roles",
    "tools": "commands.tools",
    "permissions": "commands.trust",
    "skills": "commands.skills",
    "mcp": "commands.mcp",
    "auth": "commands.credentials",
    "vault": "commands.credentials",
    "kb": "commands.kb",
    "sessions": "commands.sessions",
    "install": "commands.install",
    "trust": "commands.trust",
    "serve": "commands.serve",
    "worker": "commands.serve",
    "cluster": "commands.serve",
    "acp": "commands.serve",
    "keys": "commands.serve",
    "ps": "commands.remote",
    "top": "commands.remote",
    "attach": "commands.remote",
    "answer": "commands.remote",
    "stop": "commands.remote",
    "logs": "commands.remote",
    "runs": "commands.runs",
    "show": "commands.runs",
    "usage": "commands.runs",
    "validate": "commands.files",
    "graph": "commands.files",
    "convert": "commands.files",
    "schema": "commands.files",
    "init": "commands.files",
    "demo": "commands.demo",
    "models": "commands.models",
    "doctor": "commands.setup",
    "loki": "loki.flags",
    "completion": "shells.commands",
    "shell-init": "shells.commands",
}
"""Command name to module of this package; `GROUPS` has the order in which help shows them.

A module with one command calls it `command`; those with several call each by its name.
"""

GROUPS: dict[str, tuple[str, ...]] = {
    "Talk": ("chat", "ask", "run", "batch", "demo", "setup", "doctor", "models"),
    "Write": (
        *("init", "agents", "validate", "test", "graph", "tools", "mcp", "kb", "skills", "roles"),
        *("macro", "macros", "install", "schema"),
    ),
    "Watch": ("ps", "top", "attach", "answer", "stop", "logs", "runs", "show", "usage", "sessions"),
    "Resume": ("resume", "fork", "replay"),
    "Serve": ("serve", "acp", "keys", "worker", "cluster"),
    "Secrets and trust": ("vault", "auth", "permissions", "trust"),
    "Compatibility": ("loki", "convert", "completion", "shell-init"),
}
"""Commands by purpose, the most used first."""

USUAL = frozenset((
    *("chat", "ask", "run", "demo", "setup", "doctor", "init", "agents", "validate", "test", "tools", "mcp", "kb"),
    *("ps", "answer", "usage", "resume", "serve", "vault", "loki"),
))  # fmt: skip
"""The twenty commands of the short form."""

_LEAD = "Run LLM agents, written in YAML, in one supervised process."
_FOOT = "callboard --help --all: every command, and the options"

_ALL = "--all"
_EVERYTHING = f"{__name__}.everything"
"""Context key: the line is `--help --all`."""

_ONE_PROMPT = f"{__name__}.one_prompt"
"""Context key: the command line is one prompt."""


class _Commands(click.Group):
    """Command group that imports a command's module on demand. A word that is not a command begins a prompt."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:2] in (["-h", _ALL], ["--help", _ALL], [_ALL, "-h"], [_ALL, "--help"]):
            ctx.meta[_EVERYTHING] = True
            args = ["--help"]
        home, args = before_command(args, COMMANDS)
        # The flag may precede the command (`callboard -C DIR run`), where click would not know it.
        if home is not None:
            _set_for_context(ctx, "CALLBOARD_CONFIG_DIR", home)
            ctx.meta[CONFIG_DIR_NAMED] = True
        if is_prompt(args, COMMANDS) and (args or not ctx.resilient_parsing):
            ctx.meta[_ONE_PROMPT] = True
            # click: `--` ends the options, so that words of the prompt are not parsed as flags.
            args = ["--", *(args or ["--"])]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_help(self, ctx, formatter, everything=ctx.meta.get(_EVERYTHING, False))

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


def write_help(group: click.Group, ctx: click.Context, formatter: click.HelpFormatter, *, everything: bool) -> None:
    """Write the most used commands in groups; with `everything` all commands.

    The short form fits a terminal of 80 columns and 40 rows, and imports only the modules of its own commands.
    """
    formatter.write("Usage: callboard [COMMAND] [OPTIONS] [ARGS]...; without a command: a chat\n\n")
    formatter.write(f"{_LEAD}\n")
    width = max(len(name) for names in GROUPS.values() for name in names if everything or name in USUAL)
    for title, names in GROUPS.items():
        formatter.write(f"\n{title}\n")
        for name in names:
            if everything or name in USUAL:
                command = group.get_command(ctx, name)
                assert command is not None
                formatter.write(f"  {name:<{width}}  {command.get_short_help_str(limit=200)}\n")
    if not everything:
        formatter.write(f"\n{_FOOT}\n")
        return
    formatter.write("\nOptions\n")
    formatter.write("  -V, --version  Show the version and exit.\n")
    formatter.write("  -h, --help     Show the usual commands, with --all every one.\n")
    formatter.write(
        "\nA TEXT in quotes is one prompt: callboard [FLAGS] TEXT\n(callboard loki --help has the flags).\n"
    )


def _takes_no_directory(command: click.Command) -> bool:
    """True if a command has no `--config-dir`; otherwise the callback of that flag reads the directory's `.env`."""
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
    """Runs many LLM agents, written in YAML, in one supervised process. `write_help` has the text of `--help`."""


def main() -> NoReturn:
    """Run the command line of a process that `start` has begun; always ends the process.

    A terminal closed meanwhile ends it with 129, silently, as its SIGHUP does. The signal often arrives a moment after
    the first failing read or write, so the command's handling of that failure does not count. A success or a signal
    does count: a server that has drained, or that outlived its terminal and was later stopped by SIGTERM.
    """
    # Before the command runs: after a hangup `isatty` is false, which shows that the terminal was closed.
    terminals = [fd for fd in range(3) if os.isatty(fd)]
    hangup_ends = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN  # not under nohup
    code = run(sys.argv[1:])
    if not all(os.isatty(fd) for fd in terminals):
        _drop_output()
        if hangup_ends and 0 < code < 128:
            code = 128 + signal.SIGHUP
    if code == 128 + signal.SIGINT:
        # At exit Python restores SIGINT's default action; another Ctrl-C would then change the exit status.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. No exception of a command passes it."""
    _write_all_or_fail()
    _tolerate_any_text()
    if (shell := os.environ.get("COMPLETE", "")) and tuple(arguments) in ((), ("loki",)):
        # Programs made with clap print their completion this way, and shell scripts for Loki use it.
        arguments = import_module(".shells.commands", __package__).by_variable(shell, arguments)
    if "_CALLBOARD_COMPLETE" in os.environ:
        import_module(".shells.completing", __package__).register()
        cli.main(list(arguments), prog_name="callboard")
    try:
        with cli.make_context("callboard", list(arguments)) as context:
            sweep()  # not for `--help`, `--version` and completion, which have already exited
            ended: int | str = cli.invoke(context)  # an exit code, or text to print
        code = 0 if isinstance(ended, str) else ended
        if isinstance(ended, str):
            sys.stdout.write(ended)
        sys.stdout.flush()
    except click.exceptions.Exit as exit_:
        return _flushed(exit_.exit_code)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the user gets a line and no traceback
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
    """End after a write error of stdout: silently if the reader closed the pipe, with a line if the disk is full."""
    _drop_output(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    with suppress(OSError):  # stderr may be the same closed terminal
        sys.stderr.write(f"callboard: the output can't be written: {error.strerror}\n")
        sys.stderr.flush()
    return 1


def _drop_output(*streams: TextIO) -> None:
    """Redirect `streams` (both, if none is named) to /dev/null: Python flushes again at exit, and would complain."""
    # dup2, not close: the next opened file would get the number of the stream, and receive its output.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams or (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def _write_all_or_fail() -> None:
    """Buffer the standard streams.

    With PYTHONUNBUFFERED, Python silently drops the rest of a partial write to a pipe.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        raw = getattr(stream, "buffer", None)
        if isinstance(raw, io.RawIOBase):
            buffer = io.BufferedWriter(raw)
            unbuffered = io.TextIOWrapper(buffer, encoding=stream.encoding, errors=stream.errors, line_buffering=True)
            setattr(sys, name, unbuffered)


def _tolerate_any_text() -> None:
    """Escape characters that the terminal's encoding lacks, instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
