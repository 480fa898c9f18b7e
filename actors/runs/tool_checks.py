"""Checks the tools that an agent's file lists, and the agent's own tools file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from ...protocol.agent import Agent
from ...protocol.errors import ConfigError, InvalidFile
from ...protocol.graph.model import AgentNode, Graph
from ...protocol.mcp.config import WHOLE, McpConfig, spelled_out
from ...protocol.permissions import denies
from ...protocol.problems import Problem, did_you_mean
from ...protocol.settings import Settings
from ..io.settings import load_settings
from ..work.tools.registry import Shelf, agent_file, read_tool_file


def own_tools(directory: Path) -> tuple[list[str], list[Problem]]:
    """Names in the tools file of the agent in `directory`, and the file's problems."""
    try:
        path = agent_file(directory)
    except InvalidFile as error:
        return [], [Problem(severity="error", file=str(directory), code="tool_files", message=str(error))]
    if path is None:
        return [], []
    file = read_tool_file(path, agent=True)
    return [declaration.name for declaration in file.declarations], list(file.problems)


class KnownServers:
    """The MCP servers of a configuration directory; `mcp.json` is read at the first look-up."""

    def __init__(self, base: Path, settings: Settings) -> None:
        self._base = base
        self._settings = settings

    @cached_property
    def _config(self) -> McpConfig:
        from ..work.mcp.files import load_mcp

        return load_mcp(self._base)

    def spelled_out(self, names: Iterable[str]) -> list[str]:
        """See `ServersSeen`."""
        names = list(names)
        if not names:
            return []
        there = [name for name, server in self._config.servers.items() if not server.disabled]
        return spelled_out(names, self._settings.mapping_mcp_servers, there)

    def missing(self, name: str) -> str | None:
        """See `ServersSeen`. Where servers are turned off, which is an error of its own, none is missing."""
        from ..work.mcp.tools.names import remedy

        if not self._settings.mcp_server_support or name in self._config.servers or name in self._config.broken:
            return None
        return remedy(name, self._config, self._settings.mapping_mcp_servers)

    def broken(self, name: str) -> str | None:
        """See `ServersSeen`."""
        why = self._config.broken.get(name) if self._settings.mcp_server_support else None
        return None if why is None else f"its entry in {self._config.file}: {why}"

    @property
    def cut_short(self) -> bool:
        """Whether `mcp.json` can't be read to its end, so that a server that is not found may stand in it."""
        return bool(self._config.problems_of(()))

    def behind(self, tool: str) -> str | None:
        """See `ServersSeen`."""
        from ..work.mcp.tools.names import owner_of

        named = tool.removeprefix(WHOLE)
        known = [*self._config.servers, *self._settings.mapping_mcp_servers]
        return named if named in known else owner_of(tool, self._config.servers)


def check_listed(
    agent: Agent | Graph,
    own: Sequence[str],
    shelf: Shelf,
    servers: KnownServers | None = None,
    *,
    silent: bool = False,
) -> list[Problem]:
    """A warning for every name in `global_tools` or `permissions` that stands for no tool, and for every MCP server
    of an agent that is not there (the check of graphs tells theirs).

    Args:
        own: names of the agent's own tools.
        shelf: the global ones.
        silent: nothing is said of MCP servers that are not configured (see `Compat`).
    """
    problems = []
    servers = servers or KnownServers(shelf.config_dir, shelf.settings)
    for number, listed in enumerate(agent.global_tools):
        for name, hint in shelf.unknown([listed]):
            if name not in own:
                server = servers.behind(name)
                if server is not None:
                    hint = f"for the tools of MCP server '{server}': `mcp_servers: [{server}]`"
                text = f"`global_tools` lists '{name}', and there is no such tool"
                problems.append(
                    agent.source.problem("warning", "unknown_tool", text, ("global_tools", number), hint=hint)
                )
    for name, hint in shelf.strangers(agent.permissions, own):
        if _has_others_below(agent) and denies(agent.permissions[name]) and not hint.startswith("did you mean"):
            continue  # it may be a tool of theirs
        text = f"`permissions` names '{name}', and there is no such tool"
        problems.append(agent.source.problem("warning", "unknown_tool", text, ("permissions", name), hint=hint))
    return [*problems, *_unknown_servers(agent, servers, silent=silent)]


def _has_others_below(agent: Agent | Graph) -> bool:
    """Whether other agents, whose tools it may deny, can work below it."""
    if isinstance(agent, Agent):
        return agent.can_spawn_agents
    return any(isinstance(node, AgentNode) for node in agent.nodes.values())


def _unknown_servers(agent: Agent | Graph, servers: KnownServers, *, silent: bool) -> list[Problem]:
    problems = []
    for number, listed in enumerate(agent.mcp_servers if isinstance(agent, Agent) else ()):
        for name in servers.spelled_out([listed]):
            path = ("mcp_servers", number)
            hint = None if silent else servers.missing(name)
            if hint is not None:
                text = f"MCP server '{name}' is not configured"
                problems.append(agent.source.problem("warning", "unknown_server", text, path, hint=hint))
            why = servers.broken(name)
            if why is not None:
                text = f"MCP server '{name}' can't be used"
                problems.append(agent.source.problem("error", "broken_server", text, path, hint=why))
    lists = agent.mcp_tools if isinstance(agent.mcp_tools, dict) else {}
    named = servers.spelled_out(agent.mcp_servers) if lists else []
    for name in lists:
        if set(named).isdisjoint(servers.spelled_out([name])):
            text = f"`mcp_tools` says something about '{name}', which is not among the agent's `mcp_servers`"
            hint = did_you_mean(name, named) or f"add '{name}' to `mcp_servers`."
            problems.append(
                agent.source.problem("warning", "unknown_server", text, ("mcp_tools", name), at_key=True, hint=hint)
            )
    return problems


def check_user(allowed: Iterable[str], own: Sequence[str], shelf: Shelf, settings: Settings) -> list[Problem]:
    """A warning for every tool that the user's own permissions name and that is not there.

    The settings may well name tools of other agents' own files, so there only a near miss counts.

    Args:
        allowed: names given with `--allow`.
        own: names of tools that are not global.
    """
    strange = [("--allow", "command line", name, hint) for name, hint in shelf.strangers(allowed, own)]
    strange += [
        ("`permissions`", settings.file, name, hint)
        for name, hint in shelf.strangers(settings.permissions, own)
        if hint.startswith("did you mean")
    ]
    return [
        Problem(
            severity="warning",
            code="unknown_tool",
            message=f"{what} names '{name}', and there is no such tool",
            file=file,
            hint=hint,
        )
        for what, file, name, hint in strange
    ]


def shelf_of(base: Path) -> Shelf:
    """The global tools of a configuration directory, by its settings, or without any if they can't be read."""
    try:
        settings, _ = load_settings(base)
    except ConfigError:
        settings = Settings()  # the run will say so
    return Shelf(base, settings, os.environ)
