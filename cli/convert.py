"""`callboard convert`: a workflow as a graph agent."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from . import given
from .options import complete_target, config_dir, variables


@click.command("convert", short_help="Turn a DevAll workflow into a graph.")
@click.argument("workflow", shell_complete=complete_target)
@click.argument("directory", type=click.Path())
@variables
@click.option("--compat", type=click.Choice(["standard", "devall"]), help="By which rules the workflow is read.")
@config_dir
def command(
    workflow: str, directory: str, variables: tuple[str, ...], compat: str | None, config_dir: str | None
) -> int:
    """Writes what WORKFLOW does as a graph agent, DIRECTORY/graph.yaml with its scripts.

    That can be done for workflows of agents, people, literals and passthroughs in which messages don't go round. Of
    others, everything that stands in the way is told with its line, and nothing is written.
    """
    from .. import WorkflowAgent, load
    from ..actors.engine.workflow.convert.convert import convert, notes
    from ..actors.engine.workflow.edges.files import functions_in
    from ..actors.engine.workflow.places import functions_directory
    from ..protocol.errors import InvalidFile, UsageError
    from .render.text import counted, safe

    flow = load(workflow, variables=given.variables(variables), compat=compat, config_dir=config_dir)
    if not isinstance(flow, WorkflowAgent):
        raise UsageError(f"{workflow} is no DevAll workflow; those have a mapping `graph`")
    home = Path(directory)
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise UsageError(f"{directory} is there already, and not empty; nothing in it is overwritten")
    own = functions_in(functions_directory(flow.directory, "edge", os.environ))
    files, reasons = convert(flow.workflow, flow.file, home.absolute().name, own)
    if reasons:
        lines = [f"{flow.file} can't be a graph, for {counted(len(reasons), 'reason')}:", *map(str, reasons)]
        raise InvalidFile("\n".join(lines), reasons)
    for name, text in files.items():
        path = home / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} can't be written: {error.strerror or error}") from error
        sys.stdout.write(safe(str(path)) + "\n")
    for note in notes(flow.workflow):
        sys.stderr.write(f"callboard: note: {safe(note)}\n")
    return 0
