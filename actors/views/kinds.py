"""Words for what a `RunView` tells: kinds of activities, and how a run stands."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from ...protocol import events as ev
from ...protocol.control.things import ActorKind

Kind: TypeAlias = Literal["graph", "agent", "node", "chat", "tool", "mcp", "knowledge"]

CANCELLED = "cancelled"
"""The `code` of an activity that something else has ended."""

Status: TypeAlias = Literal["running", "waiting", "done", "failed", "cancelled", "interrupted"]

KINDS_OF_ACTORS: dict[Kind, ActorKind] = {
    "graph": "graph",
    "agent": "agent",
    "node": "node",
    "tool": "tool",
    "mcp": "mcp",
}
"""What actors are, by what begins in them."""

ENCLOSING = frozenset({"graph", "agent", "node", "tool"})
"""Kinds that others stand in."""

ENDS: dict[type, Status] = {ev.RunFinished: "done", ev.RunFailed: "failed", ev.RunCancelled: "cancelled"}
"""How a run has ended, by its last event."""


def end_of(kind: type, outcome: dict[str, Any]) -> Status:
    """How a run has ended: one that another process may go on with was interrupted."""
    return "interrupted" if kind is ev.RunCancelled and outcome.get("resumable") is True else ENDS[kind]
