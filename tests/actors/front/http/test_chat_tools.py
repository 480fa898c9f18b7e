"""Tools that the client of a chat completion brings and plays: calls are handed out, and their results continue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import Reply
from support.http_agents import HELLO, LOOP
from support.http_server import ApiServer

PATH = "/v1/chat/completions"
LOOKUP = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
ADD = '# @cmd Adds.\nadd() { echo once >> "$PLAYED"; printf 3 >> "$LLM_OUTPUT"; }\n'


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the agent's own tool writes that it was played."""
    monkeypatch.setenv("PLAYED", str(tmp_path / "played"))
    return tmp_path / "played"


def clerk(api_server: ApiServer) -> None:
    home = api_server.agent_runner.plain(LOOP, name="clerk")
    (home / "tools.sh").write_text(ADD)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def asks(model: str, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": list(messages), "tools": [LOOKUP], **more}


def result(call: dict[str, Any], text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


def sent(api_server: ApiServer) -> list[dict[str, Any]]:
    """The messages of the last request to the model, without the system prompt."""
    return [
        message
        for message in api_server.agent_runner.models.requests[-1].json["messages"]
        if message["role"] != "system"
    ]


@pytest.mark.parametrize("model", ["fake:model", "agent/clerk"])
async def test_a_call_of_the_clients_tool_is_handed_out_and_its_result_continues(
    api_server: ApiServer, model: str
) -> None:
    clerk(api_server)
    api_server.agent_runner.models.script(Reply(text="I look.", calls=[("lookup", {"word": "sky"})]), "It is green.")
    body = asks(model, user("what is the sky?"))
    first = await api_server.post(PATH, body)
    assert "lookup" in api_server.agent_runner.models.requests[-1].offered
    (choice,) = first["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I look."
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["function"]["name"] == "lookup"
    assert json.loads(call["function"]["arguments"]) == {"word": "sky"}
    body["messages"] += [choice["message"], result(call, "green")]
    second = await api_server.post(PATH, body)
    assert second["choices"][0]["finish_reason"] == "stop"
    assert second["choices"][0]["message"]["content"] == "It is green."
    asked, called, told = sent(api_server)
    assert asked["content"] == "what is the sky?"
    assert called["tool_calls"][0]["id"] == told["tool_call_id"] == call["id"]
    assert told["content"] == "green"


async def test_what_the_agent_has_played_itself_is_not_played_again(api_server: ApiServer, played: Path) -> None:
    clerk(api_server)
    both: list[tuple[str, Any]] = [("add", {}), ("lookup", {"word": "sky"})]
    api_server.agent_runner.models.script(Reply(calls=[("add", {})]), Reply(calls=both), "done")
    body = asks("agent/clerk", user("1+2, and the sky?"), system := {"role": "system", "content": "Be kind."})
    assert system in body["messages"]
    first = await api_server.post(PATH, body)
    message = first["choices"][0]["message"]
    assert message["content"] is None
    (call,) = message["tool_calls"]
    body["messages"] += [message, result(call, "green")]
    await api_server.post(PATH, body)
    assert [each["role"] for each in sent(api_server)] == ["user", "assistant", "tool", "assistant", "tool", "tool"]
    assert api_server.agent_runner.models.requests[-1].results[2] == "green"
    assert sent(api_server)[0]["content"] == "Be kind.\n\n1+2, and the sky?"
    assert played.read_text() == "once\nonce\n"


async def test_a_server_that_knows_nothing_of_the_call_goes_on_from_what_the_client_tells(
    api_server: ApiServer,
) -> None:
    clerk(api_server)
    api_server.agent_runner.models.script("It is green.")
    call = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": '{"word": "sky"}'}}
    messages = [
        {"role": "system", "content": "Be kind."},
        user("what is the sky?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        result(call, "green"),
    ]
    reply = await api_server.post(PATH, asks("agent/clerk", *messages))
    assert reply["choices"][0]["message"]["content"] == "It is green."
    asked, called, told = sent(api_server)
    assert [part["text"] for part in asked["content"]] == ["Be kind.", "what is the sky?"]
    assert called["tool_calls"][0]["function"]["name"] == "lookup"
    assert told["content"] == "green"


async def test_such_a_server_remembers_what_the_agent_plays_from_then_on(api_server: ApiServer, played: Path) -> None:
    """Also behind a system prompt, which is put into a conversation that the client alone knows."""
    clerk(api_server)
    both: list[tuple[str, Any]] = [("add", {}), ("lookup", {"word": "sea"})]
    api_server.agent_runner.models.script(Reply(calls=both), "fine")
    call = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": '{"word": "sky"}'}}
    told = {"role": "assistant", "content": None, "tool_calls": [call]}
    kind = {"role": "system", "content": "Be kind."}
    body = asks("agent/clerk", kind, user("sky, sea?"), told, result(call, "green"))
    message = (await api_server.post(PATH, body))["choices"][0]["message"]
    body["messages"] += [message, result(message["tool_calls"][0], "blue")]
    await api_server.post(PATH, body)
    assert [each["role"] for each in sent(api_server)] == ["user", "assistant", "tool", "assistant", "tool", "tool"]
    assert [each["content"] for each in sent(api_server) if each["role"] == "tool"] == [
        "green",
        '{"output":"3"}',
        "blue",
    ]
    assert played.read_text() == "once\n"


async def test_a_stream_tells_the_calls_before_its_end(api_server: ApiServer) -> None:
    calls: list[tuple[str, Any]] = [("lookup", {"word": "sky"}), ("lookup", {"word": "sea"})]
    api_server.agent_runner.models.script(Reply(text="I look.", calls=calls))
    events = [data for _, _, data in await api_server.events("POST", PATH, asks("fake:model", user("x"), stream=True))]
    assert events.pop() == "[DONE]"
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    told = events[-2]["choices"][0]["delta"]["tool_calls"]
    assert [each["index"] for each in told] == [0, 1]
    assert len({each["id"] for each in told}) == 2
    assert [json.loads(each["function"]["arguments"])["word"] for each in told] == ["sky", "sea"]


async def test_who_can_play_one_call_at_a_time_gets_one(api_server: ApiServer) -> None:
    calls: list[tuple[str, Any]] = [("lookup", {"word": "sky"}), ("lookup", {"word": "sea"})]
    api_server.agent_runner.models.script(Reply(calls=calls), "fine")
    body = asks("fake:model", user("x"), parallel_tool_calls=False)
    message = (await api_server.post(PATH, body))["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"word": "sky"}
    body["messages"] += [message, result(call, "green")]
    await api_server.post(PATH, body)
    assert [len(each.get("tool_calls", [])) for each in sent(api_server)] == [0, 1, 0]


async def test_conversations_of_others_are_not_gone_on_with(api_server: ApiServer) -> None:
    api_server.agent_runner.models.answer_with(
        lambda request: "fine" if request.results else Reply(calls=[("lookup", {})])
    )
    first = (await api_server.post(PATH, asks("fake:model", user("one"))))["choices"][0]["message"]
    second = (await api_server.post(PATH, asks("fake:model", user("two"))))["choices"][0]["message"]
    assert first["tool_calls"][0]["id"] != second["tool_calls"][0]["id"]
    for text, message in (("one", first), ("two", second)):
        await api_server.post(PATH, asks("fake:model", user(text), message, result(message["tool_calls"][0], text)))
        assert [each["content"] for each in sent(api_server)] == [text, None, text]


async def test_tools_that_may_not_be_called_are_not_offered(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script("fine")
    await api_server.post(PATH, asks("fake:model", user("x"), tool_choice="none"))
    assert api_server.agent_runner.models.requests[-1].offered == []


NAMED = {"type": "function", "function": {"name": "lookup"}}


@pytest.mark.parametrize(("choice", "told"), [("required", "required"), (NAMED, NAMED), ("auto", None), (None, None)])
async def test_a_choice_that_forces_a_call_holds_for_the_first_answer(
    api_server: ApiServer, choice: Any, told: Any
) -> None:
    clerk(api_server)
    api_server.agent_runner.models.script(
        Reply(calls=[("add", {})]), Reply(calls=[("lookup", {"word": "sky"})]), "It is green."
    )
    body = asks("agent/clerk", user("x"), tool_choice=choice)
    message = (await api_server.post(PATH, body))["choices"][0]["message"]
    chosen = [request.json.get("tool_choice") for request in api_server.agent_runner.models.requests]
    assert [None if each == "auto" else each for each in chosen] == [told, None]
    again = result(message["tool_calls"][0], "green")
    await api_server.post(PATH, asks("agent/clerk", user("x"), message, again, tool_choice=choice))
    assert (api_server.agent_runner.models.requests[-1].json.get("tool_choice") or "auto") == (told or "auto")


async def test_calls_of_a_conversation_without_tools_are_left_out(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script("fine")
    call = {"id": "a", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
    body = asks("fake:model", user("x"), {"role": "assistant", "tool_calls": [call]}, result(call, "y"), user("z"))
    del body["tools"]
    await api_server.post(PATH, body)
    assert [each["content"] for each in sent(api_server)] == ["x", "z"]


CALL = {"id": "a", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": "", "tool_calls": [CALL]}


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (asks("graph/hello", user("x")), "tools"),
        ({"model": "fake:model", "messages": [user("x")], "tool_choice": "required"}, "tool_choice"),
        (asks("fake:model", user("x"), tool_choice="perhaps"), "tool_choice"),
        (asks("fake:model", user("x"), tool_choice={"type": "function", "function": {"name": "a"}}), "tool_choice"),
        (asks("fake:model", user("x"), functions=[{"name": "a"}]), "functions"),
        ({**asks("fake:model", user("x")), "tools": [{"type": "custom", "custom": {"name": "a"}}]}, "tools"),
        (asks("fake:model", user("x"), result(CALL, "y")), "tool_call_id"),
        (asks("fake:model", user("x"), CALLS, user("y")), "'a' has no result"),
        (asks("fake:model", user("x"), CALLS), "'a' has no result"),
        (asks("fake:model", user("x"), {**CALLS, "tool_calls": [CALL, CALL]}, result(CALL, "y")), "same id"),
        ({"model": "fake:model", "messages": [user("x"), CALLS, result(CALL, "y")]}, "with `tools`"),
    ],
)
async def test_what_can_not_be_done_with_tools_is_refused(
    api_server: ApiServer, body: dict[str, Any], word: str
) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    error = (await api_server.post(PATH, body, 400))["error"]
    assert (error["code"], error["type"]) == ("usage", "invalid_request_error")
    assert word in error["message"]
