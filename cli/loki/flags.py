"""Loki's flags as click options. The functions that execute a line are in `loki.play`, which is imported on first use.

Names and order are Loki's: flags, then the text, which includes everything after its first word. The command's function
receives them as `Given`.

Loki's own configuration directory is `$LOKI_CONFIG_DIR`, then `loki` in `$XDG_CONFIG_HOME` or in the platform's
configuration directory. Both programs can share one directory: Callboard's files in it (sessions under `by-id`,
knowledge under `knowledge`, vault.age) have names that Loki does not use, and Loki's own data is only read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ...actors.io.directories import config_dir
from .. import options
from ..settings_warnings import begin_with
from .routing import CONFIG_DIR_NAMED

_UNSAID = ""
"""Value of a flag whose value is optional."""


def _complete_session(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    ctx.params["target"] = ctx.params.get("agent")
    return options.complete_session(ctx, parameter, incomplete)


def _switch(*names: str, help: str) -> options.Decorator:
    return click.option(*names, is_flag=True, help=help)


def _value(*names: str, metavar: str, help: str, **more: Any) -> options.Decorator:
    return click.option(*names, metavar=metavar, help=help, **more)


_conversation = options.several(
    _value(
        "-m",
        "--model",
        metavar="MODEL",
        help="Answer with this model; of several, separated by commas, the first that answers.",
        shell_complete=options.complete_model,
    ),
    _value("--prompt", metavar="TEXT", help="Answer in a role made of TEXT."),
    _value("-r", "--role", metavar="ROLE", help="Answer in this role.", shell_complete=options.complete_role),
    _value(
        "-s",
        "--session",
        metavar="[SESSION]",
        help="Continue this conversation, or begin it; without a name, one that is not stored.",
        is_flag=False,
        flag_value="temp",
        shell_complete=_complete_session,
    ),
    _switch("--empty-session", help="First delete the turns of the session."),
    _switch("--save-session", help="Store the session without asking."),
    _value("-a", "--agent", metavar="AGENT", help="Answer with this agent.", shell_complete=options.complete_target),
    _value(
        "--agent-variable",
        "variables",
        metavar="NAME VALUE",
        help="Set a variable of the agent; repeatable.",
        nargs=2,
        multiple=True,
    ),
    _value(
        "--rag", metavar="NAME", help="Look TEXT up in this knowledge base.", shell_complete=options.complete_base_name
    ),
    _switch("--rebuild-rag", help="First rebuild the knowledge base; without TEXT, do only that."),
    _value(
        "--macro", metavar="MACRO", help="Run a macro; TEXT is its arguments.", shell_complete=options.complete_macro
    ),
    _value(
        "-f",
        "--file",
        "files",
        metavar="FILE",
        help="Attach a file, image, directory, glob, URL, '`command`' or %% (the last reply); repeatable.",
        multiple=True,
        type=click.Path(),
    ),
)
_manner = options.several(
    _switch("-e", "--execute", help="Turn TEXT into a command of your shell, which you can run, change or copy."),
    _switch("-c", "--code", help="Print only the code of the answer."),
    _switch("-S", "--no-stream", help="At a terminal: show the answer when it is complete."),
    _switch("--dry-run", help="Send nothing; show the request."),
)
_looks = options.several(
    _switch(
        "--info", help="Show paths and settings; with -r, -s, -a or --rag those of the role, session, agent or base."
    ),
    _switch("--list-models", help="List the models."),
    _switch("--list-roles", help="List the roles."),
    _switch("--list-sessions", help="List the sessions, with -a those of the agent."),
    _switch("--list-agents", help="List the agents."),
    _switch("--list-rags", help="List the named knowledge bases."),
    _switch("--list-macros", help="List the macros."),
    _switch("--tail-logs", help="Print the log of the newest run, until it ends."),
    _switch("--disable-log-colors", help="Print the log without colours."),
)
_upkeep = options.several(
    _switch("--sync-models", help="Fetch the newest prices and limits of models."),
    _switch("--build-tools", help="Accepted without effect: tools need no build."),
    _value("--authenticate", metavar="[CLIENT]", help="Sign in to a client with `auth: oauth`.", is_flag=False,
           flag_value=_UNSAID, shell_complete=options.complete_sign_in),
    _value("--install", metavar="KIND", help="Copy built-in files to your directory: agents, roles, ...",
           shell_complete=options.complete_kind),
    _value("--install-from", metavar="URL", help="Install a bundle from a git repository, URL[#ref]."),
    _value("--filter", "filters", metavar="KIND", help="With --install-from: install only this kind; repeatable.",
           multiple=True, shell_complete=options.complete_kind),
    _switch("--install-force", help="With --install-from: replace existing files."),
    _value("--update", metavar="[VERSION]", help="Print the command that updates callboard; change nothing.",
           is_flag=False, flag_value=_UNSAID),
    _switch("--force", help="Accepted without effect: no update asks."),
    _value("--completions", metavar="SHELL", help="Print the completion script of a shell."),
)  # fmt: skip
_secrets = options.several(
    _value("--add-secret", metavar="NAME", help="Store a new secret in the vault."),
    _value("--get-secret", metavar="NAME", help="Print a secret of the vault.", shell_complete=options.complete_secret),
    _value(
        "--update-secret", metavar="NAME", help="Change a secret of the vault.", shell_complete=options.complete_secret
    ),
    _value(
        "--delete-secret", metavar="NAME", help="Delete a secret of the vault.", shell_complete=options.complete_secret
    ),
    _switch("--list-secrets", help="List the names of the secrets in the vault."),
)
_chat = options.several(
    _switch("--continue", "continues", help="Continue the newest stored chat of this directory; so does -c alone."),
    _switch("--resume", help="List the stored chats, and continue the one that you choose."),
    _switch("--no-tools", help="Without TEXT: chat with a model alone, without the default agent."),
)
_all = options.several(_conversation, _manner, _looks, _upkeep, _secrets, click.argument("text", nargs=-1))
_SETTINGS = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}


def _config_dir(default: Callable[[], str | None] | None = None) -> options.Decorator:
    return _value(
        "-C",
        "--config-dir",
        metavar="DIR",
        help="Directory of roles, sessions, agents and config.yaml.",
        callback=begin_with,
        default=default,
    )


class _AsCallboard(click.Context):
    """Click context with the command name `callboard`, as it was typed."""

    @property
    def command_path(self) -> str:
        return "callboard"


class _OnePrompt(click.Command):
    context_class = _AsCallboard

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Treat `-c` alone as `--continue`: Loki's `-c`, the code of an answer, needs a TEXT."""
        if args == ["-c"] and sys.stdin.isatty():
            args = ["--continue"]
        return super().parse_args(ctx, args)

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        with self._usage_of_commands():
            return super().make_context(*given, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with self._usage_of_commands():
            return super().invoke(ctx)

    @contextmanager
    def _usage_of_commands(self) -> Iterator[None]:
        """Name the right help in usage errors: `callboard --help` is about the commands, not these flags."""
        try:
            yield
        except click.UsageError as error:
            if error.ctx is not None and error.ctx.command is not self:  # raised in a command that implements a flag
                raise
            hint = "callboard loki --help lists the flags that stand before a prompt"
            raise click.UsageError(f"{error.format_message()}\n    {hint}") from error


@click.command(cls=_OnePrompt, context_settings=_SETTINGS, options_metavar="[FLAGS]")
@_all
@_chat
@_config_dir()
@click.pass_context
def one_prompt(ctx: click.Context, /, **given: Any) -> int | str:
    """Answer TEXT, as Loki does: flags first, then the prompt. Text from a pipe is appended to it. Without TEXT at a
    terminal, start the chat.

    Quote a text that begins with the name of a command, or put `--` before it.
    """
    from .loki_args import Given
    from .play import play

    _warn_of_late_flags(ctx, given["text"])
    return play(Given(**given), nothing_said=_is_bare(ctx))


def _home() -> str | None:
    """Return Loki's directory if it applies; a `--config-dir` before the command takes precedence."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(CONFIG_DIR_NAMED):
        return None
    return loki_home(os.environ)


class _Loki(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name != "--serve":
                raise
            raise click.UsageError("Loki's --serve is a command here: callboard serve", ctx) from None


@click.command(
    "loki", cls=_Loki, context_settings=_SETTINGS, options_metavar="[FLAGS]", short_help="Accept Loki's command line."
)
@click.version_option(None, "-V", "--version", package_name="callboard", message="loki (callboard %(version)s)")
@_all
@_config_dir(_home)
def loki(**given: Any) -> int | str:
    """Accept Loki's command line: alias loki='callboard loki'.

    It works as `callboard [FLAGS] TEXT` does, but a single word is also a prompt. The config directory is
    $LOKI_CONFIG_DIR if that is set, else Callboard's own; if that has no config.yaml, Loki's (~/.config/loki). The chat
    is Loki's (`compat: loki`): a model without an agent.
    """
    from .loki_args import Given
    from .play import play

    _obey_loki(click.get_current_context())
    return play(Given(**given), nothing_said=False)


def _obey_loki(ctx: click.Context) -> None:
    """Set `compat: loki` until the command ends, unless the environment says something else."""
    if "CALLBOARD_COMPAT" not in os.environ:
        os.environ["CALLBOARD_COMPAT"] = "loki"
        ctx.call_on_close(lambda: os.environ.pop("CALLBOARD_COMPAT", None))


def _is_bare(ctx: click.Context) -> bool:
    """Return True if the line is only `callboard`."""
    source = click.core.ParameterSource.COMMANDLINE
    return not any(ctx.get_parameter_source(name) is source for name in ctx.params)


def _warn_of_late_flags(ctx: click.Context, text: tuple[str, ...]) -> None:
    """Warn that a flag after the text is part of it: with Callboard's own commands flags may be anywhere."""
    flags = {name for param in ctx.command.params if isinstance(param, click.Option) for name in param.opts}
    late = [word for word in text[1:] if word.partition("=")[0] in flags]
    if late:
        click.echo(
            f"callboard: {' '.join(late)} after the text is part of the prompt; write flags before the text", err=True
        )


def loki_home(environ: Mapping[str, str]) -> str | None:
    """Return the default configuration directory; None for Callboard's own.

    `$LOKI_CONFIG_DIR` comes first, because it is explicit. A `config.yaml` of Callboard's own precedes Loki's default
    directory: a user who wrote it has switched. The directory alone does not: `callboard vault add` and `install`
    create it, and must not hide clients, roles and sessions.
    """
    if named := environ.get("LOKI_CONFIG_DIR"):
        return named
    own, _ = config_dir(None, environ)
    if environ.get("CALLBOARD_CONFIG_DIR") or (own / "config.yaml").is_file():
        return None
    theirs = _default(environ)
    return str(theirs) if theirs.is_dir() else None


def _default(environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME") or Path.home())
    if xdg := environ.get("XDG_CONFIG_HOME"):
        return Path(xdg) / "loki"
    if sys.platform == "darwin" and not (home / ".config" / "loki").is_dir():
        return home / "Library" / "Application Support" / "loki"
    return home / ".config" / "loki"
