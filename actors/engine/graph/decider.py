"""What a graph decides: super-steps over a plan, as Loki runs them.

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

A decider (`engine/driver`): it gets `NodeLeft` for each node, and answers with the next step once all are in. A node
that was cancelled from outside is left like one that failed: `leave` says where its lane goes.

In a run that was forked a person may have set keys of the state (`StateSet`): nodes that were under way begin again on
it, under the same keys; what they had found out by then, and asked, was about another state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ....protocol.effects import Effect, Emit, Finish, RunNode, SetTimer
from ....protocol.errors import CallboardError, FailedEnd, GraphMistake, TimedOut
from ....protocol.events import NodeEntered, NodeExited, NodeSkipped, StatePatch, StepFinished, StepStarted, Warned
from ....protocol.kernel.messages import Message
from ....protocol.messages import GraphBegun, Interrupted, NodeLeft, StateSet, TimerFired, WorkFailed
from ....protocol.outcome import NodeTime
from . import leave
from .failures import KEPT, together
from .plan import Plan, reachable
from .reducers import changed, merge_writes
from .templates import compile_template, render


class GraphResult(msgspec.Struct, kw_only=True):
    """How a graph ended: its output, or an error; the state up to the last whole step either way.

    Attributes:
        order: ids of the nodes, as they were begun.
        nodes: per node id, visits and seconds.
        timing: per node id, visits, seconds, and those of the longest.
        failures: those that it went on over although the author has not accepted them.
    """

    output: str = ""
    state: dict[str, Any] = {}
    order: list[str] = []
    nodes: dict[str, NodeTime] = {}
    timing: dict[str, tuple[int, float, float]] = {}
    failures: list[CallboardError] = []
    error: CallboardError | None = None


class GraphDecider:
    """One run of one plan.

    Attributes:
        result: filled as it goes, so that it can be read whatever ends the run.
        number: of the super-step, from 1.
        frontier: its nodes.
        snapshot: the state that they work on.
    """

    def __init__(self, plan: Plan, result: GraphResult | None = None) -> None:
        self.heard = True
        self.result = result if result is not None else GraphResult()
        self.plan = plan
        self.frontier: list[str] = [plan.start]
        self.snapshot: dict[str, Any] = {}
        self._waiting: set[str] = set()
        self._visits: dict[str, int] = {}
        self.number = 0
        self._key = 0
        self._running: dict[int, str] = {}
        self._lefts: dict[str, NodeLeft] = {}
        self._reach: dict[str, frozenset[str]] = {}
        self._ends: list[str] = []
        self._joins = any(step.join_all for step in plan.steps.values())

    def begin(self, request: GraphBegun) -> list[Effect]:
        """The first step."""
        plan = self.plan
        self.result.state = {**plan.initial_state, **request.state, "initial_prompt": request.prompt}
        effects: list[Effect] = []
        if plan.settings.timeout is not None:
            effects.append(SetTimer("graph", plan.settings.timeout))
        return self._guarded(effects, self._step)

    def on(self, message: Message) -> list[Effect]:
        """A node was left, or the graph's time is over."""
        if isinstance(message, NodeLeft):
            self._left(message)
            return [] if self._running else self._guarded([], self._next_step)
        if isinstance(message, WorkFailed):
            effects = self._cancelled(message)
            return effects if self._running else self._guarded(effects, self._next_step)
        if isinstance(message, TimerFired):
            limit = self.plan.settings.timeout
            self.result.error = TimedOut(
                f"Graph '{self.plan.name}' timed out after {limit:g}s during super-step with frontier {self.frontier}"
            )
            return [Finish(self.result)]
        if isinstance(message, StateSet):
            return self._set(message)
        if isinstance(message, Interrupted):
            self._timed(self._running.pop(message.key), message.seconds)
        return []

    def remembers(self) -> tuple[object, ...]:
        """See `Decider`."""
        return (self.result, self._lefts)

    def _guarded(self, effects: list[Effect], decide: Any) -> list[Effect]:
        try:
            decide(effects)
        except CallboardError as error:
            self.result.error = error
            effects.append(Finish(self.result))
        return effects

    def _set(self, message: StateSet) -> list[Effect]:
        self.snapshot = self.result.state = {**self.result.state, **message.state}
        return [self._entered(key, id) for key, id in self._running.items()]

    def _entered(self, key: int, id: str) -> RunNode:
        visit = self._visits[id]
        name = id if visit == 1 else f"{id}#{visit}"
        return RunNode(key=key, name=name, node=id, visit=visit, state=self.result.state)

    # --- one step -----------------------------------------------------------------------------------------

    def _step(self, effects: list[Effect]) -> None:
        """Begin the nodes of the frontier; end nodes have nothing to begin."""
        self._enter(effects)
        steps = self.plan.steps
        self._ends = []
        for id in self.frontier:
            if steps[id].kind == "end":
                self._ends.append(id)
            else:
                self._key = key = self._key + 1
                self._running[key] = id
                effects.append(self._entered(key, id))
        if not self._running:
            self._next_step(effects)

    def _next_step(self, effects: list[Effect]) -> None:
        """All nodes of the step were left: merge what they wrote, and go on where they lead."""
        lefts, self._lefts = self._lefts, {}
        self._raise_failures(lefts)
        ends = self._ends
        if len(ends) > 1:  # before anything is merged: a step that fails leaves no trace
            raise GraphMistake(
                f"super-step ended with multiple End targets ({', '.join(sorted(ends))}). "
                "Fan-out branches must converge at a join node before an end node"
            )
        following = self._merge(lefts, effects)
        if ends:
            self._finish(ends[0], following, effects)
            return
        if self.heard:
            effects.append(Emit(StepFinished(step=self.number, next=following)))
        self.frontier = self._release(following, effects) if self._joins else following
        if not self.frontier:
            raise GraphMistake(f"Graph '{self.plan.name}' frontier emptied without reaching an End node")
        self._step(effects)

    def _enter(self, effects: list[Effect]) -> None:
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
        self.number += 1
        self.snapshot = self.result.state
        self.result.order.extend(self.frontier)
        if not self.heard:
            return
        state = self.snapshot
        event = StepStarted(step=self.number, nodes=self.frontier)
        if plan.settings.log_state_snapshots:
            event = StepStarted(step=self.number, nodes=self.frontier, keys=sorted(state), bytes=state_size(state))
        effects.append(Emit(event))

    # --- nodes that were left -----------------------------------------------------------------------------

    def _left(self, message: NodeLeft) -> None:
        id = self._running.pop(message.key)
        self._lefts[id] = message
        if message.unaccepted:
            self.result.failures += [failure.restore() for failure in message.unaccepted]
        self._timed(id, message.seconds)

    def _cancelled(self, message: WorkFailed) -> list[Effect]:
        """A node was interrupted: it is left as its failure says."""
        id = self._running[message.key]
        step, state = self.plan.steps[id], self.result.state
        left, node = leave.cancelled(self.plan, step, state, message, in_map=False)
        self._left(node)
        if not self.heard:
            return []
        return [Emit(event, about=message.key) for event in leave.told(step, left, message.seconds, None)]

    def _raise_failures(self, lefts: dict[str, NodeLeft]) -> None:
        """Raise what failed the run in this step; all of it is named, in the order of the frontier."""
        failures: list[tuple[str, CallboardError]] = []
        for id in self.frontier:
            left = lefts.get(id)
            if left is not None and left.targets is None:
                assert left.failure is not None
                error = left.failure.restore()
                failures.append((f"at node '{id}': {error}", error))
                # All else of the step leaves no trace. A graph above has no use for it.
                self.result.state = {**self.result.state, **error.__dict__.pop(KEPT, {})}
        if failures:
            raise together(failures)

    def _timed(self, id: str, seconds: float) -> None:
        visits, total, longest = self.result.timing.get(id, (0, 0.0, 0.0))
        self.result.timing[id] = (visits + 1, total + seconds, max(longest, seconds))
        time = self.result.nodes.get(id)
        if time is None:
            time = self.result.nodes[id] = NodeTime()
        time.visits += 1
        time.seconds += seconds

    def _merge(self, lefts: dict[str, NodeLeft], effects: list[Effect]) -> list[str]:
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
            if self.heard:
                effects.append(Emit(StatePatch(keys=sorted(set().union(*writes.values())))))
        return list(following)

    # --- lanes that wait, lanes that end ------------------------------------------------------------------

    def _release(self, following: list[str], effects: list[Effect]) -> list[str]:
        """The next frontier: `following` and those that waited, without the joins that others may still reach."""
        steps = self.plan.steps
        here = list(dict.fromkeys([*following, *sorted(self._waiting)])) if self._waiting else following
        joins = [id for id in here if id in steps and steps[id].join_all]
        if not joins:
            return here
        moving = [id for id in here if id not in joins]
        held = [id for id in joins if self._must_wait(id, moving, joins)]
        effects += [
            Emit(NodeSkipped(node=id, reason="waits for the other lanes (join: all)"))
            for id in held
            if id not in self._waiting
        ]
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

    def _finish(self, id: str, following: list[str], effects: list[Effect]) -> None:
        end = self.plan.steps[id]
        effects.append(Emit(NodeEntered(node=end.id, type="end", visit=self._visits[end.id])))
        dropped = sorted({*following, *self._waiting})
        if dropped and not self.plan.compat.end_drops_lanes:
            message = f"'{end.id}' ended the graph while other lanes were on their way to: {', '.join(dropped)}"
            effects.append(Emit(Warned(code="lanes_dropped", message=message, node=end.id)))
            effects += [Emit(NodeSkipped(node=id, reason=f"'{end.id}' ended the graph")) for id in dropped]
        state = self.result.state
        if end.updates:
            writes: dict[str, Any] = {}
            leave.apply_updates(end.updates, state, writes, None, None, self.plan.compat)
            state = self.result.state = {**state, **writes}
        again = self.plan.compat.values_expand_again
        self.result.output = compile_template(end.output).lenient(state, expand_again=again)
        if end.error and (error := compile_template(end.error).lenient(state, expand_again=again).strip()):
            self.result.error = FailedEnd(error).at(end.id)
        self.result.nodes.setdefault(end.id, NodeTime()).visits += 1
        effects.append(Emit(NodeExited(node=end.id, seconds=0.0)))
        effects.append(Finish(self.result))


def state_size(state: Mapping[str, Any]) -> int:
    """Bytes of the state as JSON."""
    return len(render(dict(state)).encode())
