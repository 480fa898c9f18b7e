"""Kinds of activities, and states of runs, in a `RunView`."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from ...protocol import events as ev
from ...protocol.control.things import ActorKind

Kind: TypeAlias = Literal["graph", "agent", "node", "chat", "tool", "mcp", "knowledge"]

CANCELLED = "cancelled"
"""The `code` of an activity that did not end by itself."""

Status: TypeAlias = Literal["running", "waiting", "done", "failed", "cancelled", "interrupted"]

KINDS_OF_ACTORS: dict[Kind, ActorKind] = {
    "graph": "graph",
    "agent": "agent",
    "node": "node",
    "tool": "tool",
    "mcp": "mcp",
}
"""Kinds of actors by the first activity that begins in them."""

ENCLOSING = frozenset({"graph", "agent", "node", "tool"})
"""Kinds of activities that enclose others."""

ENDS: dict[type, Status] = {ev.RunFinished: "done", ev.RunFailed: "failed", ev.RunCancelled: "cancelled"}
"""Final states of runs by their last event."""


def end_of(kind: type, outcome: dict[str, Any]) -> Status:
    """Return the final state of a run. A cancelled run that another process may resume is `interrupted`."""
    return "interrupted" if kind is ev.RunCancelled and outcome.get("resumable") is True else ENDS[kind]
