"""A graph made ready to run, and what passes between a node's own work and the decider.

A `Plan` holds per node its work, its time, its ways out; it is compiled once (`compile`) and shared by all runs.
`decider` and `run` read nothing else, so a plan can as well be made by hand with any async function as a node's work:
another dialect, a benchmark, a program of one's own.

A node's code knows its `Job` and returns a `Result`, or raises. It does not route, retry, time itself, write state
or emit events: `run` and `decider` do that, once for all kinds of nodes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ....protocol.chat import ReasoningEffort
from ....protocol.errors import CallboardError
from ....protocol.graph.model import AnyNode, OwnLimits, Raw, Settings
from ....protocol.permissions import Permissions
from ....protocol.sandbox import Own
from ...work.record import Record
from ...work.tools.tool import Tool
from .compat import Compat
from .templates import compile_template

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext
    from ...work.knowledge.recipe import Recipe
    from ...work.mcp.tools.chosen import Wanted
    from ...work.mcp.tools.view import Talk
    from ...work.told import Wish

ERRORS = "errors"
"""State key in which `on_error: collect` keeps what failed: a list of `{node, error, code}`."""

State = Mapping[str, Any]
Work = Callable[["Actor", "Job"], Awaitable["Result"]]
"""A node's own code."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as the scheduler sees it.

    Attributes:
        work: what it does; None for an end node.
        next: where it goes by itself; None if it says nothing.
        fallback: where it goes when it fails.
        updates: its state updates, None if it has none.
        timeout: seconds for one execution, all tries included.
        limits: what all its executions may use together.
        tolerant: a failure without `fallback` may go to `next` (llm and script nodes, by `compat`).
        updates_on_failure: whether state updates run with the error text as output when it fails to its fallback.
        fails_as: what its error text calls it (`LLM node`).
        output, error: of an end node, the templates of its result and of what the run has failed with.
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
    limits: OwnLimits | None = None
    join_all: bool = False
    on_error: str | None = None
    tolerant: bool = False
    updates_on_failure: bool = False
    fails_as: str = ""
    output: str = ""
    error: str = ""
    roads: frozenset[str] = frozenset()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A graph, ready to run."""

    name: str
    start: str
    steps: dict[str, Step]
    directory: Path
    file: str = ""
    """That of the graph, where it has one."""
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
    """Per llm node that lists some, its tools."""
    permissions: Permissions = {}
    """What the file says about its tools."""
    servers: Mapping[str, Wanted] = {}
    """Per llm node that lists tools of MCP servers, which."""
    recipes: Mapping[str, Recipe] = {}
    """Per rag node, what it looks things up in."""
    sandbox: Own | None = None
    """What the file says of its processes."""
    wishes: Mapping[str, Wish] = {}
    """Per llm node that wants something of the run's directory, what."""


def reachable(plan: Plan, start: str, kinds: Container[str] | None = None) -> frozenset[str]:
    """Ids of the nodes that a lane standing at `start` may still come to, `start` itself left out unless it loops.

    With `kinds`, only through nodes of these kinds.
    """
    seen: set[str] = set()
    todo = list(plan.steps[start].roads)
    while todo:
        id = todo.pop()
        if id not in seen and id in plan.steps and (kinds is None or plan.steps[id].kind in kinds):
            seen.add(id)
            todo.extend(plan.steps[id].roads)
    return frozenset(seen)


class Job(msgspec.Struct):
    """One execution of one node.

    Attributes:
        state: the snapshot it works on; never written to.
        depth: how many agents stand above this graph.
        record: where the models' texts of the whole graph are written down.
        item: its index, if it runs for an item of a map.
        servers: what the graph has of MCP servers; None if it uses none.
        accounts: the run as the nodes of the graph see it that have limits, by their ids.
        failures: where failures go that this execution, or what it plays, goes on over without the author's word.
    """

    plan: Plan
    node: AnyNode
    state: State
    context: RunContext
    depth: int
    record: Record
    item: int | None
    servers: Talk | None
    failures: list[CallboardError]
    accounts: dict[str, RunContext]

    def strict(self, text: str) -> str:
        """Render a template that must find every key it names, else the graph is wrong (`GraphMistake`)."""
        return compile_template(text).strict(self.state, expand_again=self.plan.compat.values_expand_again)

    def lenient(self, text: str) -> str:
        """Render a template in which missing keys are empty."""
        return compile_template(text).lenient(self.state, expand_again=self.plan.compat.values_expand_again)


class Result(msgspec.Struct, kw_only=True, gc=False):
    """What a node's work came to.

    Attributes:
        output: its primary result, `{{output}}` (or `scope`) in its state updates.
        writes: state keys that it sets by itself (a script's keys, the keys of a structured answer).
        goto: where it wants to go, whatever `next` says.
        scope: the name under which state updates see `output`; None for nodes that have none.
    """

    output: Any = None
    writes: dict[str, Any] = {}
    goto: tuple[str, ...] | None = None
    scope: str | None = None
