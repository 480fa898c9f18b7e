"""Input of a node's own code: one unit of work, and the resources that the nodes of its graph share.

A node's `Code` receives a `Job` and returns its output, or raises. It does not deliver messages, retry, measure time or
emit events: `GraphRun` and `perform` do that for all types of nodes.

`GraphResources` has the memories of one graph and the MCP servers that its file describes. They are opened at their
first use and released by `close`. Each run of a graph has its own, also each run of a subgraph.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ....protocol.errors import ConfigError
from ....protocol.workflow.model import CustomConfig, Graph, Node
from ....protocol.workflow_messages import Unit
from .machine.perform import Firing, Said
from .messages import Message
from .plan import WorkflowRun

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext
    from ...work.mcp.pool.servers import ServerScope


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


class GraphResources:
    """Memories and MCP servers of one run of a graph.

    Args:
        run: the run of the workflow.
        graph: the graph of the agents.
        home: directory of stores that end with the run, if another process can resume the run.
    """

    def __init__(self, run: WorkflowRun, graph: Graph, home: Path | None) -> None:
        from .memory.memories import Memories  # lazy: only graphs with agents or memories need its imports

        self.memories = Memories(run, graph, home)
        self._context = run.context
        self._servers: ServerScope | None = None

    def close(self) -> None:
        """Close the MCP servers and memories that were opened."""
        if self._servers is not None:
            self._servers.close()
        self.memories.close()

    def servers(self, me: Actor) -> ServerScope:
        """Return the scope of the graph's own MCP servers.

        Raises:
            ConfigError: MCP is disabled or unavailable in this run.
        """
        if self._servers is None:
            settings = self._context.settings
            if not settings.mcp_server_support:
                raise ConfigError(
                    "the workflow uses MCP servers, but MCP support is disabled. Set `mcp_server_support: true` in "
                    f"{settings.file}, or remove `mcp_local` and `mcp_remote` from its `tooling`"
                )
            if self._context.mcp is None:
                raise ConfigError("the workflow uses MCP servers, but MCP servers are not available in this run")
            self._servers = self._context.mcp().scope(run=me.stream.run, agent=me.path)
        return self._servers
