"""One firing, from what a node was given to what its edges carry.

    inputs -> the node's own code, once or per unit -> what it said -> each message over each edge

The caller brings the node's own code (`Work`) and decides how units run together; what a literal, a passthrough or a
gate says is known here (`instant`). A failure that is tolerated becomes what the node said; any other is the firing's.
Nothing of a run is changed here but what gates remember, so firings may be performed at once: the board takes their
effects over in its own order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias

import msgspec

from .....protocol.errors import CallboardError, GraphMistake
from .....protocol.workflow.model import (
    LiteralConfig,
    LoopCounterConfig,
    LoopTimerConfig,
    Node,
    PassthroughConfig,
)
from ...graph.failures import NEVER_TOLERATED, noted, together
from ..edges.processors import Around
from ..messages import Message, carried, signed
from ..prompting import failure_text
from ..rules import Rules
from .dynamic import Unit, multiplied
from .loops import Gate, counted, timed
from .structure import Place, Way

MOST_QUEUED = 100_000
"""Messages that a node is given. Who passes all on in a cycle has twice as many every time."""

LONGEST = 64 * 1024 * 1024
"""Characters of what a processor makes of a text: a template may double it, every time round."""


class Firing(msgspec.Struct, frozen=True, eq=False):
    """A node that is to run now.

    Attributes:
        number: which firing of its run this is.
        visit: how often the node has been fired, this time included.
        inputs: everything that was queued for it.
        gate: what it remembers, if it is one.
        said: what nodes have said last, as far as this one may know.
        shared: what edge functions leave for each other in this run.
        clock: seconds.
    """

    number: int
    place: Place
    visit: int
    inputs: tuple[Message, ...]
    rules: Rules
    gate: Gate
    said: Mapping[str, str]
    shared: dict[str, Any]
    clock: Callable[[], float]

    @property
    def node(self) -> Node:
        """The node as the file has it."""
        return self.place.node


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's own code came to.

    Attributes:
        outputs: what it says; nothing holds back whoever comes after it.
        trace: the turns of its tool loop; a node with a context window remembers them instead of its output.
        error: why it failed.
        unaccepted: failures that agents and subgraphs it has played went on over (see `graph.execute`).
    """

    outputs: tuple[Message, ...] = ()
    trace: tuple[Message, ...] = ()
    error: CallboardError | None = None
    unaccepted: tuple[CallboardError, ...] = ()


class Effect(msgspec.Struct, frozen=True):
    """What one edge does with one message.

    Attributes:
        message: what arrives; None if nothing does.
        fires: whether it triggers its target.
    """

    way: Way
    message: Message | None
    fires: bool


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """What a firing came to.

    Attributes:
        error: why it failed.
        tolerated: why it, or one of its units, would have failed if its node did not go on with that as its output.
        unaccepted: failures that it went on over although the author has not said `on_error: continue`.
        warnings: for the author of the file.
    """

    outputs: tuple[Message, ...] = ()
    trace: tuple[Message, ...] = ()
    effects: tuple[Effect, ...] = ()
    error: CallboardError | None = None
    tolerated: CallboardError | None = None
    unaccepted: tuple[CallboardError, ...] = ()
    warnings: tuple[str, ...] = ()


Work: TypeAlias = Callable[[Sequence[Unit], int], Awaitable[Sequence[Said]]]
"""Runs a node's own code for each unit, so many at once; what came of each, in their order."""


async def perform(firing: Firing, work: Work) -> Fired:
    """Carry a firing out. What it fails with is in what is returned."""
    place, rules = firing.place, firing.rules
    outputs: tuple[Message, ...] = ()
    trace: tuple[Message, ...] = ()
    tolerated: CallboardError | None = None
    unaccepted: list[CallboardError] = []
    warnings: list[str] = []

    async def run(units: Sequence[Unit], limit: int) -> list[tuple[Message, ...]]:
        nonlocal trace, tolerated
        results = await work(units, limit)
        trace = trace or results[0].trace
        unaccepted.extend(_unaccepted(firing.node, results))
        said = _tolerated(firing, units, results)
        tolerated = tolerated or next((result.error for result in results if result.error is not None), None)
        return said

    try:
        if len(firing.inputs) > MOST_QUEUED:
            raise GraphMistake(
                f"{len(firing.inputs)} messages wait for it, and {MOST_QUEUED} are the most: "
                "in a cycle give it a `context_window`, or an edge `clear_context: true`"
            )
        if place.dynamic is not None:
            said = await multiplied(place.dynamic, firing.inputs, run, rules)
        else:
            (said,) = await run([Unit(firing.inputs)], 1)
        outputs = tuple(signed(message, place.id) for message in said)
        effects = await _effects(firing, outputs, warnings) if place.out else ()
    except CallboardError as error:
        return Fired(outputs=outputs, error=error.at(place.id), unaccepted=tuple(unaccepted), warnings=tuple(warnings))
    return Fired(
        outputs=outputs,
        trace=trace,
        effects=effects,
        tolerated=tolerated,
        unaccepted=tuple(unaccepted),
        warnings=tuple(warnings),
    )


def instant(firing: Firing, unit: Unit) -> Said | None:
    """What a node says that is done as soon as it has begun; None if it is none."""
    match firing.node.config:
        case LiteralConfig(content=content, role=role):
            return Said(outputs=(Message(role=role, content=content, preserve_role=True),))
        case PassthroughConfig(only_last_message=only_last):
            if not unit.inputs:
                return Said(outputs=(Message(role="user", content=""),))
            return Said(outputs=unit.inputs[-1:] if only_last else unit.inputs)
        case LoopCounterConfig() as config:
            return Said(outputs=counted(config, firing.gate))
        case LoopTimerConfig() as config:
            return Said(outputs=timed(config, firing.gate, unit.inputs, firing.clock, firing.rules))
        case _:
            return None


# --- failures ---------------------------------------------------------------------------------------------


def _tolerated(firing: Firing, units: Sequence[Unit], results: Sequence[Said]) -> list[tuple[Message, ...]]:
    """What each unit said, its error where the node may go on with that.

    Raises:
        CallboardError: units failed and the node may not; all of them are named.
    """
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
        raise failures[0][1] if len(units) == 1 else together(failures)
    return said


def _unaccepted(node: Node, results: Sequence[Said]) -> list[CallboardError]:
    """The failures that the node goes on over by its dialect alone, and those within what it has played."""
    if node.on_error == "continue" and not node.by_dialect:
        return []
    found: list[CallboardError] = []
    for result in results:
        found += result.unaccepted
        if result.error is not None and node.on_error == "continue" and not isinstance(result.error, NEVER_TOLERATED):
            found.append(noted(result.error.at(node.id)))
    return found


# --- edges ------------------------------------------------------------------------------------------------


async def _effects(firing: Firing, outputs: Sequence[Message], warnings: list[str]) -> tuple[Effect, ...]:
    """What the edges do: every message over every edge."""
    around = Around(firing.said, firing.shared)
    effects: list[Effect] = []
    for message in outputs:
        for way in firing.place.out:
            if not await _is_taken(way, message, warnings):
                continue
            edge = way.edge
            if not edge.carry_data:
                effects.append(Effect(way, None, edge.trigger))
                continue
            payload = carried(
                message, way.source.id, way.target.id, keep=edge.keep_message, dynamic=edge.dynamic is not None
            )
            arriving = payload if way.process is None else await _processed(way, payload, around, warnings)
            effects.append(Effect(way, arriving, edge.trigger and arriving is not None))
    return tuple(effects)


async def _is_taken(way: Way, message: Message, warnings: list[str]) -> bool:
    if way.test is None:
        return True
    try:
        met = way.test(message.text)
        return bool(await met if isawaitable(met) else met)
    except NEVER_TOLERATED:
        raise
    except Exception as error:  # noqa: BLE001 - somebody's function; a broken condition counts as met
        warnings.append(f"{way}: its condition failed and counts as met: {_told(error)}")
        return True


async def _processed(way: Way, payload: Message, around: Around, warnings: list[str]) -> Message | None:
    assert way.process is not None
    try:
        result = way.process(payload, around)
        arriving = await result if isawaitable(result) else result
    except NEVER_TOLERATED:
        raise
    except Exception as error:  # noqa: BLE001 - somebody's function; the message arrives as it was
        warnings.append(f"{way}: its processor failed and the message arrives unchanged: {_told(error)}")
        return payload
    if arriving is not None and len(arriving.text) > LONGEST:
        raise GraphMistake(
            f"{way}: its processor makes a text of {len(arriving.text)} characters, {LONGEST} are the most"
        )
    return arriving


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, CallboardError) else f"{type(error).__name__}: {error}"
