"""Limits of agents, graphs and nodes: who reaches one has failed, what called it goes on, and all of them hold."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels, Reply, Request
from support.messages import has_message

import callboard

PRICED = '"api_key": "sk-test", "models": [{"name": "model", "input_price": 1000, "output_price": 2000}]'
"""A reply of 10 tokens in and 5 out costs 0.02 USD."""

TWO_LOOPS = """
start: a
nodes:
  a: {type: llm, prompt: one, next: b}
  b: {type: llm, prompt: two, next: e}
  e: {type: end, output: "{{output}}"}
"""


async def test_an_agent_that_reaches_its_own_limit_has_failed_and_the_graph_takes_its_fallback(
    agent_runner: AgentRunner,
) -> None:
    agent_runner.agent("limits: {max_tokens: 15}" + TWO_LOOPS, name="kid")
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: agent, agent: kid, prompt: go, next: e, fallback: sorry}
          sorry: {type: llm, prompt: sorry, next: e, state_updates: {said: "{{output}}"}}
          e: {type: end, output: "{{said}}"}
        """
    )
    outcome = await agent_runner.run()
    assert outcome.status == "done", outcome.error
    assert outcome.output == "ok"
    assert len(agent_runner.models.requests) == 2
    *_, failed = [data for data in agent_runner.of("node.exited") if data.error]
    assert has_message(
        failed.error,
        "work.spending.accounts.Account._check_spent.2",
        name="…agent 'kid'",
        tokens=15,
        max_tokens=15,
        _key="`limits: max_tokens`",
    )
    assert failed.code == "budget"


async def test_without_a_fallback_the_run_fails_with_4_and_names_the_agent(agent_runner: AgentRunner) -> None:
    agent_runner.agent("limits: {max_turns: 1}" + TWO_LOOPS)
    outcome = await agent_runner.run()
    assert outcome.exit_code == 4
    assert outcome.error is not None
    assert outcome.error.code == "max_turns"
    assert has_message(
        outcome.error.message,
        "work.spending.accounts.Account.check_own",
        name="…agent 'g'",
        turns="1 model turn",
        _key="`limits: max_turns`",
    )


async def test_a_limit_of_the_run_is_no_failure_of_the_agent_below(agent_runner: AgentRunner) -> None:
    agent_runner.agent("limits: {max_tokens: 1000}" + TWO_LOOPS, name="kid")
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: agent, agent: kid, prompt: go, next: e, fallback: e}
          e: {type: end}
        """
    )
    outcome = await agent_runner.run(limits=callboard.Limits(max_tokens=15))
    assert outcome.exit_code == 4
    assert outcome.error is not None
    assert has_message(
        outcome.error.message,
        "work.spending.accounts.Account._check_spent.2",
        name="…the run",
        tokens=15,
        max_tokens=15,
        _key="`max_tokens`, --max-tokens",
    )


async def test_the_model_that_has_called_an_agent_reads_that_its_limit_was_reached(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: lead\ncan_spawn_agents: true", name="lead")
    agent_runner.agent("limits: {max_tokens: 15}" + TWO_LOOPS, name="kid")
    told: list[str] = []

    def answer(request: Request) -> Reply | str:
        messages = request.json["messages"]
        if messages[0]["role"] != "system" or "lead" not in messages[0]["content"]:
            return "half"
        results = [message for message in messages if message["role"] == "tool"]
        told[:] = [str(message["content"]) for message in results]
        if not results:
            return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": "go"})])
        if len(results) == 1:
            id = json.loads(results[0]["content"])["id"]
            return Reply(calls=[("agent__collect", {"id": id})])
        return "told"

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("go", target="lead")
    assert outcome.status == "done", outcome.error
    assert has_message(
        told[1], "work.spending.accounts.Account._check_spent.2", name="…agent 'kid'", tokens=15, max_tokens=15
    )
    assert outcome.output.endswith("told")


async def test_all_executions_of_a_node_share_its_limit(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        initial_state: {items: [1, 2, 3, 4]}
        start: m
        nodes:
          m: {type: map, over: "{{items}}", as: item, branch: one, collect_into: found,
              on_error: collect, next: e}
          one: {type: llm, prompt: p, limits: {max_turns: 2}}
          e: {type: end, output: "{{found}}"}
        """
    )
    outcome = await agent_runner.run()
    assert outcome.status == "done", outcome.error
    assert len(agent_runner.models.requests) == 2
    assert outcome.output.count("node 'one' has used all of its 2 model turns (`limits: max_turns`)") == 2


async def test_an_agents_time_is_limited(agent_runner: AgentRunner, mock_clock: trio.testing.MockClock) -> None:
    agent_runner.models.script(Reply("never", hold=trio.Event()))
    agent_runner.agent("limits: {timeout: 5}" + TWO_LOOPS, name="kid")
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: agent, agent: kid, prompt: go, next: e, fallback: e}
          e: {type: end, output: "{{output}}"}
        """
    )
    async with trio.open_nursery() as nursery:
        outcomes: list[callboard.Outcome] = []

        async def run() -> None:
            outcomes.append(await agent_runner.run())

        nursery.start_soon(run)
        await agent_runner.models.arrived(1)
        mock_clock.jump(6)
    assert outcomes[0].status == "done"
    *_, failed = [data for data in agent_runner.of("node.exited") if data.error]
    assert has_message(failed.error, "runs.prepared.Prepared._within", name="kid", timeout=5)


async def test_requests_at_once_wait_for_room_and_no_limit_is_passed_by_more_than_one(
    agent_runner: AgentRunner,
) -> None:
    nodes = "".join(f"  n{i}: {{type: llm, prompt: p, next: e, on_error: continue}}\n" for i in range(10))
    names = ", ".join(f"n{i}" for i in range(10))
    agent_runner.agent(f"start: s\nnodes:\n  s: {{type: llm, prompt: p, next: [{names}]}}\n{nodes}  e: {{type: end}}")
    outcome = await agent_runner.run(limits=callboard.Limits(max_tokens=50))
    assert len(agent_runner.models.requests) == 4  # 60 tokens; the first left 35, the second 20, the third 5
    assert outcome.exit_code == 4
    waited = agent_runner.of("llm.waiting")
    assert waited
    assert {data.reason for data in waited} == {"budget"}


async def test_a_request_that_is_cut_off_is_estimated(
    agent_runner: AgentRunner, mock_clock: trio.testing.MockClock
) -> None:
    agent_runner.models.script(Reply("never", hold=trio.Event()))
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: "{{initial_prompt}}", timeout: 5, next: b, on_error: continue}
          b: {type: llm, prompt: p, next: e}
          e: {type: end}
        """
    )
    async with trio.open_nursery() as nursery:
        outcomes: list[callboard.Outcome] = []

        async def run() -> None:
            outcomes.append(await agent_runner.run("x" * 400, limits=callboard.Limits(max_tokens=100)))

        nursery.start_soon(run)
        await agent_runner.models.arrived(1)
        mock_clock.jump(6)
    assert outcomes[0].exit_code == 4
    assert outcomes[0].error is not None
    # what was asked, and what a model may have made within the six seconds
    assert has_message(
        outcomes[0].error.message,
        "work.spending.accounts.Account._check_spent.2",
        tokens=1300,
        max_tokens=100,
        _key="`max_tokens`, --max-tokens",
    )
    assert outcomes[0].usage == {}  # which has the providers' figures alone


@pytest.mark.parametrize(
    ("reply", "estimated"),
    [
        (Reply("broken", drop="middle"), True),
        (Reply(drop="at once"), True),
        (Reply(status=500, error="no"), False),
        (Reply(status=400, error="no"), False),
        (Reply(status=401, error="no"), False),
        (Reply(status=429, error="insufficient_quota"), False),
    ],
)
async def test_what_a_provider_has_begun_to_answer_is_estimated_and_what_it_refused_is_not(
    agent_runner: AgentRunner, reply: Reply, estimated: bool
) -> None:
    agent_runner.models.script(reply)
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: "{{initial_prompt}}", next: b, on_error: continue}
          b: {type: llm, prompt: p, next: e}
          e: {type: end}
        """
    )
    outcome = await agent_runner.run("x" * 400, limits=callboard.Limits(max_tokens=100))
    assert (outcome.exit_code == 4) is estimated
    assert len(agent_runner.models.requests) == (1 if estimated else 2)


async def test_a_provider_that_was_not_reached_has_cost_nothing(fake_model: FakeModels, tmp_path: Path) -> None:
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
        config = json.loads(fake_model.config())
        config["clients"].append({"type": "openai-compatible", "name": "away", "api_base": base})
        (tmp_path / "config.yaml").write_text(json.dumps(config))
        (tmp_path / "g.yaml").write_text(
            """
name: g
version: "1.0"
start: a
nodes:
  a: {type: llm, model: "away:m", prompt: "{{initial_prompt}}", next: b, on_error: continue}
  b: {type: llm, prompt: p, next: e}
  e: {type: end}
"""
        )
        limits = callboard.Limits(max_tokens=100)
        outcome = await callboard.run(str(tmp_path / "g.yaml"), "x" * 400, limits=limits, config_dir=tmp_path)
    assert outcome.status == "done", outcome.error


async def test_a_reply_of_which_a_server_tells_no_tokens_is_estimated(agent_runner: AgentRunner) -> None:
    said = {"choices": [{"delta": {"role": "assistant", "content": "y" * 4000}, "finish_reason": "stop"}]}
    agent_runner.models.answer_with(lambda _: Reply(raw=f"data: {json.dumps(said)}\n\ndata: [DONE]\n\n".encode()))
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: p, next: b}
          b: {type: llm, prompt: p, next: e}
          e: {type: end}
        """
    )
    outcome = await agent_runner.run("x", limits=callboard.Limits(max_tokens=1000))
    assert outcome.exit_code == 4
    assert outcome.error is not None
    assert has_message(outcome.error.message, "work.spending.accounts.Account._check_spent", estimated=1000)


async def test_a_request_that_waits_after_a_refusal_costs_nothing_when_it_is_cancelled(
    agent_runner: AgentRunner, mock_clock: trio.testing.MockClock
) -> None:
    agent_runner.models.script(Reply(status=429, error="slow down", headers={"retry-after": "60"}))
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: "{{initial_prompt}}", timeout: 5, next: b, on_error: continue}
          b: {type: llm, prompt: p, next: e}
          e: {type: end}
        """
    )
    outcomes: list[callboard.Outcome] = []

    async def run() -> None:
        outcomes.append(await agent_runner.run("x" * 400, limits=callboard.Limits(max_tokens=100)))

    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await agent_runner.models.arrived(1)
            while not outcomes:
                mock_clock.jump(1)
                await trio.lowlevel.checkpoint()
    assert outcomes[0].status == "done", outcomes[0].error


async def test_money_of_an_agent_wants_prices(agent_runner: AgentRunner, fake_model: FakeModels) -> None:
    agent_runner.agent("limits: {max_cost: 1}" + TWO_LOOPS)
    outcome = await agent_runner.run()
    assert (outcome.exit_code, outcome.error and outcome.error.code) == (3, "unpriced")
    assert fake_model.requests == []
    outcome = await agent_runner.run(allow_unpriced=True)
    assert outcome.status == "done"
