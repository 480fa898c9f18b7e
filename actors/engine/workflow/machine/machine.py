"""State of one run of one graph: firings, deliveries over edges, cycles, warnings, the result.

A machine returns firings and receives their results:

    todo = machine.begin(task)
    while todo:
        work = todo.pop()                                   # or all of them concurrently
        todo += machine.done(await perform(Firing(work, structure), code))
    result = machine.result()

The machine is synchronous; its driver (see `decider`) chooses the concurrency. The result must not depend on that
choice, or a replayed run would differ. So the outputs of a layer are delivered when the whole layer has ended, in
the order of the layer. Two cycles of a layer run independently, and messages that leave them are delivered when
both have ended. Hence the same firings get the same inputs, whatever their durations.

    a node is fired     if the run starts with it or an edge has triggered it, and all its predecessors have ended
    its inputs          are all messages in its queue, whichever edge delivered them
    after it            its window is applied, its edges deliver, and with a window it stores its own output
    a cycle             runs from its single entry, round after round, while a node in it triggers the entry again; any
                        edge that triggers a node outside ends it, and other triggers in it are dropped
    a failure           ends the run after the layer; outputs until then are part of the result

In a layer of a cycle, instant nodes that can leave the cycle are fired first, one by one. If one leaves, the later
nodes of the layer do not run. The other nodes are fired together, and all of them end.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from .....protocol.errors import CallboardError, GraphMistake
from .....protocol.workflow_messages import Crossing, Fired, FireNode, Gate
from ...graph.result import combined
from ..messages import TASK, Message, Queue, carried, seeded, signed
from .perform import Said, over
from .structure import Cycle, Layer, NodeEdges, Structure, listed


class WorkflowWarning(msgspec.Struct, frozen=True):
    """Warning for the author of the workflow file; becomes a `Warned` event."""

    code: str
    message: str
    node: str | None = None


class MachineResult(msgspec.Struct, kw_only=True):
    """Result of a run, or its intermediate result.

    Attributes:
        final: the text of the final node's last message.
        final_messages: all output of the final node.
        leftover: queued messages, by node.
        outputs: output of each node.
        order: the fired nodes in order, including the nodes of subgraphs.
        unaccepted: failures that were tolerated without `on_error: continue` in the file, in order.
        error: the failure that ended the run.
    """

    final: str = ""
    final_messages: tuple[Message, ...] = ()
    leftover: dict[str, tuple[Message, ...]] = {}
    outputs: dict[str, tuple[Message, ...]] = {}
    order: list[str] = []
    unaccepted: tuple[CallboardError, ...] = ()
    error: CallboardError | None = None

    def as_output(self) -> Said:
        """Return the output of a subgraph's node whose graph has this result; never empty, so that the next node can
        run.
        """
        if self.error is not None:
            return Said(error=self.error, unaccepted=self.unaccepted)
        outputs = self.final_messages or (Message(role="assistant", content=""),)
        return Said(outputs=outputs, unaccepted=self.unaccepted)


VOTE = "MAJORITY_VOTE"
"""Source of a majority's message."""


def majority(votes: Iterable[str]) -> Message:
    """Return the most frequent vote, the first of equally frequent ones; blank votes count only if all are blank."""
    given = list(votes)
    counts = Counter([vote for vote in given if vote.strip()] or given)
    # `most_common` keeps the order of insertion among equal counts.
    winner = counts.most_common(1)[0][0] if counts else ""
    return Message(role="assistant", content=winner, source=VOTE)


MOST_NAMED = 5
"""Most edges that a warning names."""


class _Passed(msgspec.Struct):
    """Result of a layer or a cycle for the scope around it: messages that leave it, failures, outputs."""

    crossings: list[Crossing] = []
    failures: list[tuple[str, CallboardError]] = []
    said: dict[str, str] = {}


_Coroutine: TypeAlias = Generator[list[Any], list[Any], _Passed]


class _Scope(msgspec.Struct, frozen=True, eq=False):
    """Scope of execution: one run of a cycle, or (None) the whole graph."""

    cycle: Cycle | None
    said: ChainMap[str, str]

    def holds(self, place: NodeEdges) -> bool:
        return self.cycle is None or place in self.cycle


class StateMachine:
    """State machine of one run.

    Args:
        structure: the graph.
        warn: called with each warning.
        order: list that receives the ids of fired nodes and is never read here; a subgraph shares its parent's list.

    Attributes:
        under_way: unfinished firings, by key.
    """

    def __init__(
        self,
        structure: Structure,
        *,
        warn: Callable[[WorkflowWarning], None] | None = None,
        order: list[str] | None = None,
    ) -> None:
        self.structure = structure
        self.order = order if order is not None else []
        self._tell = warn
        self._scheduler = _Scheduler()
        self._queues = [Queue() for _ in structure.places]
        self._outputs: list[list[Message]] = [[] for _ in structure.places]
        self.under_way: dict[int, FireNode] = {}
        self._gates = [Gate() for _ in structure.places]
        self._visits = [0] * len(structure.places)
        self._starts: set[int] = set()
        self._triggered = [False] * len(structure.ways)
        self._ways = structure.ways
        self._fired = 0
        self._unaccepted: list[CallboardError] = []

    # --- interface for the driver -----------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """True if the run has ended."""
        return self._scheduler.finished

    def begin(self, task: Sequence[Message]) -> list[FireNode]:
        """Deliver the task to the start nodes; return the first firings."""
        structure = self.structure
        for place in structure.places:
            for seed in place.node.input:
                self._put(place, seeded(seed))
            self._outputs[place.index] += [seeded(seed) for seed in place.node.output]
        for way in structure.ways:
            for missing in way.missing:
                self._warn("unknown_function", f"{way} runs without its function: {missing}", way.source)
        for place in structure.places if structure.voting else structure.start:
            self._starts.add(place.index)
            # The task replaces the node's own seeds.
            self._queues[place.index].clear(context=True, kept=True)
            for message in task:
                self._put(place, signed(message, TASK))
        return self._scheduler.begin(self._whole())

    def done(self, fired: Fired) -> list[FireNode]:
        """Apply the result of a firing; return the firings that may begin now.

        Raises:
            GraphMistake: the result belongs to another graph.
        """
        place = self.structure.by_id[self.under_way.pop(fired.key).node]
        if place.id != fired.node or any(self._ways[each.way].source is not place for each in fired.crossings):
            raise GraphMistake(f"the result of '{fired.node}' does not fit '{place.id}', which was fired, or its edges")
        self._outputs[place.index] += fired.outputs
        self._unaccepted += [failure.restore() for failure in fired.unaccepted]
        if fired.gate is not None:
            self._gates[place.index] = fired.gate
        for warning in dict.fromkeys(fired.warnings):
            self._warn("edge", warning, place)
        # An unchanged message is sent as the index of an output, so that a journal row contains its text once.
        if any(type(crossing.arrives) is int for crossing in fired.crossings):
            crossings = tuple(self._arriving(crossing, fired) for crossing in fired.crossings)
            fired = msgspec.structs.replace(fired, crossings=crossings)
        return self._scheduler.done(fired.key, fired)

    def _arriving(self, crossing: Crossing, fired: Fired) -> Crossing:
        """Return the crossing with its message in place of the index of an output."""
        if not isinstance(crossing.arrives, int):
            return crossing
        way = self._ways[crossing.way]
        return Crossing(crossing.way, over(way, fired.outputs[crossing.arrives]), crossing.fires)

    def remembers(self) -> tuple[object, ...]:
        """Return the queued messages and the outputs, whose memory introspection measures."""
        return self._queues, self._outputs

    def result(self) -> MachineResult:
        """Return the result, or the intermediate result of an unfinished run."""
        places = self.structure.places
        passed: _Passed | None = self._scheduler.result
        final = self._final_messages()
        return MachineResult(
            final=final[-1].text if final else "",
            final_messages=final,
            leftover={
                place.id: tuple(self._queues[place.index].messages)
                for place in places
                if self._queues[place.index].messages
            },
            outputs={place.id: tuple(said) for place in places if (said := self._outputs[place.index])},
            order=list(self.order),
            unaccepted=tuple(self._unaccepted),
            error=_error(passed.failures) if passed is not None else None,
        )

    def warn_without_result(self) -> None:
        """Warn if a run without failure never reached its final node, so that its output is empty."""
        structure = self.structure
        if structure.voting or self._final_messages() or self.result().error is not None:
            return
        ends = [structure.by_id[id] for id in structure.graph.end] or [p for p in structure.places if not p.out]
        unreached = [place for place in ends if not self._visits[place.index]]
        if not ends or len(unreached) < len(ends):  # a final node has run without output, as a counter does
            return
        which = f"the final node {listed(ends)} was not" if len(ends) == 1 else f"none of {listed(ends)} was"
        ran = [place for place in structure.places if self._visits[place.index]]
        untaken = [str(way) for place in ran for way in place.out if not self._visits[way.target.index]]
        why = f"; no message crossed {', '.join(untaken[:MOST_NAMED])}" if untaken else ""
        self._warn("no_result", f"{which} reached, so the output is empty{why}", ends[0])

    def _final_messages(self) -> tuple[Message, ...]:
        """Return the output of the first node of `end` that has any, else of the first node without outgoing edges."""
        structure = self.structure
        if structure.voting:
            return (majority(said[-1].text if said else "" for said in self._outputs),)
        for id in structure.graph.end:
            said = self._outputs[structure.by_id[id].index]
            if said:
                return tuple(said)
        last = next((place for place in structure.places if not place.out), None)
        return tuple(self._outputs[last.index]) if last is not None else ()

    # --- layers -------------------------------------------------------------------------------------------

    def _whole(self) -> _Coroutine:
        scope = _Scope(None, ChainMap({}))
        for layer in self.structure.layers:
            passed = yield from self._layer(scope, layer)
            if passed.failures:
                return passed
        return _Passed()

    def _layer(self, scope: _Scope, layer: Layer, forced: NodeEdges | None = None) -> _Coroutine:
        """Run the triggered nodes of a layer, and `forced`; return the crossings that leave the scope."""
        items = [item for item in layer if isinstance(item, Cycle) or item is forced or self._is_triggered(item)]
        ends: dict[int, Fired | _Passed] = {}
        stop = len(items)
        for i, item in enumerate(items):
            if isinstance(item, NodeEdges) and item.instant and _may_leave(item, scope):
                (ends[i],) = yield [self._firing(item, scope)]
                if any(each.fires and not scope.holds(self._ways[each.way].target) for each in ends[i].crossings):
                    stop = i + 1
                    break
        rest = [i for i in range(stop) if i not in ends]
        if rest:
            begun = [
                self._round_and_round(item, scope) if isinstance(item, Cycle) else self._firing(item, scope)
                for item in (items[i] for i in rest)
            ]
            ends.update(zip(rest, (yield begun), strict=True))
        return self._settled(scope, [(items[i], ends[i]) for i in range(stop)])

    def _firing(self, place: NodeEdges, scope: _Scope) -> FireNode:
        """Start a node: copy its queue to its inputs, and reset its triggers."""
        index = place.index
        self._forget(place)
        for way in place.out:
            self._triggered[way.index] = False
        visit = self._visits[index] = self._visits[index] + 1
        self._fired += 1
        self.order.append(place.id)
        name = place.id.replace("/", "_")
        work = self.under_way[self._fired] = FireNode(
            key=self._fired,
            name=name if visit == 1 else f"{name}#{visit}",
            lane=place.lane,
            node=place.id,
            visit=visit,
            inputs=tuple(self._queues[index].messages),
            gate=self._gates[index],
            said={id: text for id in place.hears if (text := scope.said.get(id)) is not None},
        )
        return work

    def _settled(self, scope: _Scope, ends: Iterable[tuple[NodeEdges | Cycle, Any]]) -> _Passed:
        """End a layer: apply windows first, then deliver everything in the layer's order."""
        ends = list(ends)
        passed = _Passed()
        said: dict[str, str] = {}
        remembers: dict[int, bool] = {}
        # Windows before deliveries, so that messages of this layer are not trimmed.
        for item, end in ends:
            if isinstance(item, NodeEdges):
                remembers[item.index] = self._windowed(item, end)
                if end.outputs:
                    said[item.id] = end.outputs[-1].text
                if end.failure is not None:
                    error = end.failure.restore()
                    passed.failures.append((f"at node '{item.id}': {error}", error))
            else:
                said |= end.said
                passed.failures += end.failures
        for item, end in ends:
            for crossing in end.crossings:
                if scope.holds(self._ways[crossing.way].target):
                    self._deliver(crossing)
                else:
                    passed.crossings.append(crossing)
            if isinstance(item, NodeEdges) and remembers[item.index]:
                for message in end.outputs:
                    self._put(item, carried(message, item.id, item.id))
        scope.said.update(said)
        return passed

    # --- cycles -------------------------------------------------------------------------------------------

    def _round_and_round(self, cycle: Cycle, around: _Scope) -> _Coroutine:
        """Run a cycle until an edge leaves it, nothing triggers its entry, or a node fails."""
        passed = _Passed()
        try:
            entry = self._entry(cycle)
        except GraphMistake as error:
            passed.failures.append((str(error), error))
            return passed
        if entry is None:
            return passed
        # Outputs inside the cycle are visible outside only after it has ended, as part of `passed.said`.
        scope = _Scope(cycle, around.said.new_child())
        passed.said = scope.said.maps[0]  # type: ignore[assignment]  # typed as a mapping; the first is new_child's dict
        cap = self.structure.graph.max_iterations
        for turn in range(cap):
            roots = [entry] if turn == 0 else [place for place in cycle.places if self._is_triggered(place)]
            for layer in cycle.layers(entry, roots):
                left = yield from self._layer(scope, layer, forced=entry if turn == 0 else None)
                passed.crossings += left.crossings
                passed.failures += left.failures
                leaves = any(crossing.fires for crossing in left.crossings)
                if leaves:
                    for place in cycle.places:
                        self._forget(place)
                if leaves or left.failures:
                    return passed
            if not any(self._triggered[way.index] for way in entry.into if way.source in cycle):
                return passed
        self._capped(cycle, entry, cap, passed)
        return passed

    def _entry(self, cycle: Cycle) -> NodeEdges | None:
        """Return the node where a cycle is entered; None if nothing has triggered it."""
        found = [
            place
            for place in cycle.places
            if any(self._triggered[way.index] and way.source not in cycle for way in place.into)
        ]
        if not found:
            return cycle.start
        entry = found[0]
        if len(found) > 1:
            raise GraphMistake(
                f"{cycle} was entered at {len(found)} nodes at once, {listed(found)}. "
                "A cycle must begin at one node: let all edges into it lead to the same node, "
                "or set `trigger: false` on the others"
            )
        if cycle.start is not None and cycle.start is not entry:
            raise GraphMistake(
                f"{cycle} starts at '{cycle.start.id}' and was entered at '{entry.id}': "
                f"let the edge from outside lead to '{cycle.start.id}', or remove that from `start`"
            )
        return entry

    def _capped(self, cycle: Cycle, entry: NodeEdges, cap: int, passed: _Passed) -> None:
        text = (
            f"{cycle} ran {cap} times and would run again (max_iterations: {cap}). "
            "No edge led out of it: check the conditions of its outgoing edges"
        )
        if self.structure.rules.cap_is_an_error:
            passed.failures.append((text, GraphMistake(text).at(entry.id)))
        else:
            self._warn("max_iterations", text, entry)

    # --- queues and triggers ------------------------------------------------------------------------------

    def _is_triggered(self, place: NodeEdges) -> bool:
        return place.index in self._starts or any(self._triggered[way.index] for way in place.into)

    def _forget(self, place: NodeEdges) -> None:
        self._starts.discard(place.index)
        for way in place.into:
            self._triggered[way.index] = False

    def _deliver(self, crossing: Crossing) -> None:
        way = self._ways[crossing.way]
        edge, target = way.edge, way.target
        # Also if the edge's processor has dropped the message, as in DevAll.
        if edge.clear_context or edge.clear_kept_context:
            kept = edge.clear_kept_context and (edge.clear_context or not self.structure.rules.kept_needs_clear)
            self._queues[target.index].clear(context=edge.clear_context, kept=kept)
        if isinstance(crossing.arrives, Message):
            self._put(target, crossing.arrives)
        if crossing.fires:
            self._triggered[way.index] = True

    def _windowed(self, place: NodeEdges, fired: Fired) -> bool:
        """Apply a node's window; return whether the node stores its own output."""
        window, queue = place.node.context_window, self._queues[place.index]
        turns = [turn for turn in fired.trace if turn.role in ("user", "assistant")] if window and fired.outputs else []
        for turn in turns:
            self._put(place, signed(turn, place.id))
        # As in DevAll, before the node stores its own output, which the window therefore does not count.
        queue.trim(window)
        return bool(window and not turns)

    def _put(self, place: NodeEdges, message: Message) -> None:
        self._queues[place.index].add(message)

    def _warn(self, code: str, message: str, place: NodeEdges) -> None:
        if self._tell is not None:
            self._tell(WorkflowWarning(code, message, place.id))


def _may_leave(place: NodeEdges, scope: _Scope) -> bool:
    return any(way.edge.trigger and not scope.holds(way.target) for way in place.out)


def _error(failures: Sequence[tuple[str, CallboardError]]) -> CallboardError | None:
    if len(failures) < 2:
        return failures[0][1] if failures else None
    return combined(failures)


class _Waiting(msgspec.Struct, eq=False):
    coroutine: _Coroutine
    parent: _Waiting | None
    slot: int
    answers: list[Any] = []
    open: int = 0


class _Scheduler:
    """Cooperative scheduler of nested coroutines without tasks.

    A coroutine here is a plain generator. It yields a list of firings and inner coroutines, and is resumed with the
    list of their results, in the same order, when all are available. So its behaviour does not depend on execution
    speed. The scheduler never blocks; `done` returns the firings that may begin next.

    Attributes:
        result: the outermost coroutine's return value; None until then.
        finished: the outermost coroutine has returned.
    """

    def __init__(self) -> None:
        self.result: Any = None
        self.finished = False
        self._open: dict[int, tuple[_Waiting, int]] = {}

    def begin(self, coroutine: _Coroutine) -> list[FireNode]:
        """Start a coroutine; return its first firings."""
        return self._advance(_Waiting(coroutine, None, 0))

    def done(self, key: int, answer: Any) -> list[FireNode]:
        """Store the result of a firing; return the firings that may begin now."""
        waiting, slot = self._open.pop(key)
        waiting.answers[slot] = answer
        waiting.open -= 1
        return [] if waiting.open else self._advance(waiting)

    def _advance(self, waiting: _Waiting) -> list[FireNode]:
        jobs: list[FireNode] = []
        # An explicit stack: deeply nested cycles must not exceed the recursion limit.
        todo = [waiting]
        while todo:
            current = todo.pop()
            try:
                wanted = current.coroutine.send(current.answers) if current.answers else next(current.coroutine)
            except StopIteration as stop:
                parent = current.parent
                if parent is None:
                    self.result, self.finished = stop.value, True
                    continue
                parent.answers[current.slot] = stop.value
                parent.open -= 1
                if not parent.open:
                    todo.append(parent)
                continue
            current.answers = [None] * len(wanted)
            current.open = len(wanted)
            below: list[_Waiting] = []
            for slot, each in enumerate(wanted):
                if isinstance(each, Generator):
                    below.append(_Waiting(each, current, slot))
                else:
                    self._open[each.key] = (current, slot)
                    jobs.append(each)
            todo.extend(reversed(below))
        return jobs
