"""Result of an agent's run: a graph's output and state, or a conversation's reply.

A separate module, because every run makes one, and runs without a graph must not import the rest of this package.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ....protocol.errors import CallboardError
from ....protocol.outcome import NodeTime


class GraphResult(msgspec.Struct, kw_only=True):
    """Output or error of a graph, with the state after the last complete super-step.

    Attributes:
        order: ids of the nodes, in the order of their start.
        nodes: visits and seconds by node id.
        timing: visits, seconds, and seconds of the longest visit, by node id.
        failures: tolerated failures that the author has not accepted.
    """

    output: str = ""
    state: dict[str, Any] = {}
    order: list[str] = []
    nodes: dict[str, NodeTime] = {}
    timing: dict[str, tuple[int, float, float]] = {}
    failures: list[CallboardError] = []
    error: CallboardError | None = None
