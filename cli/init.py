"""`callboard init`: a small agent that runs, to start from.

The templates are the agents of `examples/agents`, which ship inside the package.
"""

from __future__ import annotations

import shlex
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..protocol.errors import UsageError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PROMPTS = {
    "hello": "Ada",
    "approval": "a walk by the sea",
    "fanout": "the bicycle",
    "script": "count the words of this sentence",
    "demo": "The build is red since this morning, we cannot release!",
}
"""Template name to a prompt that suits it, in the order `--help` shows them."""


@click.command("init", short_help="Write a small agent that runs, to start from.")
@click.argument("directory", metavar="[DIR]", required=False)
@click.option(
    "--template",
    type=click.Choice(list(PROMPTS)),
    default="hello",
    show_default=True,
    help="hello: one question to a model. approval: a person decides. fanout: several models at once."
    " script: scripts that route. demo: all of it together.",
)
def command(directory: str | None, template: str) -> int:
    """Writes a graph agent into DIR (default: a directory named like the template) and says how to run it.

    Files that are there already are never overwritten.
    """
    target = Path(directory or template)
    source = files(__package__.partition(".")[0]).joinpath("examples", "agents", template)
    todo = copied(source, target)
    there = [path for path in todo if path.exists()]
    if there:
        raise UsageError(f"{there[0]} is there already and was left alone; name another directory")
    write_files({path: entry.read_bytes() for path, entry in todo.items()})
    sys.stdout.write("".join(f"wrote {path}\n" for path in todo))
    sys.stdout.write(f"\ncallboard run {_as_target(target)} {shlex.quote(PROMPTS[template])}\n")
    return 0


def write_files(contents: dict[Path, bytes]) -> None:
    """Writes the files, and makes their directories.

    Raises:
        UsageError: one can't be written.
    """
    for path, content in contents.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as error:
            raise UsageError(f"{error.filename or path}: can't be written: {error.strerror}") from error


def copied(source: Traversable, target: Path) -> dict[Path, Traversable]:
    """The files of a template, each under the path that its copy has below `target`."""
    found: dict[Path, Traversable] = {}
    for entry in sorted(source.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "__pycache__":
            found |= copied(entry, target / entry.name)
        elif entry.is_file():
            found[target / entry.name] = entry
    return found


def _as_target(path: Path) -> str:
    """The directory as TARGET: with `./` before a bare name, which would mean an agent of that name if there is one."""
    text = str(path)
    return shlex.quote(text if "/" in text else f"./{text}")
