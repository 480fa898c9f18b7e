"""Agents called by graphs: their fallback, their tries, their depth, and what can be set from outside."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.fake_models import Reply
from support.messages import fragment, has_message, says

import callboard
from callboard.protocol.errors import InvalidFile

BAD = Reply(status=400, error="bad request")

# --- agent nodes ---------------------------------------------------------------------------------------------

CALLER = """
start: a
nodes:
  a: {{type: agent, agent: kid, prompt: "do {{{{initial_prompt}}}}", {options}state_updates: {{r: "{{{{output}}}}"}},
      next: e}}
  e: {{type: end, output: "got {{{{r}}}}{{{{k}}}}"}}
  f: {{type: end, output: "fell back: {{{{r}}}}"}}
"""


def caller(options: str = "") -> str:
    return CALLER.format(options=options and options + ", ")


async def test_an_agent_node_runs_a_plain_agent(agent_runner: AgentRunner, compat: str) -> None:
    config = "instructions: You are {{who}}.\nvariables: [{name: who, default: kid}]\ncan_ask_user: false"
    agent_runner.plain(config, name="kid")
    agent_runner.agent(caller())
    agent_runner.models.script("fine")
    outcome = await agent_runner.run("it", compat=compat)
    assert outcome.output == "got fine"
    assert [message["content"] for message in agent_runner.models.requests[0].json["messages"]] == [
        "You are kid.",
        "do it",
    ]


async def test_an_agent_node_runs_a_graph_as_a_child_with_its_own_state(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: s
        initial_state: {own: 1}
        nodes:
          s: {type: script, script: s.sh, next: e}
          e: {type: end, output: "{{initial_prompt}} {{own}} {{callers}}{{seen}}"}
        """,
        name="kid",
        s="""printf %s "$GRAPH_STATE" | jq -c '{seen: keys}'""",
    )
    agent_runner.agent(caller())
    outcome = await agent_runner.run("it", compat=compat, state={"callers": "no"})
    assert outcome.output == 'got do it 1 ["initial_prompt","own"]'
    assert outcome.order == ["a", "e"]
    assert "own" not in outcome.state
    assert [data.depth for data in agent_runner.of("graph.started")] == [0, 1]
    run = outcome.run_id
    assert f"/{run}/g/a/kid/s" in {event.actor for event in agent_runner.events}
    agent_runner.check_stream()


async def test_inputs_are_the_childs_variables(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        variables: [{name: check}]
        start: s
        nodes:
          s: {type: script, script: s.sh, next: e}
          e: {type: end, output: "{{v}}"}
        """,
        name="kid",
        s="""printf '{"v": "%s"}' "$LLM_AGENT_VAR_CHECK" """,
    )
    agent_runner.agent(caller('inputs: {check: "run {{initial_prompt}}"}'))
    assert (await agent_runner.run("it", compat=compat)).output == "got run it"
    agent_runner.agent(caller("fallback: f, inputs: {check: x, chek: x}"))
    if compat == "standard":  # refused before the run, see test_called_agents
        with pytest.raises(InvalidFile, match="has no variable 'chek'"):
            await agent_runner.run("it", compat=compat)
        return
    for wrong, text in [
        ("inputs: {chek: x}", "has no variable 'chek'"),
        ("", fragment("front.chat.commands.agent._with_missing", wanted="\n  - check…")),
    ]:
        agent_runner.agent(caller(wrong + (", " if wrong else "") + "fallback: f"))
        outcome = await agent_runner.run("it", compat=compat)
        assert outcome.error is not None, wrong
        assert text in outcome.error.message
        assert outcome.error.code == "usage"


FAILING_KID = "start: n\nnodes:\n  n: {type: llm, prompt: p, on_error: fail, next: e}\n  e: {type: end, output: ok}"


async def test_an_agents_failure_takes_its_fallback_with_the_error_as_output(
    agent_runner: AgentRunner, compat: str
) -> None:
    agent_runner.agent(FAILING_KID, name="kid")
    agent_runner.agent(caller("fallback: f"))
    agent_runner.models.script(BAD)
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output.startswith(
        "fell back: Agent node failed: Agent 'kid' failed: at node 'n': LLM node failed and no fallback declared: "
    )


async def test_an_agents_failure_without_fallback_fails_the_run(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(FAILING_KID, name="kid")
    agent_runner.agent(caller())
    agent_runner.models.script(BAD)
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert outcome.error.message.startswith("at node 'a': Agent 'kid' failed: at node 'n': ")
    assert (outcome.exit_code, outcome.error.code) == (1, "model")


@pytest.mark.parametrize("kind", ["plain", "graph"])
async def test_an_agent_that_failed_upstream_is_tried_as_often_as_max_attempts(
    agent_runner: AgentRunner, kind: str
) -> None:
    if kind == "graph":
        agent_runner.agent(FAILING_KID, name="kid")
    else:
        agent_runner.agent(FAILING_KID.replace("llm, prompt: p", "agent, agent: plain, prompt: p"), name="kid")
        agent_runner.plain("model: fake:model", name="plain")
    agent_runner.agent(caller("max_attempts: 2"))
    busy = Reply(status=503, error="busy", headers={"retry-after": "1000"})  # longer than anybody waits
    agent_runner.models.script(busy, "ok")
    outcome = await agent_runner.run()
    assert outcome.output == "got ok"
    agent_runner.models.script(busy, busy, "one too many")
    outcome = await agent_runner.run()
    assert outcome.exit_code == 6
    assert agent_runner.models.unused == 1


async def test_what_will_not_pass_is_not_tried_again(agent_runner: AgentRunner) -> None:
    agent_runner.agent(FAILING_KID, name="kid")
    agent_runner.agent(caller("max_attempts: 3"))
    agent_runner.models.script(BAD, "unused")
    assert (await agent_runner.run()).status == "failed"
    assert agent_runner.models.unused == 1


async def test_an_agents_answer_can_be_put_into_a_shape(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.plain("instructions: talk", name="kid")
    agent_runner.agent(caller("output_schema: {type: object, required: [k], properties: {k: {type: integer}}}"))
    agent_runner.models.script("k is seven", '{"k": 7}')
    outcome = await agent_runner.run("it", compat=compat)
    assert outcome.output == 'got {"k":7}7'
    # The agent itself is told nothing of the shape.
    assert agent_runner.models.requests[0].prompt == "do it"
    assert "JSON Schema" not in agent_runner.models.requests[0].body.decode()


async def test_a_shape_that_fails_is_the_agents_failure(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.plain("instructions: talk", name="kid")
    agent_runner.agent(caller("output_schema: {type: object}, fallback: f"))
    agent_runner.models.script("prose", "prose", "prose")
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output.startswith(
        "fell back: Agent node structured-extraction failed: "
        "Agent 'kid' output failed structured-output extraction: Structured-output extractor failed"
    )


async def test_depth_is_limited(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent("start: a\nnodes:\n  a: {type: agent, agent: g, prompt: p, next: e}\n  e: {type: end}")
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert outcome.error.message.endswith(fragment("work.context.RunContext.too_deep", depth="4", most="3"))
    assert [data.depth for data in agent_runner.of("graph.started")] == [0, 1, 2, 3]


async def test_the_depth_limit_can_be_set(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        max_agent_depth: 0
        start: a
        nodes:
          a: {type: agent, agent: g, prompt: p, fallback: f, next: e}
          e: {type: end}
          f: {type: end, output: "too deep"}
        """
    )
    assert (await agent_runner.run(compat=compat)).output == "too deep"


@pytest.mark.parametrize(
    ("first", "deeper", "told"), [(8, None, "9/8"), (8, 5, "6/5"), (None, 8, "4/3"), (2, 8, "3/2")]
)
async def test_the_depth_limit_of_the_first_graph_counts_and_is_never_raised_below(
    agent_runner: AgentRunner, compat: str, first: int | None, deeper: int | None, told: str
) -> None:
    nodes = "start: a\nnodes:\n  a: {type: agent, agent: g, prompt: p, next: e}\n  e: {type: end}"
    for name, most in (("top", first), ("g", deeper)):
        agent_runner.agent((f"max_agent_depth: {most}\n" if most else "") + nodes, name)
    outcome = await agent_runner.run(compat=compat, target="top")
    assert outcome.error is not None
    assert outcome.error.message.endswith(f"Max agent depth exceeded ({told})")


async def test_a_child_asks_the_same_people(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        'start: i\nnodes:\n  i: {type: input, question: "kid?", state_updates: {x: "{{input}}"}, next: e}\n'
        '  e: {type: end, output: "{{x}}"}',
        name="kid",
    )
    agent_runner.agent(caller())
    assert (await agent_runner.run(compat=compat, answers={"i": "from below"})).output == "got from below"


async def test_a_child_is_found_beside_its_caller(agent_runner: AgentRunner, tmp_path: Any) -> None:
    for name, text in {
        "boss": "name: boss\n" + caller().strip(),
        "kid": "name: kid\nstart: e\nnodes:\n  e: {type: end, output: neighbour}",
    }.items():
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
        (tmp_path / "elsewhere" / name / "graph.yaml").write_text(text)
    assert (await agent_runner.run(target=tmp_path / "elsewhere" / "boss")).output == "got neighbour"


async def test_a_childs_own_invalid_file_is_not_tolerated(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent("start: ghost\nnodes:\n  e: {type: end}", name="kid")
    agent_runner.agent(caller("fallback: f"))
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert outcome.error.code == "invalid_file"
    assert has_message(outcome.error.message, "protocol.graph._check_top.9", start="ghost", name="kid")


async def test_each_file_keeps_its_own_dialect_unless_one_is_forced(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        "settings: {compat: loki}\nstart: n\nnodes:\n"
        "  n: {type: script, script: bad.sh, next: e}\n  e: {type: end, output: went on}",
        name="kid",
        bad="exit 1",
    )
    agent_runner.agent(caller())
    assert (await agent_runner.run()).status == "failed"
    assert (await agent_runner.run(compat="standard")).output == "got went on"


async def test_usage_and_limits_cover_the_children(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: talk", name="kid")
    agent_runner.agent(caller())
    outcome = await agent_runner.run()
    assert outcome.usage["fake:model"].input_tokens == 10
    outcome = await agent_runner.run(limits=callboard.Limits(max_turns=0))
    assert outcome.error is not None
    assert (outcome.error.code, outcome.exit_code) == ("max_turns", 4)


async def test_a_child_that_timed_out_in_a_chain_does_not_work_on(
    agent_runner: AgentRunner, mock_clock: trio.testing.MockClock
) -> None:
    agent_runner.agent(
        "start: n\nnodes:\n  n: {type: llm, prompt: slow, on_error: fail, next: e}\n  e: {type: end}", name="kid"
    )
    agent_runner.agent(
        """
        start: m
        nodes:
          m: {type: map, over: "{{items}}", as: item, branch: b, collect_into: out, output_key: o, next: e}
          b: {type: agent, agent: kid, prompt: p, timeout: 1, fallback: mend}
          mend: {type: llm, prompt: mend, state_updates: {o: "{{output}}"}}
          e: {type: end, output: "{{out}}"}
        """
    )
    the_end = trio.Event()
    agent_runner.models.answer_with(
        lambda request: Reply("late", hold=trio.Event()) if request.prompt == "slow" else Reply("mended", hold=the_end)
    )
    async with trio.open_nursery() as nursery:

        async def watch_the_child_go() -> None:
            await agent_runner.models.arrived(1)
            mock_clock.jump(1)
            await agent_runner.models.arrived(2)
            await agent_runner.models.until(lambda server: server.cut == 1)
            the_end.set()

        nursery.start_soon(watch_the_child_go)
        assert (await agent_runner.run(state={"items": [1]})).output == '["mended"]'


# --- settings from outside -----------------------------------------------------------------------------------


async def test_the_environment_overrides_model_and_sampling(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_runner.plain("model: fake:file\ntemperature: 0.5", name="my-kid")
    agent_runner.agent(
        "model: fake:file\nstart: a\nnodes:\n"
        "  a: {type: llm, prompt: p, next: b}\n"
        "  b: {type: agent, agent: my-kid, prompt: p, next: c}\n"
        "  c: {type: llm, prompt: p, model: fake:own, temperature: 1, next: e}\n  e: {type: end}"
    )
    for name, value in {
        "G_MODEL": "fake:env",
        "G_TEMPERATURE": "0.25",
        "G_TOP_P": "0.75",
        "MY_KID_MODEL": "fake:kid",
        "MY_KID_TEMPERATURE": "0",
    }.items():
        monkeypatch.setenv(name, value)
    await agent_runner.run()
    asked = [
        (request.json["model"], request.json.get("temperature"), request.json.get("top_p"))
        for request in agent_runner.models.requests
    ]
    assert asked == [("env", 0.25, 0.75), ("kid", 0, None), ("own", 1, 0.75)]
    assert agent_runner.events[0].data.model == "fake:env"
    await agent_runner.run(model="fake:flag")
    assert agent_runner.models.requests[3].json["model"] == "flag"


async def test_the_environment_says_how_much_a_model_thinks(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_runner.plain("model: fake:file\nthinking_budget: 30000", name="kid")
    monkeypatch.setenv("KID_REASONING_EFFORT", "low")
    await agent_runner.run("go", target="kid")
    assert agent_runner.models.requests[0].json["reasoning_effort"] == "low"
    monkeypatch.setenv("KID_REASONING_EFFORT", "much")
    with pytest.raises(
        callboard.CallboardError,
        match=says("work.variables._thinking", variable="KID_REASONING_EFFORT", levels="none…"),
    ):
        await agent_runner.run("go", target="kid")


async def test_an_override_that_is_no_number_is_named(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_runner.agent("start: e\nnodes:\n  e: {type: end}")
    monkeypatch.setenv("G_TOP_P", "high")
    with pytest.raises(callboard.CallboardError, match=says("work.variables._number", what="G_TOP_P", text="high")):
        await agent_runner.run()


async def test_variables_come_from_the_caller_the_environment_or_the_file(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_runner.agent(
        """
        variables: [{name: a, default: file}, {name: b, default: file}, {name: c, default: file}]
        start: s
        nodes:
          s: {type: script, script: s.sh, next: e}
          e: {type: end, output: "{{v}}"}
        """,
        s="""printf '{"v": "%s %s %s"}' "$LLM_AGENT_VAR_A" "$LLM_AGENT_VAR_B" "$LLM_AGENT_VAR_C" """,
    )
    monkeypatch.setenv("G_VARIABLES", '{"a": "env", "b": "env"}')
    assert (await agent_runner.run(variables={"a": "caller"})).output == "caller env file"
    monkeypatch.setenv("G_VARIABLES", '["a"]')
    with pytest.raises(callboard.CallboardError, match=says("work.variables._from_environ", agent="G_VARIABLES")):
        await agent_runner.run()
