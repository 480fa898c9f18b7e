"""llm nodes and structured answers: cases 70 to 74 of Loki's conformance list."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.fake_models import Reply
from support.messages import has_message

from callboard.actors.engine.graph.nodes.model_nodes import read_json

LLM = """
start: a
nodes:
  a: {{type: llm, prompt: "{{{{initial_prompt}}}}", {options}next: e}}
  e: {{type: end, output: "{{{{a}}}}{{{{said}}}}"}}
  f: {{type: end, output: "fallback: {{{{said}}}}"}}
"""
SCHEMA = "output_schema: {type: object, properties: {a: {type: integer}}, required: [a]}, "
SAID = 'state_updates: {said: "{{output}}"}, '


def llm(options: str = "") -> str:
    return LLM.format(options=options)


# --- 70: structured answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ['```json\n{"a":1}\n```', '```\n{"a":1}\n```', '{"a":1}', ' {"a": 1}\n', '<think>{"a":2}</think>\n{"a":1}'],
)
async def test_case_70_json_in_whatever_wrapping_needs_no_second_call(
    agent_runner: AgentRunner, compat: str, text: str
) -> None:
    agent_runner.agent(llm(SCHEMA))
    agent_runner.models.script(text)
    outcome = await agent_runner.run(compat=compat)
    assert outcome.state["a"] == 1
    assert len(agent_runner.models.requests) == 1


async def test_case_70_prose_is_put_into_shape_by_an_extractor_call(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(llm(SCHEMA))
    agent_runner.models.script("a is one", '{"a": 1}')
    assert (await agent_runner.run("tell me", compat=compat)).state["a"] == 1
    first, extractor = agent_runner.models.requests
    assert first.prompt.startswith("tell me\n\n")
    assert '"required":["a"]' in first.prompt
    assert extractor.prompt == "a is one"
    assert '"required":["a"]' in extractor.json["messages"][0]["content"]
    assert "tools" not in extractor.json


async def test_case_70_prose_from_the_extractor_gets_one_repair_and_then_fails(
    agent_runner: AgentRunner, compat: str
) -> None:
    agent_runner.agent(llm(SCHEMA + "on_error: fail, "))
    agent_runner.models.script("prose", "prose", "still prose")
    outcome = await agent_runner.run(compat=compat)
    assert len(agent_runner.models.requests) == 3
    assert outcome.error is not None
    assert (
        "structured-extraction failed: Structured-output extractor failed to produce valid JSON after repair retry. "
        "Last response:\nstill prose" in outcome.error.message
    )


async def test_case_70_the_text_of_a_failed_extraction_is_lokis(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(llm(SCHEMA + SAID + "fallback: f, "))
    agent_runner.models.script("prose", "prose", "prose")
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output.startswith("fallback: LLM node structured-extraction failed: Structured-output extractor")


async def test_the_shape_is_asked_for_in_the_instructions_if_there_are_any(
    agent_runner: AgentRunner, compat: str
) -> None:
    agent_runner.agent(llm(SCHEMA + 'instructions: "be {{mood}}", '))
    agent_runner.models.script('{"a": 1}')
    await agent_runner.run("tell me", compat=compat, state={"mood": "brief"})
    (request,) = agent_runner.models.requests
    system, user = request.json["messages"]
    assert system["content"].startswith("be brief\n\n")
    assert '"required":["a"]' in system["content"]
    assert user["content"] == "tell me"


async def test_standard_validates_and_tells_the_repair_call_every_error(agent_runner: AgentRunner) -> None:
    schema = "output_schema: {type: object, properties: {a: {type: integer}, b: {enum: [x, y]}}, required: [a, b, c]}, "
    agent_runner.agent(llm(schema))
    agent_runner.models.script('{"a": "one", "b": "z"}', '{"a": "two", "b": "x"}', '{"a": 3, "b": "y", "c": 0}')
    outcome = await agent_runner.run(compat="standard")
    assert outcome.state["a"] == 3
    repair = agent_runner.models.requests[2].prompt
    assert "'c' is a required property" in repair
    assert "$.a: 'two' is not of type 'integer'" in repair
    assert '{"a": "two", "b": "x"}' in repair


async def test_loki_takes_any_json_for_an_answer_and_merges_objects_only(agent_runner: AgentRunner) -> None:
    agent_runner.agent(llm(SCHEMA + SAID))
    agent_runner.models.script('["not", "an", "object"]')
    outcome = await agent_runner.run(compat="loki")
    assert outcome.output == '["not","an","object"]'
    assert "a" not in outcome.state
    assert len(agent_runner.models.requests) == 1


async def test_an_answer_that_is_no_object_is_output_and_no_writes(agent_runner: AgentRunner) -> None:
    agent_runner.agent(llm("output_schema: {type: array, items: {type: integer}}, " + SAID))
    agent_runner.models.script("[1, 2]")
    outcome = await agent_runner.run()
    assert outcome.state == {"initial_prompt": "", "said": "[1,2]"}


async def test_without_a_schema_json_stays_text(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(llm(SAID))
    agent_runner.models.script('{"a": 1}')
    outcome = await agent_runner.run(compat=compat)
    assert outcome.state["said"] == '{"a": 1}'
    assert "a" not in outcome.state


async def test_updates_come_after_the_answers_own_keys(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(llm(SCHEMA + 'state_updates: {a: "got {{output.a}}", whole: "{{output}}"}, '))
    agent_runner.models.script('{"a": 1, "b": [2]}')
    outcome = await agent_runner.run(compat=compat)
    assert outcome.state["a"] == "got 1"
    assert outcome.state["b"] == [2]
    assert outcome.state["whole"] == '{"a":1,"b":[2]}'


async def test_extraction_within_an_llm_node_keeps_to_its_attempts(agent_runner: AgentRunner) -> None:
    agent_runner.agent(llm(SCHEMA + "on_error: fail, "))
    agent_runner.models.script("prose", Reply(status=503, error="busy"))
    outcome = await agent_runner.run()
    assert len(agent_runner.models.requests) == 2
    assert outcome.exit_code == 6


def test_everything_wrong_with_an_answer_is_listed_with_its_path() -> None:
    schema = {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}}}}
    value, wrong = read_json('{"l": [1, "two"]}', schema)
    assert value == {"l": [1, "two"]}
    assert wrong == ["$.l[1]: 'two' is not of type 'integer'"]
    assert read_json("no", schema)[1][0].startswith("it is not JSON: ")
    assert read_json("{}", None) == ({}, [])


# --- 72: tries and time ---------------------------------------------------------------------------------------


async def test_case_72_what_may_pass_is_tried_again(
    agent_runner: AgentRunner, compat: str, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 30  # a wait is not over before it is told of, on a busy machine too
    agent_runner.agent(llm(SAID + "max_attempts: 2, "))
    agent_runner.models.script(Reply(status=500, error="Oh"), Reply(status=429, error="Too Many"), "ok")
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output == "ok"
    assert len(agent_runner.models.requests) == 3
    assert [data.attempt for data in agent_runner.of("llm.retry")] == [1]
    assert [data.reason for data in agent_runner.of("llm.waiting")] == ["refused"], "which is no failed try"


@pytest.mark.parametrize("attempts", [1, 3])
async def test_case_72_exactly_max_attempts_tries_and_then_exit_code_6(
    agent_runner: AgentRunner, compat: str, attempts: int, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1000
    agent_runner.agent(llm(f"max_attempts: {attempts}, on_error: fail, "))
    agent_runner.models.answer_with(lambda request: Reply(status=503, error="busy"))
    outcome = await agent_runner.run(compat=compat)
    assert len(agent_runner.models.requests) == attempts
    assert outcome.exit_code == 6
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.node) == ("upstream", "a")


async def test_case_72_what_will_not_pass_is_not_tried_again(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(llm("max_attempts: 3, on_error: fail, "))
    agent_runner.models.script(Reply(status=400, error="bad request, not 429"))
    outcome = await agent_runner.run(compat=compat)
    assert len(agent_runner.models.requests) == 1
    assert outcome.error is not None
    assert "bad request, not 429" in outcome.error.message
    assert outcome.exit_code == 1


async def test_case_72_no_text_is_a_failure_that_may_pass(
    agent_runner: AgentRunner, compat: str, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1000
    agent_runner.agent(llm(SAID + "max_attempts: 3, on_error: fail, "))
    agent_runner.models.script(Reply(status=503, error="busy"), Reply(" \n"), "at last")
    assert (await agent_runner.run(compat=compat)).output == "at last"
    agent_runner.models.script("", "", "", "one too many")
    outcome = await agent_runner.run(compat=compat)
    assert agent_runner.models.unused == 1
    assert outcome.error is not None
    assert "fake:model produced no output" in outcome.error.message
    assert outcome.exit_code == 6


async def test_case_72_the_timeout_covers_all_tries_and_the_waits_between(
    agent_runner: AgentRunner, compat: str, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 20
    agent_runner.agent(llm(SAID + "max_attempts: 3, timeout: 1, fallback: f, "))
    agent_runner.models.answer_with(lambda request: Reply(delay=0.6, status=503, error="busy"))
    outcome = await agent_runner.run(compat=compat)
    assert has_message(outcome.output, "engine.graph.run._timeout_text.2", seconds=1)
    assert len(agent_runner.models.requests) < 3


# --- 73: failure ----------------------------------------------------------------------------------------------

BAD = Reply(status=400, error="bad request")


async def test_case_73_a_failure_with_fallback_updates_the_state_and_takes_it(
    agent_runner: AgentRunner, compat: str
) -> None:
    agent_runner.agent(llm(SAID + "fallback: f, "))
    agent_runner.models.script(BAD)
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output.startswith("fallback: LLM node failed: ")
    assert "bad request" in outcome.output
    assert outcome.order == ["a", "f"]


async def test_case_73_without_fallback_loki_fails_the_run(agent_runner: AgentRunner) -> None:
    agent_runner.agent(llm(SAID))
    agent_runner.models.script(BAD)
    outcome = await agent_runner.run(compat="loki")
    assert outcome.error is not None
    assert outcome.error.message.startswith("at node 'a': ")
    assert has_message(outcome.error.message, "engine.graph.node_exit._untolerated.2")
    assert "bad request" in outcome.error.message
    assert has_message(outcome.error.message, "engine.graph.node_exit._untolerated.3", id="a")
    assert outcome.state == {"initial_prompt": ""}


async def test_case_73_without_fallback_standard_goes_to_next_with_the_error_as_output(
    agent_runner: AgentRunner,
) -> None:
    agent_runner.agent(llm(SAID))
    agent_runner.models.script(BAD)
    outcome = await agent_runner.run(compat="standard")
    assert outcome.output.startswith("LLM node failed: ")
    assert agent_runner.warnings == ["node_failed"]


async def test_case_73_without_fallback_and_next_the_run_fails(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        settings: {validate_before_run: false}
        start: a
        nodes:
          a: {type: llm, prompt: p}
          e: {type: end}
        """
    )
    agent_runner.models.script(BAD)
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.node_exit._untolerated.2")


async def test_a_client_that_does_not_exist_fails_before_the_run(agent_runner: AgentRunner) -> None:
    agent_runner.agent(llm("model: nobody:model, "))
    with pytest.raises(Exception, match="nobody"):
        await agent_runner.run()
    assert agent_runner.events == []


# --- 74: what is asked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", "tools: [], "])
async def test_case_74_no_tools_listed_no_tools_offered(agent_runner: AgentRunner, compat: str, options: str) -> None:
    agent_runner.agent("global_tools: [fs_cat.sh]\n" + llm(options).strip())
    await agent_runner.run("hello", compat=compat)
    (request,) = agent_runner.models.requests
    assert "tools" not in request.json
    assert request.json["messages"] == [{"role": "user", "content": "hello"}]


async def test_how_much_a_model_thinks_is_the_nodes_else_the_graphs(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        model: fake:small
        reasoning_effort: low
        start: a
        nodes:
          a: {type: llm, prompt: one, next: b}
          b: {type: llm, prompt: two, reasoning_effort: high, next: c}
          c: {type: llm, prompt: three, thinking_budget: 30000, next: e}
          e: {type: end}
        """
    )
    await agent_runner.run()
    assert [request.json["reasoning_effort"] for request in agent_runner.models.requests] == ["low", "high", "xhigh"]


async def test_sampling_is_the_nodes_else_the_graphs(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        model: fake:small
        temperature: 0.1
        top_p: 0.9
        start: a
        nodes:
          a: {type: llm, prompt: one, next: b}
          b: {type: llm, prompt: two, model: fake:large, temperature: 0, next: e}
          e: {type: end}
        """
    )
    await agent_runner.run(compat=compat)
    sampling = [
        {key: request.json[key] for key in ("model", "temperature", "top_p")}
        for request in agent_runner.models.requests
    ]
    assert sampling == [
        {"model": "small", "temperature": 0.1, "top_p": 0.9},
        {"model": "large", "temperature": 0, "top_p": 0.9},
    ]


async def test_the_callers_model_goes_before_the_graphs_and_behind_the_nodes(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        model: fake:file
        start: a
        nodes:
          a: {type: llm, prompt: one, next: b}
          b: {type: llm, prompt: two, model: fake:own, next: e}
          e: {type: end}
        """
    )
    await agent_runner.run(model="fake:flag")
    assert [request.json["model"] for request in agent_runner.models.requests] == ["flag", "own"]


async def test_every_node_asks_afresh_without_history(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: one, instructions: sys, next: b}
          b: {type: llm, prompt: two, next: e}
          e: {type: end}
        """
    )
    await agent_runner.run(compat=compat)
    assert [len(request.json["messages"]) for request in agent_runner.models.requests] == [2, 1]
    assert json.loads(agent_runner.models.requests[1].body)["messages"][0]["content"] == "two"
