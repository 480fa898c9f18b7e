"""approval and input nodes: cases 37 and 75 to 78 of Loki's conformance list, and what people can do beyond it."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from support.agent_runs import Stage
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
    stage: Stage, compat: str, answer: str, output: str
) -> None:
    stage.agent(APPROVAL)
    outcome = await stage.run("it", compat=compat, answers=[answer])
    assert outcome.output == output
    assert outcome.state["decision"] == answer
    stage.check_stream()


@pytest.mark.parametrize("answer", ["Accept", " accept\n", "ACCEPT"])
async def test_case_75_an_option_is_meant_in_any_case_in_standard_and_by_its_letters_in_loki(
    stage: Stage, answer: str
) -> None:
    stage.agent(APPROVAL)
    assert (await stage.run("it", compat="standard", answers=[answer])).output == "accepted accept"
    assert (await stage.run("it", compat="loki", answers=[answer])).state["decision"] == answer


async def test_case_75_the_question_is_rendered_and_carries_its_options(stage: Stage, compat: str) -> None:
    stage.agent(APPROVAL)
    person = Person(stage.root, lambda question: "accept")
    with stage.root.questions.attach(person):
        await stage.run("it", compat=compat)
    (question,) = person.asked_for
    assert (question.text, question.options, question.kind) == ("Keep it?", ("accept", "reject"), "choice")
    assert (question.node, question.free) == ("q", True)
    assert question.run == stage.events[0].run


async def test_case_37_choice_is_gone_afterwards_in_standard_and_null_in_loki(stage: Stage) -> None:
    stage.agent(APPROVAL)
    assert "choice" not in (await stage.run(compat="standard", answers=["accept"])).state
    assert (await stage.run(compat="loki", answers=["accept"])).state["choice"] is None
    stage.agent(APPROVAL.replace('state_updates: {decision: "{{choice}}"}', "description: none"))
    assert "choice" not in (await stage.run(compat="loki", answers=["accept"])).state


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
async def test_case_76_the_length_is_checked(stage: Stage, compat: str, rule: str, answer: str, good: bool) -> None:
    stage.agent(asking(f'validation: "{rule}"'))
    outcome = await stage.run(compat=compat, answers=[answer], state={"mark": ""})
    if good:
        assert outcome.output == f"hi {answer}"
        return
    assert outcome.error is not None
    text = f"Input failed validation '{rule}' (got {len(answer)} chars)"
    assert outcome.error.message == f"at node 'i': {text}"
    assert outcome.exit_code == 1


async def test_case_76_lengths_are_characters_in_standard_and_bytes_in_loki(stage: Stage) -> None:
    stage.agent(asking('validation: "len(input) == 1"'))
    assert (await stage.run(compat="standard", answers=["é"], state={"mark": ""})).output == "hi é"
    outcome = await stage.run(compat="loki", answers=["é"], state={"mark": ""})
    assert outcome.error is not None
    assert has_message(
        outcome.error.message, "engine.graph.input_validation.LengthRule.problem", text="len(input) == 1", answer=1
    )


async def test_case_76_another_expression_is_a_mistake(stage: Stage, compat: str) -> None:
    stage.agent("settings: {validate_before_run: false}\n" + asking('validation: "len(x) > 1"').strip())
    outcome = await stage.run(compat=compat, answers=["abc"], state={"mark": ""})
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.input_validation.parse_rule", text="len(x) > 1")


@pytest.mark.parametrize(("default", "shown"), [("x", "Name? [default: x]"), ("{{gone}}", "Name?")])
async def test_case_77_the_default_is_shown_and_taken_for_an_empty_answer(
    stage: Stage, compat: str, default: str, shown: str
) -> None:
    stage.agent(asking(f'default: "{default}"'))
    person = Person(stage.root, lambda question: "")
    with stage.root.questions.attach(person):
        outcome = await stage.run(compat=compat, state={"mark": "?"})
    assert person.asked_for[0].text == shown
    assert outcome.output == ("hi x" if default == "x" else "hi ")


async def test_case_77_with_nobody_there_the_default_is_taken(stage: Stage, compat: str) -> None:
    stage.agent(asking('default: "{{mark}}y"'))
    assert (await stage.run(compat=compat, state={"mark": "x"})).output == "hi xy"


async def test_case_78_a_question_nobody_can_answer_ends_the_run_with_5(stage: Stage, compat: str) -> None:
    stage.agent(APPROVAL)
    outcome = await stage.run("it", compat=compat)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.node, outcome.exit_code) == ("nobody_to_ask", "q", 5)
    assert has_message(outcome.error.message, "supervisors.escalation._nobody", text="Keep it?")


async def test_only_the_first_target_of_an_input_counts(stage: Stage, compat: str) -> None:
    stage.agent(asking().replace("next: e}", "next: [e, other]}") + "  other: {type: end, output: other}\n")
    outcome = await stage.run(compat=compat, answers=["x"], state={"mark": ""})
    assert outcome.output == "hi x"


async def test_a_question_that_names_a_missing_key_is_a_mistake(stage: Stage, compat: str) -> None:
    stage.agent(asking())
    outcome = await stage.run(compat=compat, answers=["x"])
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.templates._complaint", names="'mark'")
    assert stage.of("question.asked") == []


# --- beyond Loki ----------------------------------------------------------------------------------------------


async def test_a_person_is_asked_again_and_told_what_was_wrong(stage: Stage) -> None:
    stage.agent(asking('validation: "len(input) >= 3"'))
    answers = iter(["a", "ab", "abc"])
    person = Person(stage.root, lambda question: next(answers))
    with stage.root.questions.attach(person):
        outcome = await stage.run(state={"mark": ""})
    assert outcome.output == "hi abc"
    assert [question.problem for question in person.asked_for] == [
        None,
        "Input failed validation 'len(input) >= 3' (got 1 chars)",
        "Input failed validation 'len(input) >= 3' (got 2 chars)",
    ]
    assert {question.rule for question in person.asked_for} == {"at least 3 characters"}
    assert len({question.id for question in person.asked_for}) == 3


async def test_in_loki_a_person_has_one_try(stage: Stage) -> None:
    stage.agent(asking('validation: "len(input) >= 3"'))
    person = Person(stage.root, lambda question: "a")
    with stage.root.questions.attach(person):
        outcome = await stage.run(compat="loki", state={"mark": ""})
    assert outcome.error is not None
    assert len(person.asked_for) == 1


@pytest.mark.parametrize("how", ["nobody", "empty", "typed by the front end"])
async def test_a_default_need_not_satisfy_the_rule_however_it_comes(stage: Stage, how: str) -> None:
    stage.agent(asking('default: "x", validation: "len(input) >= 3"'))
    if how == "nobody":
        standard = await stage.run(state={"mark": ""})
    else:
        person = Person(stage.root, lambda question: "" if how == "empty" else question.default)
        with stage.root.questions.attach(person):
            standard = await stage.run(state={"mark": ""})
    assert standard.output == "hi x"
    loki = await stage.run(compat="loki", answers=[""], state={"mark": ""})
    assert loki.error is not None
    assert has_message(loki.error.message, "engine.graph.input_validation.LengthRule.problem")


TIMED = "timeout: 5, on_timeout: late"
LATE = '  late: {type: end, output: "late {{decision}}{{name}}"}\n'


@pytest.mark.parametrize("kind", ["approval", "input"])
async def test_on_timeout_is_taken_when_nobody_answers_in_time(
    stage: Stage, kind: str, mock_clock: trio.testing.MockClock
) -> None:
    approval = APPROVAL.replace("on_other: other", "on_other: other\n    timeout: 5\n    on_timeout: late")
    stage.agent((approval if kind == "approval" else asking(TIMED)) + LATE)

    def tick(question: Question) -> None:
        mock_clock.autojump_threshold = 0

    person = Person(stage.root, tick)
    with stage.root.questions.attach(person):
        outcome = await stage.run(state={"mark": ""})
    assert outcome.output == "late "
    assert outcome.exit_code == 0
    assert [data.reason for data in stage.of("question.expired")] == ["timeout"]
    assert person.closed_by == ["timeout"]
    assert stage.root.questions.open == ()


async def test_on_timeout_leaves_the_default_of_an_input(stage: Stage, mock_clock: trio.testing.MockClock) -> None:
    stage.agent(asking(TIMED + ', default: "x"') + LATE)

    def tick(question: Question) -> None:
        mock_clock.autojump_threshold = 0

    with stage.root.questions.attach(Person(stage.root, tick)):
        outcome = await stage.run(state={"mark": ""})
    assert outcome.output == "late x"


async def test_a_timeout_without_a_way_out_ends_the_run_with_4(
    stage: Stage, mock_clock: trio.testing.MockClock
) -> None:
    stage.agent(asking("timeout: 5"))

    def tick(question: Question) -> None:
        mock_clock.autojump_threshold = 0

    with stage.root.questions.attach(Person(stage.root, tick)):
        outcome = await stage.run(state={"mark": ""})
    assert outcome.error is not None
    assert outcome.error.message == "at node 'i': no answer within 5 s to: Name"
    assert outcome.exit_code == 4


async def test_an_answer_in_time_ends_the_clock(stage: Stage, mock_clock: trio.testing.MockClock) -> None:
    stage.agent(asking(TIMED) + LATE)
    person = Person(stage.root, lambda question: "bob")
    with stage.root.questions.attach(person):
        outcome = await stage.run(state={"mark": ""})
        mock_clock.jump(10)
        await trio.testing.wait_all_tasks_blocked()
    assert outcome.output == "hi bob"


async def test_questions_of_many_visits_are_answered_one_by_one(stage: Stage, compat: str) -> None:
    stage.agent(
        """
        start: i
        nodes:
          i: {type: input, question: "n?", state_updates: {n: "{{input}}"}, next: s}
          s: {type: script, script: s.sh, routes: [i], next: e}
          e: {type: end, output: "{{n}}"}
        """,
        s="""printf %s "$GRAPH_STATE" | jq -c 'if .n == "stop" then {} else {_next: "i"} end'""",
    )
    outcome = await stage.run(compat=compat, answers={"i": ["go", "on", "stop"]})
    assert outcome.output == "stop"
    assert outcome.nodes["i"].visits == 3
