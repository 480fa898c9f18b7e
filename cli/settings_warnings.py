"""Warnings about config.yaml, in every command that reads it: one line on stderr, once.

A misspelt key is not an error, but often the reason for one: with `clientz:` there is an unknown model. Runs report it
at their beginning, with their other warnings. For all other commands, and for runs that fail to start, it is printed
when the command ends, before the error if there is one.
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
"""Maximum number of warnings printed; a file with more was hardly written for Callboard."""

_TOLD = f"{__name__}.told"


def begin_with(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Load the directory's `.env` before other options are read. Callback of `--config-dir`."""
    with suppress(CallboardError) if ctx.resilient_parsing else nullcontext():  # completion can't print errors
        load_env(value)
    return print_at_the_end(ctx, parameter, value)


def load_env(config_dir: str | None) -> None:
    """Load the `.env` of the configuration directory into the environment of this process.

    Raises:
        ConfigError: it can't be read or parsed.
    """
    from ..actors.io.directories import config_dir as configured
    from ..actors.io.environment import load_env_file, load_key_files

    load_env_file(configured(config_dir, os.environ)[0], os.environ)
    load_key_files(os.environ)


def print_at_the_end(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Print warnings when the command ends. Callback of `--config-dir`."""
    if not ctx.resilient_parsing:
        ctx.call_on_close(lambda: _print_problems(ctx.params, value))
    return value


def already_printed() -> None:
    """Record that the command reports the warnings itself."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_TOLD] = True


def line_about(problems: Sequence[Problem]) -> str:
    """Format all problems on one line: the file, then up to `MOST` problems with their lines."""
    told = [_in_short(problem) for problem in problems[:MOST]]
    if len(problems) > MOST:
        told.append(f"and {len(problems) - MOST} more")
    return f"warning: {problems[0].file}: {'; '.join(told)}"


def _in_short(problem: Problem) -> str:
    where = f"line {problem.line}: " if problem.line else ""
    hint = f" ({problem.hint.partition(chr(10))[0]})" if problem.hint else ""
    return f"{where}{problem.message}{hint}"


def _print_problems(given: dict[str, Any], config_dir: str | None) -> None:
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
    except ConfigError:  # the command has failed with this error already
        return
    if problems:
        already_printed()
        sys.stderr.write(f"callboard: {one_line(line_about(problems), 1000)}\n")
