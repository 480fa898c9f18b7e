"""Random workflows on the kernel: how long nodes take changes nothing, and a run that is cancelled leaves nobody."""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.workflow_run import Naps, open_workflow_runner, written
from trio.testing import MockClock

from callboard.actors.engine.workflow.nodes import custom
from callboard.actors.engine.workflow.run import WorkflowResult

COUNT = 6
LENGTHS = pytest.mark.parametrize("examples", [25, pytest.param(500, marks=pytest.mark.soak)])

Edges = list[tuple[int, int, bool]]
EDGES = st.lists(
    st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1), st.booleans()), max_size=10, unique=True
)
SPEEDS = st.lists(st.sampled_from([0, 1, 2, 5]), min_size=COUNT, max_size=COUNT)


def text_of(edges: Edges, speeds: list[int], windows: list[int]) -> str:
    nodes = [
        f"    - {{id: N{i}, type: nap, context_window: {windows[i]}, config: {{seconds: {speeds[i]}}}}}"
        for i in range(COUNT)
    ]
    lines = [f"    - {{from: N{a}, to: N{b}, trigger: {str(fires).lower()}}}" for a, b, fires in edges]
    return "\n".join(
        ["graph:", "  start: [N0]", "  end: []", "  max_iterations: 3", "  nodes:", *nodes, "  edges:", *lines]
        if lines
        else ["graph:", "  start: [N0]", "  end: []", "  nodes:", *nodes, "  edges: []"]
    )


NAPPING = mock.patch.object(custom, "node_types", return_value={"nap": Naps()})


async def played(text: str, cancel_after: float | None = None) -> WorkflowResult:
    """How it ends, with nobody left."""
    with tempfile.TemporaryDirectory() as directory, NAPPING:
        async with open_workflow_runner(Path(directory)) as workflow_runner:
            plan = written(Path(directory), text, "devall", Naps.known)
            ref = workflow_runner.start(plan)
            with trio.move_on_after(float("inf") if cancel_after is None else cancel_after):
                await ref.wait()
            ref.cancel()
            await ref.wait()
            assert workflow_runner.root.actor.child_count == 0
            return workflow_runner.result


def run(text: str, cancel_after: float | None = None) -> WorkflowResult:
    return trio.run(partial(played, text, cancel_after), clock=MockClock(autojump_threshold=0))


def shown(result: WorkflowResult) -> Any:
    return result.output, result.outputs, result.leftover, Counter(result.order), str(result.error)


@LENGTHS
def test_how_long_nodes_take_changes_nothing(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(EDGES, SPEEDS, SPEEDS, st.lists(st.sampled_from([0, 1, -1]), min_size=COUNT, max_size=COUNT))
    def law(edges: Edges, some: list[int], others: list[int], windows: list[int]) -> None:
        assert shown(run(text_of(edges, some, windows))) == shown(run(text_of(edges, others, windows)))

    law()


@LENGTHS
def test_whenever_a_run_is_cancelled_nobody_is_left_and_what_was_said_is_kept(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(EDGES, SPEEDS, st.integers(0, 20))
    def law(edges: Edges, speeds: list[int], moment: int) -> None:
        text = text_of(edges, speeds, [0] * COUNT)
        whole, part = run(text), run(text, moment + 0.5)
        for id, said in part.outputs.items():
            assert whole.outputs[id][: len(said)] == said

    law()
