"""What a run asks reaches the client's user as a form, in the way of either era; and those who can't be asked."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner, at_work
from support.fake_models import Reply
from support.mcp_guest import ASKER, META, SOON, Client, Serve, begin
from support.messages import has_message
from support.waiting import until

IMPATIENT = """
start: ask
nodes:
  ask: {type: approval, question: "Well?", options: [x], routes: {x: done}, on_other: done, timeout: 60,
        on_timeout: late}
  done: {type: end, output: done}
  late: {type: end, output: too late}
"""
NAME = """
start: ask
nodes:
  ask: {type: input, question: "Your name?", validation: "len(input) >= 3", next: done,
        state_updates: {name: "{{input}}"}}
  done: {type: end, output: "{{name}}"}
"""
ACCEPT = {"action": "accept", "content": {"answer": "blue"}}


class Modern:
    """Answers questions as clients do since 2026-07-28."""

    def __init__(self, client: Client, tool: str, arguments: dict[str, Any] | None = None) -> None:
        self.client = client
        self.tool = tool
        self.arguments = arguments or {}
        self.state = ""

    async def call(self) -> dict[str, Any]:
        """What the first request comes to: a result, or the questions by their ids."""
        return self._looked_at(await self.client.call(self.tool, self.arguments))

    async def answer(self, answers: dict[str, Any]) -> dict[str, Any]:
        """The same with the answers to questions."""
        return self._looked_at(await self.client.call(self.tool, requestState=self.state, inputResponses=answers))

    def _looked_at(self, result: dict[str, Any]) -> dict[str, Any]:
        if result.get("resultType") != "input_required":
            return result
        self.state = result["requestState"]
        assert {request["method"] for request in result["inputRequests"].values()} == {"elicitation/create"}
        return {id: request["params"] for id, request in result["inputRequests"].items()}


async def legacy_question(client: Client) -> tuple[str, dict[str, Any]]:
    """The next question as clients get it before 2026-07-28: the request's id, and what it asks."""
    while (message := await client.hear()).get("method") != "elicitation/create":
        client.heard.append(message)
    return message["id"], message["params"]


async def asked_once(client: Client, era: str, tool: str, answer: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Call a tool that asks one question: the question, and what the answer leads to."""
    if era == "modern":
        modern = Modern(client, tool)
        ((id, question),) = (await modern.call()).items()
        return question, await modern.answer({id: answer})
    call = await client.ask("tools/call", name=tool)
    id, question = await legacy_question(client)
    await client.say(id=id, result=answer)
    return question, (await client.answer(call))["result"]


async def test_a_question_is_a_form_and_its_answer_the_runs(agent_runner: AgentRunner, serve: Serve, era: str) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with serve() as client:
        await begin(client, era)
        question, result = await asked_once(client, era, "asker", ACCEPT)
    assert question["message"] == "Which?"
    assert question["mode"] == "form"
    schema = question["requestedSchema"]
    assert schema["properties"]["answer"] == {"type": "string", "enum": ["red", "blue"]}
    assert result["content"][0]["text"] == "chose blue"


async def test_words_of_ones_own_take_the_place_of_the_choices(
    agent_runner: AgentRunner, serve: Serve, era: str
) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with serve() as client:
        await begin(client, era)
        _, result = await asked_once(
            client, era, "asker", {"action": "accept", "content": {"answer": "red", "other": "neither"}}
        )
    assert result["content"][0]["text"] == "chose neither"


@pytest.mark.parametrize(
    "answer", [{"action": "decline"}, {"action": "cancel"}, {"action": "accept", "content": {"answer": {}}}, {}]
)
async def test_a_user_who_does_not_answer_is_nobody_to_ask(
    agent_runner: AgentRunner, serve: Serve, era: str, answer: dict[str, Any]
) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with serve() as client:
        await begin(client, era)
        _, result = await asked_once(client, era, "asker", answer)
    assert result["isError"] is True
    assert result["structuredContent"]["error"]["code"] == "nobody_to_ask"
    assert result["structuredContent"]["exit_code"] == 5


async def test_an_error_in_place_of_an_answer_is_none(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with serve() as client:
        await client.initialize()
        call = await client.ask("tools/call", name="asker")
        id, _ = await legacy_question(client)
        await client.say(id=id, error={"code": -32601, "message": "what is that?"})
        result = (await client.answer(call))["result"]
    assert result["structuredContent"]["error"]["code"] == "nobody_to_ask"


async def test_an_answer_that_is_refused_is_asked_for_again(agent_runner: AgentRunner, serve: Serve, era: str) -> None:
    agent_runner.agent(NAME, name="asker")
    short, long = ({"action": "accept", "content": {"answer": name}} for name in ("Al", "Alan"))
    async with serve() as client:
        await begin(client, era)
        if era == "modern":
            modern = Modern(client, "asker")
            ((first, _),) = (await modern.call()).items()
            ((second, question),) = (await modern.answer({first: short})).items()
            result = await modern.answer({second: long})
        else:
            call = await client.ask("tools/call", name="asker")
            await client.say(id=(await legacy_question(client))[0], result=short)
            again, question = await legacy_question(client)
            await client.say(id=again, result=long)
            result = (await client.answer(call))["result"]
    assert "at least 3 characters" in question["message"]
    assert result["content"][0]["text"] == "Alan"


async def test_questions_that_are_open_at_once_are_answered_in_any_order(
    agent_runner: AgentRunner, serve: Serve, era: str
) -> None:
    agent_runner.plain("description: asks", name="asker")
    agent_runner.models.script(Reply(calls=[("user__input", {"question": f"{which}?"}) for which in "AB"]))
    agent_runner.models.answer_with(lambda request: " ".join(request.results))
    async with serve() as client:
        await begin(client, era)
        if era == "modern":
            modern = Modern(client, "asker", {"prompt": "ask"})
            open = await modern.call()
            while len(open) < 2:
                open = await modern.answer({})  # the other lane may take a moment longer
            by_text = {params["message"]: id for id, params in open.items()}
            left = await modern.answer({by_text["B?"]: {"action": "accept", "content": {"answer": "two"}}})
            assert list(left) == [by_text["A?"]]
            result = await modern.answer({by_text["A?"]: {"action": "accept", "content": {"answer": "one"}}})
        else:
            call = await client.ask("tools/call", name="asker", arguments={"prompt": "ask"})
            asked = {params["message"]: id for id, params in [await legacy_question(client) for _ in range(2)]}
            for text, value in (("B?", "two"), ("A?", "one")):
                await client.say(id=asked[text], result={"action": "accept", "content": {"answer": value}})
            result = (await client.answer(call))["result"]
    assert result["content"][0]["text"] == '{"answer":"one"} {"answer":"two"}'


@pytest.mark.parametrize("abilities", [{}, {"elicitation": {"url": {}}}, {"elicitation": None}])
async def test_a_client_without_forms_is_nobody_to_ask(
    agent_runner: AgentRunner, serve: Serve, era: str, abilities: dict[str, Any]
) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with serve() as client:
        if era == "legacy":
            await client.initialize(capabilities=abilities)
        else:
            client.meta = {**META, "io.modelcontextprotocol/clientCapabilities": abilities}
        result = await client.call("asker")
    assert result["structuredContent"]["error"]["code"] == "nobody_to_ask"


async def test_clients_with_and_without_forms_are_served_side_by_side(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with serve() as client:
        modern = Modern(client, "asker")
        ((id, _),) = (await modern.call()).items()
        client.meta = {**META, "io.modelcontextprotocol/clientCapabilities": {}}
        result = await client.call("asker")
        assert result["structuredContent"]["error"]["code"] == "nobody_to_ask"
        assert (await modern.answer({id: ACCEPT}))["content"][0]["text"] == "chose blue"


async def test_a_parked_run_that_nobody_comes_back_for_is_cancelled(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with serve(question_timeout=2, max_runs=1) as client:
        modern = Modern(client, "asker")
        ((id, _),) = (await modern.call()).items()
        assert len(at_work(agent_runner.root)) == 2
        await until(lambda: len(at_work(agent_runner.root)) == 1)
        answer = await modern.answer({id: ACCEPT})
        assert answer["error"]["code"] == -32602
        assert has_message(
            answer["error"]["message"], "front.mcp_server.session.McpSession._resumed", question_timeout=2
        )
        assert "inputRequests" in await client.call("asker")  # its place is free again


async def test_a_request_state_is_good_for_one_answer_of_its_own_tool(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(ASKER, name="asker")
    agent_runner.agent(ASKER, name="other")
    async with serve() as client:
        modern = Modern(client, "asker")
        ((id, _),) = (await modern.call()).items()
        stolen = await client.call("other", requestState=modern.state, inputResponses={id: ACCEPT})
        assert stolen["error"]["code"] == -32602
        assert (await modern.answer({id: ACCEPT}))["content"][0]["text"] == "chose blue"
        assert (await modern.answer({id: ACCEPT}))["error"]["code"] == -32602


async def test_a_question_whose_time_is_up_while_parked_leaves_the_result_to_be_fetched(
    agent_runner: AgentRunner, serve: Serve, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1.0
    agent_runner.agent(IMPATIENT, name="asker")
    async with serve() as client:
        modern = Modern(client, "asker")
        ((id, _),) = (await modern.call()).items()
        mock_clock.jump(60)
        await until(lambda: len(at_work(agent_runner.root)) == 1)
        assert (await modern.answer({id: ACCEPT}))["content"][0]["text"] == "too late"


async def test_a_question_that_is_no_longer_asked_is_taken_back(
    agent_runner: AgentRunner, serve: Serve, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1.0
    agent_runner.agent(IMPATIENT, name="asker")
    async with serve() as client:
        await client.initialize()
        call = await client.ask("tools/call", name="asker")
        id, _ = await legacy_question(client)
        mock_clock.jump(60)
        result = (await client.answer(call))["result"]
        assert [message["method"] for message in client.heard] == ["notifications/cancelled"]
        assert client.heard[0]["params"]["requestId"] == id
        await client.say(id=id, result=ACCEPT)  # too late: dropped
        assert await client.request("ping") == {}
    assert result["content"][0]["text"] == "too late"


async def test_a_user_of_the_older_era_has_so_long_for_an_answer(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with serve(question_timeout=0.05) as client:
        await client.initialize()
        call = await client.ask("tools/call", name="asker")
        await legacy_question(client)
        result = (await client.answer(call))["result"]
    assert result["structuredContent"]["error"]["code"] == "question_timeout"


async def test_cancelling_a_call_that_asks_withdraws_its_question(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with serve() as client:
        await client.initialize()
        call = await client.ask("tools/call", name="asker")
        await legacy_question(client)
        await client.say(method="notifications/cancelled", params={"requestId": call})
        with trio.fail_after(SOON):
            assert (await client.hear())["method"] == "notifications/cancelled"
        await until(lambda: len(at_work(agent_runner.root)) == 1)
        assert agent_runner.root.questions.open == ()


async def test_permissions_are_asked_of_the_clients_user(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.plain("global_tools: [execute_command]", name="clerk")
    agent_runner.models.script(Reply(calls=[("execute_command", {"command": "rm x"})]), "I may not")
    async with serve() as client:
        first = await client.call("clerk", {"prompt": "remove x"})
        ((id, request),) = first["inputRequests"].items()
        assert "Allow execute_command?" in request["params"]["message"]
        result = await client.call(
            "clerk", requestState=first["requestState"], inputResponses={id: {"action": "decline"}}
        )
    assert result["content"][0]["text"] == "I may not"
    assert len(agent_runner.models.requests[1].results) == 1
