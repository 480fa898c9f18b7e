"""Flags that several commands share, and completion of TARGET."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..actors.directories import config_dir as configured

strict = click.option("--strict", is_flag=True, help="Unknown keys in files are errors, not warnings.")
config_dir = click.option(
    "--config-dir",
    metavar="DIR",
    help="Where agents and config.yaml live [default: $CALLBOARD_CONFIG_DIR or ~/.config/callboard].",
)
text_or_json = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of what is printed on stdout.",
)


def above_zero(unit: str, kind: type[int | float]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback for an option whose value is a number above zero; `kind` is `int` for whole numbers.

    Infinity and NaN are none of them: a limit that is left out is no limit.
    """

    def read(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | float | None:
        if value is None:
            return None
        try:
            number = kind(value)
        except ValueError:
            number = 0
        if not 0 < number < math.inf:
            whole = "whole number" if kind is int else "number"
            raise click.BadParameter(f"'{value}' is not a {whole} of {unit} above 0.")
        return number

    return read


def complete_target(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Agents of the config directory, and agent directories and YAML files of the current one."""
    agents = configured(ctx.params.get("config_dir"), os.environ)[0] / "agents"
    found = [path.name for path in _entries(agents) if path.is_dir()]
    folder, _slash, start = incomplete.rpartition("/")
    here = Path(folder or ("/" if incomplete.startswith("/") else "."))
    for path in _entries(here):
        shown = f"{folder}/{path.name}" if "/" in incomplete else path.name
        if path.is_dir():
            found.append(shown if _is_agent(path) else shown + "/")
        elif path.suffix in (".yaml", ".yml"):
            found.append(shown)
    hidden = start.startswith(".")
    return sorted(
        name
        for name in set(found)
        if name.startswith(incomplete) and (hidden or not name.rpartition("/")[2].startswith("."))
    )


def _is_agent(path: Path) -> bool:
    return (path / "graph.yaml").is_file() or (path / "config.yaml").is_file()


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
