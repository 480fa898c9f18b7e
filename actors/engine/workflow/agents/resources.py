"""What the agents of one graph share while it runs: memories, and the MCP servers that its file describes.

    async with GraphResources(context, graph, directory=..., workflow=..., rules=..., ...) as resources:
        said = await run_agent_node(me, node, unit, resources)

Nothing is opened before its first use, and everything is given back at the end of the block. A graph that runs
twice, as that of a subgraph does, has its own each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, final

from .....protocol.errors import ConfigError
from .....protocol.workflow.model import Graph
from ..memory.memories import Memories
from ..rules import Rules

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.context import RunContext
    from ....work.mcp.pool.scope import Scope
    from ....work.record import Record
    from ..workspace import Workspace


@final
class GraphResources:
    """See the module.

    Args:
        context: the run.
        graph: whose agents they are.
        directory: what relative paths start from.
        workflow: the file.
        rules: of its dialect.
        record: where the models' texts are written down.
        depth: how many agents stand above this graph.
        workspace: where functions find and leave files.
        variables: the `vars` of the workflow.
    """

    def __init__(
        self,
        context: RunContext,
        graph: Graph,
        *,
        directory: Path,
        workflow: Path,
        rules: Rules,
        record: Record,
        depth: int,
        workspace: Workspace,
        variables: Mapping[str, Any],
    ) -> None:
        self.context = context
        self.directory = directory
        self.rules = rules
        self.record = record
        self.depth = depth
        self.workspace = workspace
        self.variables = variables
        self.memories = Memories(context, graph, directory=directory, workflow=workflow, rules=rules)
        self._servers: Scope | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._servers is not None:
            self._servers.close()
        await self.memories.aclose()

    def servers(self, me: Actor) -> Scope:
        """The graph's own MCP servers.

        Raises:
            ConfigError: this run has none.
        """
        if self._servers is None:
            settings = self.context.settings
            if not settings.mcp_server_support:
                raise ConfigError(
                    "the workflow uses MCP servers, but MCP support is disabled. Set `mcp_server_support: true` in "
                    f"{settings.file}, or remove `mcp_local` and `mcp_remote` from its `tooling`"
                )
            if self.context.mcp is None:
                raise ConfigError("the workflow uses MCP servers, and this run has none")
            self._servers = self.context.mcp().scope(run=me.stream.run, agent=me.path)
        return self._servers
