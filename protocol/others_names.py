"""What other agent programs call tools of ours: Claude Code's names, which skills and hooks of strangers use.

What they call it, and what that is here:

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
"""Their name of a tool, and ours."""

_THEIRS = {ours: theirs for theirs, names in reversed(OURS.items()) for ours in names}
_PARAMETERS = {ours: {"path": "file_path"} for theirs in ("Read", "Write", "Edit") for ours in OURS[theirs]}
"""Our parameters that they call otherwise."""

_PATTERN = re.compile(r"[^\s,()]+(?:\([^)]*\))?")


def theirs(name: str, *, mcp: bool = False) -> str:
    """What they call a tool of ours; a name that they have none for stays.

    Args:
        mcp: it is a tool of an MCP server.
    """
    return f"mcp__{name}" if mcp else _THEIRS.get(name, name)


def ours(name: str) -> tuple[str, ...]:
    """What we call a tool of theirs; a name of ours stays."""
    if name in OURS:
        return OURS[name]
    return (name.removeprefix("mcp__"),)


def arguments_of(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call of our tool `name`, with their names."""
    others = _PARAMETERS.get(name, {})
    return {others.get(key, key): value for key, value in arguments.items()}


def arguments_back(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `arguments_of`."""
    others = {back: key for key, back in _PARAMETERS.get(name, {}).items()}
    return {others.get(key, key): value for key, value in arguments.items()}


def patterns_in(text: str) -> tuple[str, ...]:
    """The patterns of a list in one text: `Bash(git add:*), Read` and `Bash(git add:*) Read` are two."""
    return tuple(_PATTERN.findall(text))


def split_pattern(pattern: str) -> tuple[str, str]:
    """A pattern's tool (theirs or ours) and what is in its parentheses as a pattern of ours: `git add*`, or ""."""
    name, _, rest = pattern.partition("(")
    inner = rest.removesuffix(")").strip()
    if inner.endswith(":*"):
        inner = f"{inner[:-2]}*"
    return name, "" if inner == "*" else inner
