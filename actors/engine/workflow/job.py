"""Input of a node's own code.

A node's `Code` receives a `Job` and returns its output, or raises. It does not deliver messages, retry, measure time or
emit events: `GraphRun` and `perform` do that for all types of nodes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ....protocol.workflow.model import CustomConfig, Node
from ....protocol.workflow_messages import Unit
from .machine.perform import Firing, Said
from .messages import Message
from .plan import WorkflowRun

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext
    from .agents.resources import GraphResources

Code: TypeAlias = Callable[["Actor", "Job"], Awaitable[Said]]
"""Node's own code, for one unit."""


class Job(msgspec.Struct, frozen=True):
    """Execution of a node's own code, for all of its inputs or for one unit of them.

    Attributes:
        shared_here: resources of this graph's agents; None in a graph without agents and memories.
    """

    firing: Firing
    unit: Unit
    shared: WorkflowRun
    shared_here: GraphResources | None = None

    @property
    def resources(self) -> GraphResources:
        """Resources of the graph's agents and human nodes; only in graphs that have some."""
        assert self.shared_here is not None
        return self.shared_here

    @property
    def node(self) -> Node:
        return self.firing.place.node

    @property
    def values(self) -> dict[str, Any]:
        """`config` of a node whose type is from a plugin."""
        config = self.node.config
        assert isinstance(config, CustomConfig)
        return config.values

    @property
    def context(self) -> RunContext:
        """Context of the run, for plugins."""
        return self.shared.context

    @property
    def is_reported_at_once(self) -> bool:
        """True if the result reaches a decider immediately after the code, because no edge waits in between."""
        return self.unit.index is not None or all(way.pure for way in self.firing.place.out)

    @property
    def inputs(self) -> tuple[Message, ...]:
        return self.unit.inputs
