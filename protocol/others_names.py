"""Tool aliases: names of Claude Code's tools, which third-party skills and hooks use.

Examples:

    Bash(git add:*)     execute_command, for commands that begin with `git add`
    Read, Edit, ...     fs_cat and fs_read, fs_edit and fs_patch, ...
    mcp__time__now      the tool `now` of the MCP server `time`, which is `time__now` here
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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
    """Return Callboard's names of a tool of Claude Code; other names are unchanged."""
    if name in OURS:
        return OURS[name]
    return (name.removeprefix("mcp__"),)


def arguments_of(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of our tool `name`, with Claude Code's parameter names."""
    others = _PARAMETERS.get(name, {})
    return {others.get(key, key): value for key, value in arguments.items()}


def arguments_back(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
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
