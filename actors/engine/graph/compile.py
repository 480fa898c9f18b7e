"""From a `graph.yaml` that was read to a `Plan` that can be run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ....protocol.graph.model import (
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
from .plan import ERRORS, Plan, Step

if TYPE_CHECKING:
    from ...work.knowledge.recipe import Recipe
    from ...work.mcp.tools.chosen import Wanted
    from ...work.told import Wish


def compile_graph(
    graph: Graph,
    directory: Path,
    *,
    compat: str | None = None,
    values: Mapping[str, str],
    tools: Mapping[str, tuple[Tool, ...]] | None = None,
    servers: Mapping[str, Wanted] | None = None,
    recipes: Mapping[str, Recipe] | None = None,
    wishes: Mapping[str, Wish] | None = None,
    compiled: dict[str, dict[str, Step]],
) -> Plan:
    """A plan of a `graph.yaml`.

    Args:
        graph: as read and validated.
        directory: the agent's directory, to which its scripts are relative.
        compat: `standard` or `loki`; None for what the file says.
        values: the variables' values.
        tools: per llm node that lists some, its tools.
        servers: per llm node that lists tools of MCP servers, which.
        recipes: per rag node, what it looks things up in.
        wishes: per llm node that wants something of the run's directory, what.
        compiled: per dialect, the nodes of this graph as they were compiled before; filled here.
    """
    mode = compat or graph.settings.compat
    rules = MODES[mode]
    if mode not in compiled:
        compiled[mode] = {id: _step(id, node, rules) for id, node in graph.nodes.items()}
    reducers: dict[str, str] = {**graph.reducers}
    if any(node.on_error == "collect" for node in graph.nodes.values()):
        reducers.setdefault(ERRORS, "extend")
    return Plan(
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


def _step(id: str, node: AnyNode, compat: Compat) -> Step:
    fallback = getattr(node, "fallback", None)
    return Step(
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
        roads=frozenset(edge.target for edge in edges_of(node) if edge.via != "branch"),
    )


def _timeout(node: AnyNode) -> float | None:
    """Seconds for one execution; those of a question are its own business."""
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
