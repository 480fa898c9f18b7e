"""A graph made ready to run: per node its work, its time, its ways out. Compiled once, shared by all runs.

The scheduler and `execute` read nothing but plans. A plan can be made from a `graph.yaml` (`compile_graph`), or by
hand with any async function as a node's work: another dialect, a benchmark, a program of one's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.graph.model import (
    AgentNode,
    AnyNode,
    ApprovalNode,
    EndNode,
    Graph,
    InputNode,
    LlmNode,
    MapNode,
    RagNode,
    Raw,
    ScriptNode,
    Settings,
    Variable,
)
from .compat import MODES, Compat
from .edges import edges_of
from .job import Job, Result

if TYPE_CHECKING:
    from ...supervisors import Actor

ERRORS = "errors"
"""State key in which `on_error: collect` keeps what failed: a list of `{node, error, code}`."""

Work = Callable[["Actor", Job], Awaitable[Result]]
"""A node's own code."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as the scheduler sees it.

    Attributes:
        work: what it does; None for an end node.
        next: where it goes by itself; None if it says nothing.
        fallback: where it goes when it fails.
        updates: its state updates, None if it has none.
        timeout: seconds for one execution, all tries included.
        tolerant: a failure without `fallback` may go to `next` (llm and script nodes, by `compat`).
        updates_on_failure: whether state updates run with the error text as output when it fails to its fallback.
        fails_as: what its error text calls it (`LLM node`).
        routed: its work decides where to go, so it needs no `next` (approval).
        roads: all ids it may go to as far as the file says, for `join: all`.
    """

    id: str
    kind: str
    work: Work | None
    node: AnyNode
    next: tuple[str, ...] | None = None
    fallback: str | None = None
    updates: Mapping[str, str | Raw] | None = None
    timeout: float | None = None
    join_all: bool = False
    on_error: str | None = None
    tolerant: bool = False
    updates_on_failure: bool = False
    fails_as: str = ""
    routed: bool = False
    output: str = ""
    roads: frozenset[str] = frozenset()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A graph, ready to run."""

    name: str
    start: str
    steps: dict[str, Step]
    directory: Path
    compat: Compat
    settings: Settings = Settings()
    initial_state: dict[str, Any] = {}
    reducers: dict[str, str] = {}
    model: str = ""
    temperature: float | None = None
    top_p: float | None = None
    variables: tuple[Variable, ...] = ()
    values: dict[str, str] = {}
    """The variables' values; scripts see them as LLM_AGENT_VAR_<NAME>."""
    max_depth: int | None = None


def compile_graph(graph: Graph, directory: Path, *, compat: str | None = None, values: Mapping[str, str]) -> Plan:
    """A plan of a `graph.yaml`.

    Args:
        graph: as read and validated.
        directory: the agent's directory, to which its scripts are relative.
        compat: `standard` or `loki`; None for what the file says.
        values: the variables' values.
    """
    rules = MODES[compat or graph.settings.compat]
    reducers: dict[str, str] = {**graph.reducers}
    if any(node.on_error == "collect" for node in graph.nodes.values()):
        reducers.setdefault(ERRORS, "extend")
    return Plan(
        name=graph.name,
        start=graph.start,
        steps={id: _step(id, node, rules) for id, node in graph.nodes.items()},
        directory=directory,
        compat=rules,
        settings=graph.settings,
        initial_state=graph.initial_state,
        reducers=reducers,
        model=graph.model or "",
        temperature=graph.temperature,
        top_p=graph.top_p,
        variables=graph.variables,
        values=dict(values),
        max_depth=graph.max_agent_depth,
    )


def _step(id: str, node: AnyNode, compat: Compat) -> Step:
    from .nodes import WORK

    fallback = getattr(node, "fallback", None)
    return Step(
        id=id,
        kind=node.kind,
        work=WORK.get(node.kind),
        node=node,
        next=node.next,
        fallback=fallback,
        updates=node.state_updates,
        timeout=None if isinstance(node, ApprovalNode | InputNode) else getattr(node, "timeout", None),
        join_all=node.join == "all",
        on_error=node.on_error,
        tolerant=compat.failure_goes_to_next and isinstance(node, LlmNode | ScriptNode),
        updates_on_failure=isinstance(node, LlmNode | AgentNode),
        fails_as=_FAILS_AS.get(type(node), ""),
        routed=isinstance(node, ApprovalNode),
        output=node.output if isinstance(node, EndNode) else "",
        roads=frozenset(edge.target for edge in edges_of(node) if edge.via != "branch"),
    )


_FAILS_AS: dict[type[AnyNode], str] = {
    LlmNode: "LLM node",
    AgentNode: "Agent node",
    RagNode: "rag node",
    MapNode: "map node",
}


def reachable(plan: Plan, start: str) -> frozenset[str]:
    """Ids of the nodes that a lane standing at `start` may still come to, `start` itself left out unless it loops."""
    seen: set[str] = set()
    todo = list(plan.steps[start].roads)
    while todo:
        id = todo.pop()
        if id not in seen and id in plan.steps:
            seen.add(id)
            todo.extend(plan.steps[id].roads)
    return frozenset(seen)
