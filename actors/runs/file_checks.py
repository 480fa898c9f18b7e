"""Checks what an agent's file names: tools and the agent's own tools file, MCP servers, documents, models.

Missing keys and weights of models are no error of the file: the run reports them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...protocol.agent import Agent
from ...protocol.errors import CallboardError, ConfigError, CredentialsError, InvalidFile
from ...protocol.graph.model import AgentNode, Graph, RagNode
from ...protocol.mcp.config import WHOLE, McpConfig, spelled_out
from ...protocol.model_names import models_of
from ...protocol.permissions import denies
from ...protocol.problems import Problem, did_you_mean
from ...protocol.settings import Settings
from ...protocol.tree import Path as Keys
from ..io.settings import load_settings
from ..io.stamps import look
from ..work.tools.registry import ToolRegistry, agent_file, read_tool_file

if TYPE_CHECKING:
    from ..work.models.catalog import Task


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
    registry: ToolRegistry,
    servers: KnownServers | None = None,
    *,
    silent: bool = False,
) -> list[Problem]:
    """A warning for every name in `global_tools` or `permissions` that stands for no tool, and for every MCP server
    of an agent that is not there (the check of graphs tells theirs).

    Args:
        own: names of the agent's own tools.
        registry: the global ones.
        silent: nothing is said of MCP servers that are not configured (see `Compat`).
    """
    problems = []
    servers = servers or KnownServers(registry.config_dir, registry.settings)
    for number, listed in enumerate(agent.global_tools):
        for name, hint in registry.unknown([listed]):
            if name not in own:
                server = servers.behind(name)
                if server is not None:
                    hint = f"for the tools of MCP server '{server}': `mcp_servers: [{server}]`"
                lists = "`global_tools` lists" if agent.source.file else "its list of tools has"
                text = f"{lists} '{name}', and there is no such tool"
                problems.append(
                    agent.source.problem("warning", "unknown_tool", text, ("global_tools", number), hint=hint)
                )
    for name, hint in registry.strangers(agent.permissions, own):
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


def check_user(allowed: Iterable[str], own: Sequence[str], registry: ToolRegistry, settings: Settings) -> list[Problem]:
    """A warning for every tool that the user's own permissions name and that is not there.

    The settings may well name tools of other agents' own files, so there only a near miss counts.

    Args:
        allowed: names given with `--allow`.
        own: names of tools that are not global.
    """
    strange = [("--allow", "command line", name, hint) for name, hint in registry.strangers(allowed, own)]
    strange += [
        ("`permissions`", settings.file, name, hint)
        for name, hint in registry.strangers(settings.permissions, own)
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


def registry_of(base: Path) -> ToolRegistry:
    """The global tools of a configuration directory, by its settings, or without any if they can't be read."""
    try:
        settings, _ = load_settings(base)
    except ConfigError:
        settings = Settings()  # the run will say so
    return ToolRegistry(base, settings, os.environ)


_ELSEWHERE = re.compile(r"[*?\[{:;]")
"""In globs, pages, loaders, and several paths in one line: what they name is known when they are looked at."""


def check_documents(agent: Agent | Graph, directory: Path) -> list[Problem]:
    """A warning for every file and directory among its documents that is not there.

    Args:
        directory: what relative paths are relative to.
    """
    if isinstance(agent, Agent):
        return _missing(agent, agent.documents, ("documents",), directory)
    nodes = [node for node in agent.nodes.values() if isinstance(node, RagNode)]
    found = (_missing(agent, node.documents, ("nodes", node.id, "documents"), directory, node.id) for node in nodes)
    return [problem for each in found for problem in each]


def _missing(
    agent: Agent | Graph, documents: tuple[str, ...], keys: Keys, directory: Path, node: str | None = None
) -> list[Problem]:
    problems = []
    for number, document in enumerate(documents):
        if _ELSEWHERE.search(document):
            continue
        try:
            path = directory / Path(document).expanduser()
            if look(path).exists():
                continue
            near = [entry.name for entry in look(path.parent).iterdir()] if path.parent.is_dir() else []
        except (OSError, RuntimeError):  # it can't be looked at: what reads it says why
            continue
        problems.append(
            agent.source.problem(
                "warning",
                "missing_document",
                f"there is no '{document}' to look things up in",
                (*keys, number),
                node=node,
                expected=f"a file or directory in {directory}",
                hint=did_you_mean(path.name, near) or "paths are relative to the agent's directory.",
            )
        )
    return problems


class KnownModels:
    """The models that settings and environment give."""

    def __init__(self, settings: Settings) -> None:
        from ..work.models.catalog import Catalog

        self._catalog = Catalog(settings, os.environ)

    def why_not(self, model: str, task: Task | Literal["chat"] = "chat") -> str | None:
        """How to mend it that no model for this task has this id, or one of these ids; None if all have."""
        names = models_of(model) if task == "chat" else (model,)
        for name in names:
            try:
                with suppress(CredentialsError):
                    self._catalog.named(name) if task == "chat" else self._catalog.access(name, task)
            except CallboardError as error:
                which = f"'{name}': " if len(names) > 1 else ""
                return f"{which}{_SAID.sub('', str(error))}."
        return None


_SAID = re.compile(r"^unknown \w+ model '[^']*'[:;] ")
"""What the problem says already."""


def check_models(thing: Agent | Graph, known: KnownModels) -> list[Problem]:
    """An error for every id that means no model. The chat models of graphs are seen to by the check of graphs."""
    named: list[tuple[Keys, str | None, str | None, Task | Literal["chat"]]] = []
    if isinstance(thing, Agent):
        named += [(("model",), None, thing.model, "chat")]
        named += [(("summarization_model",), None, thing.summarization_model, "chat")]
    else:
        for node in thing.nodes.values():
            if isinstance(node, RagNode):
                path = ("nodes", node.id)
                named += [((*path, "embedding_model"), node.id, node.embedding_model, "embedding")]
                named += [((*path, "reranker_model"), node.id, node.reranker_model, "reranker")]
    return [
        thing.source.problem(
            "error",
            "unknown_model",
            f"unknown model '{model}'",
            keys,
            node=node_id,
            expected="client:model, with a client that is configured",
            hint=hint,
        )
        for keys, node_id, model, task in named
        if model and (hint := known.why_not(model, task)) is not None
    ]
