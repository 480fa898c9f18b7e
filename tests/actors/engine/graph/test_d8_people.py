"""approval and input nodes: cases 37 and 75 to 78 of Loki's conformance list, and what people can do beyond it."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.answering_person import Person
from support.messages import has_message

from callboard.protocol.kernel.questions import Question

APPROVAL = """
start: q
nodes:
  q:
    type: approval
    question: "Keep {{initial_prompt}}?"
    options: [accept, reject]
    routes: {accept: yes_, reject: no_}
    on_other: other
    state_updates: {decision: "{{choice}}"}
  yes_: {type: end, output: "accepted {{decision}}"}
  no_: {type: end, output: rejected}
  other: {type: end, output: "other {{decision}}"}
"""


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ("accept", "accepted accept"),
        ("reject", "rejected"),
        ("more sources", "other more sources"),
        ("", "other "),
    ],
)
async def test_case_75_an_option_has_its_route_and_any_other_answer_goes_to_on_other(
    agent_runner: AgentRunner, compat: str, answer: str, output: str
) -> None:
    agent_runner.agent(APPROVAL)
    outcome = await agent_runner.run("it", compat=compat, answers=[answer])
    assert outcome.output == output
    assert outcome.state["decision"] == answer
    agent_runner.check_stream()


@pytest.mark.parametrize("answer", ["Accept", " accept\n", "ACCEPT"])
async def test_case_75_an_option_is_meant_in_any_case_in_standard_and_by_its_letters_in_loki(
    agent_runner: AgentRunner, answer: str
) -> None:
    agent_runner.agent(APPROVAL)
    assert (await agent_runner.run("it", compat="standard", answers=[answer])).output == "accepted accept"
    assert (await agent_runner.run("it", compat="loki", answers=[answer])).state["decision"] == answer


async def test_case_75_the_question_is_rendered_and_carries_its_options(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(APPROVAL)
    person = Person(agent_runner.root, lambda question: "accept")
    with agent_runner.root.questions.attach(person):
        await agent_runner.run("it", compat=compat)
    (question,) = person.asked_for
    assert (question.text, question.options, question.kind) == ("Keep it?", ("accept", "reject"), "choice")
    assert (question.node, question.free) == ("q", True)
    assert question.run == agent_runner.events[0].run


async def test_case_37_choice_is_gone_afterwards_in_standard_and_null_in_loki(agent_runner: AgentRunner) -> None:
    agent_runner.agent(APPROVAL)
    assert "choice" not in (await agent_runner.run(compat="standard", answers=["accept"])).state
    assert (await agent_runner.run(compat="loki", answers=["accept"])).state["choice"] is None
    agent_runner.agent(APPROVAL.replace('state_updates: {decision: "{{choice}}"}', "description: none"))
    assert "choice" not in (await agent_runner.run(compat="loki", answers=["accept"])).state


INPUT = """
start: i
nodes:
  i: {{type: input, question: "Name{{{{mark}}}}", {options}state_updates: {{name: "{{{{input}}}}"}}, next: e}}
  e: {{type: end, output: "hi {{{{name}}}}"}}
"""


def asking(options: str = "") -> str:
    return INPUT.format(options=options and options + ", ")


@pytest.mark.parametrize(
    ("rule", "answer", "good"),
    [
        ("len(input) >= 3", "ab", False),
        ("len(input) >= 3", "abc", True),
        ("len(input)>0", "x", True),
        ("len(input) == 2", "abc", False),
        ("len(input) < 2", "ab", False),
        ("len(input) <= 2", "ab", True),
    ],
)
async def test_case_76_the_length_is_checked(
    agent_runner: AgentRunner, compat: str, rule: str, answer: str, good: bool
) -> None:
    agent_runner.agent(asking(f'validation: "{rule}"'))
    outcome = await agent_runner.run(compat=compat, answers=[answer], state={"mark": ""})
    if good:
        assert outcome.output == f"hi {answer}"
        return
    assert outcome.error is not None
    text = f"Input failed validation '{rule}' (got {len(answer)} chars)"
    assert outcome.error.message == f"at node 'i': {text}"
    assert outcome.exit_code == 1


async def test_case_76_lengths_are_characters_in_standard_and_bytes_in_loki(agent_runner: AgentRunner) -> None:
    agent_runner.agent(asking('validation: "len(input) == 1"'))
    assert (await agent_runner.run(compat="standard", answers=["é"], state={"mark": ""})).output == "hi é"
    outcome = await agent_runner.run(compat="loki", answers=["é"], state={"mark": ""})
    assert outcome.error is not None
    assert has_message(
        outcome.error.message, "engine.graph.input_validation.LengthRule.problem", text="len(input) == 1", answer=1
    )


async def test_case_76_another_expression_is_a_mistake(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent("settings: {validate_before_run: false}\n" + asking('validation: "len(x) > 1"').strip())
    outcome = await agent_runner.run(compat=compat, answers=["abc"], state={"mark": ""})
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.input_validation.parse_rule", text="len(x) > 1")


@pytest.mark.parametrize(("default", "shown"), [("x", "Name? [default: x]"), ("{{gone}}", "Name?")])
async def test_case_77_the_default_is_shown_and_taken_for_an_empty_answer(
    agent_runner: AgentRunner, compat: str, default: str, shown: str
) -> None:
    agent_runner.agent(asking(f'default: "{default}"'))
    person = Person(agent_runner.root, lambda question: "")
    with agent_runner.root.questions.attach(person):
        outcome = await agent_runner.run(compat=compat, state={"mark": "?"})
    assert person.asked_for[0].text == shown
    assert outcome.output == ("hi x" if default == "x" else "hi ")


async def test_case_77_with_nobody_there_the_default_is_taken(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(asking('default: "{{mark}}y"'))
    assert (await agent_runner.run(compat=compat, state={"mark": "x"})).output == "hi xy"


async def test_case_78_a_question_nobody_can_answer_ends_the_run_with_5(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(APPROVAL)
    outcome = await agent_runner.run("it", compat=compat)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.node, outcome.exit_code) == ("nobody_to_ask", "q", 5)
    assert has_message(outcome.error.message, "supervisors.escalation._nobody", text="Keep it?")


async def test_only_the_first_target_of_an_input_counts(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(asking().replace("next: e}", "next: [e, other]}") + "  other: {type: end, output: other}\n")
    outcome = await agent_runner.run(compat=compat, answers=["x"], state={"mark": ""})
    assert outcome.output == "hi x"


async def test_a_question_that_names_a_missing_key_is_a_mistake(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(asking())
    outcome = await agent_runner.run(compat=compat, answers=["x"])
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.templates._complaint", names="'mark'")
    assert agent_runner.of("question.asked") == []


# --- beyond Loki ----------------------------------------------------------------------------------------------


async def test_a_person_is_asked_again_and_told_what_was_wrong(agent_runner: AgentRunner) -> None:
    agent_runner.agent(asking('validation: "len(input) >= 3"'))
    answers = iter(["a", "ab", "abc"])
    person = Person(agent_runner.root, lambda question: next(answers))
    with agent_runner.root.questions.attach(person):
        outcome = await agent_runner.run(state={"mark": ""})
    assert outcome.output == "hi abc"
    assert [question.problem for question in person.asked_for] == [
        None,
        "Input failed validation 'len(input) >= 3' (got 1 chars)",
        "Input failed validation 'len(input) >= 3' (got 2 chars)",
    ]
    assert {question.rule for question in person.asked_for} == {"at least 3 characters"}
    assert len({question.id for question in person.asked_for}) == 3


async def test_in_loki_a_person_has_one_try(agent_runner: AgentRunner) -> None:
    agent_runner.agent(asking('validation: "len(input) >= 3"'))
    person = Person(agent_runner.root, lambda question: "a")
    with agent_runner.root.questions.attach(person):
        outcome = await agent_runner.run(compat="loki", state={"mark": ""})
    assert outcome.error is not None
    assert len(person.asked_for) == 1


@pytest.mark.parametrize("how", ["nobody", "empty", "typed by the front end"])
async def test_a_default_need_not_satisfy_the_rule_however_it_comes(agent_runner: AgentRunner, how: str) -> None:
    agent_runner.agent(asking('default: "x", validation: "len(input) >= 3"'))
    if how == "nobody":
        standard = await agent_runner.run(state={"mark": ""})
    else:
        person = Person(agent_runner.root, lambda question: "" if how == "empty" else question.default)
        with agent_runner.root.questions.attach(person):
            standard = await agent_runner.run(state={"mark": ""})
    assert standard.output == "hi x"
    loki = await agent_runner.run(compat="loki", answers=[""], state={"mark": ""})
    assert loki.error is not None
    assert has_message(loki.error.message, "engine.graph.input_validation.LengthRule.problem")


TIMED = "timeout: 5, on_timeout: late"
LATE = '  late: {type: end, output: "late {{decision}}{{name}}"}\n'


@pytest.mark.parametrize("kind", ["approval", "input"])
async def test_on_timeout_is_taken_when_nobody_answers_in_time(
    agent_runner: AgentRunner, kind: str, mock_clock: trio.testing.MockClock
) -> None:
    approval = APPROVAL.replace("on_other: other", "on_other: other\n    timeout: 5\n    on_timeout: late")
    agent_runner.agent((approval if kind == "approval" else asking(TIMED)) + LATE)

    def tick(question: Question) -> None:
        mock_clock.autojump_threshold = 0

    person = Person(agent_runner.root, tick)
    with agent_runner.root.questions.attach(person):
        outcome = await agent_runner.run(state={"mark": ""})
    assert outcome.output == "late "
    assert outcome.exit_code == 0
    assert [data.reason for data in agent_runner.of("question.expired")] == ["timeout"]
    assert person.closed_by == ["timeout"]
    assert agent_runner.root.questions.open == ()


async def test_on_timeout_leaves_the_default_of_an_input(
    agent_runner: AgentRunner, mock_clock: trio.testing.MockClock
) -> None:
    agent_runner.agent(asking(TIMED + ', default: "x"') + LATE)

    def tick(question: Question) -> None:
        mock_clock.autojump_threshold = 0

    with agent_runner.root.questions.attach(Person(agent_runner.root, tick)):
        outcome = await agent_runner.run(state={"mark": ""})
    assert outcome.output == "late x"


async def test_a_timeout_without_a_way_out_ends_the_run_with_4(
    agent_runner: AgentRunner, mock_clock: trio.testing.MockClock
) -> None:
    agent_runner.agent(asking("timeout: 5"))

    def tick(question: Question) -> None:
        mock_clock.autojump_threshold = 0

    with agent_runner.root.questions.attach(Person(agent_runner.root, tick)):
        outcome = await agent_runner.run(state={"mark": ""})
    assert outcome.error is not None
    assert outcome.error.message == "at node 'i': no answer within 5 s to: Name"
    assert outcome.exit_code == 4


async def test_an_answer_in_time_ends_the_clock(agent_runner: AgentRunner, mock_clock: trio.testing.MockClock) -> None:
    agent_runner.agent(asking(TIMED) + LATE)
    person = Person(agent_runner.root, lambda question: "bob")
    with agent_runner.root.questions.attach(person):
        outcome = await agent_runner.run(state={"mark": ""})
        mock_clock.jump(10)
        await trio.testing.wait_all_tasks_blocked()
    assert outcome.output == "hi bob"


async def test_questions_of_many_visits_are_answered_one_by_one(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: i
        nodes:
          i: {type: input, question: "n?", state_updates: {n: "{{input}}"}, next: s}
          s: {type: script, script: s.sh, routes: [i], next: e}
          e: {type: end, output: "{{n}}"}
        """,
        s="""printf %s "$GRAPH_STATE" | jq -c 'if .n == "stop" then {} else {_next: "i"} end'""",
    )
    outcome = await agent_runner.run(compat=compat, answers={"i": ["go", "on", "stop"]})
    assert outcome.output == "stop"
    assert outcome.nodes["i"].visits == 3
