"""Other agent programs: recognition of their files, and their names for Callboard's tools.

**Files.** Keys of another program's file have another meaning here, or none: read as an agent, a docker-agent file
lacks a `name` and has an unknown key `agents`. None of these formats is supported. So `foreign_yaml` and
`foreign_markdown` recognise them, and one message names the format and the equivalent.

**Tool aliases.** Third-party skills and hooks use the names of Claude Code's tools:

    Bash(git add:*)     execute_command, for commands that begin with `git add`
    Read, Edit, ...     fs_cat and fs_read, fs_edit and fs_patch, ...
    mcp__time__now      the tool `now` of the MCP server `time`, which is `time__now` here
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Dict
from typing import Any, NamedTuple

from .problems import Problem
from .tree import Entry, Mapping, Node, Sequence
from .yaml_tree import split_front_matter


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
    """Return the format of a Markdown file, by its front matter and its file name; None if it has no front matter."""
    if not split_front_matter(text.removeprefix("\ufeff")).head.strip():
        return None
    keys = {
        line.partition(":")[0].strip() for line in split_front_matter(text.removeprefix("\ufeff")).head.splitlines()
    }
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
        message=f"this is {found.what}, which Callboard can't read",
        expected="an agent, a graph or a DevAll workflow",
        hint=found.instead,
    )


def _value(entry: Entry | None) -> Node | None:
    return None if entry is None else entry.value


def _has(node: Node | None, key: str) -> bool:
    return isinstance(node, Mapping) and key in node.entries


OURS: dict[str, tuple[str, ...]] = {
    "Bash": ("execute_command",),
    "Read": ("fs_cat", "fs_read"),
    "Write": ("fs_write",),
    "Edit": ("fs_edit", "fs_patch"),
    "MultiEdit": ("fs_edit", "fs_patch"),
    "Glob": ("fs_glob",),
    "Grep": ("fs_grep",),
    "LS": ("fs_ls",),
    "WebFetch": ("fetch_url_via_curl", "fetch_url_via_jina"),
    "WebSearch": ("web_search_loki", "web_search_jina", "web_search_tavily", "web_search_perplexity"),
    "Task": ("agent__spawn",),
    "Agent": ("agent__spawn",),
    "TodoWrite": ("todo__init", "todo__add", "todo__done"),
    "AskUserQuestion": ("user__ask", "user__confirm", "user__input", "user__checkbox"),
}
"""Claude Code's name of a tool, and Callboard's names."""

# Reversed, so that the first of several names for one tool wins: `Edit`, not `MultiEdit`.
_THEIRS = {ours: theirs for theirs, names in reversed(OURS.items()) for ours in names}
_PARAMETERS = {ours: {"path": "file_path"} for theirs in ("Read", "Write", "Edit") for ours in OURS[theirs]}
"""Parameters of Callboard's tools with other names in Claude Code."""

_PATTERN = re.compile(r"[^\s,()]+(?:\([^)]*\))?")


def theirs(name: str, *, mcp: bool = False) -> str:
    """Return Claude Code's name of a tool; a name without an alias is unchanged.

    Args:
        mcp: True for a tool of an MCP server.
    """
    return f"mcp__{name}" if mcp else _THEIRS.get(name, name)


def ours(name: str) -> tuple[str, ...]:
    """Return Callboard's names of a tool of Claude Code; for any other name that name, without a prefix `mcp__`."""
    if name in OURS:
        return OURS[name]
    return (name.removeprefix("mcp__"),)


def arguments_of(name: str, arguments: Dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of our tool `name`, with Claude Code's parameter names."""
    others = _PARAMETERS.get(name, {})
    return {others.get(key, key): value for key, value in arguments.items()}


def arguments_back(name: str, arguments: Dict[str, Any]) -> dict[str, Any]:
    """Return the reverse of `arguments_of`."""
    others = {back: key for key, back in _PARAMETERS.get(name, {}).items()}
    return {others.get(key, key): value for key, value in arguments.items()}


def patterns_in(text: str) -> tuple[str, ...]:
    """Return the patterns of a list in one text: `Bash(git add:*), Read` and `Bash(git add:*) Read` are two each."""
    return tuple(_PATTERN.findall(text))


def split_pattern(pattern: str) -> tuple[str, str]:
    """Return the tool of a pattern, and the part in parentheses as a pattern of Callboard: `git add*`, or ""."""
    name, _, rest = pattern.partition("(")
    inner = rest.removesuffix(")").strip()
    if inner.endswith(":*"):
        inner = f"{inner[:-2]}*"
    return name, "" if inner == "*" else inner
