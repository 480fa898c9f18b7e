"""Names that Loki's successor has for tools of the built-in families, so that prompts written for it work.

A tool is always found by them. It is offered to the model by such a name too where the agent's instructions, or a
node's `tools`, say it: a tool twice in every request is paid for in every request.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..tools.tool import Tool

OWN_NAMES = {"user__select": "user__ask", "agent__list_running": "agent__list", "rag__query": "knowledge__search"}
"""Theirs, and ours for the same."""


def renamed(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Those of the tools that have another name, by it. Permissions know them by either."""
    there = {tool.name: tool for tool in tools}
    return {
        other: msgspec.structs.replace(there[own], spec=msgspec.structs.replace(there[own].spec, name=other), alias=own)
        for other, own in OWN_NAMES.items()
        if own in there
    }
