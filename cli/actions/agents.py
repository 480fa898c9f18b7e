"""Agents for `callboard agents`: list, description, and new ones.

An unreadable agent is listed with its error, so that the user can find it. A new agent is one with a tool, or a copy of
a graph of `callboard init`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from ... import GraphAgent, LoopAgent
from ...actors.io.directories import config_dir as configured
from ...actors.runs.finding import built_in_agents, find, own_agents
from ...actors.runs.target import load_agent
from ...actors.work.library import AGENTS
from ...protocol.errors import CallboardError, InvalidFile, UsageError
from ...protocol.graph import RagNode
from ...protocol.problems import Problem, did_you_mean, errors_in
from ..new_files import PROMPTS, template_copies, write_files
from ..render.text import columns, counted, json_object, one_line, safe
from .missing_inputs import definition
from .tools import Toolbox, ToolInfo

Kind = Literal["agent", "graph"]


def list_agents(config_dir: str | None, *, as_json: bool) -> str:
    """Return all agents as text or JSON: the configuration directory's, then the built-in ones with other names."""
    base = configured(config_dir, os.environ)[0]
    home = base / "agents"
    own = [_listed(home / name, "yours", config_dir) for name in own_agents(base)]
    taken = {agent["name"] for agent in own}
    ours = [_listed(AGENTS / name, "built in", config_dir) for name in built_in_agents() if name not in taken]
    if as_json:
        return json_object(agents=[*own, *ours])
    lines = [f"yours ({safe(str(home))})", *(_rows(own) or ["  none yet (to make one: callboard agents new NAME)"])]
    rows = _rows(ours) or ["  none (each is hidden by one of yours)"]
    return "\n".join([*lines, "built in", *rows]) + "\n"


def path_of(name: str | None, config_dir: str | None) -> str:
    """Return the directory of one agent; without a name, that of the configuration directory's agents."""
    if name is None:
        return str(configured(config_dir, os.environ)[0] / "agents")
    return str(find(name, config_dir=config_dir).directory)


@dataclass(frozen=True, kw_only=True)
class AgentDetails:
    """Description of one agent with its tools and problems; `mode` is `mcp_tools` of the settings."""

    agent: GraphAgent | LoopAgent
    target: str
    directory: Path
    tools: list[ToolInfo]
    mode: str
    problems: list[Problem]

    @property
    def errors(self) -> int:
        """Number of problems that prevent a run."""
        return len(errors_in(self.problems))

    def to_wire(self) -> dict[str, Any]:
        """Return the fields of `-o json`."""
        import msgspec

        about = definition(self.agent)
        return {
            "name": self.agent.name,
            "kind": _kind(self.agent),
            "origin": _origin(self.directory),
            "description": about.description.strip(),
            "model": about.model,
            "file": self.agent.file,
            "variables": msgspec.to_builtins(list(about.variables)),
            "tools": [tool.to_wire() for tool in self.tools],
            "mcp_servers": list(about.mcp_servers),
            "mcp_tools": about.mcp_tools if isinstance(about.mcp_tools, str) else self.mode,
            "documents": _documents(self.agent),
            "conversation_starters": list(about.conversation_starters),
            "problems": msgspec.to_builtins(self.problems),
        }

    def as_text(self) -> str:
        """Return the description as text."""
        agent, about = self.agent, definition(self.agent)
        lines = [f"{safe(agent.name)} ({_kind(agent)}, {_origin(self.directory)})"]
        lines += [f"  {line}" for line in safe(about.description.strip()).splitlines()]
        facts = [("file", agent.file), ("model", about.model or "the default of config.yaml")]
        if isinstance(agent, GraphAgent):
            facts.append(("nodes", f"{len(agent.graph.nodes)} (callboard graph {self.target} draws them)"))
        else:
            facts += _may(agent)
        facts.append(("servers", _servers(about, self.mode)))
        if documents := _documents(agent):
            facts.append(("documents", f"{one_line(', '.join(documents), 200)} (callboard kb status {self.target})"))
        lines += ["", *columns([[name, safe(value)] for name, value in facts if value])]
        lines += _section("variables", [[_assignment(each), one_line(each.description)] for each in about.variables])
        lines += _section("tools", [[tool.name, self._near(tool.source), tool.summary] for tool in self.tools])
        prompts = [shlex.quote(one_line(text, 200)) for text in about.conversation_starters]
        starters = [f"  callboard run {self.target} {prompt}" for prompt in prompts]
        lines += ["", "examples", *starters] if starters else []
        lines += ["", "problems", *(f"  {safe(str(each))}" for each in self.problems)] if self.problems else []
        return "\n".join(lines) + "\n"

    def _near(self, source: str) -> str:
        path = Path(source)
        return path.name if path.parent == self.directory else safe(source)


def show_agent(target: str, config_dir: str | None) -> AgentDetails:
    """Read an agent, its tools and its problems.

    Raises:
        CallboardError: there is none, or its file has errors.
    """
    found = find(target, config_dir=config_dir)
    agent = load_agent(target, config_dir=config_dir)
    toolbox = Toolbox(config_dir)
    tools, problems = toolbox.of_agent(agent)
    return AgentDetails(
        agent=agent,
        target=shlex.quote(target),
        directory=found.directory,
        tools=tools,
        mode=toolbox.mcp_tools,
        problems=[*agent.problems, *problems],
    )


def _listed(directory: Path, origin: Literal["yours", "built in"], config_dir: str | None) -> dict[str, Any]:
    # By the file's name, not by the loaded agent: an agent with errors has a kind too.
    kind: Kind = "graph" if (directory / "graph.yaml").is_file() else "agent"
    file = directory / ("graph.yaml" if kind == "graph" else "config.yaml")
    description, model, error = "", None, None
    try:
        about = definition(load_agent(directory, config_dir=config_dir))
        description, model = one_line(about.description, 200), about.model
    except CallboardError as failed:
        error = _why_not(failed, directory.name)
    shown = {"name": directory.name, "kind": kind, "origin": origin, "description": description, "model": model}
    return {**shown, "file": str(file), "error": error}


def _why_not(error: CallboardError, name: str) -> str:
    """Return the reason why an agent can't be run, in one line; `validate` lists several problems."""
    errors = errors_in(error.problems) if isinstance(error, InvalidFile) else []
    if not errors:
        return one_line(str(error), 200)
    return f"{counted(len(errors), 'error')} (callboard validate {shlex.quote(name)})"


def _rows(agents: list[dict[str, Any]]) -> list[str]:
    rows = []
    for agent in agents:
        text = f"invalid: {agent['error']}" if agent["error"] else agent["description"]
        model = f" [{agent['model']}]" if agent["model"] else ""
        rows.append([safe(agent["name"]), agent["kind"], text + safe(model)])
    return columns(rows)


def _kind(agent: GraphAgent | LoopAgent) -> Kind:
    return "graph" if isinstance(agent, GraphAgent) else "agent"


def _origin(directory: Path) -> Literal["yours", "built in"]:
    return "built in" if directory.parent == AGENTS else "yours"


def _may(agent: LoopAgent) -> list[tuple[str, str]]:
    file = agent.agent
    only = file.spawnable_agents
    facts = []
    if file.can_spawn_agents:
        facts.append(("spawns", "any agent" if only is None else ", ".join(only) or "no agent"))
    if file.auto_continue:
        facts.append(("continues", f"while todos are open, at most {file.max_auto_continues} times"))
    facts.append(("questions", "may ask the user" if file.can_ask_user else "never asks the user"))
    return facts


def _servers(about: Any, mode: str) -> str:
    if not about.mcp_servers:
        return ""
    lists = bool(about.mcp_tools) and isinstance(about.mcp_tools, Mapping)
    mode = about.mcp_tools if isinstance(about.mcp_tools, str) else mode
    return f"{', '.join(about.mcp_servers)} (mcp_tools: {mode}{', with lists of allowed tools' if lists else ''})"


def _documents(agent: GraphAgent | LoopAgent) -> list[str]:
    if isinstance(agent, LoopAgent):
        return list(agent.agent.documents)
    return [document for node in agent.graph.nodes.values() if isinstance(node, RagNode) for document in node.documents]


def _assignment(variable: Any) -> str:
    return safe(variable.name) + (" (required)" if variable.default is None else f"={one_line(variable.default, 40)}")


def _section(title: str, rows: list[list[str]]) -> list[str]:
    return ["", title, *columns(rows)] if rows else []


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

PROMPT = "How many words has this sentence?"

TEMPLATES = Path(__file__).parents[1] / "templates"
"""Directory of templates for new files; NAME is replaced by the agent's name."""


def make_agent(name: str, config_dir: str | None) -> str:
    """Write an agent with a tools file; return a message for the user.

    Raises:
        UsageError: the name is invalid or taken, or the directory can't be written.
    """
    home = _home(name, config_dir)
    contents: dict[Path, bytes] = {}
    for file in ("config.yaml", "tools.py"):
        text = (TEMPLATES / f"{file}.in").read_text("utf-8")
        # The key first: YAML may need quotes around the name, which the comments and the tools file must not get.
        text = text.replace("name: NAME", f"name: {_in_yaml(name)}").replace("NAME", name)
        contents[home / file] = text.encode()
    return _written(contents, name, PROMPT)


def make_graph(name: str, template: str, config_dir: str | None) -> str:
    """Write a copy of an example graph under this name; return a message for the user. Raises as `make_agent` does."""
    if template not in PROMPTS:
        hint = did_you_mean(template, PROMPTS) or f"there are: {', '.join(PROMPTS)}"
        raise UsageError(f"there is no template '{template}'; {hint}")
    home = _home(name, config_dir)
    source = files(__package__.partition(".")[0]).joinpath("examples", "agents", template)
    contents = {path: entry.read_bytes() for path, entry in template_copies(source, home).items()}
    graph = home / "graph.yaml"
    # Replaced in the text: parsing and dumping it would lose the template's comments. `^` skips the indented names of
    # variables and the like.
    renamed = re.sub(rb"(?m)^name:[^#\n]*", f"name: {_in_yaml(name)}".encode(), contents[graph], count=1)
    return _written({**contents, graph: renamed}, name, PROMPTS[template])


def _home(name: str, config_dir: str | None) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' can't be the name of an agent: use letters, digits, '-', '_' and '.', and begin with a"
            " letter or a digit"
        )
    home = configured(config_dir, os.environ)[0] / "agents" / name
    if home.exists():
        raise UsageError(f"{home} exists, and was not changed; choose another name")
    return home


def _in_yaml(name: str) -> str:
    """Return the name as a YAML scalar, quoted if it would otherwise be a number, a date or a boolean."""
    import yaml

    return name if yaml.safe_load(name) == name else f'"{name}"'


def _written(contents: dict[Path, bytes], name: str, prompt: str) -> str:
    write_files(contents)
    wrote = "".join(f"wrote {path}\n" for path in contents)
    if name in built_in_agents():
        wrote += f"'{name}' now hides the built-in agent of the same name\n"
    return f"{wrote}\ncallboard run {name} {shlex.quote(prompt)}\n"
