"""Compilation of a parsed `graph.yaml` into an executable `GraphPlan`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ....protocol.graph import (
    AgentNode,
    AnyNode,
    ApprovalNode,
    EndNode,
    Graph,
    InputNode,
    LlmNode,
    MapNode,
    OwnLimits,
    RagNode,
    ScriptNode,
)
from ...work.tools.tool import Tool
from .compat import MODES, Compat
from .edges import edges_of
from .nodes import WORK
from .plan import ERRORS, GraphPlan, PlanStep

if TYPE_CHECKING:
    from ...work.knowledge.recipe import Recipe
    from ...work.mcp.tools.chosen import WantedServers
    from ...work.opening_instructions import Wish


def compile_graph(
    graph: Graph,
    directory: Path,
    *,
    compat: str | None = None,
    values: Mapping[str, str],
    tools: Mapping[str, tuple[Tool, ...]] | None = None,
    servers: Mapping[str, WantedServers] | None = None,
    recipes: Mapping[str, Recipe] | None = None,
    wishes: Mapping[str, Wish] | None = None,
    compiled: dict[str, dict[str, PlanStep]],
) -> GraphPlan:
    """Return the plan of a graph.

    Args:
        graph: parsed and validated.
        directory: the agent's directory, to which its scripts are relative.
        compat: `standard` or `loki`; None for the file's own setting.
        values: the variables' values.
        tools: tools by id of the llm node that lists them.
        servers: MCP servers by id of the llm node that lists tools of them.
        recipes: knowledge base by id of the rag node.
        wishes: requested opening instructions by id of the llm node.
        compiled: cache of compiled nodes by compatibility mode; updated here.
    """
    mode = compat or graph.settings.compat
    rules = MODES[mode]
    if mode not in compiled:
        # Steps depend on the file and the mode only, so later runs reuse them.
        compiled[mode] = {id: _step(id, node, rules) for id, node in graph.nodes.items()}
    reducers: dict[str, str] = {**graph.reducers}
    if any(node.on_error == "collect" for node in graph.nodes.values()):
        # Several nodes can fail in one super-step, and two writers without a reducer would be a mistake of the graph.
        reducers.setdefault(ERRORS, "extend")
    return GraphPlan(
        name=graph.name,
        start=graph.start,
        steps=compiled[mode],
        directory=directory,
        file=Path(graph.source.file).name,
        compat=rules,
        settings=graph.settings,
        initial_state=graph.initial_state,
        reducers=reducers,
        model=graph.model or "",
        temperature=graph.temperature,
        top_p=graph.top_p,
        reasoning_effort=graph.reasoning_effort,
        thinking_budget=graph.thinking_budget,
        values=dict(values),
        max_depth=graph.max_agent_depth,
        tools=tools or {},
        permissions=graph.permissions,
        servers=servers or {},
        recipes=recipes or {},
        wishes=wishes or {},
        sandbox=graph.sandbox,
    )


def _step(id: str, node: AnyNode, compat: Compat) -> PlanStep:
    fallback = getattr(node, "fallback", None)
    return PlanStep(
        id=id,
        kind=node.kind,
        work=WORK.get(node.kind),
        node=node,
        next=node.next,
        fallback=fallback,
        updates=node.state_updates,
        timeout=_timeout(node),
        limits=getattr(node, "limits", None),
        join_all=node.join == "all",
        on_error=node.on_error,
        tolerant=compat.failure_goes_to_next and isinstance(node, LlmNode | ScriptNode),
        updates_on_failure=isinstance(node, LlmNode | AgentNode),
        fails_as=_FAILS_AS.get(type(node), ""),
        output=node.output if isinstance(node, EndNode) else "",
        error=node.error if isinstance(node, EndNode) else "",
        # A map's branch returns to its map, so no lane leaves the map through it.
        roads=frozenset(edge.target for edge in edges_of(node) if edge.via != "branch"),
    )


def _timeout(node: AnyNode) -> float | None:
    """Return the seconds for one execution, or None; questions have a timeout of their own."""
    own: float | None = None if isinstance(node, ApprovalNode | InputNode) else getattr(node, "timeout", None)
    limits: OwnLimits | None = getattr(node, "limits", None)
    if limits is None or limits.timeout is None:
        return own
    return limits.timeout if own is None else min(own, limits.timeout)


_FAILS_AS: dict[type[AnyNode], str] = {
    LlmNode: "LLM node",
    AgentNode: "Agent node",
    RagNode: "rag node",
    MapNode: "map node",
}
