"""What a node is given and what it returns: the border between a node's own work and the scheduler.

A node's code knows its `Job` and returns a `Result`, or raises. It does not route, retry, time itself, write
state or tell anybody: `execute` and `scheduler` do that, once for all kinds of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.errors import GraphMistake
from .templates import compile_template

if TYPE_CHECKING:
    from ...protocol.graph.model import AnyNode
    from ..context import RunContext
    from .plan import Plan

State = Mapping[str, Any]


class Job:
    """One execution of one node.

    Attributes:
        plan: the graph it belongs to.
        node: its definition.
        state: the snapshot it works on; never written to.
        context: the run.
        depth: how many agents stand above this graph.
        item: its index, if it runs for an item of a map.
    """

    __slots__ = ("context", "depth", "item", "node", "plan", "state")

    def __init__(
        self, plan: Plan, node: AnyNode, state: State, context: RunContext, depth: int = 0, item: int | None = None
    ) -> None:
        self.plan = plan
        self.node = node
        self.state = state
        self.context = context
        self.depth = depth
        self.item = item

    @property
    def directory(self) -> Path:
        """The agent's own directory."""
        return self.plan.directory

    def strict(self, text: str) -> str:
        """Render a template that must find every key it names, else the graph is wrong (`GraphMistake`)."""
        return compile_template(text).strict(self.state, expand_again=self.plan.compat.values_expand_again)

    def lenient(self, text: str) -> str:
        """Render a template in which missing keys are empty."""
        return compile_template(text).lenient(self.state, expand_again=self.plan.compat.values_expand_again)


class Result(msgspec.Struct, kw_only=True, gc=False):
    """What a node's work came to.

    Attributes:
        output: its primary result, `{{output}}` (or `scope`) in its state updates.
        writes: state keys that it sets by itself (a script's keys, the keys of a structured answer).
        goto: where it wants to go, whatever `next` says.
        scope: the name under which state updates see `output`; None for nodes that have none.
    """

    output: Any = None
    writes: dict[str, Any] = {}
    goto: tuple[str, ...] | None = None
    scope: str | None = None


def as_whole_number(text: str, what: str) -> int:
    """A rendered template as a number >= 1; `what` names it in the error."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise GraphMistake(f"{what}: expected a positive integer, got '{text}'")
    return number
