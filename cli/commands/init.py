"""`callboard init`: write a small agent to start from.

The templates are the agents of `examples/agents`, which ship inside the package.
"""

from __future__ import annotations

import shlex
import sys
from importlib.resources import files
from pathlib import Path

import click

from ...protocol.errors import UsageError
from ..new_files import PROMPTS, template_copies, write_files


@click.command("init", short_help="Write a small agent to start from.")
@click.argument("directory", metavar="[DIR]", required=False)
@click.option(
    "--template",
    type=click.Choice(list(PROMPTS)),
    default="hello",
    show_default=True,
    help="hello: one question to a model. approval: the user decides. fanout: several models at once. "
    "script: scripts that route. demo: all of these together.",
)
def command(directory: str | None, template: str) -> int:
    """Write a graph agent into DIR (default: a directory named like the template) and print the command that runs it.

    Existing files are never overwritten.
    """
    target = Path(directory or template)
    source = files(__package__.partition(".")[0]).joinpath("examples", "agents", template)
    todo = template_copies(source, target)
    there = [path for path in todo if path.exists()]
    if there:
        raise UsageError(f"{there[0]} exists, and was not changed; name another directory")
    write_files({path: entry.read_bytes() for path, entry in todo.items()})
    sys.stdout.write("".join(f"wrote {path}\n" for path in todo))
    sys.stdout.write(f"\ncallboard run {_as_target(target)} {shlex.quote(PROMPTS[template])}\n")
    return 0


def _as_target(path: Path) -> str:
    """Return the directory as TARGET: a bare name gets `./`, because it could also be the name of an agent."""
    text = str(path)
    return shlex.quote(text if "/" in text else f"./{text}")
