"""Loki's flags as click options; their implementation is in `play`, imported late.

Names and order are Loki's: flags, then the text, which includes everything after its first word. The command's function
receives them as `Given`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from .. import options
from ..settings_warnings import begin_with
from .home import loki_home
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
        help="The model that answers; of several with commas the first that does.",
        shell_complete=options.complete_model,
    ),
    _value("--prompt", metavar="TEXT", help="Answers in the role that TEXT makes."),
    _value("-r", "--role", metavar="ROLE", help="Answers in this role.", shell_complete=options.complete_role),
    _value(
        "-s",
        "--session",
        metavar="[SESSION]",
        help="Goes on with this conversation, or begins it; without a name in one that is not kept.",
        is_flag=False,
        flag_value="temp",
        shell_complete=_complete_session,
    ),
    _switch("--empty-session", help="Forgets what was said in the session before."),
    _switch("--save-session", help="Keeps the session without asking."),
    _value("-a", "--agent", metavar="AGENT", help="This agent answers.", shell_complete=options.complete_target),
    _value(
        "--agent-variable",
        "variables",
        metavar="NAME VALUE",
        help="Sets a variable of the agent; repeatable.",
        nargs=2,
        multiple=True,
    ),
    _value(
        "--rag", metavar="NAME", help="Looks TEXT up in this knowledge base.", shell_complete=options.complete_base_name
    ),
    _switch("--rebuild-rag", help="Builds the knowledge base anew first; without TEXT only that."),
    _value(
        "--macro", metavar="MACRO", help="Plays a macro; TEXT is its arguments.", shell_complete=options.complete_macro
    ),
    _value(
        "-f",
        "--file",
        "files",
        metavar="FILE",
        help="Attaches a file, image, directory, glob, URL, '`command`' or %% (the last reply); repeatable.",
        multiple=True,
        type=click.Path(),
    ),
)
_manner = options.several(
    _switch("-e", "--execute", help="TEXT becomes a command of your shell, which you may run, change or copy."),
    _switch("-c", "--code", help="Prints the code of the answer alone."),
    _switch("-S", "--no-stream", help="At a terminal: shows the answer once it is whole."),
    _switch("--dry-run", help="Sends nothing; shows what would be sent."),
)
_looks = options.several(
    _switch("--info", help="Shows paths and settings, or all about the role, session, agent or base that is named."),
    _switch("--list-models", help="Lists the models that can be named."),
    _switch("--list-roles", help="Lists the roles."),
    _switch("--list-sessions", help="Lists the sessions, with -a those of the agent."),
    _switch("--list-agents", help="Lists the agents."),
    _switch("--list-rags", help="Lists the knowledge bases with names of their own."),
    _switch("--list-macros", help="Lists the macros."),
    _switch("--tail-logs", help="Tells what happens in the newest run, until it ends."),
    _switch("--disable-log-colors", help="Without colours."),
)
_upkeep = options.several(
    _switch("--sync-models", help="Fetches the newest prices and limits of models."),
    _switch("--build-tools", help="Nothing: tools need not be built."),
    _value("--authenticate", metavar="[CLIENT]", help="Signs in to a client that has `auth: oauth`.", is_flag=False,
           flag_value=_UNSAID, shell_complete=options.complete_sign_in),
    _value("--install", metavar="KIND", help="Lays what comes with callboard into your directory: agents, roles, ...",
           shell_complete=options.complete_kind),
    _value("--install-from", metavar="URL", help="Installs a bundle from a git repository, URL[#ref]."),
    _value("--filter", "filters", metavar="KIND", help="With --install-from, only this; repeatable.", multiple=True,
           shell_complete=options.complete_kind),
    _switch("--install-force", help="With --install-from, replaces files that are there."),
    _value("--update", metavar="[VERSION]", help="Tells how to update callboard; changes nothing.", is_flag=False,
           flag_value=_UNSAID),
    _switch("--force", help="Accepted for Loki's sake: nothing here asks before an update."),
    _value("--completions", metavar="SHELL", help="Prints the completion script of a shell."),
)  # fmt: skip
_secrets = options.several(
    _value("--add-secret", metavar="NAME", help="Keeps a new secret in the vault."),
    _value(
        "--get-secret", metavar="NAME", help="Prints a secret of the vault.", shell_complete=options.complete_secret
    ),
    _value(
        "--update-secret", metavar="NAME", help="Changes a secret of the vault.", shell_complete=options.complete_secret
    ),
    _value(
        "--delete-secret", metavar="NAME", help="Deletes a secret of the vault.", shell_complete=options.complete_secret
    ),
    _switch("--list-secrets", help="Lists the names of the secrets in the vault."),
)
_chat = options.several(
    _switch("--continue", "continues", help="Continues the newest chat of this directory; -c alone does so, too."),
    _switch("--resume", help="Shows the chats that are stored, and continues the one that you choose."),
    _switch("--no-tools", help="The chat that begins without a TEXT has no agent: a model alone."),
)
_all = options.several(_conversation, _manner, _looks, _upkeep, _secrets, click.argument("text", nargs=-1))
_SETTINGS = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}


def _config_dir(default: Callable[[], str | None] | None = None) -> options.Decorator:
    return _value(
        "-C",
        "--config-dir",
        metavar="DIR",
        help="Where roles, sessions, agents and config.yaml live.",
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
    """Answers TEXT, Loki's way: flags first, then all else is the prompt; text piped in is appended to it. Without
    TEXT at a terminal, the chat begins.

    A text that begins as a command is called needs quotes, or `--` before it.
    """
    from .given import Given
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
    """Takes Loki's own command line: alias loki='callboard loki'.

    All is as with `callboard [FLAGS] TEXT`, and a single word is a prompt, too. The configuration is that of
    $LOKI_CONFIG_DIR if that is set; else Callboard's own, and where it has no config.yaml, Loki's (~/.config/loki).
    The chat is Loki's (`compat: loki`): a model without an agent.
    """
    from .given import Given
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
        click.echo(f"callboard: {' '.join(late)} behind the text is part of it; flags stand before it", err=True)
