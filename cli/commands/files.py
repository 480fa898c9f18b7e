"""`callboard init`, `validate`, `graph`, `convert` and `schema`: commands about the files of agents.

The templates of `init` are the agents of `examples/agents`, which ship inside the package.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...protocol.errors import UsageError
from .. import flag_values
from ..new_files import PROMPTS, template_copies, write_files
from ..options import compat, complete_target, config_dir, output_and_config, strict, variables

if TYPE_CHECKING:
    from ...protocol.problems import Problem


@click.command("init", short_help="Write a small agent to start from.")
@click.argument("directory", metavar="[DIR]", required=False)
@click.option(
    "--template",
    type=click.Choice(list(PROMPTS)),
    default="hello",
    show_default=True,
    help="hello: one question to a model. approval: the user decides. fanout: several models at once. "
    "script: scripts that choose the next node. demo: all of these together.",
)
def init(directory: str | None, template: str) -> int:
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


@click.command("validate", short_help="Find every problem in the files of an agent.")
@click.argument("target", shell_complete=complete_target)
@variables
@compat
@strict
@output_and_config
def validate(
    target: str, variables: tuple[str, ...], compat: str | None, strict: bool, as_json: bool, config_dir: str | None
) -> int:
    """Read TARGET as `run` does and list all problems, each with file, line, column and remedy.

    Exit code 2 if there is an error, else 0; warnings alone are not an error.
    """
    from ... import validate
    from ...protocol.problems import errors_in

    values = flag_values.variables(variables)
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
    from ..render.text import colours, counted, paint, safe

    coloured = colours(sys.stdout)
    for problem in problems:
        text = safe(str(problem))
        sys.stdout.write((paint(text, problem.severity) if coloured else text) + "\n")
    if not problems:
        sys.stdout.write(f"{safe(target)}: no problems\n")
        return
    warnings = len(problems) - errors
    sys.stdout.write(f"{safe(target)}: {counted(errors, 'error')}, {counted(warnings, 'warning')}\n")


@click.command("graph", short_help="Draw a graph.")
@click.argument("target", shell_complete=complete_target)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["mermaid", "dot", "svg", "ascii"]),
    default="mermaid",
    show_default=True,
    help="Form of the drawing: mermaid for Markdown, dot for Graphviz, svg for a picture, ascii for a terminal.",
)
@variables
@config_dir
def graph(target: str, output: str, variables: tuple[str, ...], config_dir: str | None) -> int:
    """Print TARGET as a drawing: its nodes and the edges between them."""
    from ... import LoopAgent, load
    from ...actors.engine.graph.draw import FORMS
    from ...protocol.errors import UsageError
    from ..render.text import safe

    agent = load(target, variables=flag_values.variables(variables), config_dir=config_dir)
    if isinstance(agent, LoopAgent):
        raise UsageError(f"{target} is not a graph: it has a config.yaml, and there is nothing to draw")
    sys.stdout.write(safe(FORMS[output](agent.picture)))
    return 0


@click.command("convert", short_help="Turn a DevAll workflow into a graph.")
@click.argument("workflow", shell_complete=complete_target)
@click.argument("directory", type=click.Path())
@variables
@click.option(
    "--compat",
    type=click.Choice(["standard", "devall"]),
    help="Rules for reading the workflow: those of DevAll's guide (standard) or of its program (devall).",
)
@config_dir
def convert(
    workflow: str, directory: str, variables: tuple[str, ...], compat: str | None, config_dir: str | None
) -> int:
    """Convert WORKFLOW to a graph agent: DIRECTORY/graph.yaml with its scripts.

    Only a workflow without cycles can be converted, if its nodes are agents, humans, literals and passthroughs. For any
    other workflow, print each obstacle with its line, and write nothing.
    """
    from ... import WorkflowAgent, load
    from ...actors.engine.workflow.convert import convert, notes
    from ...actors.engine.workflow.plan import functions_directory, functions_in
    from ...protocol.errors import InvalidFile, UsageError
    from ..new_files import write_files
    from ..render.text import counted, safe

    flow = load(workflow, variables=flag_values.variables(variables), compat=compat, config_dir=config_dir)
    if not isinstance(flow, WorkflowAgent):
        raise UsageError(f"{workflow} is not a DevAll workflow: it has no mapping `graph`")
    home = Path(directory)
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise UsageError(f"{directory} exists, and is not empty; nothing was written: name another directory")
    own = functions_in(functions_directory(flow.directory, "edge", os.environ))
    # absolute: `.` has no name.
    files, reasons = convert(flow.workflow, home.absolute().name, own)
    if reasons:
        lines = [
            f"{flow.file} can't be converted to a graph, for {counted(len(reasons), 'reason')}:",
            *map(str, reasons),
        ]
        raise InvalidFile("\n".join(lines), reasons)
    for name, text in files.items():
        write_files({home / name: text.encode()})
        sys.stdout.write(safe(str(home / name)) + "\n")
    for note in notes(flow.workflow):
        sys.stderr.write(f"callboard: note: {safe(note)}\n")
    return 0


# Names of modules: only the module of the requested schema is imported.
_ABOUT = {
    "graph": (".protocol.graph", "graph_schema"),
    "agent": (".protocol.agent", "agent_schema"),
    "workflow": (".protocol.workflow.schema", "workflow_schema"),
    "settings": (".protocol.settings", "json_schema"),
    "role": (".protocol.role", "role_schema"),
    "macro": (".protocol.macro", "macro_schema"),
    "tests": (".protocol.cases", "cases_schema"),
    "mcp": (".protocol.mcp.config", "mcp_schema"),
    "knowledge": (".protocol.knowledge", "knowledge_schema"),
    "events": (".protocol.events", "event_schema"),
    "control": (".protocol.control.schema", "json_schema"),
}


@click.command("schema", short_help="Print the JSON Schema of a file or of events.")
@click.argument("about", type=click.Choice(list(_ABOUT)))
def schema(about: str) -> int:
    """Print the JSON Schema (2020-12) of graph.yaml, of an agent's config.yaml, of a DevAll workflow, of the settings,
    of a role's front matter, of a macro, of test cases, of mcp.json, of a knowledge base's file, of events, or of the
    control channel's frames.

    \b
    For completion and checks in an editor, save it and name it in the first line of the YAML file:
      # yaml-language-server: $schema=graph.schema.json
    """
    from importlib import import_module

    module, function = _ABOUT[about]
    schema = getattr(import_module(module, __package__.partition(".")[0]), function)()
    sys.stdout.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
    return 0
