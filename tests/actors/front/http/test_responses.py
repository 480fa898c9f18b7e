"""`/v1/responses`: OpenAI's Responses API, whole and as a stream of its events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.fake_models import Reply
from support.http_agents import HELLO, LOOP
from support.http_server import ApiServer

from callboard.actors.front.http.shapes import responses
from callboard.actors.front.http.shapes.openai import ChatMessage
from callboard.protocol.errors import NotFound

PATH = "/v1/responses"
LOOKUP = {
    "type": "function",
    "name": "lookup",
    "description": "Looks a word up.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    "strict": True,
}
ADD = '# @cmd Adds.\nadd() { printf 3 >> "$LLM_OUTPUT"; }\n'
TEXT_EVENTS = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]


def message(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def sent(api_server: ApiServer) -> list[dict[str, Any]]:
    """The messages of the last request to the model."""
    found: list[dict[str, Any]] = api_server.agent_runner.models.requests[-1].json["messages"]
    return found


async def streamed(api_server: ApiServer, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The data of each event of a stream; names and numbers are checked."""
    events = await api_server.events("POST", PATH, {**body, "stream": True})
    assert [name for _, name, _ in events] == [data["type"] for _, _, data in events]
    assert [data["sequence_number"] for _, _, data in events] == list(range(len(events)))
    return [data for _, _, data in events]


async def test_a_prompt_is_answered_with_one_message(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script("ok")
    body = {"model": "fake:model", "input": "hi", "instructions": "Be brief.", "max_output_tokens": 9, "top_p": 0.5}
    reply = await api_server.post(PATH, {**body, "metadata": {"a": "b"}, "include": [], "truncation": "auto"})
    (item,) = reply["output"]
    assert item["type"] == "message"
    assert item["content"] == [{"type": "output_text", "text": "ok", "annotations": [], "logprobs": []}]
    assert (reply["object"], reply["status"], reply["error"]) == ("response", "completed", None)
    assert (reply["model"], reply["instructions"], reply["metadata"]) == ("fake:model", "Be brief.", {"a": "b"})
    assert (reply["usage"]["input_tokens"], reply["usage"]["total_tokens"]) == (10, 15)
    assert reply["id"] == f"resp_{reply['callboard']['run']}"
    request = api_server.agent_runner.models.requests[-1].json
    assert [each["content"] for each in request["messages"]] == ["Be brief.", "hi"]
    assert (request["top_p"], request["max_tokens"]) == (0.5, 9)


async def test_a_stream_has_the_events_of_openai_in_their_order(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script(Reply(text="Hello there", piece=5))
    events = await streamed(api_server, {"model": "fake:model", "input": "hi"})
    kinds = [event["type"] for event in events]
    assert list(dict.fromkeys(kinds)) == [
        "response.created", "response.in_progress", *TEXT_EVENTS, "response.completed",
    ]  # fmt: skip
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == "Hello there"
    last = events[-1]["response"]
    assert last["output"][0]["content"][0]["text"] == "Hello there"
    assert last["output"][0] == events[-2]["item"]
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []


@pytest.mark.parametrize("model", ["fake:model", "agent/clerk"])
@pytest.mark.parametrize("by_id", [True, False])
async def test_a_function_of_the_client_is_called_and_its_output_continues(
    api_server: ApiServer, model: str, by_id: bool
) -> None:
    home = api_server.agent_runner.plain(LOOP, name="clerk")
    (home / "tools.sh").write_text(ADD)
    api_server.agent_runner.models.script(Reply(text="I look.", calls=[("lookup", {"word": "sky"})]), "It is green.")
    body: dict[str, Any] = {"model": model, "input": [message("the sky?")], "tools": [LOOKUP]}
    first = await api_server.post(PATH, {**body, "tool_choice": {"type": "function", "name": "lookup"}})
    assert api_server.agent_runner.models.requests[-1].json["tool_choice"]["function"]["name"] == "lookup"
    said, called = first["output"]
    assert said["content"][0]["text"] == "I look."
    assert (called["type"], called["name"], json.loads(called["arguments"])) == (
        "function_call", "lookup", {"word": "sky"},
    )  # fmt: skip
    output = {"type": "function_call_output", "call_id": called["call_id"], "output": "green"}
    if by_id:
        second = await api_server.post(PATH, {**body, "previous_response_id": first["id"], "input": [output]})
    else:
        second = await api_server.post(PATH, {**body, "input": [*body["input"], *first["output"], output]})
    assert second["output"][0]["content"][0]["text"] == "It is green."
    asked, calls, told = (each for each in sent(api_server) if each["role"] != "system")
    assert asked["content"] == "the sky?"
    assert calls["content"] == "I look."
    assert calls["tool_calls"][0]["id"] == told["tool_call_id"] == called["call_id"]
    assert told["content"] == "green"


async def test_calls_are_streamed_with_their_arguments(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script(Reply(calls=[("lookup", {"word": "sky"}), ("lookup", {"word": "sea"})]))
    events = await streamed(api_server, {"model": "fake:model", "input": "look", "tools": [LOOKUP]})
    assert [event["type"] for event in events[2:-1]] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ] * 2
    assert [event["output_index"] for event in events[2:-1]] == [0] * 4 + [1] * 4
    assert [json.loads(item["arguments"])["word"] for item in events[-1]["response"]["output"]] == ["sky", "sea"]


async def test_items_are_referred_to_and_reasoning_is_passed_over(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script(Reply(text="I look.", calls=[("lookup", {"word": "sky"})]), "It is green.")
    first = await api_server.post(PATH, {"model": "fake:model", "input": "the sky?", "tools": [LOOKUP]})
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    output = {
        "type": "function_call_output",
        "call_id": first["output"][1]["call_id"],
        "output": [{"type": "input_text", "text": "green"}],
    }
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    items = [message("the sky?"), reasoning, *references, output]
    second = await api_server.post(PATH, {"model": "fake:model", "input": items, "tools": [LOOKUP]})
    assert second["output"][0]["content"][0]["text"] == "It is green."
    assert [each["role"] for each in sent(api_server)] == ["user", "assistant", "tool"]


async def test_a_response_continues_another_that_continues_one(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script("one", "two", "three")
    id = None
    for prompt in ("a", "b", "c"):
        body = {"model": "fake:model", "input": prompt, "previous_response_id": id, "instructions": f"do {prompt}"}
        reply = await api_server.post(PATH, body)
        assert reply["previous_response_id"] == id
        id = reply["id"]
    assert [each["content"] for each in sent(api_server)] == ["do c", "a", "one", "b", "two", "c"]


async def test_nothing_refers_to_a_response_that_is_not_stored(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script("one")
    reply = await api_server.post(PATH, {"model": "fake:model", "input": "a", "store": False})
    assert reply["store"] is False
    body = {"model": "fake:model", "input": "b", "previous_response_id": reply["id"]}
    error = (await api_server.post(PATH, body, 404))["error"]
    assert (error["code"], error["type"]) == ("not_found", "not_found_error")
    assert reply["id"] in error["message"]


async def test_images_and_a_schema_reach_the_model(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script('{"name": "Ann"}')
    image = "data:image/png;base64,aGVsbG8="
    content = [{"type": "input_text", "text": "who?"}, {"type": "input_image", "image_url": image, "detail": "auto"}]
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    text = {"format": {"type": "json_schema", "name": "person", "schema": schema, "strict": True}}
    reply = await api_server.post(
        PATH, {"model": "fake:model", "input": [{"role": "user", "content": content}], "text": text}
    )
    assert json.loads(reply["output"][0]["content"][0]["text"]) == {"name": "Ann"}
    assert reply["text"] == text
    request = api_server.agent_runner.models.requests[-1].json
    assert request["messages"][-1]["content"][1]["image_url"]["url"] == image
    assert request["response_format"]["json_schema"]["schema"]["required"] == ["name"]


async def test_a_graph_answers_at_its_end(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    assert (await api_server.post(PATH, {"model": "graph/hello", "input": "you"}))["output"][0]["content"][0][
        "text"
    ] == ("hello you")
    events = await streamed(api_server, {"model": "graph/hello", "input": "you"})
    assert [event["type"] for event in events] == [
        "response.created", "response.in_progress", *TEXT_EVENTS, "response.completed",
    ]  # fmt: skip


async def test_an_answer_that_is_cut_off_is_incomplete(api_server: ApiServer) -> None:
    api_server.agent_runner.models.answer_with(lambda _: Reply(text="so far", stop="length"))
    reply = await api_server.post(PATH, {"model": "fake:model", "input": "hi"})
    assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    events = await streamed(api_server, {"model": "fake:model", "input": "hi"})
    assert events[-1]["type"] == "response.incomplete"


async def test_a_failure_is_an_error_or_the_end_of_the_stream(api_server: ApiServer) -> None:
    api_server.agent_runner.models.answer_with(lambda _: Reply(status=400, error="no such thing"))
    error = (await api_server.post(PATH, {"model": "fake:model", "input": "hi"}, 502))["error"]
    assert (error["code"], error["type"]) == ("model", "server_error")
    *_, told, last = await streamed(api_server, {"model": "fake:model", "input": "hi"})
    assert (told["type"], told["code"], last["type"]) == ("error", "model", "response.failed")
    assert (last["response"]["status"], last["response"]["error"]["code"]) == ("failed", "model")


@pytest.mark.parametrize(
    ("fields", "status", "param", "words"),
    [
        ({"model": "agent/nobody"}, 404, None, "there is no agent 'nobody'"),
        ({"input": []}, 400, "input", "the last message must be the user's"),
        ({"input": 5}, 400, "input", "got `int`"),
        ({"input": [{"type": "image_generation_call"}]}, 400, "input[0]", "image_generation_call"),
        ({"input": [{"type": "item_reference", "id": "msg_0"}]}, 400, "input[0]", "send the item itself"),
        ({"input": [{"role": "king", "content": "x"}]}, 400, "input[0].role", "'king'"),
        ({"input": [{"role": "user", "content": 5}]}, 400, "input[0].content", "a list of parts"),
        (
            {"input": [message("x"), {"role": "user", "content": [{"type": "input_file"}]}]},
            400,
            "input[1].content",
            "x",
        ),
        ({"input": [{"type": "function_call", "name": "x"}]}, 400, "input[0].call_id", "the value must be a string"),
        ({"input": [message("x"), message("y", "assistant")]}, 400, "input", "the last message must be the user's"),
        ({"tools": [{"type": "web_search"}]}, 400, "tools[0].type", "web_search"),
        ({"tools": [LOOKUP], "tool_choice": {"type": "function", "name": "other"}}, 400, "tool_choice", "'other'"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, 400, "text.format", "needs a `schema`"),
        ({"background": True}, 400, "background", "True"),
    ],
)
async def test_what_can_not_be_asked_is_refused_with_its_place(
    api_server: ApiServer, fields: dict[str, Any], status: int, param: str | None, words: str
) -> None:
    error = (await api_server.post(PATH, {"model": "fake:model", "input": "x", **fields}, status))["error"]
    assert words.lower() in error["message"].lower()
    assert error["param"] == param
    assert not api_server.agent_runner.models.requests


def test_the_oldest_stored_responses_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "STORED_BYTES", 8_000)
    stored = responses.StoredResponses()
    for number in range(10):
        item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": "x"}
        stored.add("ann", f"resp_{number}", None, [ChatMessage(role="user", content="y" * 500)], [item])
    assert stored.item("ann", "msg_9") is not None
    assert stored.item("bob", "msg_9") is None
    assert [each.role for each in stored.messages("ann", "resp_9")] == ["user", "assistant"]
    assert stored.item("ann", "msg_0") is None
    for subject, id in (("ann", "resp_0"), ("bob", "resp_9")):
        with pytest.raises(NotFound, match="is not stored"):
            stored.messages(subject, id)
