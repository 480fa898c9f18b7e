"""Executable form of a workflow, the values that all nodes of one run share, and the files with its Python functions.

`compile_workflow` makes a `WorkflowPlan` once per file, which all runs of the file share. Each run has a `WorkflowRun`,
also for the nodes of subgraphs.

A workflow names functions in Python files:

    functions/edge/              conditions
    functions/edge_processor/    processors
    functions/function_calling/  tools

The search for these directories starts with a variable of the environment. It continues next to the workflow, next to
the directories above it (as in DevAll's own repository), and in the working directory. Functions that edges name are
found by parsing the files, without executing them; `edge_functions` executes them.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from ....protocol.workflow.model import FunctionCondition, FunctionProcessor, Graph, SubgraphConfig, Workflow
from .machine.structure import Structure
from .rules import RULES, WorkflowRules

if TYPE_CHECKING:
    from ...work.context import RunContext
    from ...work.transcript import Record
    from .workspace import WorkflowWorkspace


Kind: TypeAlias = Literal["edge", "edge_processor", "function_calling"]
KINDS: tuple[Kind, ...] = get_args(Kind)

HOST = Path(__file__).parent / "workers" / "devall" / "host.py"
"""Module that prepares the process of a function; its docstring has the details."""

ABOVE = 2
"""Parent directories of a workflow that are searched: DevAll's own subgraphs are two levels below its root."""

# Variables of DevAll's program, so that an environment for it works here.
_NAMED: dict[Kind, str] = {
    "edge": "MAC_EDGE_FUNCTIONS_DIR",
    "edge_processor": "MAC_EDGE_PROCESSOR_FUNCTIONS_DIR",
    "function_calling": "MAC_FUNCTIONS_DIR",
}


def functions_directory(directory: Path, kind: Kind, environ: Mapping[str, str]) -> Path | None:
    """Return the directory with functions of this kind for workflows in `directory`; None if there is none."""
    above = directory.absolute().parents[:ABOVE]
    places = [place / "functions" / kind for place in (directory, *above, Path.cwd())]
    named = environ.get(_NAMED[kind])
    if named:
        places.insert(0, Path(named).expanduser())
    return next((place for place in places if place.is_dir()), None)


def function_files(directory: Path | None) -> list[Path]:
    """Return the Python files in a directory of functions and below, without the ones that DevAll's engine ignores."""
    found = directory.absolute().rglob("*.py") if directory is not None else ()
    return sorted(file for file in found if not file.name.startswith("_") and "__pycache__" not in file.parts)


def module_name(file: Path, directory: Path | None) -> str:
    """Return a file's name for `:All`: `web`, or `search/web` for a file in a subdirectory."""
    return file.relative_to(directory.absolute() if directory is not None else file.parent).with_suffix("").as_posix()


def roots_of(file: Path) -> list[Path]:
    """Return the directory that imports of a file with functions search first, as a list of one path.

    It is the parent of `functions/`, or the working directory if the file is not below such a directory.
    """
    above = [place.parent for place in file.absolute().parents if place.name == "functions"]
    return above[:1] or [Path.cwd()]


class EdgeFunctionFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Functions that the edges of a workflow name, with their files.

    Attributes:
        runs_code: the built-in processor `code_save_and_run` is among them.
    """

    conditions: Mapping[str, Path] = {}
    processors: Mapping[str, Path] = {}
    runs_code: bool = False

    def __bool__(self) -> bool:
        return bool(self.conditions or self.processors or self.runs_code)


def functions_in(directory: Path | None) -> dict[str, Path]:
    """Return the functions in the Python files of a directory, by name; the first file wins. Unparsable files are
    skipped.
    """
    found: dict[str, Path] = {}
    for file in function_files(directory):
        for name in _functions_of(file):
            found.setdefault(name, file.absolute())
    return found


def _functions_of(file: Path) -> list[str]:
    with warnings.catch_warnings(), suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        warnings.simplefilter("ignore")  # about the user's code
        # Parsed and not imported: validation must not run the user's code.
        body = ast.parse(file.read_bytes()).body
        functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        return [node.name for node in functions if not node.name.startswith("_")]
    return []


class WorkflowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Executable form of a workflow.

    Attributes:
        file: path of the workflow.
        structure: its graph; None if its edges name functions of files or `code_save_and_run`, which belong to a run.
        named: those functions.
    """

    name: str
    file: Path
    workflow: Workflow
    rules: WorkflowRules
    structure: Structure | None
    named: EdgeFunctionFiles


def compile_workflow(workflow: Workflow, file: Path, environ: Mapping[str, str]) -> WorkflowPlan:
    """Return the plan of a valid workflow.

    Raises:
        GraphMistake: an edge has an invalid pattern.
    """
    rules = RULES[workflow.compat or "standard"]
    named = _named(workflow.graph, file.parent, environ)
    return WorkflowPlan(
        name=workflow.graph.id or file.stem,
        file=file,
        workflow=workflow,
        rules=rules,
        # Functions are bound to the process of a run, so a structure with functions cannot be shared.
        structure=None if named else Structure(workflow.graph, rules),
        named=named,
    )


def graphs_of(graph: Graph) -> list[Graph]:
    """Return a graph and all graphs of its subgraphs, without duplicates."""
    found: dict[int, Graph] = {}
    todo = [graph]
    while todo:
        one = todo.pop()
        # By identity: nodes that share a subgraph's file share its graph.
        if id(one) not in found:
            found[id(one)] = one
            configs = (node.config for node in one.nodes)
            todo += [config.graph for config in configs if isinstance(config, SubgraphConfig) and config.graph]
    return list(found.values())


def _named(graph: Graph, directory: Path, environ: Mapping[str, str]) -> EdgeFunctionFiles:
    edges = [edge for each in graphs_of(graph) for edge in each.edges]
    conditions = {edge.condition.name for edge in edges if isinstance(edge.condition, FunctionCondition)}
    processors = {edge.process.name for edge in edges if isinstance(edge.process, FunctionProcessor)}
    # Common built-in conditions need no functions, so do not read the directories.
    if conditions <= {"true", "always_false"} and not processors:
        return EdgeFunctionFiles()
    in_files = functions_in(functions_directory(directory, "edge", environ)) if conditions else {}
    changing = functions_in(functions_directory(directory, "edge_processor", environ)) if processors else {}
    return EdgeFunctionFiles(
        conditions={name: in_files[name] for name in conditions if name in in_files},
        processors={name: changing[name] for name in processors if name in changing},
        runs_code="code_save_and_run" in processors and "code_save_and_run" not in changing,
    )


class WorkflowRun(msgspec.Struct, frozen=True, kw_only=True):
    """Values that all nodes of one run share, also the nodes of subgraphs.

    Attributes:
        depth: number of agents above it.
        record: transcript of the models' texts.
        workspace: the directory of python nodes.
    """

    plan: WorkflowPlan
    context: RunContext
    depth: int
    record: Record
    workspace: WorkflowWorkspace
