"""Execution of one firing, from the node's inputs to the messages on its edges.

    inputs -> the node's own code, once or per unit -> outputs -> each message over each edge

The caller supplies the node's own code (`Work`) and chooses the concurrency of units. Literals, passthroughs and
gates are executed here. A tolerated failure becomes the node's output; any other failure is the firing's failure.
No state of the run is changed here, so firings can be executed concurrently: the machine applies their results in
its own order.

A *dynamic* node runs once per unit (`multiplied`):

    inputs over dynamic edges   -> split into units
    all other inputs            -> passed to every unit, before its own input
    map                         -> the outputs of all units, in their order
    tree                        -> groups of units, one run per group; then groups of the results, until one is left

A *gate* is a node of a loop without output until a number of visits (`counted`) or a time (`timed`) is reached. Its
state lasts for one run of its graph: a subgraph that runs again starts with new gates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Literal, TypeAlias

import msgspec

from .....protocol.errors import CallboardError, GraphMistake, UnknownOutcome
from .....protocol.messages import Failure
from .....protocol.workflow.model import (
    Dynamic,
    LiteralConfig,
    LoopCounterConfig,
    LoopTimerConfig,
    Node,
    PassthroughConfig,
)
from .....protocol.workflow_messages import Called, Crossing, Fired, FireNode, Gate, NodeCodeDone, Unit
from ...graph.result import NEVER_TOLERATED, combined, detached
from ..edges import filled, units_of
from ..messages import Message, carried, failure_text, signed
from ..rules import WorkflowRules
from .structure import NodeEdges, ReadyEdge, Structure

MOST_QUEUED = 100_000
"""Most messages in a node's inputs. A node that passes all on in a cycle doubles their number in every round."""

NEVER_PASSED_OVER = (*NEVER_TOLERATED, UnknownOutcome)
"""Errors of edge functions that are never reduced to a warning."""

LONGEST = 64 * 1024 * 1024
"""Most characters of a processor's result: a template can double a text in every round."""

Kind: TypeAlias = Literal["condition", "processor"]

Call: TypeAlias = Callable[["Firing", Kind, ReadyEdge, str, Callable[[], Awaitable[Called]]], Awaitable[Called]]
"""Call a user function for an edge with this text; raise its failure."""


class Firing(msgspec.Struct, frozen=True, eq=False):
    """Node that is to run.

    Attributes:
        work: the machine's description of the firing.
        now: seconds, for timers.
        call: calls edge functions that can have side effects; None for a direct call.
    """

    work: FireNode
    structure: Structure
    now: float = 0.0
    call: Call | None = None

    @property
    def place(self) -> NodeEdges:
        """The node in the structure of the graph."""
        return self.structure.by_id[self.work.node]

    @property
    def node(self) -> Node:
        return self.place.node


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a node's own code.

    Attributes:
        outputs: its output; subsequent nodes run even if this is empty.
        trace: the turns of its tool loop; a node with a context window stores them in place of its output.
        error: its failure.
        unaccepted: tolerated failures of agents and subgraphs below it (see `graph.node_exit`).
    """

    outputs: tuple[Message, ...] = ()
    trace: tuple[Message, ...] = ()
    error: CallboardError | None = None
    unaccepted: tuple[CallboardError, ...] = ()


def message_of(key: int, said: Said) -> NodeCodeDone:
    """Return the result of a node's code as a message for a decider or a journal row."""
    return NodeCodeDone(
        key,
        outputs=said.outputs,
        trace=said.trace,
        failure=None if said.error is None else Failure.of(said.error),
        unaccepted=tuple(map(Failure.of, said.unaccepted)),
    )


def restored(said: NodeCodeDone) -> Said:
    """Return the result that `message_of` has put into a message."""
    return Said(
        outputs=said.outputs,
        trace=said.trace,
        error=None if said.failure is None else said.failure.restore(),
        unaccepted=tuple(failure.restore() for failure in said.unaccepted),
    )


Work: TypeAlias = Callable[[Sequence[Unit], int], Awaitable[Sequence[Said]]]
"""Execute a node's own code for each unit, with a limit of concurrency; return the results in order."""


async def perform(firing: Firing, work: Work) -> Fired:
    """Execute a firing. Failures are part of the returned value."""
    fire, place = firing.work, firing.place
    cancelled = None if fire.failure is None else fire.failure.restore()
    gate = fire.gate
    outputs: tuple[Message, ...] = ()
    trace: tuple[Message, ...] = ()
    failure: CallboardError | None = None
    tolerated: CallboardError | None = None
    unaccepted: list[CallboardError] = []
    crossings: list[Crossing] = []
    warnings: list[str] = []

    async def own(units: Sequence[Unit], limit: int) -> Sequence[Said]:
        nonlocal gate
        # The node was cancelled and is fired again only for its edges.
        if cancelled is not None:
            return [Said(error=cancelled)]
        if not place.instant:
            return await work(units, limit)
        results = []
        for unit in units:
            said, gate = _instant(firing, unit, gate)
            results.append(Said(outputs=said))
        return results

    async def run(units: Sequence[Unit], limit: int) -> list[tuple[Message, ...]]:
        nonlocal trace, tolerated
        results = await own(units, limit)
        trace = trace or results[0].trace
        unaccepted.extend(_unaccepted(firing.node, results))
        said = tolerated_of(firing, units, results)
        tolerated = tolerated or next((result.error for result in results if result.error is not None), None)
        return said

    try:
        if len(fire.inputs) > MOST_QUEUED:
            raise GraphMistake(
                f"{len(fire.inputs)} messages are queued for this node, more than the limit of {MOST_QUEUED}: "
                "in a cycle, give it a `context_window`, or set `clear_context: true` on an edge"
            )
        if place.dynamic is not None and cancelled is None:
            all_said = await multiplied(place.dynamic, fire.inputs, run, firing.structure.rules)
        else:
            (all_said,) = await run([Unit(fire.inputs)], 1)
        outputs = tuple(signed(message, place.id) for message in all_said)
        await _cross(firing, outputs, crossings, warnings)
    except CallboardError as error:
        # A failed firing delivers nothing. Its outputs remain if only an edge has failed.
        failure, crossings, trace, tolerated = error.at(place.id), [], (), None
    return Fired(
        fire.key,
        node=place.id,
        outputs=outputs,
        trace=trace,
        failure=None if failure is None else Failure.of(failure),
        unaccepted=tuple(map(Failure.of, unaccepted)),
        crossings=tuple(crossings),
        tolerated=None if tolerated is None else Failure.of(tolerated),
        warnings=tuple(warnings),
        gate=gate if place.instant else None,
    )


def performed(firing: Firing) -> Fired:
    """Execute a firing of a `quick` node, which never waits and so needs no actor."""
    waiting = perform(firing, _no_work)
    try:
        # A quick firing never waits, so the first `send` runs the coroutine to its end without a task.
        waiting.send(None)
    except StopIteration as stop:
        fired: Fired = stop.value
        return fired
    raise AssertionError(f"'{firing.place.id}' waits")


async def _no_work(_units: Sequence[Unit], _limit: int) -> Sequence[Said]:
    raise AssertionError("a quick place has no code of its own")


def _instant(firing: Firing, unit: Unit, gate: Gate) -> tuple[tuple[Message, ...], Gate]:
    """Return the output of an instant node, and the new state of its gate."""
    match firing.node.config:
        case LiteralConfig(content=content, role=role):
            return (Message(role=role, content=content, preserve_role=True),), gate
        case PassthroughConfig(only_last_message=only_last):
            if not unit.inputs:
                return (Message(role="user", content=""),), gate
            return unit.inputs[-1:] if only_last else unit.inputs, gate
        case LoopCounterConfig() as config:
            return counted(config, gate)
        case config:
            assert isinstance(config, LoopTimerConfig)
            return timed(config, gate, unit.inputs, firing.now, firing.structure.rules)


def tolerated_of(firing: Firing, units: Sequence[Unit], results: Sequence[Said]) -> list[tuple[Message, ...]]:
    """Return the output of each unit, or its error text if the node may continue; raise all other failures as one."""
    said: list[tuple[Message, ...]] = []
    failures: list[tuple[str, CallboardError]] = []
    for unit, result in zip(units, results, strict=True):
        if result.error is None:
            said.append(result.outputs)
        elif firing.node.on_error == "continue" and not isinstance(result.error, NEVER_TOLERATED):
            text = failure_text(firing.node, result.error, unit.inputs)
            said.append((Message(role="assistant", content=text),))
        else:
            failures.append((f"unit {unit.index}: {result.error}", result.error))
    if failures:
        raise failures[0][1] if len(units) == 1 else combined(failures)
    return said


def _unaccepted(node: Node, results: Sequence[Said]) -> list[CallboardError]:
    """Return the failures that only the dialect tolerates, and the tolerated failures below the node."""
    if node.on_error == "continue" and not node.by_dialect:
        return []
    found: list[CallboardError] = []
    for result in results:
        found += result.unaccepted
        if result.error is not None and node.on_error == "continue" and not isinstance(result.error, NEVER_TOLERATED):
            found.append(detached(result.error.at(node.id)))
    return found


async def _cross(firing: Firing, outputs: Sequence[Message], crossings: list[Crossing], warnings: list[str]) -> None:
    """Send every message over every edge."""
    for number, message in enumerate(outputs):
        for way in firing.place.out:
            # As in DevAll, a condition sees the node's text, before the processor of the edge.
            if not await _is_taken(firing, way, message, warnings):
                continue
            edge = way.edge
            if not edge.carry_data:
                crossings.append(Crossing(way.index, None, edge.trigger))
            elif way.process is None:
                crossings.append(Crossing(way.index, number, edge.trigger))
            else:
                arriving = await _processed(firing, way, over(way, message), warnings)
                # A message that a processor drops does not trigger the target.
                crossings.append(Crossing(way.index, arriving, edge.trigger and arriving is not None))


def over(way: ReadyEdge, message: Message) -> Message:
    """Return a message as it arrives over an edge that does not transform it."""
    edge = way.edge
    return carried(message, way.source.id, way.target.id, keep=edge.keep_message, dynamic=edge.dynamic is not None)


async def _is_taken(firing: Firing, way: ReadyEdge, message: Message, warnings: list[str]) -> bool:
    test = way.test
    if test is None:
        return True

    async def judged() -> Called:
        met = test(message.text)
        return Called(met=bool(await met if isawaitable(met) else met))

    try:
        if way.judged and firing.call is not None:
            return (await firing.call(firing, "condition", way, message.text, judged)).met
        met = test(message.text)
        return bool(await met if isawaitable(met) else met)
    except NEVER_PASSED_OVER:
        raise
    except Exception as error:  # noqa: BLE001 - a user's function; a broken condition counts as met
        warnings.append(f"{way}: its condition failed and counts as met: {_error_text(error)}")
        return True


async def _processed(firing: Firing, way: ReadyEdge, payload: Message, warnings: list[str]) -> Message | None:
    process = way.process
    assert process is not None
    said = {
        **firing.work.said,
        firing.place.id: payload.text,
    }  # the machine stores this output only after the firing

    async def changed() -> Called:
        result = process(payload, said)
        arriving = await result if isawaitable(result) else result
        return Called(messages=() if arriving is None else (arriving,))

    try:
        if way.changed and firing.call is not None:
            called = await firing.call(firing, "processor", way, payload.text, changed)
            arriving = next(iter(called.messages), None)
        else:
            result = process(payload, said)
            arriving = await result if isawaitable(result) else result
    except NEVER_PASSED_OVER:
        raise
    except Exception as error:  # noqa: BLE001 - a user's function; the message arrives unchanged
        warnings.append(f"{way}: its processor failed and the message arrives unchanged: {_error_text(error)}")
        return payload
    # Checked after the call, since the function has made the text by then; it must not enter a queue and a row.
    if arriving is not None and len(arriving.text) > LONGEST:
        raise GraphMistake(
            f"{way}: its processor returned a text of {len(arriving.text)} characters, more than the limit of {LONGEST}"
        )
    return arriving


def _error_text(error: Exception) -> str:
    return str(error) if isinstance(error, CallboardError) else f"{type(error).__name__}: {error}"


MOST_UNITS = 100_000
"""Most units of one node: a text of some megabytes can contain millions of items."""

DEEPEST_TREE = 100
"""Most layers of a tree. Only a target that outputs as much as it receives reaches it; the rest is then the result."""


Run: TypeAlias = Callable[[Sequence[Unit], int], Awaitable[Sequence[tuple[Message, ...]]]]
"""Execute a node's code for each unit of a batch, with a limit of concurrency; return the outputs in order."""


def role_of(unit: Unit, text: str) -> str:
    """Return a node's role with the unit's item inserted."""
    return text if unit.item is None else filled(text, {"item": unit.item, unit.item_name: unit.item}.get)


async def multiplied(
    dynamic: Dynamic, inputs: Sequence[Message], run: Run, rules: WorkflowRules
) -> tuple[Message, ...]:
    """Return the output of a node that runs per unit; without any unit it runs once on its other inputs, if it has any.

    Raises:
        GraphMistake: there are more than `MOST_UNITS` units.
    """
    static = tuple(message for message in inputs if not message.dynamic)
    units = await units_of(dynamic.split, [message for message in inputs if message.dynamic])
    if len(units) > MOST_UNITS:
        raise GraphMistake(
            f"this node would run for {len(units)} units, "
            f"more than the limit of {MOST_UNITS}: check how its dynamic edges split messages"
        )
    if not units:
        return (await run([Unit(static)], 1))[0] if static else ()
    if dynamic.type == "tree":
        return await _tree(dynamic, static, units, run, rules)
    batch = [Unit((*static, unit), i, unit.text, dynamic.item_name) for i, unit in enumerate(units)]
    return tuple(message for said in await run(batch, dynamic.max_parallel) for message in said)


async def _tree(
    dynamic: Dynamic, static: tuple[Message, ...], units: list[Message], run: Run, rules: WorkflowRules
) -> tuple[Message, ...]:
    if len(units) == 1 and not rules.lone_units_run:
        return tuple(units)
    size = dynamic.group_size
    for layer in range(DEEPEST_TREE):
        groups = [tuple(units[start : start + size]) for start in range(0, len(units), size)]
        batch = [Unit((*static, *group) if layer == 0 else group, i) for i, group in enumerate(groups)]
        said = await run(batch, dynamic.max_parallel)
        units = [msgspec.structs.replace(message, role="user") for each in said for message in each]
        if len(units) <= 1:
            break
    return tuple(units)


_SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}


def counted(config: LoopCounterConfig, gate: Gate) -> tuple[tuple[Message, ...], Gate]:
    """Return the output of a loop_counter at this visit, and its new state.

    Before visit number `max_iterations` the output is empty. From then on it is the counter's message: at every visit,
    or, with `reset_on_emit`, at every `max_iterations`-th visit.
    """
    visits = gate.visits + 1
    if visits < config.max_iterations:
        return (), Gate(visits)
    text = config.message or f"Loop limit reached ({config.max_iterations})"
    return (Message(role="assistant", content=text),), Gate(0 if config.reset_on_emit else visits)


def timed(
    config: LoopTimerConfig, gate: Gate, inputs: Sequence[Message], now: float, rules: WorkflowRules
) -> tuple[tuple[Message, ...], Gate]:
    """Return the output of a loop_timer at this visit, and its new state.

    Before the time is over the output is empty, or the inputs for a passthrough. Afterwards it is the timer's
    message. A passthrough outputs that message once, and its inputs again at later visits.
    """
    since = now if gate.since is None else gate.since
    over = now - since >= config.max_duration * _SECONDS[config.duration_unit]
    if config.passthrough and (gate.spoken or not over):
        return tuple(inputs), Gate(since=since, spoken=gate.spoken)
    if not over:
        return (), Gate(since=since, spoken=gate.spoken)
    if config.reset_on_emit and (rules.timers_start_anew or not gate.spoken):
        since = now
    text = config.message or f"Time limit reached ({config.max_duration} {config.duration_unit})"
    return (Message(role="assistant", content=text),), Gate(since=since, spoken=True)
