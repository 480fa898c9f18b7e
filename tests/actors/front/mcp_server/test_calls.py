"""Agents as tools, for clients of both eras: listing, calling, progress, failures, cancelling."""

from __future__ import annotations

import json

import pytest
from support.agent_runs import AgentRunner, at_work
from support.fake_models import Reply
from support.mcp_guest import HELLO, META, MODERN, SLOW, Serve, begin
from support.messages import has_message
from support.waiting import until


async def test_a_client_of_the_newer_era_discovers_what_is_spoken(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with serve() as client:
        found = await client.request("server/discover")
    assert found["supportedVersions"] == [MODERN]
    assert found["capabilities"] == {"tools": {}}
    assert found["resultType"] == "complete"
    assert (found["ttlMs"] > 0, found["cacheScope"]) == (True, "private")
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "callboard"


@pytest.mark.parametrize(
    ("wanted", "spoken"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2024-11-05", "2024-11-05"),
        ("1999-01-01", "2025-11-25"),
        (MODERN, "2025-11-25"),
        (7, "2025-11-25"),
    ],
)
async def test_a_handshake_agrees_on_a_revision_that_has_one(
    agent_runner: AgentRunner, serve: Serve, wanted: object, spoken: str
) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with serve() as client:
        agreed = await client.initialize(protocolVersion=wanted)
        assert agreed["protocolVersion"] == spoken
        assert agreed["serverInfo"]["name"] == "callboard"
        assert await client.request("ping") == {}


async def test_agents_are_listed_and_called(agent_runner: AgentRunner, serve: Serve, era: str) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    agent_runner.plain("description: Knows everything.", name="clerk")
    agent_runner.models.script(Reply("42", input_tokens=7, output_tokens=3))
    async with serve() as client:
        await begin(client, era)
        listed = await client.request("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["clerk", "hello"]
        assert listed["tools"][0]["description"] == "Knows everything."

        result = await client.call("hello", {"prompt": "world"})
        assert result["content"] == [{"type": "text", "text": "hello world"}]
        assert result["structuredContent"]["status"] == "done"
        assert result["structuredContent"]["run_id"].startswith("run-")
        assert "isError" not in result

        result = await client.call("clerk", {"prompt": "what?"})
        assert result["structuredContent"]["output"] == "42"
        assert result["structuredContent"]["turns"] == 1
        assert result["structuredContent"]["usage"] == {
            "fake:model": {"input_tokens": 7, "output_tokens": 3, "cost": 0.0, "priced": False}
        }
        assert client.heard == []  # nobody asked for progress
    assert agent_runner.models.requests[0].prompt == "what?"
    assert ("resultType" in result) is (era == "modern")


async def test_progress_is_told_under_the_clients_token_and_only_grows(
    agent_runner: AgentRunner, serve: Serve, era: str
) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with serve() as client:
        await begin(client, era)
        await client.call("hello", _meta={"progressToken": "mine"})
    told = [message["params"] for message in client.heard]
    assert {message["method"] for message in client.heard} == {"notifications/progress"}
    assert {each["progressToken"] for each in told} == {"mine"}
    assert [each["progress"] for each in told] == [1, 2, 3]
    assert [each["message"] for each in told] == ["node think (script)", "calls think.sh", "node done (end)"]


async def test_a_run_that_fails_is_an_error_with_its_exit_code(
    agent_runner: AgentRunner, serve: Serve, era: str
) -> None:
    agent_runner.agent(
        "start: a\nnodes:\n  a: {type: input, question: '{{nothing}}', next: b}\n  b: {type: end}", name="broken"
    )
    async with serve() as client:
        await begin(client, era)
        result = await client.call("broken")
    assert result["isError"] is True
    assert "nothing" in result["content"][0]["text"]
    assert result["structuredContent"]["error"]["node"] == "a"
    assert result["structuredContent"]["exit_code"] == 1


async def test_a_run_that_can_not_start_is_an_error_too(
    agent_runner: AgentRunner, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_runner.plain("model: nowhere:at-all", name="clerk")
    async with serve() as client:
        result = await client.call("clerk", {"prompt": "hi"})
    assert result["isError"] is True
    assert "nowhere" in result["content"][0]["text"]
    assert result["structuredContent"]["status"] == "failed"
    assert result["structuredContent"]["exit_code"] > 0


@pytest.mark.parametrize("arguments", [{}, {"prompt": 7}, {"prompt": "x", "mood": "calm"}, {"prompt": ""}])
async def test_arguments_that_do_not_fit_are_told_to_the_model(
    agent_runner: AgentRunner, serve: Serve, arguments: dict[str, object]
) -> None:
    agent_runner.plain("description: x", name="clerk")
    async with serve() as client:
        result = await client.call("clerk", arguments)
    assert result["isError"] is True
    assert has_message(result["content"][0]["text"], "front.mcp_server.service.Service.begin.2", name="clerk")
    assert agent_runner.models.requests == []


@pytest.mark.parametrize("depth", [100, 500, 800, 900, 950, 980, 1000])
@pytest.mark.parametrize("where", ["prompt", "state", "elsewhere"])
@pytest.mark.sample(7)
async def test_arguments_however_deep_have_an_answer(
    agent_runner: AgentRunner, serve: Serve, where: str, depth: int
) -> None:
    agent_runner.agent("initial_state: {a: 1}\nstart: a\nnodes: {a: {type: end, output: done}}", name="g")
    async with serve() as client:
        params = {"name": "g", "arguments": {where: "DEEP"}, "_meta": META}
        line = json.dumps({"id": 1, "method": "tools/call", "params": params})
        await client.writing.send_all(line.replace('"DEEP"', '{"a":' * depth + "1" + "}" * depth).encode() + b"\n")
        answer = await client.hear()
        assert "error" in answer or answer["result"]["content"]
        assert (await client.call("g"))["content"][0]["text"] == "done"


async def test_variables_and_state_reach_the_agent(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(
        "initial_state: {mood: grim, depth: 1}\nvariables: [{name: who}]\nstart: a\n"
        "nodes: {a: {type: end, output: '{{mood}} {{depth}}'}}",
        name="g",
    )
    agent_runner.plain("instructions: 'You are {{who}}.'\nvariables: [{name: who}]", name="clerk")
    async with serve() as client:
        result = await client.call("g", {"state": {"mood": "calm"}, "variables": {"who": "x"}})
        assert result["content"][0]["text"] == "calm 1"
        await client.call("clerk", {"prompt": "hi", "variables": {"who": "a king"}})
    assert "You are a king." in agent_runner.models.requests[0].system


async def test_an_unknown_tool_is_refused_with_the_nearest_name(
    agent_runner: AgentRunner, serve: Serve, era: str
) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with serve() as client:
        await begin(client, era)
        answer = await client.call("helo")
    assert answer["error"]["code"] == -32602
    assert has_message(answer["error"]["message"], "protocol.problems.suggestion", name="hello")


async def test_a_cancelled_call_ends_its_run_and_has_no_answer(
    agent_runner: AgentRunner, serve: Serve, era: str
) -> None:
    agent_runner.agent(SLOW, name="slow", work=f"touch {agent_runner.config_dir}/started; sleep 60; echo {{}}")
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with serve() as client:
        await begin(client, era)
        id = await client.ask("tools/call", name="slow")
        await until(lambda: (agent_runner.config_dir / "started").exists())
        assert len(at_work(agent_runner.root)) == 2  # the server and the run
        await client.say(method="notifications/cancelled", params={"requestId": id, "reason": "enough"})
        await until(lambda: len(at_work(agent_runner.root)) == 1)
        assert (await client.call("hello"))["content"][0]["text"] == "hello "  # the next answer is the next request's


async def test_a_request_that_is_cancelled_in_the_same_breath_never_answers(
    agent_runner: AgentRunner, serve: Serve
) -> None:
    agent_runner.agent(SLOW, name="slow", work="sleep 60; echo {}")
    async with serve() as client:
        await client.ask("tools/call", name="slow")
        await client.say(method="notifications/cancelled", params={"requestId": 1})
        assert len((await client.request("tools/list"))["tools"]) == 1
        await until(lambda: len(at_work(agent_runner.root)) == 1)
        assert client.heard == []


async def test_the_end_of_the_clients_words_ends_its_runs(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(SLOW, name="slow", work=f"touch {agent_runner.config_dir}/started; sleep 60; echo {{}}")
    async with serve() as client:
        await client.ask("tools/call", name="slow")
        await until(lambda: (agent_runner.config_dir / "started").exists())
        await client.writing.aclose()
        assert await client.hear() == {}


async def test_more_runs_than_allowed_are_refused_until_one_ends(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(SLOW, name="slow", work="sleep 60; echo {}")
    async with serve(max_runs=2) as client:
        first = await client.ask("tools/call", name="slow")
        await client.ask("tools/call", name="slow")
        result = await client.call("slow")
        assert result["isError"] is True
        assert has_message(result["content"][0]["text"], "front.mcp_server.service.Service.begin.3", max_runs=2)
        await client.say(method="notifications/cancelled", params={"requestId": first})
        await until(lambda: len(at_work(agent_runner.root)) == 2)
        fourth = await client.ask("tools/call", name="slow")
        await client.say(method="notifications/cancelled", params={"requestId": fourth})
        assert client.heard == []


async def test_limits_of_the_server_hold_for_every_run(agent_runner: AgentRunner, serve: Serve) -> None:
    from callboard import Limits

    agent_runner.plain("description: x", name="clerk")
    async with serve(limits=Limits(max_turns=0)) as client:
        result = await client.call("clerk", {"prompt": "hi"})
    assert result["structuredContent"]["exit_code"] == 4


async def test_two_hundred_calls_at_once_all_have_their_own_answers(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent("start: a\nnodes: {a: {type: end, output: 'x{{initial_prompt}}'}}", name="g")
    async with serve(max_runs=1000) as client:
        ids = {await client.ask("tools/call", name="g", arguments={"prompt": str(n)}): f"x{n}" for n in range(200)}
        answers = [await client.hear() for _ in ids]
    assert {answer["id"]: answer["result"]["content"][0]["text"] for answer in answers} == ids


async def test_a_run_that_went_on_over_a_failure_is_an_error_with_its_output(
    agent_runner: AgentRunner, serve: Serve, era: str
) -> None:
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: p, max_attempts: 1, state_updates: {x: "{{output}}"}, next: b}
          b: {type: end, output: "so {{x}}"}
        """,
        name="haiku",
    )
    agent_runner.models.answer_with(lambda _: Reply(status=404, error="no such model"))
    async with serve() as client:
        await begin(client, era)
        result = await client.call("haiku", {"prompt": "frogs"})
    cause = "fake:model: no such model (HTTP 404)"
    assert result["isError"] is True
    assert result["content"] == [{"type": "text", "text": cause}]
    told = result["structuredContent"]
    assert (told["status"], told["exit_code"], told["output"]) == ("failed", 1, f"so LLM node failed: {cause}")
    assert told["failures"] == [told["error"]] == [{"code": "model", "message": cause, "node": "a"}]
