"""Files of other agent programs, recognised so that one message names the format.

Their keys have another meaning here, or none: read as an agent, a docker-agent file lacks a `name` and has an unknown
key `agents`. None of these formats is supported; the hint names the equivalent.
"""

from __future__ import annotations

from typing import NamedTuple

from .front_matter import parted
from .problems import Problem
from .tree import Entry, Mapping, Node, Sequence


class Foreign(NamedTuple):
    """Format of another program: its description, and the equivalent in Callboard."""

    what: str
    instead: str


DOCKER_AGENT = Foreign(
    "a docker-agent (cagent) file",
    "write an agent for each of `agents`: `instruction` is `instructions`, `toolsets` are tools and servers.",
)
CONDUCTOR = Foreign(
    "a Conductor workflow",
    "write a graph: its agents are nodes of type llm, `routes` are `next` and `routes` of nodes.",
)
GOOSE = Foreign(
    "a goose recipe",
    "write an agent: `name`, `instructions`, `variables` for its parameters, `mcp_servers` for its extensions.",
)
CREWAI = Foreign("a CrewAI file", "write an agent for each entry: role, goal and backstory are its `instructions`.")
CLAUDE_AGENT = Foreign(
    "a sub-agent of Claude Code",
    "write an agent: its front matter is `name` and `description`, its text `instructions`.",
)
CLAUDE_COMMAND = Foreign(
    "a Markdown file with front matter, such as a command of Claude Code",
    "write an agent with its text as `instructions`, or put it into a directory of its own as a skill (SKILL.md).",
)
SKILL = Foreign(
    "an Agent Skill", "put its directory into `skills` of the config directory; `callboard skills validate` checks it."
)
MCP = Foreign("a list of MCP servers (mcp.json)", "put it into the config directory, or name it by `callboard mcp`.")
BARE_WORKFLOW = Foreign(
    "a DevAll workflow without its mapping `graph`", "write `graph:`, and `nodes` and `edges` indented under it."
)


def foreign_yaml(root: Mapping) -> Foreign | None:
    """Return the format that the top level of a YAML file shows; None if it shows none of another program."""
    keys = root.entries
    agents = _value(keys.get("agents"))
    if "workflow" in keys and isinstance(agents, Sequence) and _has(_value(keys["workflow"]), "entry_point"):
        return CONDUCTOR
    if isinstance(agents, Mapping) and any(
        _has(each.value, "instruction") or _has(each.value, "toolsets") for each in agents.entries.values()
    ):
        return DOCKER_AGENT
    if "mcpServers" in keys:
        return MCP
    if _is_bare_workflow(root):
        return BARE_WORKFLOW
    if "name" in keys:
        return None
    if "title" in keys and keys.keys() & {"instructions", "prompt"} and keys.keys() & _OF_RECIPES:
        return GOOSE
    if keys and all(_has(each.value, "role") and _has(each.value, "goal") for each in keys.values()):
        return CREWAI
    return None


def _is_bare_workflow(root: Mapping) -> bool:
    """Return whether the file has parts of a DevAll workflow and no mapping `graph`.

    Nodes in a list may belong to a misspelt graph, unless there are edges or a `config`.
    """
    keys = root.entries
    if isinstance(_value(keys.get("graph")), Mapping):
        return False
    nodes = _value(keys.get("nodes"))
    if isinstance(nodes, Sequence):
        return isinstance(_value(keys.get("edges")), Sequence) or any(_has(node, "config") for node in nodes.items)
    if "name" in keys or "nodes" in keys:
        return False
    if "graph" in keys or isinstance(_value(keys.get("edges")), Sequence):
        return True
    return "vars" in keys and keys.keys() <= {"vars", "version", "compat"}


_OF_RECIPES = {
    "version",
    "extensions",
    "parameters",
    "sub_recipes",
    "activities",
    "response",
    "settings",
    "author",
    "description",
}


def foreign_markdown(text: str, name: str) -> Foreign | None:
    """Return the format of a Markdown file with front matter; `name` is the name of the file."""
    if not parted(text.removeprefix("\ufeff")).head.strip():
        return None
    keys = {line.partition(":")[0].strip() for line in parted(text.removeprefix("\ufeff")).head.splitlines()}
    if name.lower() == "skill.md":
        return SKILL
    return CLAUDE_AGENT if {"name", "description"} <= keys else CLAUDE_COMMAND


def problem_of(found: Foreign, file: str) -> Problem:
    """Return the problem of such a file, which replaces all others."""
    return Problem(
        severity="error",
        file=file,
        line=1,
        column=1,
        code="foreign_file",
        message=f"this is {found.what}, which is not read here",
        expected="an agent, a graph or a DevAll workflow",
        hint=found.instead,
    )


def _value(entry: Entry | None) -> Node | None:
    return None if entry is None else entry.value


def _has(node: Node | None, key: str) -> bool:
    return isinstance(node, Mapping) and key in node.entries
