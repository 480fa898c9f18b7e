"""AG-UI: a run told in its events, questions as interrupts, and streams that go on after a break."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from support.fake_models import Reply
from support.http_agents import ASKER, HELLO, LOOP
from support.http_server import ApiServer, told

from callboard.actors.front.http.routes.agui import LOOK_EVERY


def asks(text: str = "hi", **more: Any) -> dict[str, Any]:
    messages = [{"id": "m1", "role": "user", "content": text}]
    given = {"threadId": "t1", "runId": "r1", "messages": messages, "tools": [], "context": [], "state": {}}
    return {**given, "forwardedProps": {}, **more}


async def happens(api_server: ApiServer, target: str, **more: Any) -> list[dict[str, Any]]:
    """What a client is told of a run."""
    return [data for _, _, data in await api_server.events("POST", "/agui", asks(**more), params={"target": target})]


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


async def test_an_agent_speaks_and_calls_in_order(api_server: ApiServer) -> None:
    home = api_server.agent_runner.plain(LOOP, name="clerk")
    (home / "tools.sh").write_text('# @cmd Adds.\nadd() { printf 3 >> "$LLM_OUTPUT"; }\n')
    api_server.agent_runner.models.script(Reply(text="Hm.", calls=[("add", {})]), "Three.")
    events = await happens(api_server, "agent/clerk")
    squeezed = [kind for kind, before in zip(types(events), ["", *types(events)], strict=False) if kind != before]
    assert squeezed == [
        "RUN_STARTED",
        "CUSTOM",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert events[0]["threadId"] == "t1"
    assert events[-1]["runId"] == "r1"
    assert events[-1]["outcome"] == {"type": "success"}
    assert events[-1]["usage"][0]["totalTokens"] == 30


async def test_a_graph_takes_steps_and_says_what_comes_out(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    events = await happens(api_server, "graph/hello", text="you")
    steps = [(event["type"], event["stepName"]) for event in events if "stepName" in event]
    assert steps == [("STEP_STARTED", "a"), ("STEP_FINISHED", "a")]
    (said,) = [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert said == "hello you"


async def test_a_question_ends_the_stream_and_its_answer_begins_the_next(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(ASKER, name="asker")
    first = await happens(api_server, "graph/asker")
    assert "callboard.question" in [event.get("name") for event in first]
    assert first[-1]["outcome"]["type"] == "interrupt"
    (interrupt,) = first[-1]["outcome"]["interrupts"]
    assert interrupt["message"].startswith("Which?")
    answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": "blue"}
    events = [data for _, _, data in await api_server.events("POST", "/agui", asks(runId="r2", resume=[answer]))]
    assert types(events)[:2] == ["RUN_STARTED", "STEP_STARTED"]
    assert events[0]["runId"] == "r2"
    assert events[-1]["result"]["output"] == "chose blue"
    again = await api_server.post("/agui", asks(runId="r3", resume=[answer]), 409)
    assert again["error"]["code"] == "conflict"


async def test_a_run_that_has_other_things_to_do_is_not_interrupted(api_server: ApiServer) -> None:
    go_on = api_server.agent_runner.config_dir / "go"
    home = api_server.agent_runner.plain("can_ask_user: true", name="busy")
    work = f'# @cmd Works.\nwork() {{ until [ -e {go_on} ]; do sleep 0.05; done; echo done >> "$LLM_OUTPUT"; }}\n'
    (home / "tools.sh").write_text(work)
    calls: list[tuple[str, Any]] = [("user__ask", {"question": "Which?", "options": ["red", "blue"]}), ("work", {})]
    api_server.agent_runner.models.script(Reply(calls=calls), "blue it is")
    kinds: list[str] = []
    last: dict[str, Any] = {}
    async with api_server.client.stream("POST", "/agui", json=asks(), params={"target": "agent/busy"}) as response:
        async for _, _, last in told(response):
            kinds.append(last.get("name") or last["type"])
            if kinds[-1] == "callboard.question":
                await trio.sleep(3 * LOOK_EVERY)
                go_on.touch()
    assert last["outcome"]["type"] == "interrupt"
    assert kinds.index("callboard.question") < kinds.index("TOOL_CALL_RESULT") < kinds.index("RUN_FINISHED")


async def test_a_run_is_watched_from_elsewhere_and_taken_up_after_a_break(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    run = (await api_server.post("/v1/completions", {"prompt": "x", "agent": "hello"}))["run"]
    whole = await api_server.events("GET", f"/agui/{run}")
    assert whole[0][2]["runId"] == run
    ids = [(number, id) for number, (id, _, _) in enumerate(whole) if id]
    at, last = ids[1]
    rest = await api_server.events("GET", f"/agui/{run}", headers={"last-event-id": last})
    assert rest == whole[at + 1 :]


async def test_a_run_that_fails_is_told_as_an_error(api_server: ApiServer) -> None:
    api_server.agent_runner.models.answer_with(lambda _: Reply(status=400, error="no such thing"))
    events = await happens(api_server, "fake:model")
    assert events[-1]["type"] == "RUN_ERROR"
    assert events[-1]["code"] == "model"


async def test_a_run_that_is_cancelled_ends_as_cancelled_and_is_no_error(api_server: ApiServer) -> None:
    api_server.agent_runner.models.answer_with(lambda _: Reply(text="slowly " * 500, piece=7, gap=0.1))
    ends: list[dict[str, Any]] = []
    async with api_server.client.stream("POST", "/agui", json=asks(), params={"target": "fake:model"}) as response:
        async for _, _, event in told(response):
            if event["type"] == "CUSTOM":
                await api_server.post(f"/v1/runs/{event['value']['run']}/cancel")
            ends.append(event)
    assert (ends[-1]["type"], ends[-1]["outcome"]) == ("RUN_FINISHED", {"type": "cancelled"})


async def test_calls_belong_to_their_turns_message_and_no_two_runs_use_an_id_twice(api_server: ApiServer) -> None:
    home = api_server.agent_runner.plain(LOOP, name="clerk")
    (home / "tools.sh").write_text('# @cmd Adds.\nadd() { printf 3 >> "$LLM_OUTPUT"; }\n')
    twice: list[tuple[str, Any]] = [("add", {}), ("add", {})]
    ids: list[str] = []
    for _ in range(2):
        api_server.agent_runner.models.script(Reply(text="Hm.", calls=twice), Reply(calls=[("add", {})]), "Done.")
        events = await happens(api_server, "agent/clerk")
        started = [event for event in events if event["type"] == "TOOL_CALL_START"]
        said = [event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START"]
        parents = [event["parentMessageId"] for event in started]
        assert parents[:2] == [said[0], said[0]]
        assert parents[2] not in said  # it said nothing there
        ids += [event["toolCallId"] for event in started] + said + parents[2:]
    assert len(set(ids)) == len(ids)


async def test_what_is_to_be_run_has_to_be_named(api_server: ApiServer) -> None:
    assert (await api_server.post("/agui", asks(), 400))["error"]["code"] == "usage"
    api_server.agent_runner.agent(HELLO, name="hello")
    events = [
        data for _, _, data in await api_server.events("POST", "/agui", asks(forwardedProps={"target": "graph/hello"}))
    ]
    assert events[-1]["type"] == "RUN_FINISHED"


# --- tools and context of the client ---

PICK = {
    "name": "pick",
    "description": "Lets the user pick.",
    "parameters": {"type": "object", "properties": {"colour": {"type": "string"}}},
}


def message_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages that a client has of a run, as it sends them back."""
    messages: list[dict[str, Any]] = []
    for event in events:
        match event["type"]:
            case "TEXT_MESSAGE_START":
                messages.append({"id": event["messageId"], "role": "assistant", "content": ""})
            case "TEXT_MESSAGE_CONTENT":
                messages[-1]["content"] += event["delta"]
            case "TOOL_CALL_START":
                call = {"name": event["toolCallName"], "arguments": ""}
                parent = event["parentMessageId"]
                if not messages or messages[-1]["id"] != parent:
                    messages.append({"id": parent, "role": "assistant"})
                said = {"id": event["toolCallId"], "type": "function", "function": call}
                messages[-1].setdefault("toolCalls", []).append(said)
            case "TOOL_CALL_ARGS":
                messages[-1]["toolCalls"][-1]["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                result = {"toolCallId": event["toolCallId"], "content": event["content"]}
                messages.append({"id": event["messageId"], "role": "tool", **result})
    return messages


async def test_a_call_of_the_clients_tool_ends_the_run_and_its_result_continues(api_server: ApiServer) -> None:
    home = api_server.agent_runner.plain(LOOP, name="clerk")
    (home / "tools.sh").write_text('# @cmd Adds.\nadd() { printf 3 >> "$LLM_OUTPUT"; }\n')
    api_server.agent_runner.models.script(
        Reply(text="Let me see.", calls=[("add", {})]),
        Reply(text="And you?", calls=[("pick", {"colour": "red"})]),
        "Red it is.",
    )
    first = await happens(api_server, "agent/clerk", tools=[PICK])
    assert set(api_server.agent_runner.models.requests[-1].offered) >= {"add", "pick"}
    assert types(first)[-4:] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED"]
    start, arguments = first[-4], first[-3]
    assert (start["toolCallName"], arguments["delta"]) == ("pick", '{"colour":"red"}')
    assert start["parentMessageId"] == [each for each in first if each["type"] == "TEXT_MESSAGE_START"][-1]["messageId"]

    said = [{"id": "m1", "role": "user", "content": "hi"}, *message_of(first)]
    assert [each["role"] for each in said] == ["user", "assistant", "tool", "assistant"]
    said.append({"id": "t1", "role": "tool", "toolCallId": start["toolCallId"], "content": "red"})
    second = await happens(api_server, "agent/clerk", tools=[PICK], messages=said, runId="r2")
    assert second[-1]["result"]["output"] == "Red it is."
    sent = [each for each in api_server.agent_runner.models.requests[-1].json["messages"] if each["role"] != "system"]
    assert [each["role"] for each in sent] == ["user", "assistant", "tool", "assistant", "tool"]  # each of them once
    assert [each["content"] for each in sent[1::2]] == ["Let me see.", "And you?"]
    assert sent[-1]["content"] == "red"


async def test_a_model_by_itself_is_offered_the_clients_tools(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script(Reply(calls=[("pick", {}), ("pick", {})]))
    events = await happens(api_server, "fake:model", tools=[PICK])
    started = [event for event in events if event["type"] == "TOOL_CALL_START"]
    assert len({event["toolCallId"] for event in started}) == 2
    assert len({event["parentMessageId"] for event in started}) == 1
    assert events[-1]["outcome"] == {"type": "success"}


async def test_a_call_after_a_question_reaches_the_request_that_answers_it(api_server: ApiServer) -> None:
    api_server.agent_runner.plain("can_ask_user: true", name="asker")
    ask: tuple[str, Any] = ("user__ask", {"question": "Which?", "options": ["red", "blue"]})
    api_server.agent_runner.models.script(Reply(calls=[ask]), Reply(calls=[("pick", {"colour": "blue"})]))
    first = await happens(api_server, "agent/asker", tools=[PICK])
    (interrupt,) = first[-1]["outcome"]["interrupts"]
    answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": "blue"}
    body = asks(runId="r2", resume=[answer], tools=[PICK])
    second = [data for _, _, data in await api_server.events("POST", "/agui", body)]
    assert [event["toolCallName"] for event in second if event["type"] == "TOOL_CALL_START"][-1] == "pick"
    assert second[-1]["outcome"] == {"type": "success"}


async def test_context_of_the_client_is_shown_before_the_prompt(api_server: ApiServer) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    context = [{"description": "The user", "value": "Ann"}, {"description": "Today", "value": "Monday"}]
    for target in ("agent/clerk", "fake:model"):
        await happens(api_server, target, context=context)
        sent = "\n".join(str(each["content"]) for each in api_server.agent_runner.models.requests[-1].json["messages"])
        assert "The user:\nAnn\n\nToday:\nMonday" in sent
    assert sent.endswith("hi")


async def test_a_graph_says_that_it_has_no_use_for_tools(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    events = await happens(api_server, "graph/hello", tools=[PICK])
    (warned,) = [event["value"] for event in events if event.get("name") == "callboard.warning"]
    assert warned["code"] == "client_tools"
    assert events[-1]["type"] == "RUN_FINISHED"


LITTLE: dict[str, dict[str, Any]] = {
    "without tools, context and state": {"threadId": "t", "runId": "r"},
    "with nulls": {"threadId": "t", "runId": "r", "state": None, "forwardedProps": None},
    "with unknown keys": {"threadId": "t", "runId": "r", "user": {"id": "web-1"}, "forwardedProps": {"user_id": "1"}},
}


@pytest.mark.parametrize("given", LITTLE.values(), ids=LITTLE)
@pytest.mark.parametrize("content", ["hi", [{"type": "text", "text": "hi"}]])
async def test_a_client_may_send_little(api_server: ApiServer, given: dict[str, Any], content: Any) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    api_server.agent_runner.models.script("hello")
    message = {"role": "user", "content": content, "id": "1", "user": {"id": "web-1"}}
    body = {**given, "messages": [message]}
    events = [data for _, _, data in await api_server.events("POST", "/agui", body, params={"target": "agent/clerk"})]
    assert "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT") == "hello"
    assert events[-1]["type"] == "RUN_FINISHED"


@pytest.mark.parametrize("lacks", ["threadId", "runId", "messages"])
async def test_what_a_client_leaves_out_is_named(api_server: ApiServer, lacks: str) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    body = {key: value for key, value in asks().items() if key != lacks}
    reply = await api_server.client.post("/agui", json=body, params={"target": "agent/clerk"})
    assert reply.status_code == 400
    assert lacks in reply.text
