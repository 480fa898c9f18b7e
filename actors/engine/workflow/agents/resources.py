"""Resources that the agents of one graph share while it runs: memories, and the MCP servers that the file describes.

They are opened at their first use and released by `close`. Each run of a graph has its own, also each run of a
subgraph.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .....protocol.errors import ConfigError
from .....protocol.workflow.model import Graph
from ..memory.memories import Memories

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.mcp.pool.servers import ServerScope
    from ..plan import WorkflowRun


class GraphResources:
    """Memories and MCP servers of one run of a graph.

    Args:
        run: the run of the workflow.
        graph: the graph of the agents.
        home: directory of stores that end with the run, if another process can resume the run.
    """

    def __init__(self, run: WorkflowRun, graph: Graph, home: Path | None) -> None:
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
                raise ConfigError("the workflow uses MCP servers, and this run has none")
            self._servers = self._context.mcp().scope(run=me.stream.run, agent=me.path)
        return self._servers
