"""Results of runs: the type that an agent or a run names, sent to the model, checked, asked for again."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels, Reply

import callboard
from callboard.protocol.errors import UsageError


class Grade(enum.Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Verdict:
    grade: Grade
    reasons: list[str]


class Row(TypedDict):
    name: str
    count: int


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Tree(msgspec.Struct):
    children: list[Tree]


UNHASHABLE: list[int] = []
VERDICT = '{"grade": "good", "reasons": ["short"]}'
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

KINDS: list[Any] = [
    pytest.param(Verdict, VERDICT, Verdict(Grade.GOOD, ["short"]), id="dataclass"),
    pytest.param(Row, '{"name": "a", "count": 3}', {"name": "a", "count": 3}, id="TypedDict"),
    pytest.param(Point, '{"x": 1}', Point(1), id="Struct"),
    pytest.param(list[Point], '{"result": [{"x": 1}]}', [Point(1)], id="list"),
    pytest.param(int, '{"result": 7}', 7, id="int"),
    pytest.param(Literal["a", "b"], '{"result": "b"}', "b", id="Literal"),
    pytest.param(Grade, '{"result": "bad"}', Grade.BAD, id="enum"),
    pytest.param(Path, '{"result": "/tmp/x"}', Path("/tmp/x"), id="Path"),
    pytest.param(Annotated[int, UNHASHABLE], '{"result": 7}', 7, id="metadata without a hash"),
    pytest.param(Tree, '{"children": [{"children": []}]}', Tree([Tree([])]), id="recursive"),
    pytest.param(Point | None, '{"result": null}', None, id="union"),
    pytest.param(SCHEMA, '{"n": 3}', {"n": 3}, id="JSON Schema"),
    pytest.param({"type": "array", "items": {"type": "integer"}}, '{"result": [1]}', [1], id="JSON Schema of a list"),
]


@pytest.mark.parametrize(("kind", "answer", "value"), KINDS)
async def test_the_answer_becomes_an_object_of_the_type(
    agent_runner: AgentRunner, kind: Any, answer: str, value: Any
) -> None:
    agent: Any = callboard.Agent(name="judge", instructions="Judge.", result=kind)
    agent_runner.models.script(answer)
    outcome = await agent_runner.run("go", target=agent)
    assert outcome.status == "done", outcome.error
    assert outcome.has_result
    assert outcome.result == value
    assert outcome.unwrap() == value
    body = agent_runner.models.requests[0].json
    assert body["response_format"]["type"] == "json_schema"
    assert body["response_format"]["json_schema"]["schema"]["type"] == "object"


async def test_a_run_names_the_type_for_an_agent_of_a_file(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: Judge.", name="judge")
    agent_runner.models.script("Sure!\n```json\n" + VERDICT + "\n```")
    outcome = await callboard.run("judge", "go", result=Verdict, root=agent_runner.root)
    assert outcome.unwrap() == Verdict(Grade.GOOD, ["short"])


async def test_a_model_is_asked_again_for_an_answer_that_does_not_fit(agent_runner: AgentRunner) -> None:
    agent = callboard.Agent(name="judge", instructions="Judge.", result=Verdict)
    agent_runner.models.script("It is good.", '{"grade": "fine", "reasons": []}', VERDICT)
    outcome = await agent_runner.run("go", target=agent)
    assert outcome.unwrap() == Verdict(Grade.GOOD, ["short"])
    assert outcome.final == VERDICT
    assert outcome.turns == 3
    asked = agent_runner.models.requests[2].prompt
    assert "'fine'" in asked
    assert "$.grade" in asked


async def test_a_run_fails_whose_model_never_gives_an_answer_that_fits(agent_runner: AgentRunner) -> None:
    agent = callboard.Agent(name="judge", instructions="Judge.", result=Verdict)
    agent_runner.models.answer_with(lambda request: "no")
    outcome = await agent_runner.run("go", target=agent)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "result_invalid"
    assert outcome.result is None
    assert len(agent_runner.models.requests) == 3
    with pytest.raises(callboard.OutcomeError) as caught:
        outcome.unwrap()
    assert caught.value.outcome is outcome
    assert caught.value.code == "result_invalid"


async def test_tools_are_called_before_the_result_is_given(agent_runner: AgentRunner) -> None:
    def measure() -> int:
        return 7

    agent = callboard.Agent(name="judge", instructions="Judge.", result=Point, tools=[measure])
    agent_runner.models.script(Reply("I measure.", calls=[("measure", {})]), '{"x": 7}')
    outcome = await agent_runner.run("go", target=agent)
    assert outcome.unwrap() == Point(7)
    assert outcome.final == '{"x": 7}'
    assert outcome.output == 'I measure.\n{"x": 7}'
    # A server that speaks OpenAI's format need not take a schema beside tools; the prompt has it.
    assert "response_format" not in agent_runner.models.requests[0].json
    assert '"required":["x"]' in agent_runner.models.requests[0].system


async def test_a_schema_is_a_forced_tool_for_claude(fake_model: FakeModels, tmp_path: Path) -> None:
    config = fake_model.config_dir(tmp_path / "claude", type="claude")
    fake_model.script(Reply(calls=[("answer", {"x": 1})]))
    async with callboard.Root(config_dir=config) as root:
        await root.run(callboard.Agent(name="a", result=Point), "go")
    assert fake_model.requests[0].json["tool_choice"]["type"] == "tool"


async def test_the_result_of_a_graph_is_its_output(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: e
        nodes:
          e: {type: end, output: '{"x": {{initial_prompt}} }'}
        """
    )
    assert (await callboard.run("g", "3", result=Point, root=agent_runner.root)).unwrap() == Point(3)
    failed = await callboard.run("g", "[]", result=Point, root=agent_runner.root)
    assert failed.error is not None
    assert failed.error.code == "result_invalid"


async def test_the_final_text_is_that_of_the_last_turn(agent_runner: AgentRunner) -> None:
    def look() -> str:
        return "3"

    agent = callboard.Agent(name="a", tools=[look])
    agent_runner.models.script(Reply("Let me look that up.", calls=[("look", {})]), "The answer is 3.")
    outcome = await agent_runner.run("go", target=agent)
    assert outcome.output == "Let me look that up.\nThe answer is 3."
    assert outcome.final == outcome.unwrap() == "The answer is 3."
    assert outcome.to_wire()["final"] == "The answer is 3."


async def test_the_result_is_in_the_json_of_the_outcome(agent_runner: AgentRunner) -> None:
    agent_runner.models.script(VERDICT)
    outcome = await agent_runner.run("go", target=callboard.Agent(name="a", result=Verdict))
    assert outcome.to_wire()["result"] == {"grade": "good", "reasons": ["short"]}
    assert agent_runner.events[-1].data.outcome["result"] == {"grade": "good", "reasons": ["short"]}
    assert not any(key in outcome.to_wire() for key in ("final", "has_result"))


async def test_a_type_that_checks_itself_is_asked_for_again(agent_runner: AgentRunner) -> None:
    @dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError(f"{self.n} is odd")

    agent_runner.models.script('{"n": 3}', '{"n": 4}')
    outcome = await agent_runner.run("go", target=callboard.Agent(name="a", result=Even))
    assert outcome.unwrap().n == 4
    assert "3 is odd" in agent_runner.models.requests[1].prompt


async def test_a_stream_has_the_type_of_its_run(agent_runner: AgentRunner) -> None:
    agent_runner.models.script('{"x": 5}')
    async with agent_runner.root.stream(callboard.Agent(name="a"), "go", result=Point) as run:
        assert (await run.outcome()).unwrap() == Point(5)


@pytest.mark.parametrize("kind", [complex, 3, {"type": "objekt"}, {"type": {1, 2}}], ids=repr)
async def test_what_is_no_type_of_a_result_is_refused_before_the_run(agent_runner: AgentRunner, kind: Any) -> None:
    with pytest.raises(UsageError):
        await callboard.run(callboard.Agent(name="a"), "go", result=kind, root=agent_runner.root)
    with pytest.raises(UsageError):
        callboard.Agent(name="a", result=kind)
