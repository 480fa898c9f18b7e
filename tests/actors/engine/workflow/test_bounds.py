"""What a hostile or careless file may grow to, and what its nodes can't do to the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.messages import has_message, says
from support.workflow_run import WorkflowRunner, written

from callboard.actors.engine.workflow.machine import perform
from callboard.actors.engine.workflow.workspace import WorkflowWorkspace
from callboard.protocol.errors import GraphMistake, NodeFailed


def doubling(directory: Path, edge: str = "") -> object:
    return written(
        directory,
        f"""
        graph:
          start: [A]
          end: [B]
          max_iterations: 60
          nodes:
            - {{id: A, type: passthrough, context_window: -1, config: {{only_last_message: false}}}}
            - {{id: B, type: passthrough, context_window: -1, config: {{only_last_message: false}}}}
          edges:
            - {{from: A, to: B{edge}}}
            - {{from: B, to: A, clear_context: {str(bool(edge)).lower()}}}
        """,
    )


async def test_messages_that_double_every_round_end_the_run(
    workflow_runner: WorkflowRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perform, "MOST_QUEUED", 1000)
    result = await workflow_runner.run(doubling(workflow_runner.directory), "x")
    assert isinstance(result.error, GraphMistake)
    assert has_message(str(result.error), "engine.workflow.machine.perform.perform", MOST_QUEUED=1000)


async def test_a_text_that_doubles_every_round_ends_the_run(
    workflow_runner: WorkflowRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perform, "LONGEST", 1000)
    twice = ', clear_context: true, process: {type: template, config: {template: "{{content}}{{content}}"}}'
    result = await workflow_runner.run(doubling(workflow_runner.directory, twice), "x")
    assert isinstance(result.error, GraphMistake)
    assert has_message(
        str(result.error), "engine.workflow.machine.perform._processed.2", way="…'A'…", text=1024, LONGEST=1000
    )


PYTHON = "graph: {start: [P], nodes: [{id: P, type: python, config: {%s}}], edges: []}"


@pytest.mark.parametrize("encoding", ["foo", "hex", "punycode", "idna", "undefined"])
async def test_an_encoding_that_does_not_take_every_byte_is_a_mistake(
    workflow_runner: WorkflowRunner, encoding: str
) -> None:
    result = await workflow_runner.run(written(workflow_runner.directory, PYTHON % f"encoding: {encoding}"), "print(1)")
    assert isinstance(result.error, GraphMistake)
    assert f"`encoding: {encoding}` is not a text encoding" in str(result.error)


async def test_a_workspace_that_can_not_be_made_fails_the_node(workflow_runner: WorkflowRunner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    result = await workflow_runner.run(
        written(workflow_runner.directory, PYTHON % ""), "print(1)", workspace=tmp_path / "file"
    )
    assert isinstance(result.error, NodeFailed)
    assert has_message(str(result.error), "engine.workflow.workspace.WorkflowWorkspace._made")
    assert (tmp_path / "file").read_text() == "mine"


async def test_an_attachment_that_is_gone_leaves_no_directory(
    workflow_runner: WorkflowRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    workspace = WorkflowWorkspace(workflow_runner.root.actor, None, [tmp_path / "gone.txt"])
    with pytest.raises(NodeFailed, match=says("engine.workflow.workspace.WorkflowWorkspace._made.2")):
        await workspace.path()
    assert list(tmp_path.rglob("workspace-*")) == []
