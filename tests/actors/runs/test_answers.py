"""Answers given before the run: in the order asked, by node, by visit; and what is left over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.agent_runs import AgentRunner

from callboard.actors.runs.execution import Answers
from callboard.protocol.kernel.questions import Answer, Question
from callboard.supervisors.escalation import PASS

TWO = """
start: i
nodes:
  i: {type: input, question: "name?", default: nobody, state_updates: {name: "{{input}}"}, next: q}
  q: {type: approval, question: "ok?", options: ["yes", "no"], routes: {"yes": e, "no": i2}, on_other: e,
      state_updates: {ok: "{{choice}}"}}
  i2: {type: input, question: "why?", state_updates: {why: "{{input}}"}, next: e}
  e: {type: end, output: "{{name}} {{ok}} {{why}}"}
"""


@pytest.mark.parametrize(
    ("answers", "output"),
    [
        (["bob", "yes"], "bob yes "),
        (["bob", "no", "because"], "bob no because"),
        (["", "yes"], "nobody yes "),
        (["bob", True], "bob yes "),
        ([7, False, 1.5], "7 no 1.5"),
        ({"q": "no", "i2": "because"}, "nobody no because"),
        ({"i": None, "q": "yes"}, "nobody yes "),
        ({"i": ["bob"], "q": ["maybe"]}, "bob maybe "),
    ],
)
async def test_answers_are_used_in_order_or_by_node(
    agent_runner: AgentRunner, compat: str, answers: Any, output: str
) -> None:
    agent_runner.agent(TWO)
    outcome = await agent_runner.run(compat=compat, answers=answers)
    assert outcome.output == output
    assert agent_runner.warnings == []
    assert {data.by for data in agent_runner.of("question.answered")} <= {"answers", "default"}


async def test_when_the_answers_are_used_up_the_default_is_next_and_then_nobody(agent_runner: AgentRunner) -> None:
    agent_runner.agent(TWO)
    outcome = await agent_runner.run(answers=[])
    assert outcome.exit_code == 5
    assert outcome.state["name"] == "nobody"
    outcome = await agent_runner.run(answers=["bob"])
    assert (outcome.exit_code, outcome.state["name"]) == (5, "bob")


@pytest.mark.parametrize(
    ("answers", "left"),
    [
        (["bob", "yes", "spare", "more"], "spare, more"),
        ({"i": ["bob", "rob"], "q": "yes", "ghost": "boo"}, "'i': rob, 'ghost': boo"),
    ],
)
async def test_left_over_answers_warn(agent_runner: AgentRunner, answers: Any, left: str) -> None:
    agent_runner.agent(TWO)
    outcome = await agent_runner.run(answers=answers)
    assert outcome.status == "done"
    (warning,) = [data for data in agent_runner.of("run.warning") if data.code == "answers_left"]
    assert warning.message == f"answers that no question asked for: {left}"
    agent_runner.check_stream()


async def test_answers_for_a_misspelt_node_are_named_where_its_question_fails_the_run(
    agent_runner: AgentRunner,
) -> None:
    agent_runner.agent(TWO)
    outcome = await agent_runner.run(answers={"i": "bob", "qq": "yes"})
    assert outcome.exit_code == 5
    (warning,) = [data for data in agent_runner.of("run.warning") if data.code == "answers_left"]
    assert "'qq': yes" in warning.message


UNITS = """
graph:
  id: g
  nodes:
    - {id: A, type: literal, config: {content: '["first", "second", "third"]'}}
    - {id: H, type: human, config: {}}
  edges:
    - {from: A, to: H, dynamic: {type: map, config: {split_type: json_array}}}
"""


@pytest.mark.parametrize(
    "answers",
    [["a", "b", "c"], {"H": ["a", "b", "c"]}, {"H[1]": "b", "H": ["a", "c"]}, {"H[2]": "c", "H[0]": "a", "H": "b"}],
)
async def test_units_of_a_map_are_answered_in_their_order_or_by_their_number(
    agent_runner: AgentRunner, tmp_path: Path, answers: Any
) -> None:
    (tmp_path / "units.yaml").write_text(UNITS)
    outcome = await agent_runner.run(target=str(tmp_path / "units.yaml"), answers=answers)
    assert [message.content for message in outcome.final_messages] == ["a", "b", "c"]
    assert agent_runner.warnings == []


def test_an_answer_that_a_unit_had_is_not_given_again() -> None:
    answers = Answers({"H[1]": ["b"], "H": ["a", "c"]})
    answers.drop("H[1]")
    answers.drop("H[0]")
    assert answers.unused == ["'H': c"]


async def test_answers_come_before_people(agent_runner: AgentRunner) -> None:
    agent_runner.agent(TWO)

    class Terminal:
        name = "terminal"

        def asked(self, question: Question) -> None:
            agent_runner.root.questions.answer(question.id, "from the terminal", by=self.name)

        def closed(self, question_id: str, by: str) -> None:
            pass

    with agent_runner.root.questions.attach(Terminal()):
        outcome = await agent_runner.run(answers={"i": "bob"})
    assert outcome.output == "bob from the terminal "
    assert [data.by for data in agent_runner.of("question.answered")] == ["answers", "terminal"]


def test_a_list_of_lists_answers_a_checkbox() -> None:
    question = Question(id="q1", actor="/x", text="which?", kind="checkbox")
    answers = Answers([["a", "2"]])
    assert answers.policy(question) == Answer(question="q1", value=["a", "2"], by="answers")
    assert answers.policy(question) is PASS
