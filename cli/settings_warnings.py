"""Prints oddities of config.yaml, in every command that reads it: one line on stderr, once.

A misspelt key is no error, but it is often the reason of one: with `clientz:` there is an unknown model. Runs tell it
as they begin, among their warnings. For all other commands, and for runs that never begin, it is told when the command
ends, before the error if there is one.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import click

from ..protocol.errors import CallboardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocol.problems import Problem

MOST = 5
"""Oddities that are printed; a file with more was hardly written for us."""

_TOLD = f"{__name__}.told"


def begin_with(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A callback for `--config-dir`: what the `.env` of that directory sets holds for all that follows."""
    with suppress(CallboardError) if ctx.resilient_parsing else nullcontext():  # completion has nowhere to say it
        load_env(value)
    return print_at_the_end(ctx, parameter, value)


def load_env(config_dir: str | None) -> None:
    """Put the `.env` of the configuration directory into our environment.

    Raises:
        ConfigError: it can't be read or understood.
    """
    from ..actors.io.directories import config_dir as configured
    from ..actors.io.env_file import load_env_file

    load_env_file(configured(config_dir, os.environ)[0], os.environ)


def print_at_the_end(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """A callback for `--config-dir`."""
    if not ctx.resilient_parsing:
        ctx.call_on_close(lambda: _tell(ctx.params, value))
    return value


def already_printed() -> None:
    """The command tells it by itself."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_TOLD] = True


def line_about(problems: Sequence[Problem]) -> str:
    """All of them in a line: the file, then each with its line, as long as there are few."""
    told = [_in_short(problem) for problem in problems[:MOST]]
    if len(problems) > MOST:
        told.append(f"and {len(problems) - MOST} more")
    return f"warning: {problems[0].file}: {'; '.join(told)}"


def _in_short(problem: Problem) -> str:
    where = f"line {problem.line}: " if problem.line else ""
    hint = f" ({problem.hint.partition(chr(10))[0]})" if problem.hint else ""
    return f"{where}{problem.message}{hint}"


def _tell(given: dict[str, Any], config_dir: str | None) -> None:
    context = click.get_current_context(silent=True)
    if given.get("quiet") or (context is not None and context.meta.get(_TOLD)):
        return
    from ..actors.io.directories import config_dir as configured
    from ..actors.io.directories import config_file

    home, _ = configured(config_dir, os.environ)
    if not config_file(home).is_file():
        return
    from ..actors.io.settings import load_settings
    from ..protocol.errors import ConfigError
    from .render.text import one_line

    try:
        _, problems = load_settings(home)
    except ConfigError:  # with errors in it, which the command has failed by
        return
    if problems:
        already_printed()
        sys.stderr.write(f"callboard: {one_line(line_about(problems), 1000)}\n")
