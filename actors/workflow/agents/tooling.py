"""The tools of an agent node, as its `tooling` lists them.

    function      functions of Python files, described without being run, and called in processes of their own
    mcp_local     what an MCP server offers that is started as a process
    mcp_remote    what one offers that is reached over HTTP

A server belongs to the run: all agents of it that describe the same one share it, and it ends with them. Calls need
permission as those of any agent do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never
from urllib.parse import urlsplit

import msgspec

from ....protocol.errors import ConfigError, GraphMistake
from ....protocol.mcp.config import NO_HEADER_VALUE, Server, is_header_value, is_web_address
from ....protocol.problems import did_you_mean
from ....protocol.workflow.agents import FunctionTools, McpLocalTools, McpRemoteTools, ToolEntry, Tooling
from ...tools.collect import Shelf, ToolOptions, read_tool_file
from ...tools.tool import TIMEOUT, Arguments, Json, Tool, ToolSpec
from ..places import functions_directory

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...mcp.tools.view import Talk
    from ...tools.declare.declaration import Declaration, Schema
    from ...tools.files.home import Home
    from .company import Company

ALL = ":All"
"""After the name of a file: every function of it."""


def wants_servers(toolings: Iterable[Tooling]) -> bool:
    """Whether there is an MCP server among them."""
    return any(not isinstance(tooling.config, FunctionTools) for tooling in toolings)


async def tools_of_node(me: Actor, company: Company, toolings: Iterable[Tooling], talk: Talk | None) -> list[Tool]:
    """Collect them.

    Args:
        talk: what the conversation has of servers; None if `wants_servers` says that there are none.

    Raises:
        GraphMistake: there is no such function.
        ConfigError: two tools have the same name, or a server's entry makes no sense.
        McpError: a server can't be asked.
    """
    found: dict[str, Tool] = {}
    for tooling in toolings:
        prefix = f"{tooling.prefix}_" if tooling.prefix else ""
        if isinstance(tooling.config, FunctionTools):
            tools = list(_functions(company, tooling.config))
        else:
            assert talk is not None
            tools = await _served(me, company, tooling.config, talk, prefix)
        for tool in tools:
            named = _named(tool, prefix + tool.name) if tool.origin != "mcp" else tool
            if named.name in found:
                raise ConfigError(
                    f"two tools are called '{named.name}': give one of their entries of `tooling` another `prefix`"
                )
            found[named.name] = named
    return list(found.values())


# --- functions --------------------------------------------------------------------------------------------


def _functions(company: Company, listed: FunctionTools) -> Iterator[Tool]:
    context = company.context
    directory = functions_directory(company.directory, "function_calling", context.environ)
    files = sorted(directory.glob("*.py")) if directory is not None else []
    shelf = context.shelf or Shelf(context.config_dir, context.settings, context.environ)
    options = context.tool_options or ToolOptions()
    home = shelf.home(directory=company.directory, agent=None, values={}, options=options)
    for entry in listed.tools:
        for declaration in _declared(entry, files, directory):
            run = partial(_called, declaration, home, listed.timeout or TIMEOUT)
            yield Tool(spec=_spec(declaration, entry), run=run, origin="file", timeout=None)


async def _called(declaration: Declaration, home: Home, timeout: float, me: Actor, arguments: Arguments) -> Json:
    """What the function returns, as the model is told it: a text as it is, anything else as JSON."""
    from ...tools.files.call import play
    from ...tools.files.output import DONE

    return (await play(me, declaration, arguments, home, timeout=timeout)).text or DONE


def _declared(entry: ToolEntry, files: list[Path], directory: Path | None) -> Iterator[Declaration]:
    """The functions that an entry means."""
    where = directory or "functions/function_calling"
    if entry.name.endswith(ALL):
        module = entry.name.removesuffix(ALL)
        file = next((file for file in files if file.stem == module), None)
        if file is None:
            hint = did_you_mean(module, [each.stem for each in files]) or f"{where} has no {module}.py"
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
    """What the model is told; an entry that names a whole file says nothing about its functions."""
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
    """The parameters without those that DevAll's engine fills in by itself (`_context`), if they can be left out."""
    needed = parameters.get("required", ())
    hidden = {name for name in parameters["properties"] if name.startswith("_") and name not in needed}
    if not hidden:
        return parameters
    properties = {name: schema for name, schema in parameters["properties"].items() if name not in hidden}
    return {**parameters, "properties": properties}


# --- servers ----------------------------------------------------------------------------------------------


async def _served(
    me: Actor, company: Company, config: McpLocalTools | McpRemoteTools, talk: Talk, prefix: str
) -> list[Tool]:
    from ...mcp.tools.direct import direct_tool
    from ...mcp.tools.names import legal
    from ...mcp.tools.view import View

    server = company.servers(me).bring(_server(config, company.directory))
    view = View(talk=talk, server=server)
    return [direct_tool(view, tool, legal(prefix + tool.name)) for tool in await view.tools(me)]


def _server(config: McpLocalTools | McpRemoteTools, directory: Path) -> Server:
    """The server as `mcp.json` would have it."""
    match config:
        case McpLocalTools():
            return Server(
                name=_word(Path(config.command).name),
                type="stdio",
                command=config.command,
                args=config.args,
                env=config.env,
                cwd=None if config.cwd is None else str(directory / config.cwd),
                inherit_env=config.inherit_env,
                start_timeout_seconds=max(config.startup_timeout, _LEAST_TO_START),
                share="per-run",
            )
        case McpRemoteTools():
            _check(config)
            server = Server(
                name=_word(urlsplit(config.server).netloc),
                type="http",
                url=config.server,
                headers=config.headers,
                share="per-run",
            )
            return server if config.timeout is None else msgspec.structs.replace(server, timeout_seconds=config.timeout)
    assert_never(config)


_LEAST_TO_START = 30.0
"""Seconds that a server may take to start: DevAll's own engine waits for as long as it takes."""


def _check(config: McpRemoteTools) -> None:
    if not is_web_address(config.server):
        raise ConfigError(f"`mcp_remote`: '{config.server}' is no http:// or https:// address")
    for name, value in config.headers.items():
        if not is_header_value(value):
            raise ConfigError(f"`mcp_remote`: the value of header {name} {NO_HEADER_VALUE}")


def _word(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name) or "server"


def _named(tool: Tool, name: str) -> Tool:
    if name == tool.name:
        return tool
    return msgspec.structs.replace(tool, spec=msgspec.structs.replace(tool.spec, name=name))
