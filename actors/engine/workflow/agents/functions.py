"""Functions in Python files as tools of agent nodes.

The files are described without being executed, and each call runs in its own process. There the functions find the
environment of DevAll's engine: modules (`workers.devall`), and a `_context` with the run's workspace and a way to
ask the user. The return value becomes text or JSON. A message or attachment of DevAll's classes also shows its
images and files: text files as text, PDFs and images unchanged, other files by name and size, because models differ
too much in their support.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.chat import FilePart, ImagePart, Part, TextPart
from .....protocol.decoding import decode_json
from .....protocol.errors import GraphMistake, ToolFailed
from .....protocol.problems import did_you_mean, errors_in
from .....protocol.workflow.agents import FunctionTools, ToolEntry
from ....io import temporary
from ....work.models.codec import file_as_text
from ....work.tools.files.call_file import Host
from ....work.tools.registry import ToolOptions, ToolRegistry, read_tool_file
from ....work.tools.tool import TIMEOUT, Arguments, Json, Tool, ToolSpec, VisibleResult
from ..places import HOST, function_files, functions_directory, module_name, roots_of

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.tools.declare.declaration import Declaration, Schema
    from ....work.tools.files.environment import Home
    from ..plan import WorkflowRun

ALL = ":All"
"""Suffix of a file name that selects all functions of the file."""

CONTEXT = "_context"
"""Parameter that receives the run's context."""

LARGEST = 20 * 1024 * 1024
"""Largest file in bytes; providers accept less."""

MOST = 20
"""Most files of one result."""


def function_tools(run: WorkflowRun, node: str, listed: FunctionTools) -> Iterator[Tool]:
    """Yield the functions that an entry of `tooling` lists, as tools.

    Args:
        node: the id of the agent node.

    Raises:
        GraphMistake: a function does not exist.
    """
    context, beside = run.context, run.plan.file.parent
    directory = functions_directory(beside, "function_calling", context.environ)
    # Once per entry of `tooling`, not per function: listing reads the directory tree.
    files = function_files(directory)
    registry = context.registry or ToolRegistry(context.config_dir, context.settings, context.environ)
    options = context.tool_options or ToolOptions()
    home = registry.home(directory=beside, agent=None, values={}, options=options)
    for entry in listed.tools:
        for declaration in _declared(entry, files, directory):
            call = partial(_call, run, node, declaration, home, listed.timeout or TIMEOUT)
            yield Tool(
                spec=_spec(declaration, entry), run=call, origin="file", timeout=None, repeats=declaration.repeats
            )


async def _call(
    run: WorkflowRun,
    node: str,
    declaration: Declaration,
    home: Home,
    timeout: float,
    me: Actor,
    arguments: Arguments,
) -> Json:
    from ....work.tools.files.call import play
    from ....work.tools.files.output import DONE

    workspace = await run.workspace.path()
    # Images and files do not fit into the JSON result, so the process writes them to this directory.
    with temporary.directory("parts-") as directory:
        parts = directory / "parts.json"
        given = {
            "roots": [str(root) for root in roots_of(declaration.file)],
            "directory": str(declaration.file.absolute().parent),
            "workspace": str(workspace),
            "vars": run.plan.workflow.vars,
            "session_id": me.stream.run,
            "node_id": node,
            "parts": str(parts),
        }
        host, writes = Host(HOST, given), (workspace, Path(directory))
        written = await play(me, declaration, arguments, home, timeout=timeout, host=host, writes=writes)
        more = await trio.to_thread.run_sync(_result_with_file, parts)
    return more or written.text or DONE


def _declared(entry: ToolEntry, files: list[Path], directory: Path | None) -> Iterator[Declaration]:
    where = directory or "functions/function_calling"
    if entry.name.endswith(ALL):
        module = entry.name.removesuffix(ALL)
        named = {module_name(file, directory): file for file in files}
        file = named.get(module)
        if file is None:
            hint = did_you_mean(module, named) or f"{where} has no {module}.py"
            raise GraphMistake(f"`tooling` names '{entry.name}': {hint}")
        yield from read_tool_file(file, agent=True, wordless=True).declarations
        return
    known: dict[str, Declaration] = {}
    broken: list[str] = []
    for file in files:
        read = read_tool_file(file, agent=True, wordless=True)
        for declaration in read.declarations:
            known.setdefault(declaration.name, declaration)
        errors = [str(problem) for problem in errors_in(read.problems)]
        # Report problems of files that seem to define the function, not of all files.
        if errors and f"def {entry.name}(" in file.read_text(errors="replace"):
            broken += errors
    found = known.get(entry.name)
    if found is None:
        why = "; ".join(broken) or did_you_mean(entry.name, known) or f"no file of {where} has it"
        raise GraphMistake(f"`tooling` names the function '{entry.name}': {why}")
    yield found


def _spec(declaration: Declaration, entry: ToolEntry) -> ToolSpec:
    """Return the tool's description for the model; an entry for a whole file cannot describe single functions."""
    if entry.name.endswith(ALL):
        entry = ToolEntry(name=entry.name)
    description = declaration.description if entry.auto_fill else ""
    parameters = _offered(declaration.parameters) if entry.auto_fill else {"type": "object", "properties": {}}
    return ToolSpec(
        name=declaration.name,
        description=entry.description or description,
        parameters=entry.parameters or parameters,
    )


def _offered(parameters: Schema) -> Schema:
    """Return the parameters for the model: DevAll's engine supplies `_context` and `_` names with a default."""
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


class _Written(msgspec.Struct, frozen=True):
    """Part of a result as the function's process writes it: `text`, or a file."""

    text: str = ""
    path: str = ""
    name: str = ""
    media_type: str = ""


def _result_with_file(file: Path) -> VisibleResult | None:
    try:
        written = decode_json(file.read_bytes(), tuple[_Written, ...])
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ToolFailed(f"what the function shows can't be read: {error}") from error
    if sum(bool(each.path) for each in written) > MOST:
        raise ToolFailed(f"the function shows more than {MOST} files")
    return VisibleResult(tuple(_part(each) for each in written)) if written else None


def _part(written: _Written) -> Part:
    if not written.path:
        return TextPart(written.text)
    file = Path(written.path)
    try:
        size = file.stat().st_size
        if not file.is_file() or size > LARGEST:
            return TextPart(f"[file: {written.name}, {size} bytes; it is not shown]")
        data = file.read_bytes()
    except OSError as error:
        raise ToolFailed(f"the file {file} can't be shown: {error.strerror}") from error
    kind = written.media_type
    # SVG is text: models can read it, but providers do not accept it as an image.
    if kind.startswith("image/") and kind != "image/svg+xml":
        return ImagePart(media_type=kind, data=data)
    if kind == "application/pdf":
        return FilePart(name=written.name, data=data, media_type=kind)
    try:
        is_text = "\0" not in data.decode()
    except UnicodeDecodeError:
        is_text = False
    if is_text:
        return TextPart(file_as_text(FilePart(name=written.name, data=data)))
    return TextPart(f"[file: {written.name}, {kind}, {size} bytes]")
