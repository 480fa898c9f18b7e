"""Prints agents for `callboard agents`: a list of all, and the details of one.

An agent that can't be read is listed all the same, with what is wrong, so that it is found.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .. import GraphAgent, LoopAgent
from ..actors.io.directories import config_dir as configured
from ..actors.runs.finding import built_in_agents, find, own_agents
from ..actors.runs.target import load_agent
from ..actors.work.library import AGENTS
from ..protocol.errors import CallboardError, InvalidFile
from ..protocol.graph.model import RagNode
from ..protocol.problems import Problem, errors_in
from .render.table import columns
from .render.text import counted, json_object, one_line, safe
from .toolbox import Toolbox, ToolSeen
from .variables import declared

Kind = Literal["agent", "graph"]


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One agent in the list."""

    name: str
    kind: Kind
    origin: Literal["yours", "built in"]
    description: str
    model: str | None
    file: str
    error: str | None

    def to_wire(self) -> dict[str, Any]:
        """As JSON shows it."""
        return dict(vars(self))


def list_agents(config_dir: str | None, *, as_json: bool) -> str:
    """Every agent: those of the configuration directory, then the built-in ones they leave visible."""
    base = configured(config_dir, os.environ)[0]
    home = base / "agents"
    own = [_listed(home / name, "yours", config_dir) for name in own_agents(base)]
    taken = {agent.name for agent in own}
    ours = [_listed(AGENTS / name, "built in", config_dir) for name in built_in_agents() if name not in taken]
    if as_json:
        agents = [agent.to_wire() for agent in (*own, *ours)]
        return json_object(agents=agents)
    lines = [f"yours ({safe(str(home))})", *(_rows(own) or ["  none yet (callboard agents new NAME makes one)"])]
    rows = _rows(ours) or ["  none (each name is taken by one of yours)"]
    return "\n".join([*lines, "built in", *rows]) + "\n"


def path_of(name: str | None, config_dir: str | None) -> str:
    """Where agents live, or the directory of one."""
    if name is None:
        return str(configured(config_dir, os.environ)[0] / "agents")
    return str(find(name, config_dir=config_dir).directory)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """All about one agent; `mode` is `mcp_tools` of the settings."""

    agent: GraphAgent | LoopAgent
    target: str
    directory: Path
    tools: list[ToolSeen]
    mode: str
    problems: list[Problem]

    @property
    def errors(self) -> int:
        """How many of the problems keep it from being run."""
        return len(errors_in(self.problems))

    def to_wire(self) -> dict[str, Any]:
        """As JSON shows it."""
        import msgspec

        about = _about(self.agent)
        return {
            "name": self.agent.name,
            "kind": _kind(self.agent),
            "origin": _origin(self.directory),
            "description": about.description.strip(),
            "model": about.model,
            "file": self.agent.file,
            "variables": msgspec.to_builtins(list(declared(self.agent))),
            "tools": [tool.to_wire() for tool in self.tools],
            "mcp_servers": list(about.mcp_servers),
            "mcp_tools": about.mcp_tools if isinstance(about.mcp_tools, str) else self.mode,
            "documents": _documents(self.agent),
            "conversation_starters": list(about.conversation_starters),
            "problems": msgspec.to_builtins(self.problems),
        }

    def as_text(self) -> str:
        """For people."""
        agent, about = self.agent, _about(self.agent)
        lines = [f"{safe(agent.name)} ({_kind(agent)}, {_origin(self.directory)})"]
        lines += [f"  {line}" for line in safe(about.description.strip()).splitlines()]
        facts = [("file", agent.file), ("model", about.model or "the default one")]
        if isinstance(agent, GraphAgent):
            facts.append(("nodes", f"{len(agent.graph.nodes)} (callboard graph {self.target} draws them)"))
        else:
            facts += _may(agent)
        facts.append(("servers", _servers(about, self.mode)))
        if documents := _documents(agent):
            facts.append(("documents", f"{one_line(', '.join(documents), 200)} (callboard kb status {self.target})"))
        lines += ["", *columns([[name, safe(value)] for name, value in facts if value])]
        lines += _section("variables", [[_assignment(each), one_line(each.description)] for each in declared(agent)])
        lines += _section("tools", [[tool.name, self._near(tool.source), tool.summary] for tool in self.tools])
        starters = [f"  callboard run {self.target} {shlex.quote(one_line(text, 200))}" for text in _starters(agent)]
        lines += ["", "to begin with", *starters] if starters else []
        lines += ["", "problems", *(f"  {safe(str(each))}" for each in self.problems)] if self.problems else []
        return "\n".join(lines) + "\n"

    def _near(self, source: str) -> str:
        """A file of the agent by its name alone."""
        path = Path(source)
        return path.name if path.parent == self.directory else safe(source)


def show_agent(target: str, config_dir: str | None) -> Shown:
    """Find out all about an agent.

    Raises:
        CallboardError: there is none, or its file has errors.
    """
    found = find(target, config_dir=config_dir)
    agent = load_agent(target, config_dir=config_dir)
    toolbox = Toolbox(config_dir)
    tools, problems = toolbox.of_agent(agent)
    return Shown(
        agent=agent,
        target=shlex.quote(target),
        directory=found.directory,
        tools=tools,
        mode=toolbox.mcp_tools,
        problems=[*agent.problems, *problems],
    )


def _listed(directory: Path, origin: Literal["yours", "built in"], config_dir: str | None) -> Listed:
    kind: Kind = "graph" if (directory / "graph.yaml").is_file() else "agent"
    file = directory / ("graph.yaml" if kind == "graph" else "config.yaml")
    description, model, error = "", None, None
    try:
        about = _about(load_agent(directory, config_dir=config_dir))
        description, model = one_line(about.description, 200), about.model
    except CallboardError as failed:
        error = _why_not(failed, directory.name)
    return Listed(
        name=directory.name,
        kind=kind,
        origin=origin,
        description=description,
        model=model,
        file=str(file),
        error=error,
    )


def _why_not(error: CallboardError, name: str) -> str:
    """Why an agent can't be run, in one line; several problems are for `validate` to tell."""
    errors = errors_in(error.problems) if isinstance(error, InvalidFile) else []
    if not errors:
        return one_line(str(error), 200)
    return f"{counted(len(errors), 'error')} (callboard validate {shlex.quote(name)})"


def _rows(agents: list[Listed]) -> list[str]:
    rows = []
    for agent in agents:
        text = f"can't be run: {agent.error}" if agent.error else agent.description
        model = f" [{agent.model}]" if agent.model else ""
        rows.append([safe(agent.name), agent.kind, text + safe(model)])
    return columns(rows)


def _about(agent: GraphAgent | LoopAgent) -> Any:
    """The part of either file that has the keys both have: description, version, model, conversation_starters."""
    return agent.graph if isinstance(agent, GraphAgent) else agent.agent


def _starters(agent: GraphAgent | LoopAgent) -> tuple[str, ...]:
    starters: tuple[str, ...] = _about(agent).conversation_starters
    return starters


def _kind(agent: GraphAgent | LoopAgent) -> Kind:
    return "graph" if isinstance(agent, GraphAgent) else "agent"


def _origin(directory: Path) -> Literal["yours", "built in"]:
    return "built in" if directory.parent == AGENTS else "yours"


def _may(agent: LoopAgent) -> list[tuple[str, str]]:
    """What the agent may do beside calling its tools."""
    file = agent.agent
    only = file.spawnable_agents
    facts = []
    if file.can_spawn_agents:
        facts.append(("spawns", "any agent" if only is None else ", ".join(only) or "no agent"))
    if file.auto_continue:
        facts.append(("goes on", f"while todos are open, at most {file.max_auto_continues} times"))
    facts.append(("asks", "the user, when it has to" if file.can_ask_user else "nobody"))
    return facts


def _servers(about: Any, mode: str) -> str:
    """Its MCP servers, and how models see their tools."""
    if not about.mcp_servers:
        return ""
    lists = bool(about.mcp_tools) and isinstance(about.mcp_tools, Mapping)
    mode = about.mcp_tools if isinstance(about.mcp_tools, str) else mode
    return f"{', '.join(about.mcp_servers)} (mcp_tools: {mode}{', and lists of what it may use' if lists else ''})"


def _documents(agent: GraphAgent | LoopAgent) -> list[str]:
    """What it looks things up in."""
    if isinstance(agent, LoopAgent):
        return list(agent.agent.documents)
    return [document for node in agent.graph.nodes.values() if isinstance(node, RagNode) for document in node.documents]


def _assignment(variable: Any) -> str:
    return safe(variable.name) + (" (required)" if variable.default is None else f"={one_line(variable.default, 40)}")


def _section(title: str, rows: list[list[str]]) -> list[str]:
    return ["", title, *columns(rows)] if rows else []
