"""An agent made ready to work: variables resolved, tools found, graph compiled, what can't be run yet refused.

The same for the agent that the user named and for those that other agents call (`children`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.errors import CallboardError, InvalidFile, RunFailed, Unsupported
from ...protocol.graph import AgentNode, AnyNode, Graph, LlmNode, RagNode
from ..agent.agent import Cast, refuse_what_is_not_there_yet, run_agent
from ..agent.record import Record
from ..agent.user import user_tools
from ..graph.compile import compile_graph
from ..graph.plan import Plan
from ..graph.scheduler import GraphResult, run_graph
from ..tools.of_agent import tools_of_agent
from ..tools.tool import Tool
from ..variables import overridden, resolve_variables
from .target import GraphAgent, LoopAgent

if TYPE_CHECKING:
    from ...supervisors import Actor, End, Ref
    from ..agent.mail import Seat
    from ..context import RunContext


class Prepared:
    """An agent, ready to be played any number of times.

    Attributes:
        name: of the agent; the last part of its actor's path.
        model: what its models are by default, "" if it does not say.
        models: every model id that its nodes name.
        needs_default: whether something in it asks a model without naming one.
        tool_names: what its models may call, the families aside.

    Raises:
        UsageError: a variable has no value, or there is none of that name.
        InvalidFile: a tool file has errors, or a node lists a tool that is not there.
        Unsupported: it uses what this version can't run yet.
    """

    def __init__(
        self, agent: GraphAgent | LoopAgent, variables: Mapping[str, str], compat: str | None, context: RunContext
    ) -> None:
        self.name = agent.name
        declared = agent.graph.variables if isinstance(agent, GraphAgent) else agent.agent.variables
        values = resolve_variables(agent.name, declared, variables, os.environ)
        self._cast: Cast | None = None
        self._plan: Plan | None = None
        if isinstance(agent, GraphAgent):
            _refuse_what_is_not_there_yet(agent.graph)
            graph = overridden(agent.graph, os.environ)
            if context.shelf is not None and graph.permissions:
                graph = msgspec.structs.replace(graph, permissions=context.shelf.permissions(graph.permissions))
            tools = _tools_of_nodes(agent, values, context)
            self.tool_names = {tool.name for found in tools.values() for tool in found}
            self._plan = compile_graph(graph, agent.directory, compat=compat, values=values, tools=tools)
            self.models = {node.model for node in graph.nodes.values() if isinstance(node, LlmNode) and node.model}
            self.needs_default = any(_asks(node) and not getattr(node, "model", None) for node in graph.nodes.values())
            self.model = graph.model or ""
        else:
            settled = overridden(agent.agent, os.environ)
            refuse_what_is_not_there_yet(settled)
            found = tools_of_agent(
                context,
                name=agent.name,
                directory=agent.directory,
                listed=settled.global_tools,
                values=values,
                timeout=settled.tool_timeout,
            )
            self.tool_names = set(found.tools)
            self._cast = Cast(agent=settled, directory=agent.directory, values=values, tools=found)
            self.models = {settled.summarization_model} if settled.summarization_model else set()
            self.needs_default = True
            self.model = settled.model or ""

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
        record: Record | None = None,
        seat: Seat | None = None,
        escalation_timeout: float | None = None,
    ) -> GraphResult:
        """Run it as a child of `me` and wait for its end; what went wrong is the result's `error`."""
        result = result if result is not None else GraphResult()
        record = record if record is not None else Record()
        if self._plan is not None:
            arguments = (self._plan, prompt, context, depth, state, result, record)
            ref = me.spawn(run_graph, *arguments, name=self.name, link=False)
            end = await _its_end(me, ref)
        else:
            assert self._cast is not None
            body = (self._cast, prompt, context, depth, record, seat, escalation_timeout)
            loop = me.spawn(run_agent, *body, name=self.name, link=False)
            end = await _its_end(me, loop)
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
        if isinstance(node, LlmNode) and (node.mcp_tools or any(name.startswith(_MCP) for name in node.tools)):
            raise Unsupported(
                f"'{graph.name}' can't be run yet: node '{node.id}' lists MCP tools, and this version does not "
                "talk to MCP servers"
            )
        if isinstance(node, LlmNode) and any(name.startswith("agent__") for name in node.tools):
            raise Unsupported(
                f"'{graph.name}' can't be run: node '{node.id}' lists tools that spawn agents, which llm nodes can't "
                "do; use an agent node, or an agent with `can_spawn_agents`"
            )


_MCP = ("mcp:", "mcp_search_", "mcp_describe_", "mcp_invoke_")


def _tools_of_nodes(agent: GraphAgent, values: Mapping[str, str], context: RunContext) -> dict[str, tuple[Tool, ...]]:
    """Per llm node that lists tools, those tools.

    Raises:
        InvalidFile: a tool file has errors, or a node lists a tool that is not there.
    """
    graph = agent.graph
    nodes = [node for node in graph.nodes.values() if isinstance(node, LlmNode) and node.tools]
    if not nodes:
        return {}
    found = tools_of_agent(
        context, name=agent.name, directory=agent.directory, listed=graph.global_tools, values=values
    )
    there = {**{tool.name: tool for tool in user_tools(timeout=None)}, **found.tools}
    chosen: dict[str, tuple[Tool, ...]] = {}
    for node in nodes:
        names = context.shelf.spelled_out(node.tools) if context.shelf is not None else node.tools
        strange = [name for name in names if name not in there]
        if strange:
            raise InvalidFile(
                f"{agent.file}: llm node '{node.id}' references unknown tool '{strange[0]}'; the agent's tools are: "
                f"{', '.join(found.tools) or 'none'}. Add it to `global_tools`, or define it in a tools file beside "
                "the graph."
            )
        chosen[node.id] = tuple(there[name] for name in names)
    return chosen
