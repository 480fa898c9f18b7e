"""Which servers an agent's file, or a node's `tools`, asks for, and how their tools are to be shown.

Looked up when the agent is prepared, before anything is started. A server that is in no `mcp.json` is left out, and
so are its tools; a warning names it (`absent`). What the servers really have shows when the tools are collected
(`tools`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from .....protocol.agent import Agent
from .....protocol.errors import ConfigError, InvalidFile
from .....protocol.graph.model import Graph, LlmNode, McpTools
from .....protocol.mcp.config import WHOLE, Server, ToolMode, spelled_out
from .....protocol.problems import errors_in
from .names import owner_of, remedy

if TYPE_CHECKING:
    from ..pool.servers import Scope
    from .view import Run


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One server, as far as it is asked for.

    Attributes:
        whole: all that it has; else only `names`.
        names: single tools, as a node lists them (`time__now`, `mcp_invoke_time`).
        lists: patterns of tool names; each list must have one that fits.
    """

    server: Server
    whole: bool = True
    names: tuple[str, ...] = ()
    lists: tuple[tuple[str, ...], ...] = ()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What one conversation asks for.

    Attributes:
        mode, budget: how tools are shown; tokens up to which `auto` shows each by itself.
    """

    choices: tuple[Choice, ...]
    mode: ToolMode
    budget: int

    def others(self, tools: Iterable[str]) -> list[str]:
        """What of a node's `tools` is not asked for here."""
        here = {name for choice in self.choices for name in choice.names}
        return [name for name in tools if name not in here and not name.startswith(WHOLE)]


def wanted_by_agent(agent: Agent, context: Run) -> Wanted | None:
    """What an LLM agent asks for; None for nothing.

    Raises:
        UsageError, ConfigError: see `servers_of`.
    """
    servers = servers_of(agent.name, agent.mcp_servers, context)
    choices = tuple(Choice(server=server, lists=_lists(server, context, agent.mcp_tools)) for server in servers)
    return _wanted(choices, context, agent.mcp_tools) if choices else None


def with_guests(wanted: Wanted | None, context: Run, scope: Scope) -> Wanted:
    """What an agent asks for, and all that the servers have which its run brings along."""
    choices = tuple(Choice(server=scope.bring(server)) for server in context.servers)
    if wanted is None:
        return _wanted(choices, context)
    return msgspec.structs.replace(wanted, choices=(*wanted.choices, *choices))


def wanted_by_nodes(graph: Graph, context: Run) -> dict[str, Wanted]:
    """What each llm node of a graph asks for, by its id; nodes that list no tool of a server are left out.

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
            whole = any(server.name in _meant(name, context) for name in node.tools if name.startswith(WHOLE))
            if whole or names:
                lists = _lists(server, context, graph.mcp_tools, node.mcp_tools)
                choices.append(Choice(server=server, whole=whole, names=names, lists=lists))
        if choices:
            found[node.id] = _wanted(tuple(choices), context, graph.mcp_tools, node.mcp_tools)
    return found


def absent(names: Iterable[str], context: Run) -> dict[str, str]:
    """The servers among these that are not configured, each with what to do about it."""
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


def without_absent(tools: Iterable[str], servers: Iterable[str], gone: Iterable[str], context: Run) -> list[str]:
    """What a node lists, without what is of servers that are not there.

    Args:
        servers: the graph's `mcp_servers`.
        gone: those of them that are not configured.
    """
    gone = set(gone)
    if not gone:
        return list(tools)
    assert context.mcp is not None
    wanted = spelled_out(servers, context.settings.mapping_mcp_servers, context.mcp().config.names)
    return [
        name
        for name in tools
        if not (gone.issuperset(_meant(name, context)) if name.startswith(WHOLE) else owner_of(name, wanted) in gone)
    ]


def servers_of(agent: str, names: Iterable[str], context: Run, listed: Iterable[str] | None = None) -> list[Server]:
    """The servers that an agent names and that are configured, those that are disabled as well.

    Args:
        listed: what its nodes list; servers of which they list nothing are left out. None for an agent without nodes.

    Raises:
        UsageError: its entry can't be used.
        ConfigError: MCP is turned off.
        InvalidFile: nothing in `mcp.json` can be used.
    """
    settings = context.settings
    if not settings.mcp_server_support:
        raise ConfigError(
            f"This agent uses MCP servers, but MCP support is disabled. Set `mcp_server_support: true` in "
            f"{settings.file}, or remove `mcp_servers` from agent '{agent}'."
        )
    if context.mcp is None:
        raise ConfigError(f"agent '{agent}' uses MCP servers, and this run has none")
    pool = context.mcp()
    config = pool.config
    errors = errors_in(config.problems)
    if errors and not config.servers and not config.broken:
        told = "\n".join(str(problem) for problem in errors)
        raise InvalidFile(f"{config.file} can't be read:\n{told}", config.problems)
    wanted = spelled_out(names, settings.mapping_mcp_servers, config.names)
    if listed is not None:
        whole = {server for name in listed if name.startswith(WHOLE) for server in _meant(name, context)}
        single = {owner_of(name, wanted) for name in listed}
        wanted = [name for name in wanted if name in whole or name in single]
    there = [name for name in wanted if name in config.servers or name in config.broken]
    return [config.servers[name] if name in config.servers else config.get(name) for name in there]


def _meant(name: str, context: Run) -> list[str]:
    assert context.mcp is not None
    return spelled_out([name.removeprefix(WHOLE)], context.settings.mapping_mcp_servers, context.mcp().config.names)


def _lists(server: Server, context: Run, *files: McpTools) -> tuple[tuple[str, ...], ...]:
    """What agent and node say about the tools of a server, by its name or by one that stands for it and others."""
    return tuple(
        patterns
        for file in files
        if isinstance(file, Mapping)
        for name, patterns in file.items()
        if name == server.name or server.name in _meant(name, context)
    )


def _wanted(choices: tuple[Choice, ...], context: Run, *files: McpTools) -> Wanted:
    modes = [file for file in files if isinstance(file, str)]
    mode: ToolMode = modes[-1] if modes else context.settings.mcp_tools
    return Wanted(choices=choices, mode=mode, budget=context.settings.mcp_tools_budget)
