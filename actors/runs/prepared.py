"""An agent made ready to work: variables resolved, graph compiled, what can't be run yet refused.

The same for the agent that the user named and for those that other agents call (`children`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio

from ...protocol.agent import Agent
from ...protocol.errors import CallboardError, RunFailed, Unsupported
from ...protocol.graph import AgentNode, AnyNode, Graph, LlmNode, RagNode
from ..agent.plain import refuse_what_is_not_there_yet, run_plain_agent
from ..graph.compile import compile_graph
from ..graph.plan import Plan
from ..graph.scheduler import GraphResult, run_graph
from ..variables import overridden, resolve_variables
from .target import GraphAgent, LoopAgent

if TYPE_CHECKING:
    from ...supervisors import Actor, End, Ref
    from ..context import RunContext


class Prepared:
    """An agent, ready to be played any number of times.

    Attributes:
        name: of the agent; the last part of its actor's path.
        model: what its models are by default, "" if it does not say.
        models: every model id that its nodes name.
        needs_default: whether something in it asks a model without naming one.

    Raises:
        UsageError: a variable has no value, or there is none of that name.
        Unsupported: it uses what this version can't run yet.
    """

    def __init__(self, agent: GraphAgent | LoopAgent, variables: Mapping[str, str], compat: str | None) -> None:
        self.name = agent.name
        declared = agent.graph.variables if isinstance(agent, GraphAgent) else agent.agent.variables
        self._values = resolve_variables(agent.name, declared, variables, os.environ)
        self._agent: Agent | None = None
        self._plan: Plan | None = None
        if isinstance(agent, GraphAgent):
            _refuse_what_is_not_there_yet(agent.graph)
            graph = overridden(agent.graph, os.environ)
            self._plan = compile_graph(graph, agent.directory, compat=compat, values=self._values)
            self.models = {node.model for node in graph.nodes.values() if isinstance(node, LlmNode) and node.model}
            self.needs_default = any(_asks(node) and not getattr(node, "model", None) for node in graph.nodes.values())
            self.model = graph.model or ""
        else:
            refuse_what_is_not_there_yet(agent.agent)
            self._agent = overridden(agent.agent, os.environ)
            self.models = set()
            self.needs_default = True
            self.model = self._agent.model or ""

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
            end = await _its_end(me, ref)
        else:
            assert self._agent is not None
            plain = me.spawn(run_plain_agent, self._agent, prompt, self._values, context, name=self.name, link=False)
            end = await _its_end(me, plain)
            result.output = str(end.value or "")
        if end.error is not None:
            crash = RunFailed(f"'{self.name}' crashed: {end.error!r}")
            crash.__cause__ = end.error
            result.error = end.error if isinstance(end.error, CallboardError) else crash
        elif end.reason != "normal":
            result.error = RunFailed(f"'{self.name}' was {end.reason}")
        return result


async def _its_end(me: Actor, ref: Ref[Any]) -> End:
    """Wait for the child's end; whoever is interrupted meanwhile leaves no child behind that works on."""
    try:
        return await ref.wait()
    except trio.Cancelled:
        ref.cancel()
        with me.cleanup():
            await ref.wait()
        raise


def _asks(node: AnyNode) -> bool:
    return isinstance(node, LlmNode) or (isinstance(node, AgentNode) and node.output_schema is not None)


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
