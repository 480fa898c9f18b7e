"""agent nodes: what a model is told, what becomes of its answer, and of its failures."""

from __future__ import annotations

import json
import textwrap

import pytest
import trio
from support.fake_models import Reply, Request
from support.messages import has_message
from support.waiting import until
from support.workflow_agents import RETRIES, Agents, said

from callboard.protocol.events import LlmFallback

ONE = """
graph:
  start: [A]
  nodes:
    - id: A
      type: agent
      config: {{fake}, name: m, %s}
"""


async def test_a_model_is_told_role_and_task_and_its_answer_is_the_result(agents: Agents) -> None:
    agents.models.script("hello there")
    result = await agents.run(ONE % "role: Be kind.")
    assert (result.error, result.output) == (None, "hello there")
    (request,) = agents.models.requests
    assert said(request) == [("system", "Be kind."), ("user", "TASK")]
    assert request.json["model"] == "m"
    assert request.json["temperature"] == 0.7
    assert request.headers["authorization"] == "Bearer sk-test"
    assert agents.context.meter.nodes["A"].output_tokens == 5


async def test_inputs_are_a_conversation_or_one_prompt_with_headings(agents: Agents) -> None:
    yaml = """
        graph:
          start: [S, L]
          nodes:
            - {id: S, type: literal, config: {content: be brief, role: system}}
            - {id: L, type: literal, config: {content: I said it, role: assistant}}
            - {id: A, type: agent, config: {{fake}, name: m, role: R%s}}
          edges:
            - {from: S, to: A}
            - {from: L, to: A}
        """
    await agents.run(yaml % "")
    assert said(agents.models.requests[0]) == [("system", "R\n\nbe brief"), ("assistant", "I said it")]
    await agents.run(yaml % ", input_mode: prompt")
    headed = "=== INPUT FROM S (system) ===\n\nbe brief\n\n=== INPUT FROM L (assistant) ===\n\nI said it"
    assert said(agents.models.requests[1]) == [("system", "R"), ("user", headed)]


async def test_a_unit_of_a_map_is_part_of_the_role(agents: Agents) -> None:
    agents.models.answer_with(lambda request: f"seen {request.system}")
    yaml = """
        graph:
          start: [S]
          nodes:
            - {id: S, type: literal, config: {content: "ann\\nbob"}}
            - {id: A, type: agent, config: {{fake}, name: m, role: "Nurse {{patient}}"}}
          edges:
            - {from: S, to: A, dynamic: {type: map, config: {split_type: lines, item_name: patient}}}
        """
    result = await agents.run(yaml)
    assert [message.text for message in result.final_messages] == ["seen Nurse ann", "seen Nurse bob"]


async def test_params_go_to_the_provider_those_we_know_in_its_own_words(agents: Agents) -> None:
    params = "params: {temperature: null, max_output_tokens: 9, stop: END, seed: 7, tool_loop_limit: 3, protocol: chat}"
    await agents.run(ONE % params)
    body = agents.models.requests[0].json
    assert (body["max_tokens"], body["stop"], body["seed"]) == (9, ["END"], 7)
    assert not {"temperature", "tool_loop_limit", "protocol"} & body.keys()


@pytest.mark.parametrize("shown", [True, False])
async def test_an_agent_whose_output_no_log_shall_show_is_in_no_event(agents: Agents, shown: bool) -> None:
    agents.models.answer_with(lambda _: "a secret word")
    yaml = (ONE % "params: {stream: true}").replace(
        "type: agent", f"type: agent\n      log_output: {str(shown).lower()}"
    )
    result = await agents.run(yaml)
    assert result.output == "a secret word"
    assert "".join(data.text for data in agents.of("llm.delta")) == ("a secret word" if shown else "")


async def test_a_param_that_makes_no_sense_is_the_authors_mistake(agents: Agents) -> None:
    result = await agents.run(ONE % "params: {temperature: hot}", compat="devall")
    assert has_message(
        str(result.error),
        "engine.workflow.agent_request.read_params",
        error="Expected `float | null`, got `str` - at `$.temperature`",
    )
    assert not agents.models.requests


# --- failures ---------------------------------------------------------------------------------------------


async def test_a_model_that_fails_fails_the_node_and_in_devall_is_its_output(agents: Agents) -> None:
    agents.models.answer_with(lambda _: Reply(status=400, error="bad thing"))
    result = await agents.run(ONE % RETRIES)
    assert "bad thing (HTTP 400)" in str(result.error)
    result = await agents.run(ONE % RETRIES, compat="devall")
    assert result.error is None
    assert result.output.startswith("Error calling model m: openai@127.0.0.1-")
    assert result.output.endswith("(HTTP 400)\n\nOriginal input: === INPUT FROM TASK (user) ===\n\nTASK...")


async def test_gemini_is_spoken_to_in_its_own_format_with_the_key_of_the_file(agents: Agents) -> None:
    candidate = {"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}
    agents.models.script(Reply(raw=json.dumps({"candidates": [candidate]}).encode()))
    gemini = f"provider: gemini, base_url: '{agents.models.url}', api_key: gk"
    result = await agents.run((ONE % "role: R, params: {stream: false}").replace("{fake}", gemini))
    assert (result.error, result.output) == (None, "hi")
    (request,) = agents.models.requests
    assert request.path == "/v1beta/models/m:generateContent"
    assert request.headers["x-goog-api-key"] == "gk"
    assert request.json["systemInstruction"] == {"parts": [{"text": "R"}]}


async def test_an_unknown_provider_is_a_mistake_in_both_dialects(agents: Agents) -> None:
    for compat in ("standard", "devall"):
        yaml = "graph: {start: [A], nodes: [{id: A, type: agent, config: {provider: opnai, name: m}}]}"
        result = await agents.run(yaml, compat=compat)
        assert "no provider 'opnai': did you mean 'openai'?" in str(result.error)
        assert getattr(result.error, "code", "") == "graph"


async def test_what_may_pass_is_tried_again_as_the_policy_says(
    agents: Agents, autojump_clock: trio.testing.MockClock
) -> None:
    policy = "retry: {max_attempts: 3, min_wait_seconds: 20, max_wait_seconds: 30}"
    agents.models.script(Reply(status=503), Reply(status=500), "at last")
    began = trio.current_time()
    result = await agents.run(ONE % policy)
    assert result.output == "at last"
    assert 40 <= trio.current_time() - began <= 60
    assert len(agents.of("llm.retry")) == 2


async def test_retry_lists_say_what_may_pass(agents: Agents, autojump_clock: trio.testing.MockClock) -> None:
    teapot = "retry: {max_attempts: 2, retry_on_status_codes: [418]}"
    agents.models.script(Reply(status=418), "tea")
    assert (await agents.run(ONE % teapot)).output == "tea"
    agents.models.script(Reply(status=503, error="no"), "never asked")
    assert "no (HTTP 503)" in str((await agents.run(ONE % teapot)).error)
    assert agents.models.unused == 1


async def test_a_param_bounds_how_long_an_answer_may_take(
    agents: Agents, autojump_clock: trio.testing.MockClock
) -> None:
    agents.models.script(Reply(text="late", delay=50))
    result = await agents.run(ONE % "params: {timeout: 5}")
    assert has_message(str(result.error), "engine.workflow.nodes.agent._Agent._answer", name="m", timeout=5)


async def test_cancelling_the_run_hangs_up_on_the_model_and_keeps_what_was_said(
    agents: Agents, nursery: trio.Nursery
) -> None:
    yaml = """
        graph:
          start: [A]
          nodes:
            - {id: A, type: agent, config: {{fake}, name: m}}
            - {id: B, type: agent, config: {{fake}, name: m}}
          edges: [{from: A, to: B}]
        """
    agents.models.script("said already", Reply(hold=trio.Event()))

    async def cancel() -> None:
        await agents.models.arrived(2)
        agents.ref.cancel()

    nursery.start_soon(cancel)
    with trio.fail_after(60):
        result = await agents.run(yaml)
        await agents.models.until(lambda models: models.cut == 1)
    assert [message.text for message in result.outputs["A"]] == ["said already"]


MAPPED = """
    graph:
      start: [S]
      nodes:
        - {id: S, type: literal, config: {content: "ann\\nbob\\neve"}}
        - {id: A, type: agent, config: {{fake}, name: m, role: "{{item}}", RETRIES}}
      edges: [{from: S, to: A, dynamic: {type: map, config: {split_type: lines}}}]
    """.replace("RETRIES", RETRIES)


async def test_what_units_have_said_is_kept_when_another_fails(agents: Agents) -> None:
    agents.models.answer_with(
        lambda request: Reply(status=400, error="no bob") if request.system == "bob" else f"seen {request.system}"
    )
    result = await agents.run(MAPPED)
    assert "no bob" in str(result.error)
    assert [(said.text, said.source) for said in result.outputs["A"]] == [("seen ann", "A"), ("seen eve", "A")]


async def test_what_units_have_said_is_kept_when_the_run_is_cancelled(agents: Agents, nursery: trio.Nursery) -> None:
    agents.models.answer_with(
        lambda request: Reply(hold=trio.Event()) if request.system == "bob" else f"seen {request.system}"
    )

    async def cancel() -> None:
        await until(lambda: len([data for data in agents.of("node.exited") if data.item is not None]) == 2)
        agents.ref.cancel()

    nursery.start_soon(cancel)
    with trio.fail_after(60):
        result = await agents.run(MAPPED)
    assert [said.text for said in result.outputs["A"]] == ["seen ann", "seen eve"]


async def test_a_failure_that_is_tolerated_is_told_all_the_same(agents: Agents) -> None:
    agents.models.answer_with(lambda _: Reply(status=400, error="bad thing"))
    result = await agents.run((ONE % RETRIES).replace("type: agent", "type: agent\n      on_error: continue"))
    assert result.error is None
    assert "bad thing" in agents.of("node.exited")[0].error


# --- other agents -----------------------------------------------------------------------------------------


async def test_an_agent_of_ours_does_the_work_as_a_child(agents: Agents) -> None:
    home = agents.root.config_dir / "agents" / "clerk"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("name: clerk\ninstructions: You are a clerk.\ncan_ask_user: false\n")
    agents.models.script("filed")
    yaml = (
        "graph: {start: [A], nodes: [{id: A, type: agent, config: {provider: callboard, name: clerk, role: Hurry.}}]}"
    )
    result = await agents.run(yaml)
    assert (result.error, result.output) == (None, "filed")
    (request,) = agents.models.requests
    assert "You are a clerk." in request.system
    assert request.prompt == "Hurry.\n\nTASK"
    assert any(event.actor.startswith("/run-1/A") for event in agents.events if event.kind == "llm.request")


async def test_the_agent_may_be_a_file_beside_the_workflow(agents: Agents) -> None:
    graph = """
        name: helper
        start: ask
        nodes:
          ask: {type: llm, prompt: "Help with {{initial_prompt}}", next: done}
          done: {type: end, output: helped}
        """
    (agents.home / "helper.yaml").write_text(textwrap.dedent(graph))
    agents.models.script("so")
    yaml = "graph: {start: [A], nodes: [{id: A, type: agent, config: {provider: callboard, name: helper.yaml}}]}"
    result = await agents.run(yaml)
    assert (result.error, result.output) == (None, "helped")
    assert agents.models.requests[0].prompt == "Help with TASK"


async def test_an_agent_that_is_not_there_is_a_mistake(agents: Agents) -> None:
    yaml = "graph: {start: [A], nodes: [{id: A, type: agent, config: {provider: callboard, name: nobody}}]}"
    result = await agents.run(yaml, compat="devall")
    assert has_message(str(result.error), "runs.begin.ChildAgentRunner.unknown.2", name="nobody")


# --- thinking ---------------------------------------------------------------------------------------------


async def test_reflection_sees_the_whole_conversation_and_its_answer_counts(agents: Agents) -> None:
    agents.models.script("first thought", "second thought")
    thinking = "role: SYS, thinking: {type: reflection, config: {reflection_prompt: Be better.}}"
    result = await agents.run(ONE % thinking)
    assert result.output == "second thought"
    ((role, text),) = said(agents.models.requests[1])
    assert role == "user"
    assert text == (
        "Here is a conversation between two roles: SYSTEM: SYS\nUSER: TASK\nASSISTANT: first thought Be better."
    )


@pytest.mark.parametrize(
    ("fallbacks", "asked"), [("fake:b", ["m", "b"]), ("[fake:a, fake:b]", ["m", "a", "b"])], ids=["one", "a list"]
)
async def test_other_models_are_asked_if_the_first_does_not_answer(
    fallbacks: str, asked: list[str], agents: Agents
) -> None:
    def answer(request: Request) -> Reply | str:
        model = request.json["model"]
        return f"said by {model}" if model == "b" else Reply(status=503, error="down")

    agents.models.answer_with(answer)
    result = await agents.run(ONE % f"fallback_models: {fallbacks}, {RETRIES}")
    assert result.output == "said by b"
    assert [request.json["model"] for request in agents.models.requests] == asked
    told = [event.data for event in agents.events if isinstance(event.data, LlmFallback)]
    assert [each.next for each in told] == [f"fake:{name}" for name in asked[1:]]
    assert "down (HTTP 503)" in told[0].error
    assert list(agents.context.meter.models) == ["fake:b"]
