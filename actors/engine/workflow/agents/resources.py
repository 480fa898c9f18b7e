"""What the agents of one graph share while it runs: memories, and the MCP servers that its file describes.

Nothing is opened before its first use, and everything is given back by `close`. A graph that runs twice, as that of a
subgraph does, has its own each time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .....protocol.errors import ConfigError
from .....protocol.workflow.model import Graph
from ..memory.memories import Memories

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.mcp.pool.scope import Scope
    from ..plan import WorkflowRun


class GraphResources:
    """See the module.

    Args:
        run: the run of the workflow.
        graph: whose agents they are.
        home: where stores are that end with the run, if that may go on in another process.
    """

    def __init__(self, run: WorkflowRun, graph: Graph, home: Path | None) -> None:
        self.memories = Memories(run, graph, home)
        self._context = run.context
        self._servers: Scope | None = None

    def close(self) -> None:
        """Give back what was opened."""
        if self._servers is not None:
            self._servers.close()
        self.memories.close()

    def servers(self, me: Actor) -> Scope:
        """The graph's own MCP servers.

        Raises:
            ConfigError: this run has none.
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
