"""Every recorded workflow that can be a graph: the graph has no errors, and comes to the same result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fake_models import FakeModels, Request

import callboard
from callboard.actors.engine.workflow.convert import convert

RECORDED = Path(__file__).parents[4] / "fixtures" / "workflows" / "devall.json"
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in json.loads(RECORDED.read_text())}
CONVERTIBLE = 30
"""So many of the recorded workflows at least."""


def with_clients(graph: Any) -> None:
    """Have a graph's agents ask the client `fake` for a model that says what they are to say, as hexadecimal JSON."""
    for node in graph.get("nodes") or ():
        if node["type"] == "agent" and node["config"]["provider"] == "stub":
            params = node["config"].pop("params", None) or {}
            reply = params.get("reply", params.get("seq", [None])[0])
            node["config"].update(provider="fake", name=json.dumps([node["id"], reply]).encode().hex())


def written(case: dict[str, Any], home: Path, compat: str) -> Path | None:
    """The graph agent of a case, beside its workflow; None if it can't be one."""
    document = yaml.safe_load(case["yaml"])
    if not isinstance(document, dict) or not isinstance(document.get("graph"), dict):
        return None
    with_clients(document["graph"])
    file = home / "flow.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    try:
        flow = callboard.load(file, compat=compat, config_dir=home / "config")
    except callboard.CallboardError:
        return None
    assert isinstance(flow, callboard.WorkflowAgent)
    files, reasons = convert(flow.workflow, "flow")
    assert bool(files) != bool(reasons)
    for reason in reasons:
        assert reason.line > 0, reason
    for name, text in files.items():
        path = home / "flow" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return home / "flow" if files else None


def echo(request: Request) -> str:
    """What a recorded agent says: its reply, or all that it was sent."""
    name, reply = json.loads(bytes.fromhex(request.json["model"]))
    sent = " ; ".join(f"{message['role']}:{message['content']}" for message in request.json["messages"])
    return str(reply) if reply is not None else f"{name}<{sent}>"


@pytest.mark.sample(60)
@pytest.mark.parametrize("compat", ["standard", "devall"])
@pytest.mark.parametrize("name", CASES)
async def test_a_recorded_workflow_that_can_be_a_graph_comes_to_the_same(
    name: str, compat: str, tmp_path: Path, fake_model: FakeModels
) -> None:
    case = CASES[name]
    config = fake_model.config_dir(tmp_path / "config")
    agent = written(case, tmp_path, compat)
    if agent is None:
        return
    assert [str(each) for each in callboard.validate(agent, config_dir=config)] == []
    fake_model.answer_with(echo)
    answers = case["human_answers"]
    theirs = await callboard.run(
        tmp_path / "flow.yaml", case["task_prompt"], answers=answers, compat=compat, config_dir=config
    )
    ours = await callboard.run(agent, case["task_prompt"], answers=answers, config_dir=config)
    assert (ours.status, ours.output) == (theirs.status, theirs.output)


async def test_many_can(tmp_path: Path, fake_model: FakeModels) -> None:
    fake_model.config_dir(tmp_path / "config")
    found = []
    for i, case in enumerate(CASES.values()):
        (home := tmp_path / str(i)).mkdir()
        (home / "config").symlink_to(tmp_path / "config")
        found.append(written(case, home, "standard"))
    assert sum(each is not None for each in found) >= CONVERTIBLE


async def test_models_that_are_asked_in_turn_are_a_list(tmp_path: Path, fake_model: FakeModels) -> None:
    fake_model.config_dir(tmp_path / "config")
    config = {"provider": "fake", "name": "a", "fallback_models": ["fake:b", "fake:c"]}
    (tmp_path / "flow.yaml").write_text(
        yaml.safe_dump({"graph": {"start": ["A"], "nodes": [{"id": "A", "type": "agent", "config": config}]}})
    )
    flow = callboard.load(tmp_path / "flow.yaml", config_dir=tmp_path / "config")
    assert isinstance(flow, callboard.WorkflowAgent)
    files, _ = convert(flow.workflow, "flow")
    nodes = yaml.safe_load(files["graph.yaml"])["nodes"].values()
    assert [node["model"] for node in nodes if node["type"] == "llm"] == [["fake:a", "fake:b", "fake:c"]]
