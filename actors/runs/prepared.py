"""An agent made ready to work: variables resolved, graph compiled, what can't be run yet refused.

The same for the agent that the user named and for those that other agents call (`children`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...protocol.errors import CallboardError, RunFailed, Unsupported
from ...protocol.graph import Graph, LlmNode, RagNode
from ..agent.plain import refuse_what_is_not_there_yet, run_plain_agent
from ..graph.plan import Plan, compile_graph
from ..graph.scheduler import GraphResult, run_graph
from ..variables import override, resolve_variables
from .target import GraphAgent, LoopAgent

if TYPE_CHECKING:
    from ...supervisors import Actor
    from ..context import RunContext


class Prepared:
    """An agent, ready to be played any number of times.

    Attributes:
        name: of the agent; the last part of its actor's path.
        model: what its models are by default, "" if it does not say.
        models: every model id that its nodes name.

    Raises:
        UsageError: a variable has no value, or there is none of that name.
        Unsupported: it uses what this version can't run yet.
    """

    def __init__(self, agent: GraphAgent | LoopAgent, variables: Mapping[str, str], compat: str | None) -> None:
        self.name = agent.name
        declared = agent.graph.variables if isinstance(agent, GraphAgent) else agent.agent.variables
        self._values = resolve_variables(agent.name, declared, variables, os.environ)
        self._agent = agent
        self._plan: Plan | None = None
        if isinstance(agent, GraphAgent):
            _refuse_what_is_not_there_yet(agent.graph)
            self._plan = compile_graph(agent.graph, agent.directory, compat=compat, values=self._values)
            nodes = agent.graph.nodes.values()
            self.models = {node.model for node in nodes if isinstance(node, LlmNode) and node.model}
            self.asks_models = any(isinstance(node, LlmNode) for node in nodes)
            own = agent.graph.model
        else:
            refuse_what_is_not_there_yet(agent.agent)
            self.models = set()
            self.asks_models = True
            own = agent.agent.model
        self.model = override(agent.name, "MODEL", os.environ) or own or ""

    @property
    def has_state(self) -> bool:
        """Whether it is a graph."""
        return self._plan is not None

    async def play(
        self,
        me: Actor,
        prompt: str,
        context: RunContext,
        *,
        depth: int = 0,
        state: dict[str, Any] | None = None,
        result: GraphResult | None = None,
    ) -> GraphResult:
        """Run it as a child of `me` and wait for its end; what went wrong is the result's `error`."""
        result = result if result is not None else GraphResult()
        if self._plan is not None:
            ref = me.spawn(run_graph, self._plan, prompt, context, depth, state, result, name=self.name, link=False)
            end = await ref.wait()
        else:
            assert isinstance(self._agent, LoopAgent)
            plain = me.spawn(
                run_plain_agent, self._agent.agent, prompt, self._values, context, name=self.name, link=False
            )
            end = await plain.wait()
            result.output = str(end.value or "")
        if end.error is not None:
            crash = RunFailed(f"'{self.name}' crashed: {end.error!r}")
            crash.__cause__ = end.error
            result.error = end.error if isinstance(end.error, CallboardError) else crash
        elif end.reason != "normal":
            result.error = RunFailed(f"'{self.name}' was {end.reason}")
        return result


def _refuse_what_is_not_there_yet(graph: Graph) -> None:
    for node in graph.nodes.values():
        if isinstance(node, RagNode):
            raise Unsupported(
                f"'{graph.name}' can't be run yet: node '{node.id}' is a rag node, and this version does not "
                "retrieve from documents"
            )
        if isinstance(node, LlmNode) and (node.tools or node.mcp_tools):
            raise Unsupported(
                f"'{graph.name}' can't be run yet: node '{node.id}' lists tools, and this version does not run tools"
            )
