"""Random workflows on the kernel, some of their actors cancelled: their messages lead to the same effects again."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.second_decider import twins
from support.workflow_graphs import graphs
from support.workflow_run import open_workflow_runner
from trio.testing import MockClock

from callboard.actors.engine.workflow.job import Job
from callboard.actors.engine.workflow.machine import perform
from callboard.actors.engine.workflow.machine.perform import Said
from callboard.actors.engine.workflow.machine.structure import Structure
from callboard.actors.engine.workflow.messages import Message
from callboard.actors.engine.workflow.nodes import custom
from callboard.actors.engine.workflow.plan import EdgeFunctionFiles, WorkflowPlan
from callboard.actors.engine.workflow.rules import DEVALL, STANDARD, WorkflowRules
from callboard.actors.engine.workflow.run import WorkflowResult
from callboard.protocol.errors import NodeFailed
from callboard.protocol.workflow.model import (
    AgentConfig,
    CustomConfig,
    Graph,
    LiteralConfig,
    PassthroughConfig,
    SubgraphConfig,
    Workflow,
)
from callboard.supervisors import Actor
from callboard.supervisors.introspection import find

LENGTHS = pytest.mark.parametrize("examples", [15, pytest.param(500, marks=pytest.mark.soak)])


async def says(_: Actor, job: Job) -> Said:
    """A node that takes its time and says the same at every visit, or fails."""
    await trio.sleep(job.values["seconds"])
    if job.values["fails"]:
        raise NodeFailed("broken")
    return Said(outputs=(Message(role="assistant", content=job.values["text"]),))


SAYING = mock.patch.object(custom, "node_types", return_value={"any": mock.Mock(load=lambda: says)})
"""Nodes of the type that random graphs have."""

BOUNDS = mock.patch.multiple(perform, MOST_QUEUED=100, LONGEST=1_000)
UNITS = mock.patch.object(perform, "MOST_UNITS", 50)


def without_models(graph: Graph, seconds: int) -> Graph:
    """The graph with its agents, and some of what is said at once, made nodes that `says` plays."""
    nodes = []
    for i, node in enumerate(graph.nodes):
        config: Any = node.config
        if isinstance(config, AgentConfig):
            text = "\n".join(config.params.get("seq", "x"))
            fails = bool(config.params.get("raise_times"))
            config = CustomConfig(values={"seconds": (seconds + i) % 3, "text": text, "fails": fails})
        elif isinstance(config, LiteralConfig | PassthroughConfig) and (seconds + i) % 2:
            config = CustomConfig(values={"seconds": 1 + i % 2, "text": "x\ny", "fails": False})
        elif isinstance(config, SubgraphConfig) and config.graph is not None:
            config = SubgraphConfig(graph=without_models(config.graph, seconds))
        nodes.append(msgspec.structs.replace(node, type="any", config=config))
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


async def played(graph: Graph, rules: WorkflowRules, moments: list[int]) -> WorkflowResult:
    """How it ends if at each of these seconds one of its actors is cancelled: the one that was entered last."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "g.yaml"
        plan = WorkflowPlan(
            name="g",
            file=file,
            workflow=Workflow(graph=graph),
            rules=rules,
            structure=Structure(graph, rules),
            named=EdgeFunctionFiles(),
        )
        async with open_workflow_runner(Path(directory)) as workflow_runner:
            ref = workflow_runner.start(plan)
            for moment in sorted(moments):
                with trio.move_on_at(moment + 0.5):
                    await ref.wait()
                for event in reversed(workflow_runner.events):
                    actor = find(workflow_runner.root, event.actor)
                    if event.kind == "node.entered" and event.actor != "/run-1" and actor is not None:
                        actor.interrupt()
                        break
            end = await ref.wait()
            assert end.error is None
            return workflow_runner.result


@LENGTHS
def test_whatever_a_workflow_is_told_leads_to_the_same_again(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(
        graphs(dynamic=True),
        st.sampled_from([STANDARD, DEVALL]),
        st.integers(0, 2),
        st.lists(st.integers(0, 5), max_size=2),
    )
    def law(graph: Graph, rules: WorkflowRules, seconds: int, moments: list[int]) -> None:
        playing = partial(played, without_models(graph, seconds), rules, moments)
        with twins() as replayed, SAYING, BOUNDS, UNITS:
            result = trio.run(playing, clock=MockClock(autojump_threshold=0))
        assert replayed
        assert result.order

    law()
