"""The scheduler: super-steps over a plan, as Loki runs them, with every node execution an actor.

    frontier = [start]
    until an end node is reached:
        take a snapshot of the state
        run all nodes of the frontier together on it, each as a child actor
        merge what they wrote, in the alphabetical order of their ids, through the reducers
        the frontier is where they go

A step is all or nothing: if one of its nodes fails the run, nothing of the step is merged; the others are let
finish first. The frontier is a set, so lanes that meet in one step run their common node once. Lanes of
different length meet twice, unless the node says `join: all`: it is then held back until no other lane can
still come to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.errors import CallboardError, GraphMistake, NodeFailed, TimedOut
from ....protocol.events import (
    GraphFinished,
    GraphStarted,
    NodeEntered,
    NodeExited,
    NodeSkipped,
    StatePatch,
    StepFinished,
    StepStarted,
    Warned,
)
from ....protocol.outcome import NodeTime
from ...work.record import Record
from .execute import Left, execute
from .failures import ended_with, together
from .logs import log_snapshot, log_summary, state_size
from .plan import Job, Plan, reachable
from .reducers import changed, merge_writes
from .templates import compile_template
from .together import run_together
from .updates import apply_updates

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...work.context import RunContext
    from ...work.mcp.tools.offer import AgentServers


class GraphResult(msgspec.Struct, kw_only=True):
    """How a graph ended: its output, or an error; the state up to the last whole step either way."""

    output: str = ""
    state: dict[str, Any] = {}
    order: list[str] = []
    nodes: dict[str, NodeTime] = {}
    error: CallboardError | None = None


async def run_graph(
    me: Actor,
    plan: Plan,
    prompt: str,
    context: RunContext,
    depth: int = 0,
    state: dict[str, Any] | None = None,
    result: GraphResult | None = None,
    record: Record | None = None,
) -> GraphResult:
    """Body of a graph's actor.

    Args:
        plan: what to run.
        prompt: becomes `initial_prompt`.
        context: the run.
        depth: how many agents stand above it.
        state: keys that replace those of `initial_state`.
        result: filled while the graph runs, so that it can be read even if this actor is cancelled.
        record: where its models' texts are written down, for the same reason.
    """
    result = result if result is not None else GraphResult()
    result.state = {**plan.initial_state, **(state or {}), "initial_prompt": prompt}
    with _servers(me, plan, context) as servers:
        return await _run(me, plan, GraphRun(me, plan, context, depth, result, record or Record(), servers), depth)


@contextlib.contextmanager
def _servers(me: Actor, plan: Plan, context: RunContext) -> Iterator[AgentServers | None]:
    """What the graph has of MCP servers while it runs."""
    if not plan.servers:
        yield None
        return
    from ...work.mcp.tools.offer import servers_at_work

    with servers_at_work(me, context, own=plan.permissions, model=plan.model) as servers:
        yield servers


async def _run(me: Actor, plan: Plan, run: GraphRun, depth: int) -> GraphResult:
    began = trio.current_time()
    if me.stream.heard:
        me.emit(GraphStarted(graph=plan.name, start=plan.start, depth=depth))
    limit = plan.settings.timeout
    try:
        with trio.move_on_after(float("inf") if limit is None else limit) as clock:
            await run.to_the_end()
        if clock.cancelled_caught:
            run.result.error = TimedOut(
                f"Graph '{plan.name}' timed out after {limit:g}s during super-step with frontier {run.frontier}"
            )
    except CallboardError as error:
        run.result.error = error
    log_summary(plan.name, run.timing)
    if me.stream.heard:
        seconds, ended = trio.current_time() - began, ended_with(run.failures, run.result.error)
        me.emit(
            GraphFinished(
                graph=plan.name,
                seconds=seconds,
                depth=depth,
                timing=dict(run.timing),
                error=None if ended is None else str(ended),
                code="" if ended is None else ended.code,
            )
        )
    return run.result


class GraphRun:
    """One run of one plan. State has one owner: this object, in the graph's own task."""

    def __init__(
        self,
        me: Actor,
        plan: Plan,
        context: RunContext,
        depth: int,
        result: GraphResult,
        record: Record,
        servers: AgentServers | None,
    ) -> None:
        self.plan = plan
        self.result = result
        self.failures = record.failures
        self._record = record
        self.frontier: list[str] = [plan.start]
        self.timing: dict[str, tuple[int, float, float]] = {}
        self._me = me
        self._context = context
        self._depth = depth
        self._servers = servers
        self._waiting: set[str] = set()
        self._visits: dict[str, int] = {}
        self._number = 0
        self._reach: dict[str, frozenset[str]] = {}

    async def to_the_end(self) -> None:
        """Step after step until an end node is reached or something fails."""
        while True:
            self._enter()
            ends = [id for id in self.frontier if self.plan.steps[id].kind == "end"]
            lefts = await self._run_frontier()
            if len(ends) > 1:  # before anything is merged: a step that fails leaves no trace
                raise GraphMistake(
                    f"super-step ended with multiple End targets ({', '.join(sorted(ends))}). "
                    "Fan-out branches must converge at a join node before an end node"
                )
            following = self._merge(lefts)
            if ends:
                self._finish(ends[0], following)
                return
            if self._me.stream.heard:
                self._me.emit(StepFinished(step=self._number, next=following))
            self.frontier = self._release(following)
            if not self.frontier:
                raise GraphMistake(f"Graph '{self.plan.name}' frontier emptied without reaching an End node")

    # --- one step -----------------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Check the frontier and count its visits."""
        plan = self.plan
        unknown = [id for id in self.frontier if id not in plan.steps]
        if unknown:
            names = ", ".join(f"'{id}'" for id in unknown)
            kinds = "Node" if len(unknown) == 1 else "Nodes"
            raise GraphMistake(f"{kinds} {names} not found in graph '{plan.name}'")
        cap = plan.settings.max_loop_iterations
        capped = cap > 0 or plan.compat.zero_visits_is_a_cap
        looping: list[str] = []
        for id in self.frontier:
            visits = self._visits[id] = self._visits.get(id, 0) + 1
            if capped and visits > cap:
                looping.append(
                    f"Node '{id}' visited {visits} times (max_loop_iterations={cap}). Possible infinite loop."
                )
        if looping:
            raise GraphMistake("\n".join(looping))
        self._number += 1
        self.result.order.extend(self.frontier)
        self._announce()

    def _announce(self) -> None:
        state, snapshots = self.result.state, self.plan.settings.log_state_snapshots
        if snapshots:
            log_snapshot(self.plan.name, self._number, self.frontier, state)
        if not self._me.stream.heard:
            return
        if snapshots:
            event = StepStarted(step=self._number, nodes=self.frontier, keys=sorted(state), bytes=state_size(state))
        else:
            event = StepStarted(step=self._number, nodes=self.frontier)
        self._me.emit(event)

    async def _run_frontier(self) -> dict[str, Left]:
        """Run every node of the frontier; how each was left, by id.

        Raises:
            CallboardError: nodes failed; all of them are named.
        """
        plan, snapshot = self.plan, self.result.state
        launches = []
        for id in self.frontier:
            step, visit = plan.steps[id], self._visits[id]
            if step.kind != "end":
                job = Job(plan, step.node, snapshot, self._context, self._depth, self._record, servers=self._servers)
                name = id if visit == 1 else f"{id}#{visit}"
                launches.append((name, execute, (step, job, visit, self._timed)))
        if not launches:
            await trio.lowlevel.checkpoint()
            return {}
        ends = await run_together(self._me, launches, plan.settings.max_concurrency)
        lefts: dict[str, Left] = {}
        failures: list[tuple[str, CallboardError]] = []
        for (_, _, (step, *_)), end in zip(launches, ends, strict=True):
            error: CallboardError | None
            if end.reason == "normal":
                left = lefts[step.id] = end.value
                error = left.error if left.targets is None else None
            else:
                error = NodeFailed(f"it was {end.reason}").at(step.id)
            if error is not None:
                failures.append((f"at node '{step.id}': {error}", error))
        if failures:
            raise together(failures)
        return lefts

    def _timed(self, id: str, seconds: float) -> None:
        visits, total, longest = self.timing.get(id, (0, 0.0, 0.0))
        self.timing[id] = (visits + 1, total + seconds, max(longest, seconds))
        time = self.result.nodes.get(id)
        if time is None:
            time = self.result.nodes[id] = NodeTime()
        time.visits += 1
        time.seconds += seconds

    def _merge(self, lefts: dict[str, Left]) -> list[str]:
        """Merge the step's writes; returns where the lanes go, each id once."""
        state = self.result.state
        writes: dict[str, dict[str, Any]] = {}
        following: dict[str, None] = {}
        for id in sorted(lefts):
            left = lefts[id]
            if left.writes:
                mine = changed(state, left.writes)
                if mine:
                    writes[id] = mine
            for target in left.targets or ():
                following[target] = None
        if writes:
            self.result.state = merge_writes(state, writes, self.plan.reducers)
            if self._me.stream.heard:
                self._me.emit(StatePatch(keys=sorted(set().union(*writes.values()))))
        return list(following)

    # --- lanes that wait, lanes that end ------------------------------------------------------------------

    def _release(self, following: list[str]) -> list[str]:
        """The next frontier: `following` and those that waited, without the joins that others may still reach."""
        steps = self.plan.steps
        here = list(dict.fromkeys([*following, *sorted(self._waiting)])) if self._waiting else following
        joins = [id for id in here if id in steps and steps[id].join_all]
        if not joins:
            return here
        moving = [id for id in here if id not in joins]
        held = [id for id in joins if self._must_wait(id, moving, joins)]
        for id in held:
            if id not in self._waiting:
                self._me.emit(NodeSkipped(node=id, reason="waits for the other lanes (join: all)"))
        self._waiting = set(held)
        return [id for id in here if id not in self._waiting]

    def _must_wait(self, join: str, moving: list[str], joins: list[str]) -> bool:
        if self.plan.steps[join].kind == "end":
            return bool(moving) or any(other != join and self.plan.steps[other].kind != "end" for other in joins)
        if any(id in self.plan.steps and join in self._reachable(id) for id in moving):
            return True
        # Of two joins, the one that leads to the other goes first; in a circle the first by name does.
        return any(
            other != join and join in self._reachable(other) and (other not in self._reachable(join) or other < join)
            for other in joins
        )

    def _reachable(self, id: str) -> frozenset[str]:
        if id not in self._reach:
            self._reach[id] = reachable(self.plan, id)
        return self._reach[id]

    def _finish(self, id: str, following: list[str]) -> None:
        """An end node was reached."""
        end = self.plan.steps[id]
        self._me.emit(NodeEntered(node=end.id, type="end", visit=self._visits[end.id]))
        dropped = sorted({*following, *self._waiting})
        if dropped and not self.plan.compat.end_drops_lanes:
            message = f"'{end.id}' ended the graph while other lanes were on their way to: {', '.join(dropped)}"
            self._me.emit(Warned(code="lanes_dropped", message=message, node=end.id))
            for id in dropped:
                self._me.emit(NodeSkipped(node=id, reason=f"'{end.id}' ended the graph"))
        state = self.result.state
        if end.updates:
            writes: dict[str, Any] = {}
            apply_updates(end.updates, state, writes, None, None, self.plan.compat)
            state = self.result.state = {**state, **writes}
        template = compile_template(end.output)
        self.result.output = template.lenient(state, expand_again=self.plan.compat.values_expand_again)
        self.result.nodes.setdefault(end.id, NodeTime()).visits += 1
        self._me.emit(NodeExited(node=end.id, seconds=0.0))
