"""Graph decider: super-steps over a plan, as Loki executes them.

    frontier = [start]
    until an end node is reached:
        take a snapshot of the state
        run all nodes of the frontier concurrently on it, each as a child actor
        merge their writes through the reducers, in the alphabetical order of the node ids
        the new frontier is the set of their targets

A super-step is atomic: if one of its nodes fails the run, the step merges nothing, after its other nodes have
ended. The frontier is a set, so lanes that meet in one super-step run their common node once. Lanes of different
length run it once each, unless the node has `join: all`. Such a node waits until no other lane can still reach it.

The decider (`engine/driver`) receives `NodeDone` for each node and returns the next super-step after the last one.
A node that was cancelled from outside counts as failed: `node_exit` selects its targets.

In a forked run a user may have changed keys of the state (`StateSet`). Nodes that were running then start again on
the new state, under the same keys. Their earlier notes and questions belong to the old state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....protocol.effects import Effect, Emit, Finish, RunNode, SetTimer
from ....protocol.errors import CallboardError, FailedEnd, GraphMistake, TimedOut
from ....protocol.events import NodeEntered, NodeExited, NodeSkipped, StatePatch, StepFinished, StepStarted, Warned
from ....protocol.kernel.messages import Message
from ....protocol.messages import GraphBegun, Interrupted, NodeDone, StateSet, TimerFired, WorkFailed
from ....protocol.outcome import NodeTime
from . import node_exit
from .plan import GraphPlan, reachable
from .reducers import changed, merge_writes
from .result import PARTIAL_RESULTS, GraphResult, combined
from .templates import compile_template, encode


class GraphDecider:
    """Decider of one run of a plan.

    Attributes:
        result: updated during the run, so that it is readable however the run ends.
        number: number of the super-step, from 1.
        frontier: the nodes of that super-step.
        snapshot: the state that these nodes read.
    """

    def __init__(self, plan: GraphPlan, result: GraphResult | None = None) -> None:
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
        self._lefts: dict[str, NodeDone] = {}
        self._has_failed = False  # a node of this super-step
        self._reach: dict[str, frozenset[str]] = {}
        self._ends: list[str] = []
        # Without any `join: all` the search for waiting lanes is skipped.
        self._joins = True in {step.join_all for step in plan.steps.values()}

    def begin(self, request: GraphBegun) -> list[Effect]:
        """Return the effects of the first super-step, and the timer of `settings.timeout`."""
        plan = self.plan
        self.result.state = {**plan.initial_state, **request.state, "initial_prompt": request.prompt}
        effects: list[Effect] = []
        if plan.settings.timeout is not None:
            effects.append(SetTimer("graph", plan.settings.timeout))
        return self._guarded(effects, self._step)

    def on(self, message: Message) -> list[Effect]:
        """Return what follows a message.

        The last `NodeDone` or `WorkFailed` of a super-step starts the next one or ends the graph; earlier ones return
        no work. The timer of `settings.timeout` ends the graph with `TimedOut`. `StateSet` starts the running nodes
        again on the new state.
        """
        if type(message) is NodeDone:
            self._node_ended(message)
            if self._running:
                return []
            effects: list[Effect] = []
            try:  # `_guarded`, inlined: every node that succeeds passes here
                self._next_step(effects)
            except CallboardError as error:
                self.result.error = error
                effects.append(Finish(self.result))
            return effects
        if isinstance(message, WorkFailed):
            effects = self._cancelled(message)
            return effects if self._running else self._guarded(effects, self._next_step)
        if isinstance(message, TimerFired):
            limit = self.plan.settings.timeout
            self.result.error = TimedOut(
                f"Graph '{self.plan.name}' timed out after {limit:g}s (`settings.timeout`) "
                f"during the nodes {self.frontier}"
            )
            return [Finish(self.result)]
        if isinstance(message, StateSet):
            return self._set(message)
        if isinstance(message, Interrupted):
            self._timed(self._running.pop(message.key), message.seconds)
        return []

    def remembers(self) -> tuple[object, ...]:
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
        """Start the nodes of the frontier; end nodes need no work."""
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
        """Merge the writes of the super-step, and start the next one or finish."""
        lefts, self._lefts = self._lefts, {}
        if self._has_failed:
            self._raise_failures(lefts)
        ends = self._ends
        if len(ends) > 1:  # before the merge: a super-step that fails must leave no trace
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
            raise GraphMistake(f"Graph '{self.plan.name}' has no node to run next and has not reached an end node")
        self._step(effects)

    def _enter(self, effects: list[Effect]) -> None:
        """Check the frontier, and count its visits."""
        plan = self.plan
        cap = plan.settings.max_loop_iterations
        capped = cap > 0 or plan.compat.zero_visits_is_a_cap
        unknown: list[str] = []
        looping: list[str] = []
        for id in self.frontier:
            if id not in plan.steps:
                unknown.append(f"'{id}'")
                continue
            # Once per super-step, however many lanes meet in the node, as in Loki: `max_loop_iterations: 20` allows 20
            # super-steps with the node.
            visits = self._visits[id] = self._visits.get(id, 0) + 1
            if capped and visits > cap:
                looping.append(
                    f"Node '{id}' visited {visits} times (max_loop_iterations={cap}). Possible infinite loop."
                )
        if unknown:
            kinds = "Node" if len(unknown) == 1 else "Nodes"
            raise GraphMistake(f"{kinds} {', '.join(unknown)} not found in graph '{plan.name}'")
        if looping:
            raise GraphMistake("\n".join(looping))
        self.number += 1
        self.snapshot = self.result.state
        self.result.order.extend(self.frontier)
        if not self.heard:
            return
        if plan.settings.log_state_snapshots:
            keys, size = sorted(self.snapshot), state_size(self.snapshot)
            event = StepStarted(step=self.number, nodes=self.frontier, keys=keys, bytes=size)
        else:
            event = StepStarted(step=self.number, nodes=self.frontier)
        effects.append(Emit(event))

    # --- nodes that have ended ----------------------------------------------------------------------------

    def _node_ended(self, message: NodeDone) -> None:
        id = self._running.pop(message.key)
        self._lefts[id] = message
        if message.targets is None:
            self._has_failed = True
        if message.unaccepted:
            self.result.failures += [failure.restore() for failure in message.unaccepted]
        self._timed(id, message.seconds)

    def _cancelled(self, message: WorkFailed) -> list[Effect]:
        """Record a node that was cancelled or crashed as failed; return its events."""
        id = self._running[message.key]
        step, state = self.plan.steps[id], self.result.state
        left, node = node_exit.cancelled(self.plan, step, state, message, in_map=False)
        self._node_ended(node)
        if not self.heard:
            return []
        return [Emit(event, about=message.key) for event in node_exit.events_of(step, left, message.seconds, None)]

    def _raise_failures(self, lefts: dict[str, NodeDone]) -> None:
        """Raise one error for all failures of this super-step, in the order of the frontier."""
        failures: list[tuple[str, CallboardError]] = []
        for id in self.frontier:
            left = lefts.get(id)
            if left is not None and left.targets is None:
                assert left.failure is not None
                error = left.failure.restore()
                failures.append((f"at node '{id}': {error}", error))
                # The step's other writes are discarded, but partial results of a failed map are worth storing. A
                # parent graph must not see them, so they are removed from the error.
                self.result.state = {**self.result.state, **error.__dict__.pop(PARTIAL_RESULTS, {})}
        if failures:
            raise combined(failures)

    def _timed(self, id: str, seconds: float) -> None:
        visits, total, longest = self.result.timing.get(id, (0, 0.0, 0.0))
        self.result.timing[id] = (visits + 1, total + seconds, max(longest, seconds))
        time = self.result.nodes.get(id)
        if time is None:
            time = self.result.nodes[id] = NodeTime()
        time.visits += 1
        time.seconds += seconds

    def _merge(self, lefts: dict[str, NodeDone], effects: list[Effect]) -> list[str]:
        """Merge the writes of the super-step into the state; return the nodes' targets without duplicates."""
        state = self.result.state
        writes: dict[str, dict[str, Any]] = {}
        following: dict[str, None] = {}
        for id in sorted(lefts) if len(lefts) > 1 else lefts:
            left = lefts[id]
            if left.writes and (mine := changed(state, left.writes)):
                writes[id] = mine
            for target in left.targets or ():
                following[target] = None
        if writes:
            self.result.state = merge_writes(state, writes, self.plan.reducers)
            if self.heard:
                keys = set().union(*writes.values()) if len(writes) > 1 else next(iter(writes.values()))
                effects.append(Emit(StatePatch(keys=sorted(keys))))
        return list(following)

    # --- joins, and the end ---------------------------------------------------------------------------------

    def _release(self, following: list[str], effects: list[Effect]) -> list[str]:
        """Return the next frontier: targets and waiting joins, without the joins that other lanes can still reach."""
        steps = self.plan.steps
        here = list(dict.fromkeys([*following, *sorted(self._waiting)])) if self._waiting else following
        joins = [id for id in here if id in steps and steps[id].join_all]
        if not joins:
            return here
        moving = [id for id in here if id not in joins]
        held = [id for id in joins if self._must_wait(id, moving, joins)]
        effects += [
            Emit(NodeSkipped(node=id, reason="waits for the other lanes (`join: all`)"))
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
        # If two joins wait for each other, one must go first or the run deadlocks: the one that leads to the other,
        # and in a cycle the first by name.
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
            message = (
                f"end node '{end.id}' ended the graph, so these nodes of other lanes did not run: {', '.join(dropped)}"
            )
            effects.append(Emit(Warned(code="lanes_dropped", message=message, node=end.id)))
            effects += [Emit(NodeSkipped(node=id, reason=f"'{end.id}' ended the graph")) for id in dropped]
        state = self.result.state
        if end.updates:
            writes: dict[str, Any] = {}
            node_exit.apply_updates(end.updates, state, writes, None, None, self.plan.compat)
            state = self.result.state = {**state, **writes}
        again = self.plan.compat.values_expand_again
        self.result.output = compile_template(end.output).lenient(state, expand_again=again)
        if end.error and (error := compile_template(end.error).lenient(state, expand_again=again).strip()):
            self.result.error = FailedEnd(error).at(end.id)
        self.result.nodes.setdefault(end.id, NodeTime()).visits += 1
        effects.append(Emit(NodeExited(node=end.id, seconds=0.0)))
        effects.append(Finish(self.result))


def state_size(state: Mapping[str, Any]) -> int:
    """Return the size of the state as JSON, in bytes."""
    return len(encode(state if type(state) is dict else dict(state)))
