"""OpenAI's Responses API, by the shapes of its reference and of openai-python's types; through the gateway as well.

https://developers.openai.com/api/reference/resources/responses
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.fake_models import FakeModels, Reply
from support.gateways import Silent, reaching
from support.messages import says

import callboard
from callboard.actors.work.models.azure import AzureResponsesCodec
from callboard.actors.work.models.catalog import ModelCatalog
from callboard.actors.work.models.openai import OpenAiCodec
from callboard.actors.work.models.responses import ResponsesCodec
from callboard.protocol.chat import (
    AssistantTurn,
    ChatReply,
    ChatRequest,
    Delta,
    FilePart,
    ImagePart,
    ReasoningDelta,
    TextDelta,
    TextPart,
    TokenUsage,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolTurn,
    UserTurn,
)
from callboard.protocol.errors import ConfigError, ModelError, UpstreamError
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings, read_settings

HI = (UserTurn("hi"),)
LOOK = Tool(name="look", description="Looks.")
OWN = ResponsesCodec(own=True)

REASONING = {
    "id": "rs_67ccfcdd16748190",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "**Looking**"}, {"type": "summary_text", "text": "It is near."}],
    "encrypted_content": "gAAAAABoW",
}
MESSAGE = {
    "id": "msg_67ccd2bf17f0819081ff3bb2cf6508e6",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}],
}
CALL = {
    "id": "fc_67ca09c6bedc8190",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_unLAR8MvFNptuiZK6K6HCy5k",
    "name": "look",
    "arguments": '{"at":1}',
}
RESPONSE = {
    "id": "resp_67ca09c5efe0819096d0511c92b8c890",
    "object": "response",
    "created_at": 1741294021,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "model": "gpt-5.5",
    "output": [REASONING, MESSAGE, CALL],
    "usage": {
        "input_tokens": 291,
        "input_tokens_details": {"cached_tokens": 128, "cache_write_tokens": 64},
        "output_tokens": 23,
        "output_tokens_details": {"reasoning_tokens": 8},
        "total_tokens": 314,
    },
}
SAID = ChatReply(
    text="Let me see.",
    reasoning="**Looking**\n\nIt is near.",
    tool_calls=(ToolCall(id="call_unLAR8MvFNptuiZK6K6HCy5k", name="look", arguments={"at": 1}),),
    stop="tools",
    usage=TokenUsage(input_tokens=291, output_tokens=23, cached_tokens=128, cache_write_tokens=64, reasoning_tokens=8),
)


def sent(codec: ResponsesCodec = OWN, name: str = "gpt-5", **request: Any) -> Any:
    asked = ChatRequest(**{"model": "c:m", "messages": HI} | request)
    outgoing = codec.encode(asked, name, stream=False)
    assert outgoing.path == "/responses"
    return json.loads(outgoing.body)


def whole(response: Any) -> ChatReply:
    return OWN.encode(ChatRequest(messages=HI), "m", stream=False).decode(json.dumps(response).encode())


def events(*items: Any, end: str = "completed", **response: Any) -> list[Any]:
    """The events in which a response comes, texts in two pieces each."""
    found: list[Any] = [{"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}}]

    def pieces(kind: str, text: str, **at: Any) -> None:
        found.extend({"type": f"response.{kind}.delta", "delta": piece, **at} for piece in (text[:3], text[3:]))

    for index, item in enumerate(items):
        bare = {**item, "arguments": "", "content": [], "summary": [], "encrypted_content": None}
        found.append({"type": "response.output_item.added", "output_index": index, "item": bare})
        for number, part in enumerate(item.get("summary", ())):
            at = {"output_index": index, "summary_index": number}
            found.append({"type": "response.reasoning_summary_part.added", "part": {**part, "text": ""}, **at})
            pieces("reasoning_summary_text", part["text"], **at)
        for part in item.get("content", ()):
            kind = "refusal" if part["type"] == "refusal" else "output_text"
            pieces(kind, part.get("text") or part["refusal"], output_index=index, content_index=0)
        if item["type"] == "function_call":
            pieces("function_call_arguments", item["arguments"], output_index=index)
        found.append({"type": "response.output_item.done", "output_index": index, "item": item})
    final = {**RESPONSE, "status": end, "output": list(items), **response}
    return [*found, {"type": f"response.{end}", "response": final}]


def streamed(*told: Any) -> tuple[list[Delta], ChatReply]:
    reader = OWN.encode(ChatRequest(messages=HI), "m", stream=True).reader()
    wire = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in told).encode()
    deltas = [delta for start in range(0, len(wire), 7) for delta in reader.feed(wire[start : start + 7])]
    return deltas, reader.finish()


# --- out --------------------------------------------------------------------------------------------------


def test_a_request() -> None:
    tool = {"type": "function", "name": "look", "description": "Looks.", "parameters": LOOK.parameters, "strict": False}
    assert sent(system="Be brief.", tools=(LOOK,), max_tokens=50, temperature=0.2) == {
        "model": "gpt-5",
        "input": [{"role": "user", "content": "hi"}],
        "instructions": "Be brief.",
        "tools": [tool],
        "max_output_tokens": 50,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": sent(system="Be brief.", tools=(LOOK,))["prompt_cache_key"],
        "store": False,
    }
    body = sent(name="gpt-4o", temperature=0.2, top_p=0.9)
    assert body == {"model": "gpt-4o", "input": body["input"], "temperature": 0.2, "top_p": 0.9, "store": False}


def test_pictures_files_and_results_are_parts_of_their_own() -> None:
    png, pdf = ImagePart(data=b"x"), FilePart("a.pdf", b"%PDF", "application/pdf")
    parts = (TextPart("see"), png, ImagePart(url="https://x/y.png"), pdf, FilePart("a.txt", b"hello"))
    user, call, result = sent(
        messages=(
            UserTurn(parts),
            AssistantTurn(tool_calls=(ToolCall(id="1", name="look", arguments={"at": 1}),)),
            ToolTurn(call="1", name="look", content=(TextPart("it"), png)),
        )
    )["input"]
    assert user["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,eA==", "detail": "auto"},
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        {"type": "input_text", "text": '<file name="a.txt">\nhello\n</file>'},
    ]
    assert call == {"type": "function_call", "call_id": "1", "name": "look", "arguments": '{"at":1}'}
    assert (result["type"], result["call_id"]) == ("function_call_output", "1")
    assert result["output"] == [{"type": "input_text", "text": "it"}, user["content"][1]]


def test_schemas_choices_and_efforts() -> None:
    closed = {"required": ["a"], "additionalProperties": False}
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, **closed}
    wanted = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    assert sent(response_schema=schema)["text"] == {"format": wanted}
    assert sent(response_schema={"type": "object"})["text"]["format"]["strict"] is False
    offered = ("auto", "none", "required", "look")
    choices = [sent(tools=(LOOK,), tool_choice=choice).get("tool_choice") for choice in offered]
    assert choices == [None, "none", "required", {"type": "function", "name": "look"}]
    assert sent(reasoning_effort="high")["reasoning"] == {"effort": "high", "summary": "auto"}
    assert sent(thinking_budget=9000)["reasoning"]["effort"] == "medium"
    body = sent(name="gpt-5.1", reasoning_effort="none", temperature=0.2)
    assert (body["reasoning"], body["temperature"], "include" in body) == ({"effort": "none"}, 0.2, False)
    quiet = ResponsesCodec(own=True, summary="off")
    assert sent(quiet, reasoning_effort="low")["reasoning"] == {"effort": "low"}
    assert sent(extra={"include": ["x"]})["include"] == ["x", "reasoning.encrypted_content"]


def test_stop_sequences_are_refused_in_words() -> None:
    with pytest.raises(ModelError, match=says("work.models.responses.ResponsesCodec.encode", model="c:m")):
        sent(stop=("END",))


# --- in ---------------------------------------------------------------------------------------------------


def test_whole_and_streamed_responses_mean_the_same() -> None:
    deltas, reply = streamed(*events(REASONING, MESSAGE, CALL))
    assert reply == whole(RESPONSE)
    assert reply.id == RESPONSE["id"]
    assert msgspec.structs.replace(reply, thought=None, id="") == SAID
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Let me see."
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == SAID.reasoning
    assert "".join(delta.arguments for delta in deltas if isinstance(delta, ToolCallDelta)) == '{"at":1}'


def test_what_it_thought_and_the_phase_go_back_in_their_order_and_to_no_other_model() -> None:
    second = {**REASONING, "id": "rs_2", "summary": []}
    reply = whole({**RESPONSE, "output": [REASONING, MESSAGE, second, CALL]})
    turn = msgspec.structs.replace(reply, model="c:m").turn()
    talk = (*HI, turn, ToolTurn(call=CALL["call_id"], name="look", content="done"))
    call = {key: CALL[key] for key in ("type", "call_id", "name", "arguments")}
    said = {"role": "assistant", "content": "Let me see.", "phase": "commentary"}
    assert sent(messages=talk)["input"][1:] == [
        REASONING,
        said,
        second,
        call,
        {"type": "function_call_output", "call_id": CALL["call_id"], "output": "done"},
    ]
    plain = {"role": "assistant", "content": "Let me see."}
    assert sent(messages=talk, model="c:other")["input"][1:3] == [plain, call]
    assert json.loads(OpenAiCodec(own=True).encode(ChatRequest(model="c:m", messages=talk), "m", stream=False).body)[
        "messages"
    ][1].keys() == {"role", "content", "tool_calls"}


def test_thinking_that_nothing_follows_is_not_sent() -> None:
    about = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    reply = whole({**RESPONSE, "output": [REASONING], **about})
    assert (reply.text, reply.stop) == ("", "length")
    turn = msgspec.structs.replace(reply, model="c:m").turn()
    assert len(sent(messages=(*HI, turn, UserTurn("go on")))["input"]) == 2


def test_thinking_that_is_not_encrypted_can_not_be_sent_back() -> None:
    assert whole({**RESPONSE, "output": [{**REASONING, "encrypted_content": None}, CALL]}).thought is None


def test_the_thinking_of_open_models_goes_back_as_its_text() -> None:
    item = {"id": "rs_1", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    reply = msgspec.structs.replace(whole({**RESPONSE, "output": [item, CALL]}), model="c:m")
    assert reply.reasoning == "Hm."
    assert sent(messages=(*HI, reply.turn()))["input"][1] == item


def test_a_refusal_is_told_as_one() -> None:
    message = {**MESSAGE, "phase": None, "content": [{"type": "refusal", "refusal": "I can't help with that."}]}
    for reply in (whole({**RESPONSE, "output": [message]}), streamed(*events(message))[1]):
        assert (reply.text, reply.stop, reply.thought) == ("I can't help with that.", "refused", None)


@pytest.mark.parametrize(
    ("reason", "stop"), [("max_output_tokens", "length"), ("content_filter", "refused"), (None, "length")]
)
def test_an_incomplete_response_says_why(reason: str | None, stop: str) -> None:
    about = {"incomplete_details": {"reason": reason}}
    assert whole({**RESPONSE, "status": "incomplete", "output": [MESSAGE], **about}).stop == stop
    assert streamed(*events(MESSAGE, end="incomplete", **about))[1].stop == stop


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        ("server_error", UpstreamError, None),
        ("rate_limit_exceeded", UpstreamError, 429),
        ("invalid_prompt", ModelError, None),
        ("image_too_large", ModelError, None),
    ],
)
def test_a_failed_response_is_an_error(code: str, kind: type[ModelError], status: int | None) -> None:
    failed = {**RESPONSE, "status": "failed", "output": [], "error": {"code": code, "message": "It went wrong."}}
    for told in (
        [{"type": "response.failed", "response": failed}],
        [{"type": "error", "code": code, "message": "It went wrong.", "param": None, "sequence_number": 1}],
        [{"type": "error", "error": {"type": "x", "code": code, "message": "It went wrong."}}],
    ):
        with pytest.raises(kind, match=r"It went wrong\.") as raised:
            streamed(*told)
        assert type(raised.value) is kind
        assert getattr(raised.value, "status", None) == status
    with pytest.raises(kind, match=r"It went wrong\."):
        whole(failed)


def test_too_many_requests_after_the_first_words_are_no_reason_to_wait() -> None:
    failed = {**RESPONSE, "status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow down"}}
    with pytest.raises(UpstreamError) as raised:
        streamed(*events(MESSAGE)[:-1], {"type": "response.failed", "response": failed})
    assert raised.value.status is None


def test_a_stream_that_breaks_off_and_one_in_the_background_are_not_complete() -> None:
    with pytest.raises(UpstreamError, match=says("work.models.codec.StreamReader.finish")):
        streamed(*events(REASONING, MESSAGE)[:-1])
    with pytest.raises(UpstreamError, match=says("work.models.responses._decoded", status="queued")):
        whole({**RESPONSE, "status": "queued"})


def test_items_that_come_only_at_the_end_and_events_to_come_are_no_harm() -> None:
    last = {"type": "response.completed", "response": RESPONSE}
    odd = [{"type": "response.audio.delta", "delta": {"x": 1}}, {"type": "response.new", "item": {"type": "new"}}]
    assert streamed(*odd, last)[1] == whole(RESPONSE)


# --- who is asked by it -----------------------------------------------------------------------------------


def codec_of(model: str, **client: Any) -> Any:
    clients = (ClientSettings(**{"type": "openai", "name": "openai"} | client),)
    keys = {"OPENAI_API_KEY": "sk", "AZURE_OPENAI_API_KEY": "sk"}
    return ModelCatalog(Settings(clients=clients), keys).target(model).codec


def test_openais_own_models_that_need_it_and_whoever_asks_for_it() -> None:
    assert isinstance(codec_of("openai:gpt-5-pro"), ResponsesCodec)
    assert isinstance(codec_of("openai:gpt-5"), OpenAiCodec)
    assert isinstance(codec_of("openai:gpt-5", api="responses"), ResponsesCodec)
    assert isinstance(codec_of("openai:gpt-5-pro", api="chat"), OpenAiCodec)
    models = (ModelSettings(name="a", real_name="gpt-5-pro"), ModelSettings(name="b", api="responses"))
    assert isinstance(codec_of("openai:a", models=models), ResponsesCodec)
    assert isinstance(codec_of("openai:b", models=models, api="chat"), ResponsesCodec)
    lab = {"type": "openai-compatible", "name": "lab", "api_base": "https://lab/v1", "api_key": "k"}
    assert isinstance(codec_of("lab:gpt-5-pro", **lab), OpenAiCodec)
    assert isinstance(codec_of("lab:x", **lab, api="responses"), ResponsesCodec)


def test_azure_has_it_at_its_undated_urls() -> None:
    azure = {"type": "azure-openai", "name": "azure", "api_key": "k"}
    codec = codec_of("azure:mine", **azure, api_base="https://r.openai.azure.com/openai/v1", api="responses")
    assert isinstance(codec, AzureResponsesCodec)
    assert codec.encode(ChatRequest(messages=HI), "mine", stream=False).path == "/responses"
    assert codec.headers("k") == {"api-key": "k"}
    v1 = "https://r.openai.azure.com/openai/v1"
    assert isinstance(codec_of("azure:gpt-5-codex", **azure, api_base=v1), AzureResponsesCodec)
    assert not isinstance(codec_of("azure:gpt-5-codex", **azure, api_base="https://r.openai.azure.com"), ResponsesCodec)
    dated = "https://r.openai.azure.com"
    with pytest.raises(ConfigError, match=says("work.models.azure.azure_codec", name="azure", _V1="/openai…")):
        codec_of("azure:x", **azure, api_base=dated, api="responses")


def test_its_keys_are_told_where_they_mean_nothing() -> None:
    text = "clients:\n- type: claude\n  api: chat\n  models:\n  - {name: a, reasoning_summary: auto}\n"
    _, problems = read_settings(text, "config.yaml", {})
    assert [(each.line, each.code) for each in problems] == [(3, "ignored_key"), (5, "ignored_key")]
    assert [str(each.key).rpartition(".")[2] for each in problems] == ["api", "reasoning_summary"]
    text = "clients:\n- {type: openai, api: response}\n"
    (problem,) = read_settings(text, "config.yaml", {})[1]
    assert (problem.code, problem.line) == ("unknown_value", 2)


# --- over the wire ----------------------------------------------------------------------------------------


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@pytest.mark.parametrize("stream", [True, False])
async def test_an_agent_thinks_calls_a_tool_and_answers(fake_model: FakeModels, tmp_path: Path, stream: bool) -> None:
    fake_model.script(
        Reply(reasoning="I add.", sealed="gAAA", text="Let me see.", calls=[("add", {"a": 1, "b": 2})]),
        Reply(reasoning="Done.", sealed="gBBB", text="3"),
    )
    config = fake_model.config_dir(tmp_path)
    text = json.loads((config / "config.yaml").read_text())
    text["clients"][0]["api"] = "responses"
    (config / "config.yaml").write_text(json.dumps({**text, "stream": stream}))
    agent = callboard.Agent(name="clerk", instructions="Add.", reasoning_effort="low", can_ask_user=False)
    told: list[Any] = []
    outcome = await callboard.run(agent, "1 + 2?", tools=[add], config_dir=config, on_event=told.append)
    assert (outcome.status, outcome.output) == ("done", "Let me see.\n3"), outcome.error
    first, second = fake_model.requests
    assert (first.path, first.system, first.prompt, first.offered) == ("/v1/responses", "Add.", "1 + 2?", ["add"])
    assert second.results == ["3"]
    assert [item.get("type", item.get("role")) for item in second.json["input"]] == [
        "user",
        "reasoning",
        "assistant",
        "function_call",
        "function_call_output",
    ]
    assert second.json["input"][1]["encrypted_content"] == "gAAA"
    assert second.json["input"][:1] == first.json["input"], "the same beginning is cached"
    thought = "".join(event.data.text for event in told if event.kind == "llm.reasoning")
    said = "".join(event.data.text for event in told if event.kind == "llm.delta")
    if stream:
        assert (thought, said) == ("I add.Done.", "Let me see.3")
    (usage,) = outcome.usage.values()
    assert usage.output_tokens == 10


async def test_errors_come_with_their_words(fake_model: FakeModels) -> None:
    client = ClientSettings(
        type="openai-compatible", name="lab", api_base=fake_model.openai_base, api_key="k", api="responses"
    )
    fake_model.script(Reply(status=400, error="Unsupported parameter: 'temperature'"))
    async with reaching(Settings(clients=(client,))) as gateway:
        with pytest.raises(ModelError, match=r"lab:m: Unsupported parameter: 'temperature' \(HTTP 400\)"):
            await gateway.chat(Silent(), ChatRequest(model="lab:m", messages=HI))
