"""What a graph writes to the log `callboard.graph`: snapshots of the state, and a summary of times.

Levels are the privacy rule: at DEBUG go the names of state keys and the size of it all, its values only at
TRACE, since they can be secrets. `CALLBOARD_LOG` chooses the level; nothing is computed for a level that is off.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from .templates import render

TRACE = 5
"""Below DEBUG: records that hold state values."""

log = logging.getLogger("callboard.graph")


def state_size(state: Mapping[str, Any]) -> int:
    """Bytes of the state as JSON."""
    return len(render(dict(state)).encode())


def log_snapshot(graph: str, step: int, nodes: list[str], state: Mapping[str, Any]) -> None:
    """The state before a super-step."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    keys = ", ".join(sorted(state))
    log.debug("%s: step %d runs %s on %d bytes of state: %s", graph, step, ", ".join(nodes), state_size(state), keys)
    if log.isEnabledFor(TRACE):
        log.log(TRACE, "%s: state before step %d: %s", graph, step, dict(state))


def log_summary(graph: str, timing: Mapping[str, tuple[int, float, float]]) -> None:
    """Visits and times of every node, the slowest first."""
    if not timing or not log.isEnabledFor(logging.INFO):
        return
    lines = [f"{graph}: performance summary (slowest first)"]
    for node, (visits, total, longest) in sorted(timing.items(), key=lambda entry: -entry[1][1]):
        average = total / visits
        lines.append(
            f"  {node}: {visits} visit(s), total {total * 1000:.0f}ms, avg {average * 1000:.0f}ms, "
            f"max {longest * 1000:.0f}ms"
        )
    log.info("\n".join(lines))
