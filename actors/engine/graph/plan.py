"""Executable form of a graph, and the types that a node's executor receives and returns.

A `GraphPlan` holds the executor, timeout and targets of each node; `compile` makes it once, and all runs share it.
`decider` and `run` read nothing else. So a program can build a plan by hand, with any async function as executor:
for another dialect or a benchmark.

An executor receives its `NodeJob` and returns a `NodeResult`, or raises. It does not route, retry, measure time,
write state or emit events: `run` and `decider` do that for all kinds of nodes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ....protocol.chat import ReasoningEffort
from ....protocol.errors import CallboardError
from ....protocol.graph import AnyNode, OwnLimits, Raw, Settings
from ....protocol.permissions import Permissions
from ....protocol.sandbox import Own
from ...work.tools.tool import Tool
from ...work.transcript import Record
from .compat import Compat
from .templates import compile_template

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext
    from ...work.knowledge.recipe import Recipe
    from ...work.mcp.tools.chosen import WantedServers
    from ...work.mcp.tools.view import ServersView
    from ...work.opening_instructions import Wish

ERRORS = "errors"
"""State key in which `on_error: collect` stores failures: a list of `{node, error, code}`."""

State = Mapping[str, Any]
Work = Callable[["Actor", "NodeJob"], Awaitable["NodeResult"]]
"""Executor of a node."""


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """Executable form of one node.

    Attributes:
        work: its executor; None for an end node.
        next: its default targets; None if the file has none.
        fallback: its target after a failure.
        updates: its state updates, None if it has none.
        timeout: seconds for one execution, all attempts included.
        limits: limits for all its executions together.
        tolerant: a failure without `fallback` can continue at `next` (llm and script nodes, by `compat`).
        updates_on_failure: state updates also run, with the error text as output, before its fallback.
        fails_as: the prefix of its error text (`LLM node`).
        output, error: of an end node, the templates of the result and of the run's failure.
        roads: all ids that the file lets it lead to, for `join: all`.
    """

    id: str
    kind: str
    work: Work | None
    node: AnyNode
    next: tuple[str, ...] | None = None
    fallback: str | None = None
    updates: Mapping[str, str | Raw] | None = None
    timeout: float | None = None
    limits: OwnLimits | None = None
    join_all: bool = False
    on_error: str | None = None
    tolerant: bool = False
    updates_on_failure: bool = False
    fails_as: str = ""
    output: str = ""
    error: str = ""
    roads: frozenset[str] = frozenset()


class GraphPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Executable form of a graph."""

    name: str
    start: str
    steps: dict[str, PlanStep]
    directory: Path
    file: str = ""
    """Name of the graph's file, if it has one."""
    compat: Compat
    settings: Settings = Settings()
    initial_state: dict[str, Any] = {}
    reducers: dict[str, str] = {}
    model: str = ""
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: ReasoningEffort | None = None
    thinking_budget: int | None = None
    values: dict[str, str] = {}
    """The variables' values; scripts see them as LLM_AGENT_VAR_<NAME>."""
    max_depth: int | None = None
    tools: Mapping[str, tuple[Tool, ...]] = {}
    """Tools by id of the llm node that lists them."""
    permissions: Permissions = {}
    """The file's permissions for tools."""
    servers: Mapping[str, WantedServers] = {}
    """MCP servers by id of the llm node that lists tools of them."""
    recipes: Mapping[str, Recipe] = {}
    """Knowledge base by id of the rag node."""
    sandbox: Own | None = None
    """The file's sandbox settings for processes."""
    wishes: Mapping[str, Wish] = {}
    """Requested opening instructions by id of the llm node."""


def reachable(plan: GraphPlan, start: str, kinds: Container[str] | None = None) -> frozenset[str]:
    """Return the ids that a lane at `start` can still reach; `start` itself only if it is on a loop.

    With `kinds`, only paths through nodes of these kinds count.
    """
    seen: set[str] = set()
    todo = list(plan.steps[start].roads)
    while todo:
        id = todo.pop()
        if id not in seen and id in plan.steps and (kinds is None or plan.steps[id].kind in kinds):
            seen.add(id)
            todo.extend(plan.steps[id].roads)
    return frozenset(seen)


class NodeJob(msgspec.Struct):
    """Single execution of a node.

    Attributes:
        state: the snapshot that it reads; it must not be modified.
        depth: number of agents above this graph.
        record: transcript of the models' texts in the whole graph.
        item: index of the map item, if it runs for one.
        servers: the graph's MCP servers; None if it uses none.
        accounts: run contexts with limits, by node id.
        failures: receives tolerated failures of this execution, or of runs below it, that the author has not accepted.
    """

    plan: GraphPlan
    node: AnyNode
    state: State
    context: RunContext
    depth: int
    record: Record
    item: int | None
    servers: ServersView | None
    failures: list[CallboardError]
    accounts: dict[str, RunContext]

    def strict(self, text: str) -> str:
        """Render a template; raise `GraphMistake` if the state lacks one of its keys."""
        return compile_template(text).strict(self.state, expand_again=self.plan.compat.values_expand_again)

    def lenient(self, text: str) -> str:
        """Render a template; missing keys render as nothing."""
        return compile_template(text).lenient(self.state, expand_again=self.plan.compat.values_expand_again)


class NodeResult(msgspec.Struct, kw_only=True, gc=False):
    """Result of a node's executor.

    Attributes:
        output: its primary result, `{{output}}` (or `scope`) in its state updates.
        writes: state keys that it sets by itself (a script's keys, the keys of a structured answer).
        goto: its targets, which override `next`.
        scope: the name of `output` in state updates; None for nodes without one.
    """

    output: Any = None
    writes: dict[str, Any] = {}
    goto: tuple[str, ...] | None = None
    scope: str | None = None
