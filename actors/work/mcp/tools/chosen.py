"""Selection of servers by an agent's file or a node's `tools`, and of the way in which their tools are shown.

The selection happens when the agent is prepared, before any server starts. A server that is in no `mcp.json` is left
out with its tools; a warning names it (`absent`). Whether a server has the selected tools is checked when the tools are
collected (`tool_list`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from .....protocol.agent import Agent
from .....protocol.errors import ConfigError, InvalidFile
from .....protocol.graph import Graph, LlmNode, McpTools
from .....protocol.mcp.config import WHOLE, Server, ToolMode, spelled_out
from .....protocol.problems import errors_in
from .names import owner_of, remedy

if TYPE_CHECKING:
    from ..pool.servers import ServerScope
    from .view import RunServices


class ChosenServer(msgspec.Struct, frozen=True, kw_only=True):
    """Selected server.

    Attributes:
        whole: True for all its tools; otherwise only `names`.
        names: single tools, as a node lists them (`time__now`, `mcp_invoke_time`).
        lists: lists of patterns of tool names; a tool must match a pattern of each list.
    """

    server: Server
    whole: bool = True
    names: tuple[str, ...] = ()
    lists: tuple[tuple[str, ...], ...] = ()


class WantedServers(msgspec.Struct, frozen=True, kw_only=True):
    """Servers that one conversation selects.

    Attributes:
        mode: how tools are shown.
        budget: tokens up to which `auto` shows each tool individually.
    """

    choices: tuple[ChosenServer, ...]
    mode: ToolMode
    budget: int

    def others(self, tools: Iterable[str]) -> list[str]:
        """Return the entries of a node's `tools` that neither are single tools selected here nor begin with `mcp:`."""
        named = {name for choice in self.choices for name in choice.names}
        return [name for name in tools if name not in named and not name.startswith(WHOLE)]


def wanted_by_agent(agent: Agent, context: RunServices) -> WantedServers | None:
    """Return the servers that an LLM agent selects; None for none.

    Raises:
        UsageError, ConfigError: see `servers_of`.
    """
    servers = servers_of(agent.name, agent.mcp_servers, context)
    choices = tuple(ChosenServer(server=server, lists=_lists(server, context, agent.mcp_tools)) for server in servers)
    return _wanted(choices, context, agent.mcp_tools) if choices else None


def with_guests(wanted: WantedServers | None, context: RunServices, scope: ServerScope) -> WantedServers:
    """Return an agent's servers together with all tools of the servers that its run adds."""
    choices = tuple(ChosenServer(server=scope.bring(server)) for server in context.servers)
    if wanted is None:
        return _wanted(choices, context)
    return msgspec.structs.replace(wanted, choices=(*wanted.choices, *choices))


def wanted_by_nodes(graph: Graph, context: RunServices) -> dict[str, WantedServers]:
    """Return the servers that each llm node of a graph selects, by node id; nodes without such tools are left out.

    Raises:
        UsageError, ConfigError: see `servers_of`.
    """
    found = {}
    nodes = [node for node in graph.nodes.values() if isinstance(node, LlmNode)]
    listed = {name for node in nodes for name in node.tools}
    servers = servers_of(graph.name, graph.mcp_servers, context, listed)
    owners = {name: owner_of(name, [server.name for server in servers]) for name in listed}
    for node in nodes:
        choices = []
        for server in servers:
            names = tuple(name for name in node.tools if owners[name] == server.name)
            whole = any(
                server.name in _matching_servers(name, context) for name in node.tools if name.startswith(WHOLE)
            )
            if whole or names:
                lists = _lists(server, context, graph.mcp_tools, node.mcp_tools)
                choices.append(ChosenServer(server=server, whole=whole, names=names, lists=lists))
        if choices:
            found[node.id] = _wanted(tuple(choices), context, graph.mcp_tools, node.mcp_tools)
    return found


def absent(names: Iterable[str], context: RunServices) -> dict[str, str]:
    """Return the servers among these that are not configured, each with a hint for the user; {} without MCP."""
    if context.mcp is None:
        return {}
    pool, aliases = context.mcp(), context.settings.mapping_mcp_servers
    config = pool.config
    wanted = spelled_out(names, aliases, config.names)
    return {
        name: remedy(name, config, aliases)
        for name in wanted
        if name not in config.servers and name not in config.broken
    }


def without_absent(
    tools: Iterable[str], servers: Iterable[str], absent: Iterable[str], context: RunServices
) -> list[str]:
    """Return a node's `tools` without the tools of missing servers.

    Args:
        servers: the graph's `mcp_servers`.
        absent: names among them that are not configured.
    """
    absent = set(absent)
    if not absent:
        return list(tools)
    assert context.mcp is not None
    wanted = spelled_out(servers, context.settings.mapping_mcp_servers, context.mcp().config.names)
    return [
        name
        for name in tools
        if not (
            absent.issuperset(_matching_servers(name, context))
            if name.startswith(WHOLE)
            else owner_of(name, wanted) in absent
        )
    ]


def servers_of(
    agent: str, names: Iterable[str], context: RunServices, listed: Iterable[str] | None = None
) -> list[Server]:
    """Return the configured servers that an agent names, including disabled ones. Names without an entry are left out.

    Args:
        listed: tools that its nodes list; servers without any are left out. None for an agent without nodes.

    Raises:
        UsageError: the entry of a named server is invalid.
        ConfigError: MCP is turned off, or not available in this run.
        InvalidFile: no entry of `mcp.json` can be used.
    """
    settings = context.settings
    if not settings.mcp_server_support:
        raise ConfigError(
            f"This agent uses MCP servers, but MCP support is disabled. Set `mcp_server_support: true` in "
            f"{settings.file}, or remove `mcp_servers` from agent '{agent}'."
        )
    if context.mcp is None:
        raise ConfigError(f"agent '{agent}' uses MCP servers, and MCP is not available in this run")
    pool = context.mcp()
    config = pool.config
    errors = errors_in(config.problems)
    # Without any usable entry each name would be "unknown"; the errors of the file are the cause.
    if errors and not config.servers and not config.broken:
        problems = "\n".join(str(problem) for problem in errors)
        raise InvalidFile(f"{config.file} can't be read:\n{problems}", config.problems)
    wanted = spelled_out(names, settings.mapping_mcp_servers, config.names)
    # Nodes may list tools of some servers only; the others need not start.
    if listed is not None:
        whole = {server for name in listed if name.startswith(WHOLE) for server in _matching_servers(name, context)}
        single = {owner_of(name, wanted) for name in listed}
        wanted = [name for name in wanted if name in whole or name in single]
    # `get` raises the error of a broken entry; a missing one has been reported by `absent`.
    there = [name for name in wanted if name in config.servers or name in config.broken]
    return [config.servers[name] if name in config.servers else config.get(name) for name in there]


def _matching_servers(name: str, context: RunServices) -> list[str]:
    assert context.mcp is not None
    return spelled_out([name.removeprefix(WHOLE)], context.settings.mapping_mcp_servers, context.mcp().config.names)


def _lists(server: Server, context: RunServices, *files: McpTools) -> tuple[tuple[str, ...], ...]:
    """Return the patterns that agent and node list for a server, under its name or an alias that includes it."""
    return tuple(
        patterns
        for file in files
        if isinstance(file, Mapping)
        for name, patterns in file.items()
        if name == server.name or server.name in _matching_servers(name, context)
    )


def _wanted(choices: tuple[ChosenServer, ...], context: RunServices, *files: McpTools) -> WantedServers:
    # The last file is the most specific one: a node's mode overrides that of its graph.
    modes = [file for file in files if isinstance(file, str)]
    mode: ToolMode = modes[-1] if modes else context.settings.mcp_tools
    return WantedServers(choices=choices, mode=mode, budget=context.settings.mcp_tools_budget)
