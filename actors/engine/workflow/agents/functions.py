"""Functions of Python files as tools of agent nodes.

They are described without being run, and each call runs in a process of its own. There they find what DevAll's own
engine gives them: modules (`workers.devall`), and a `_context` with the run's workspace and a way to ask its person.
What a function returns becomes text or JSON; a message or an attachment of DevAll's shows its images and files too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from .....protocol.errors import GraphMistake
from .....protocol.problems import did_you_mean
from .....protocol.workflow.agents import FunctionTools, ToolEntry
from ....work.tools.files.handing import Host
from ....work.tools.registry import Shelf, ToolOptions, read_tool_file
from ....work.tools.tool import TIMEOUT, Arguments, Json, Tool, ToolSpec
from ..places import HOST, function_files, functions_directory, module_name, roots_of
from .shown import shown

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.tools.declare.declaration import Declaration, Schema
    from ....work.tools.files.environment import Home
    from .resources import GraphResources

ALL = ":All"
"""After the name of a file: every function of it."""

CONTEXT = "_context"
"""The parameter that is given what the run has."""


def function_tools(resources: GraphResources, node: str, listed: FunctionTools) -> Iterator[Tool]:
    """The functions that an entry of `tooling` lists.

    Args:
        node: the id of the agent that has them.

    Raises:
        GraphMistake: there is no such function.
    """
    context = resources.context
    directory = functions_directory(resources.directory, "function_calling", context.environ)
    files = function_files(directory)
    shelf = context.shelf or Shelf(context.config_dir, context.settings, context.environ)
    options = context.tool_options or ToolOptions()
    home = shelf.home(directory=resources.directory, agent=None, values={}, options=options)
    for entry in listed.tools:
        for declaration in _declared(entry, files, directory):
            call = _Call(resources, node, declaration, home, listed.timeout or TIMEOUT)
            yield Tool(spec=_spec(declaration, entry), run=call.run, origin="file", timeout=None)


class _Call:
    """What calls of one function have in common."""

    def __init__(
        self, resources: GraphResources, node: str, declaration: Declaration, home: Home, timeout: float
    ) -> None:
        self._resources = resources
        self._node = node
        self._declaration = declaration
        self._home = home
        self._timeout = timeout

    async def run(self, me: Actor, arguments: Arguments) -> Json:
        """What the function returns, as the model reads it."""
        from ....work.tools.files.call import play
        from ....work.tools.files.output import DONE

        workspace = await self._resources.workspace.path()
        with tempfile.TemporaryDirectory(prefix="callboard-parts-", ignore_cleanup_errors=True) as directory:
            parts = Path(directory) / "parts.json"
            given = {
                "roots": [str(root) for root in roots_of(self._declaration.file)],
                "directory": str(self._declaration.file.absolute().parent),
                "workspace": str(workspace),
                "vars": self._resources.variables,
                "session_id": me.stream.run,
                "node_id": self._node,
                "parts": str(parts),
            }
            host = Host(HOST, given)
            written = await play(me, self._declaration, arguments, self._home, timeout=self._timeout, host=host)
            more = await trio.to_thread.run_sync(partial(shown, parts))
        return more or written.text or DONE


def _declared(entry: ToolEntry, files: list[Path], directory: Path | None) -> Iterator[Declaration]:
    """The functions that an entry means."""
    where = directory or "functions/function_calling"
    if entry.name.endswith(ALL):
        module = entry.name.removesuffix(ALL)
        named = {module_name(file, directory): file for file in files}
        file = named.get(module)
        if file is None:
            hint = did_you_mean(module, named) or f"{where} has no {module}.py"
            raise GraphMistake(f"`tooling` names '{entry.name}': {hint}")
        yield from _functions_in(file)
        return
    known: dict[str, Declaration] = {}
    broken: list[str] = []
    for file in files:
        for declaration in _functions_in(file):
            known.setdefault(declaration.name, declaration)
        broken += [str(problem) for problem in _errors_in(file) if f"def {entry.name}(" in _text(file)]
    found = known.get(entry.name)
    if found is None:
        why = "; ".join(broken) or did_you_mean(entry.name, known) or f"no file of {where} has it"
        raise GraphMistake(f"`tooling` names the function '{entry.name}': {why}")
    yield found


def _functions_in(file: Path) -> list[Declaration]:
    return read_tool_file(file, agent=True, wordless=True).declarations


def _errors_in(file: Path) -> list[object]:
    problems = read_tool_file(file, agent=True, wordless=True).problems
    return [problem for problem in problems if problem.severity == "error"]


def _text(file: Path) -> str:
    return file.read_text(errors="replace")


def _spec(declaration: Declaration, entry: ToolEntry) -> ToolSpec:
    """What the model reads; an entry that names a whole file says nothing about its functions."""
    if entry.name.endswith(ALL):
        entry = ToolEntry(name=entry.name)
    description = declaration.description if entry.auto_fill else ""
    parameters = _shown(declaration.parameters) if entry.auto_fill else {"type": "object", "properties": {}}
    return ToolSpec(
        name=declaration.name,
        description=entry.description or description,
        parameters=entry.parameters or parameters,
    )


def _shown(parameters: Schema) -> Schema:
    """The parameters without those that DevAll's engine fills in by itself, `_context` and others with a default."""
    needed = parameters.get("required", ())
    hidden = {
        name for name in parameters["properties"] if name == CONTEXT or (name.startswith("_") and name not in needed)
    }
    if not hidden:
        return parameters
    properties = {name: schema for name, schema in parameters["properties"].items() if name not in hidden}
    left = {**parameters, "properties": properties}
    if needed:
        left["required"] = [name for name in needed if name not in hidden]
    return left
