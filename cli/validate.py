"""`callboard validate`: every problem of a file at once."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from . import given, options
from .options import complete_target, config_dir, strict, text_or_json

if TYPE_CHECKING:
    from ..protocol.problems import Problem


@click.command("validate", short_help="Find every problem of an agent's files.")
@click.argument("target", shell_complete=complete_target)
@options.variables
@options.compat
@strict
@text_or_json
@config_dir
def command(
    target: str, variables: tuple[str, ...], compat: str | None, strict: bool, as_json: bool, config_dir: str | None
) -> int:
    """Reads TARGET as `run` would and lists all problems, each with file, line, column and how to mend it.

    Exit code 2 if there is any error, else 0; warnings alone are no error.
    """
    from .. import validate
    from ..protocol.problems import errors_in

    values = given.variables(variables)
    problems = validate(target, strict=strict, compat=compat, variables=values, config_dir=config_dir)
    errors = len(errors_in(problems))
    if as_json:
        _print_json(target, problems, errors)
    else:
        _print_text(target, problems, errors)
    return 2 if errors else 0


def _print_json(target: str, problems: list[Problem], errors: int) -> None:
    import msgspec

    found = {
        "schema_version": 1,
        "target": target,
        "problems": msgspec.to_builtins(problems),
        "errors": errors,
        "warnings": len(problems) - errors,
    }
    sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n")


def _print_text(target: str, problems: list[Problem], errors: int) -> None:
    from .render.style import colours, paint
    from .render.text import counted, safe

    coloured = colours(sys.stdout)
    for problem in problems:
        text = safe(str(problem))
        sys.stdout.write((paint(text, problem.severity) if coloured else text) + "\n")
    if not problems:
        sys.stdout.write(f"{safe(target)}: no problems\n")
        return
    warnings = len(problems) - errors
    sys.stdout.write(f"{safe(target)}: {counted(errors, 'error')}, {counted(warnings, 'warning')}\n")
