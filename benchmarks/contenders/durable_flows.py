"""Workflows that go on. In a process of their own, since what is imported makes each collection of garbage dearer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from unittest import mock

from _serve import serve
from durable_callboard import back
from workflow_callboard import Work, node
from workflow_callboard import plan as flow_plan

from callboard.actors.engine.workflow.messages import Message
from callboard.actors.engine.workflow.nodes import custom
from callboard.actors.engine.workflow.plan import Plan
from callboard.actors.engine.workflow.play import run_workflow
from callboard.actors.work.context import RunContext
from callboard.protocol.requests import Limits


def flow_back(flow: Plan, last: str, said: int, lost: int = 0) -> float:
    """As `back`, of a run of this workflow, whose last node says so many messages."""
    context = RunContext(
        gateway=cast("Any", None), limits=Limits(), config_dir=Path(), environ={}, run_agent=cast("Any", None)
    )
    with mock.patch.object(custom, "node_types", return_value={"work": Work()}):
        return back(
            lambda root: root.spawn(run_workflow, flow, [Message(role="user", content="TASK")], context),
            lambda result: result.error is None and len(result.outputs[last]) == said,
            lost,
        )


def resume_flow(n: int) -> float:
    """Of so many nodes of a workflow, in a chain, with two rows each."""
    nodes = [node(f"n{i}", "work") for i in range(n)]
    edges = [f"    - {{from: n{i}, to: n{i + 1}}}" for i in range(n - 1)]
    return flow_back(flow_plan(nodes, edges, "n0"), f"n{n - 1}", 1)


def resume_units(n: int) -> float:
    """Of a map of a workflow with so many units, with two rows each; that its node was left is not on the disk yet."""
    text = "\\n".join(map(str, range(n)))
    nodes = [f'    - {{id: s, type: literal, config: {{content: "{text}"}}}}', node("m", "work")]
    edges = ["    - {from: s, to: m, dynamic: {type: map, config: {split_type: lines, max_parallel: 100}}}"]
    return flow_back(flow_plan(nodes, edges, "s"), "m", n, 1)


if __name__ == "__main__":
    serve({"resume_flow": resume_flow, "resume_units": resume_units})
