"""Tools of an agent node, as its `tooling` lists them.

    function      functions of Python files: see `functions`
    mcp_local     tools of an MCP server that is started as a process
    mcp_remote    tools of an MCP server that is reached over HTTP

A server belongs to the run: all agents that describe the same server share it, and it ends with the run. Its calls
need permission, as the calls of any agent do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, assert_never
from urllib.parse import urlsplit

import msgspec

from .....protocol.errors import ConfigError
from .....protocol.mcp.config import NO_HEADER_VALUE, Server, is_header_value, is_web_address
from .....protocol.workflow.agents import FunctionTools, McpLocalTools, McpRemoteTools, Tooling
from ....work.tools.tool import Tool
from .functions import function_tools

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.mcp.tools.view import ServersView
    from ..job import Job


def wants_servers(toolings: Iterable[Tooling]) -> bool:
    """Return True if an entry describes an MCP server."""
    return any(not isinstance(tooling.config, FunctionTools) for tooling in toolings)


async def tools_of_node(me: Actor, job: Job, toolings: Iterable[Tooling], talk: ServersView | None) -> list[Tool]:
    """Return the tools of a node.

    Args:
        talk: the conversation's view of MCP servers; None if `wants_servers` is False.

    Raises:
        GraphMistake: a function does not exist.
        ConfigError: two tools have the same name, or a server's entry is invalid.
        McpError: a server does not respond.
    """
    found: dict[str, Tool] = {}
    for tooling in toolings:
        prefix = f"{tooling.prefix}_" if tooling.prefix else ""
        if isinstance(tooling.config, FunctionTools):
            tools = list(function_tools(job.shared, job.node.id, tooling.config))
        else:
            assert talk is not None
            tools = await _served(me, job, tooling.config, talk, prefix)
        for tool in tools:
            named = tool
            # `_served` has already added the prefix to names of MCP tools.
            if prefix and tool.origin != "mcp":
                named = msgspec.structs.replace(tool, spec=msgspec.structs.replace(tool.spec, name=prefix + tool.name))
            if named.name in found:
                raise ConfigError(
                    f"two tools are called '{named.name}': give one of their entries of `tooling` another `prefix`"
                )
            found[named.name] = named
    return list(found.values())


async def _served(
    me: Actor, job: Job, config: McpLocalTools | McpRemoteTools, talk: ServersView, prefix: str
) -> list[Tool]:
    from ....work.mcp.tools.direct import direct_tool
    from ....work.mcp.tools.names import legal
    from ....work.mcp.tools.view import View

    server = job.resources.servers(me).bring(_server(config, job.shared.plan.file.parent))
    view = View(talk=talk, server=server)
    return [direct_tool(view, tool, legal(prefix + tool.name)) for tool in await view.tools(me)]


def _server(config: McpLocalTools | McpRemoteTools, directory: Path) -> Server:
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
            if not is_web_address(config.server):
                raise ConfigError(f"`mcp_remote`: '{config.server}' is no http:// or https:// address")
            for name, value in config.headers.items():
                if not is_header_value(value):
                    raise ConfigError(f"`mcp_remote`: the value of header {name} {NO_HEADER_VALUE}")
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
"""Least start timeout of a server in seconds: DevAll's own engine waits without a limit."""


def _word(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name) or "server"
