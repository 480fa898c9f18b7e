"""Tools and their permissions, for `callboard tools`, `permissions` and `agents show`.

A tool file with errors does not hide the others: it is reported. `callboard permissions` explains the decision about a
call, and lists or deletes stored approvals. `.tool_calls` executes a call; it imports the engine, which lists do not
need.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ... import GraphAgent, LoopAgent
from ...actors.io.directories import config_dir as configured
from ...actors.io.directories import user_folder
from ...actors.io.settings import load_settings
from ...actors.runs.file_checks import KnownServers
from ...actors.runs.target import load_agent
from ...actors.work.tools.permissions import Explained, Permissions, StoredAnswer, StoredAnswers
from ...actors.work.tools.registry import ENDINGS, ToolOptions, ToolRegistry, agent_file
from ...actors.work.tools.tool import Tool
from ...protocol.errors import InvalidFile, UsageError
from ...protocol.permissions import Permissions as Rules
from ...protocol.problems import Problem, did_you_mean
from ..render.text import ASKS, columns, counted, json_object, one_line, safe
from .missing_inputs import definition

BUILT_IN = "built in"
_EFFECTS = {
    "none": "no effect outside of the run",
    "read": "reads files or the network",
    "write": "changes files",
    "execute": "runs programs",
    "send": "sends data, or changes files or other systems",
}


@dataclass(frozen=True, kw_only=True)
class ToolInfo:
    """Tool with its source (`built in`, or a file) and its permission: allow, ask or deny."""

    tool: Tool
    source: str
    permission: str

    @property
    def name(self) -> str:
        """Name by which a model calls the tool."""
        return self.tool.name

    @property
    def summary(self) -> str:
        """First sentence of its description."""
        line = self.tool.spec.description.strip().partition("\n")[0]
        sentence, dot, _ = line.partition(". ")
        return one_line(sentence + dot.strip())

    def to_wire(self) -> dict[str, Any]:
        """Return the fields of `-o json`."""
        tool = self.tool
        return {
            "name": tool.name,
            "description": tool.spec.description,
            "parameters": tool.spec.parameters,
            "effect": tool.effect,
            "permission": self.permission,
            "source": self.source,
        }

    @property
    def effect(self) -> str:
        """Effect of a call on files and the network, in words."""
        return "depends on the program in its file" if self.tool.origin == "file" else _EFFECTS[self.tool.effect]


class Toolbox:
    """Tools of a configuration directory.

    Args:
        registry: tool registry; by default one made from the directory's settings.

    Attributes:
        mcp_tools: how models see the tools of MCP servers.

    Raises:
        ConfigError: `config.yaml` has errors.
    """

    def __init__(
        self, config_dir: str | None, *, registry: ToolRegistry | None = None, options: ToolOptions | None = None
    ) -> None:
        self.base, _ = configured(config_dir, os.environ)
        settings, _ = load_settings(self.base)
        self.mcp_tools = settings.mcp_tools
        self._registry = registry or ToolRegistry(self.base, settings, os.environ)
        self._permissions = Permissions(self._registry.permissions(settings.permissions))
        self._options = options or ToolOptions()

    def everywhere(self) -> tuple[list[ToolInfo], list[Problem]]:
        """Return all global tools, the user's first, and problems of tool files."""
        tools, problems = self._named(self._registry.global_names(), None, {})
        return sorted(tools, key=lambda tool: tool.source == BUILT_IN), problems

    def of_agent(
        self, agent: GraphAgent | LoopAgent, *, values: Mapping[str, str] | None = None
    ) -> tuple[list[ToolInfo], list[Problem]]:
        """Return the agent's tools, its own before the global ones that it lists, and problems of their files."""
        own = self.own(agent, values=values)
        taken = {tool.name for tool in own}
        listed = [name for name in self._registry.spelled_out(definition(agent).global_tools) if name not in taken]
        tools, problems = self._named(listed, agent, values or {})
        return [*own, *tools], problems

    def own(self, agent: GraphAgent | LoopAgent, *, values: Mapping[str, str] | None = None) -> list[ToolInfo]:
        """Return the tools of the agent's own file, which loading the agent has validated."""
        if agent.directory is None:
            return []
        path = agent_file(agent.directory)
        found = self._registry.of_agent(agent.directory, self._home(agent, values or {}))
        return [self._seen(tool, str(path), agent) for tool in found.tools.values()]

    def one(self, name: str, agent: GraphAgent | LoopAgent | None, values: Mapping[str, str] | None = None) -> ToolInfo:
        """Return the tool of this name: the agent's own, if an agent is given and has it, else a global one.

        Raises:
            UsageError: there is none, or the name means several.
            InvalidFile: its file has errors.
        """
        own: list[ToolInfo] = []
        if agent is not None:
            own = self.own(agent, values=values)
            for seen in own:
                if seen.name == name:
                    return seen
        meant = self._registry.spelled_out([name])
        if len(meant) != 1:
            raise UsageError(f"'{name}' stands for several tools: {', '.join(meant)}")
        for unknown, hint in self._registry.unknown([name]):
            near = _hint(unknown, hint, None if agent is None else [seen.name for seen in own])
            server = KnownServers(self.base, self._registry.settings).behind(unknown)
            if server is not None:
                near = f"callboard mcp tools {server} lists those of that MCP server"
            raise UsageError(f"there is no tool '{unknown}'; {near}")
        tools, problems = self._named(meant, agent, values or {})
        if not tools:
            raise InvalidFile("\n".join(map(str, problems)), problems)
        return tools[0]

    def explained(
        self, tool: Tool, arguments: dict[str, Any], agent: GraphAgent | LoopAgent | None, allowed: tuple[str, ...]
    ) -> Explained:
        """Return the decision about a call, and the reasons for it."""
        rules = self._registry.permissions(self._registry.settings.permissions)
        permissions = Permissions(rules, allowed=self._registry.spelled_out(allowed))
        return permissions.explained(tool, arguments, self._registry.permissions(rules_of(agent)))

    def _named(
        self, names: Iterable[str], agent: GraphAgent | LoopAgent | None, values: Mapping[str, str]
    ) -> tuple[list[ToolInfo], list[Problem]]:
        home = self._home(agent, values)
        seen: list[ToolInfo] = []
        problems: list[Problem] = []
        for name in names:
            try:
                # One name at a time, so that a file with errors hides only its own tool.
                tools = self._registry.named([name], home, self._options)
            except InvalidFile as error:
                whole = Problem(severity="error", code=error.code, file=name, message=str(error))
                problems += error.problems or [whole]
            else:
                seen += [self._seen(tool, self._source(tool), agent) for tool in tools]
        return seen, problems

    def _home(self, agent: GraphAgent | LoopAgent | None, values: Mapping[str, str]) -> Any:
        directory, name = (None, None) if agent is None else (agent.directory, agent.name)
        return self._registry.home(directory=directory, agent=name, values=values, options=self._options)

    def _seen(self, tool: Tool, source: str, agent: GraphAgent | LoopAgent | None) -> ToolInfo:
        # No arguments: rules for particular commands or paths don't count here, `callboard permissions explain` has
        # them.
        verdict = self._permissions.verdict(tool, {}, self._registry.permissions(rules_of(agent)))
        return ToolInfo(tool=tool, source=source, permission=verdict)

    def _source(self, tool: Tool) -> str:
        if tool.origin != "file":
            return BUILT_IN
        folder = user_folder("functions", self.base) / "tools"
        paths = (folder / f"{tool.name}{ending}" for ending in ENDINGS)
        return str(next((path for path in paths if path.is_file()), folder))


def rules_of(agent: GraphAgent | LoopAgent | None) -> Rules:
    """Return the `permissions` of the agent's file."""
    return {} if agent is None else definition(agent).permissions


def _hint(name: str, of_all: str, own: list[str] | None) -> str:
    if own is None:
        return f"{of_all} (an agent's own tools: --agent NAME)"
    return did_you_mean(name, own) or (f"the agent has: {', '.join(own)}; {of_all}" if own else of_all)


PERMISSION_TEXTS = {"allow": "runs without asking", "ask": "asks the user first", "deny": "is denied"}


def list_tools(agent_name: str | None, config_dir: str | None, *, as_json: bool) -> tuple[str, bool]:
    """Return all tools as text or JSON, an agent's own first, and True if a tool file has errors.

    Problems of tool files go to stderr.
    """
    box = Toolbox(config_dir)
    tools, problems = box.everywhere()
    own: list[ToolInfo] = []
    if agent_name is not None:
        own = box.own(load_agent(agent_name, config_dir=config_dir))
    if as_json:
        found = [tool.to_wire() for tool in (*own, *tools)]
        text = json_object(tools=found)
    else:
        text = _listed(agent_name, own, tools, str(user_folder("functions", box.base) / "tools"))
    for problem in problems:
        sys.stderr.write(safe(str(problem)) + "\n")
    return text, any(problem.severity == "error" for problem in problems)


def show_tool(name: str, agent_name: str | None, config_dir: str | None, *, as_json: bool) -> str:
    """Return one tool as text or as JSON.

    Raises:
        UsageError: there is no such tool.
        InvalidFile: its file has errors.
    """
    agent = None if agent_name is None else load_agent(agent_name, config_dir=config_dir)
    tool = Toolbox(config_dir).one(name, agent)
    if as_json:
        return json_object(**tool.to_wire())
    schema = json.dumps(tool.tool.spec.parameters, indent=2, ensure_ascii=False)
    facts = [["from", tool.source], ["does", tool.effect], ["a call", PERMISSION_TEXTS[tool.permission]]]
    told = [f"  {line}" for line in safe(tool.tool.spec.description.strip()).splitlines()]
    return "\n".join([safe(tool.name), *told, "", *columns(facts), "", safe(schema)]) + "\n"


def _listed(agent: str | None, own: list[ToolInfo], tools: list[ToolInfo], folder: str) -> str:
    yours = [tool for tool in tools if tool.source != BUILT_IN]
    ours = [tool for tool in tools if tool.source == BUILT_IN]
    lines: list[str] = []
    if agent is not None:
        lines += [f"of {safe(agent)}" + (f" ({safe(own[0].source)})" if own else ""), *(_rows(own) or ["  none"])]
    lines += [f"yours ({safe(folder)})", *(_rows(yours) or ["  none yet (one .sh, .py or .ts file per tool)"])]
    lines += ["built in", *(_rows(ours) or ["  none (`visible_tools` excludes them, or yours hide them)"])]
    return "\n".join(lines) + "\n"


def _rows(tools: list[ToolInfo]) -> list[str]:
    return columns([[tool.name, ASKS[tool.permission], tool.summary] for tool in tools])


def explain_call(
    call: str, name: str, agent_name: str | None, allowed: tuple[str, ...], config_dir: str | None, *, as_json: bool
) -> str:
    """Return the decision about a call, and the reasons for it.

    Raises:
        UsageError: there is no such tool, or it needs all of its arguments.
    """
    agent = None if agent_name is None else load_agent(agent_name, config_dir=config_dir)
    box = Toolbox(config_dir)
    tool = box.one(name, agent).tool
    try:
        given = msgspec.json.decode(call) if call.lstrip().startswith("{") else None
    except msgspec.DecodeError:
        # A shell command may begin with a brace too: `{ make; }`.
        given = None
    if not isinstance(given, dict):
        if not tool.subject:
            raise UsageError(f"'{name}' has no argument that patterns are compared with: give all arguments as JSON")
        given = {tool.subject: call}
    found = box.explained(tool, given, agent, allowed)
    if as_json:
        return json_object(tool=tool.name, **msgspec.to_builtins(found))
    rows = [
        [
            safe(reason.command or tool.name),
            reason.verdict or "-",
            f"{reason.who}{f', `{safe(reason.rule)}`' if reason.rule else ''}",
            safe("; ".join(part for part in (reason.pattern and f"by {reason.pattern!r}", reason.why) if part)),
        ]
        for reason in found.reasons
    ]
    return "\n".join([f"{found.verdict}: {PERMISSION_TEXTS[found.verdict]}", *columns(rows)]) + "\n"


def list_stored(*, as_json: bool) -> str:
    """Return the answers `always` that are stored for this directory."""
    kept = StoredAnswers(Path.cwd(), os.environ)
    if as_json:
        return json_object(directory=kept.directory, allowed=msgspec.to_builtins(kept.all()))
    rows = [[safe(each.tool), _what(each)] for each in kept.all()]
    where = safe(kept.directory)
    return (
        "\n".join(
            [f"approvals stored for {where}", *columns(rows)] if rows else [f"no approvals are stored for {where}"]
        )
        + "\n"
    )


def _what(answered: StoredAnswer) -> str:
    what = one_line(answered.subject)
    return f"may {what}" if answered.beyond else what or "with any arguments"


def forget_stored(tool: str | None) -> str:
    """Remove the stored answers for this directory, of one tool or of all; return a message with their number."""
    number = StoredAnswers(Path.cwd(), os.environ).forget(tool)
    return f"{counted(number, 'approval')} removed\n"
