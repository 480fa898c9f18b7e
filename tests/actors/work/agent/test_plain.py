"""Plain agents, without tools: instructions, the user's words, one answer."""

from __future__ import annotations

import trio
from support.agent_runs import AgentRunner
from support.fake_models import Reply


async def test_a_plain_agent_answers_the_prompt_under_its_instructions(agent_runner: AgentRunner) -> None:
    agent_runner.plain(
        """
        model: fake:small
        temperature: 0.2
        top_p: 0.5
        instructions: You are {{who}}, not {{unknown}}.
        variables: [{name: who, default: a poet}]
        can_ask_user: false
        """,
        name="poet",
    )
    agent_runner.models.script("a poem")
    outcome = await agent_runner.run("write", target="poet")
    assert outcome.output == "a poem"
    assert outcome.status == "done"
    (request,) = agent_runner.models.requests
    assert request.json["model"] == "small"
    assert (request.json["temperature"], request.json["top_p"]) == (0.2, 0.5)
    assert request.json["messages"] == [
        {"role": "system", "content": "You are a poet, not {{unknown}}."},
        {"role": "user", "content": "write"},
    ]
    assert "tools" not in request.json
    assert outcome.usage["fake:small"].output_tokens == 5
    agent_runner.check_stream()
    assert agent_runner.events[0].data.dialect == "agent"


async def test_without_instructions_there_is_no_system_message(agent_runner: AgentRunner) -> None:
    agent_runner.plain("can_ask_user: false", name="talker")
    await agent_runner.run("hi", target="talker")
    assert [message["role"] for message in agent_runner.models.requests[0].json["messages"]] == ["user"]


async def test_variables_can_be_given(agent_runner: AgentRunner) -> None:
    agent_runner.plain(
        'instructions: "{{who}}"\nvariables: [{name: who, description: whom}]\ncan_ask_user: false', name="poet"
    )
    await agent_runner.run("write", target="poet", variables={"who": "Homer"})
    assert agent_runner.models.requests[0].json["messages"][0]["content"] == "Homer"


async def test_an_error_of_the_model_fails_the_run(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: talk", name="poet")
    agent_runner.models.script(Reply(status=400, error="too long"))
    outcome = await agent_runner.run("write", target="poet")
    assert outcome.error is not None
    assert "too long" in outcome.error.message
    assert (outcome.status, outcome.output, outcome.exit_code) == ("failed", "", 1)
    assert outcome.nodes == {}


async def test_cancelling_closes_the_connection(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: talk", name="poet")
    agent_runner.models.script(Reply("never", hold=trio.Event()))
    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            await agent_runner.models.arrived(1)
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel)
        await agent_runner.run("write", target="poet")
    await agent_runner.models.until(lambda server: server.cut == 1)
    agent_runner.check_stream()
