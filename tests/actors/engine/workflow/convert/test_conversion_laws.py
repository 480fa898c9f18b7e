"""Random workflows without cycles: the graph that is made of one asks the same and comes to the same."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.fake_models import FakeModels, Request, listening
from support.workflow_driver import WorkflowDriver, read, structure, task

import callboard
from callboard.actors.engine.workflow.convert import convert
from callboard.actors.engine.workflow.nodes.human import input_blocks
from callboard.actors.engine.workflow.workers.converted_workflow import replay
from callboard.protocol.events import Event, QuestionAsked
from callboard.protocol.workflow.model import HumanConfig

WORDS = st.sampled_from(["x", "y", "x y", "{{N0_said}} x", ""])
MOSTLY = st.sampled_from([True, True, True, False])
SELDOM = st.sampled_from([False, False, False, True])
CONDITIONS = st.sampled_from([
    True, True, True, False, "code_pass", "contains_keyword",
    {"type": "keyword", "config": {"any": ["x"]}},
    {"type": "keyword", "config": {"none": ["Y"], "case_sensitive": False}},
    {"type": "keyword", "config": {"any": ["y"], "regex": ["^x$"]}},
    {"type": "regex", "config": {"pattern": "^X", "flags": ["IGNORECASE"]}},
])  # fmt: skip
PROCESSES = st.sampled_from([
    None, None, None,
    {"type": "template", "config": {"template": "<{{content}}>"}},
    {"type": "regex_extract", "config": {"pattern": "[xy]", "multiple": True}},
    {"type": "regex_extract", "config": {"pattern": "(y)", "group": 1, "on_no_match": "drop"}},
    {"type": "regex_extract", "config": {"pattern": "q", "on_no_match": "default", "default_value": "d"}},
])  # fmt: skip


@st.composite
def nodes(draw: st.DrawFn, id: str, *, models: bool) -> dict[str, Any]:
    kind = draw(st.sampled_from(["literal", "passthrough", "human", "agent" if models else "human"]))
    config: dict[str, Any] = {}
    if kind == "literal":
        config = {"content": draw(WORDS) or "-", "role": draw(st.sampled_from(["user", "assistant"]))}
    if kind == "passthrough":
        config = {"only_last_message": draw(st.booleans())}
    if kind == "human":
        config = {"description": draw(WORDS)}
    if kind == "agent":
        config = {"provider": "fake", "name": draw(st.sampled_from(["x", "y", "xy"])), "input_mode": "prompt"}
        config["role"] = draw(WORDS) or "r"
    node: dict[str, Any] = {"id": id, "type": kind, "config": config}
    if draw(SELDOM):
        node["input"] = [draw(WORDS) or "seed"]
    return node


@st.composite
def flows(draw: st.DrawFn, *, most: int, models: bool) -> str:
    """A workflow whose edges all lead from earlier nodes to later ones."""
    count = draw(st.integers(1, most))
    ids = [f"N{i}" for i in range(count)]
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else []
    edges = [
        {
            "from": ids[a],
            "to": ids[b],
            "condition": draw(CONDITIONS),
            "process": draw(PROCESSES),
            "trigger": draw(MOSTLY),
            "carry_data": draw(MOSTLY),
            "keep_message": draw(SELDOM),
            "clear_context": draw(SELDOM),
            "clear_kept_context": draw(SELDOM),
        }
        for a, b in chosen
    ]
    graph = {
        "nodes": [draw(nodes(id, models=models)) for id in ids],
        "edges": edges,
        "start": draw(st.lists(st.sampled_from(ids), min_size=1, max_size=2, unique=True)),
        "end": draw(st.lists(st.sampled_from(ids), max_size=2, unique=True)),
    }
    return yaml.safe_dump({"graph": graph}, sort_keys=False)


@pytest.mark.parametrize("examples", [20, pytest.param(2_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("compat", ["standard", "devall"])
def test_the_scripts_work_out_what_each_node_is_given_and_the_result(compat: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(flows(most=6, models=False))
    def law(text: str) -> None:
        flow, _ = read(text, compat)
        assume(flow is not None)  # `compat: devall` has fewer words
        assert flow is not None
        files, reasons = convert(flow, "g")
        assert reasons == []
        people = [node for node in flow.graph.nodes if isinstance(node.config, HumanConfig)]
        workflow_driver = WorkflowDriver(answers=["x"] * len(people))
        result = workflow_driver.run(structure(flow), task("TASK"))
        if "scripts/workflow.json" not in files:
            return
        data = json.loads(files["scripts/workflow.json"])
        state = {"initial_prompt": "TASK", **{f"{node.id}_said": "x" for node in people}}
        assert replay(data, state, [])[0] == result.final
        given = dict(workflow_driver.inputs)
        for node in people:
            asked = replay(data, state, [node.id])[1].get(node.id)
            assert isinstance(node.config, HumanConfig)
            blocks = [*filter(None, [(node.config.description or "").strip()]), *input_blocks(given.get(node.id, ()))]
            assert asked == ("\n\n".join(blocks) if node.id in given else None)

    law()


Played = tuple[str, str, list[str], list[str]]
"""How it ended, its result, what people and what models were asked."""


async def both(text: str) -> tuple[Played, Played]:
    """The workflow and the graph, run."""
    listener, port = listening()
    server = FakeModels(port)
    server.answer_with(lambda request: str(request.json["model"]))
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        config = server.config_dir(home / "config")
        (home / "flow.yaml").write_text(text)
        flow = callboard.load(home / "flow.yaml", config_dir=config)
        assert isinstance(flow, callboard.WorkflowAgent)
        files, _ = convert(flow.workflow, "g")
        for name, content in files.items():
            (home / "g" / name).parent.mkdir(parents=True, exist_ok=True)
            (home / "g" / name).write_text(content)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, listener)
            played = [await one(target, config, server) for target in (home / "flow.yaml", home / "g")]
            nursery.cancel_scope.cancel()
    return played[0], played[1]


async def one(target: Path, config: Path, server: FakeModels) -> Played:
    asked: list[str] = []

    def heard(event: Event) -> None:
        if isinstance(event.data, QuestionAsked):
            asked.append(event.data.question["text"])

    server.requests.clear()
    answers = {f"N{i}": f"x{i}" for i in range(5)}
    outcome = await callboard.run(target, "TASK", config_dir=config, answers=answers, on_event=heard)
    sent = [_told(request) for request in server.requests]
    return outcome.status, outcome.output, sorted(asked), sorted(sent)


def _told(request: Request) -> str:
    return json.dumps([(message["role"], message["content"]) for message in request.json["messages"]])


@pytest.mark.parametrize("examples", [5, pytest.param(100, marks=pytest.mark.soak)])
def test_the_graph_asks_people_and_models_the_same_and_ends_the_same(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(flows(most=5, models=True))
    def law(text: str) -> None:
        flow, graph = trio.run(partial(both, text))
        assert graph == flow

    law()
