"""Nodes that run once per unit: map, and tree, which repeats with the results until one is left.

    inputs over dynamic edges   -> split into units
    all other inputs            -> passed to every unit, before its own input
    map                         -> the outputs of all units, in their order
    tree                        -> groups of units, one run per group; then groups of the results, ...

The caller's `run` executes the units; its arguments are a batch and a limit of concurrency.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from .....protocol.errors import GraphMistake
from .....protocol.workflow.edges import Dynamic
from .....protocol.workflow_messages import Unit
from ..edges.processors import filled
from ..edges.splits import units_of
from ..messages import Message
from ..rules import WorkflowRules

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
    """Return the output of a node that runs per unit."""
    static = tuple(message for message in inputs if not message.dynamic)
    units = await units_of(dynamic.split, [message for message in inputs if message.dynamic])
    if len(units) > MOST_UNITS:
        raise GraphMistake(
            f"it would run for {len(units)} units, and {MOST_UNITS} are the most: see what its dynamic edges split, "
            "and by what"
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
