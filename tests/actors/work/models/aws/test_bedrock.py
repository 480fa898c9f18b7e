"""Bedrock's format: what goes out, that whole and streamed answers mean the same, and who signs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.aws_messages import event, exception, message
from support.codec_bench import HELLO, CodecBench
from support.fake_models import FakeModels, Reply
from support.gateways import Silent, reaching
from support.messages import says

from callboard.actors.work.models.aws.bedrock import BedrockCodec
from callboard.actors.work.models.catalog import ModelCatalog
from callboard.actors.work.models.providers import client_of
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
    Thought,
    TokenUsage,
    Tool,
    ToolCall,
    ToolTurn,
    UserTurn,
)
from callboard.protocol.errors import ConfigError, CredentialsError, ModelError, UpstreamError
from callboard.protocol.settings import ClientSettings, Settings, read_settings

BENCH = CodecBench(BedrockCodec(None))
sent, whole, read = BENCH.sent, BENCH.whole, BENCH.read
MODEL = "anthropic.claude-haiku-4-5-20251001-v1:0"
ADD = Tool(name="add", description="Add numbers", parameters={"type": "object", "properties": {"a": {}}})
NOW = Tool(name="now")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
CALLED = (
    UserTurn("hi"),
    AssistantTurn("", (ToolCall(id="1", name="add"),)),
    ToolTurn(call="1", name="add", content="2"),
)


def answer(*content: Any, stop: str = "end_turn", **more: Any) -> dict[str, Any]:
    return {"output": {"message": {"role": "assistant", "content": list(content)}}, "stopReason": stop, **more}


# --- what goes out ----------------------------------------------------------------------------------------


def test_a_conversation_goes_out_with_roles_that_alternate() -> None:
    chart = ImagePart(data=b"\x89PNG", media_type="image/png")
    request = ChatRequest(
        system="Be kind.",
        messages=(
            UserTurn((TextPart("what is it?"), ImagePart(url="data:image/jpg;base64,iVBORw=="))),
            AssistantTurn(
                "Let me see.", (ToolCall(id="1", name="add", arguments={"a": 1}), ToolCall(id="2", name="now"))
            ),
            ToolTurn(call="1", name="add", content=(TextPart("2"), chart)),
            ToolTurn(call="2", name="now", content="", error=True),
            UserTurn("go on"),
        ),
    )
    body = sent(request)
    assert body["system"] == [{"text": "Be kind."}]
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"text": "what is it?"},
                {"image": {"format": "jpeg", "source": {"bytes": "iVBORw=="}}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"text": "Let me see."},
                {"toolUse": {"toolUseId": "1", "name": "add", "input": {"a": 1}}},
                {"toolUse": {"toolUseId": "2", "name": "now", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "toolResult": {
                        "toolUseId": "1",
                        "content": [{"text": "2"}, {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}}],
                    }
                },
                {"toolResult": {"toolUseId": "2", "content": [{"text": "(nothing)"}], "status": "error"}},
                {"text": "go on"},
            ],
        },
    ]


def test_the_user_begins_and_nobody_says_nothing() -> None:
    messages = sent(ChatRequest(messages=(AssistantTurn(""), UserTurn(""))))["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant", "user"]
    assert all(each["content"][0]["text"] for each in messages)


def test_tools_and_choices_go_out() -> None:
    config = sent(ChatRequest(messages=HELLO.messages, tools=(ADD, NOW)))["toolConfig"]
    assert config == {
        "tools": [
            {
                "toolSpec": {
                    "name": "add",
                    "description": "Add numbers",
                    "inputSchema": {"json": {"type": "object", "properties": {"a": {}}}},
                }
            },
            {"toolSpec": {"name": "now", "inputSchema": {"json": {"type": "object", "properties": {}}}}},
        ]
    }
    for choice, said in (("required", {"any": {}}), ("add", {"tool": {"name": "add"}})):
        chosen = sent(ChatRequest(messages=HELLO.messages, tools=(ADD,), tool_choice=choice))
        assert chosen["toolConfig"]["toolChoice"] == said


@pytest.mark.parametrize(("tools", "choice"), [((), "auto"), ((ADD,), "none")])
def test_tools_are_declared_wherever_some_were_called(tools: tuple[Tool, ...], choice: str) -> None:
    config = sent(ChatRequest(messages=CALLED, tools=tools, tool_choice=choice))["toolConfig"]
    assert [tool["toolSpec"]["name"] for tool in config["tools"]] == ["add"]
    assert "toolChoice" not in config
    assert "toolConfig" not in sent(ChatRequest(messages=HELLO.messages, tools=tools, tool_choice=choice))


def test_options_and_more_keys_go_out() -> None:
    request = ChatRequest(
        messages=HELLO.messages,
        temperature=0.5,
        top_p=0.9,
        max_tokens=9,
        stop=("END",),
        extra={"additionalModelRequestFields": {"top_k": 4}, "messages": "no"},
    )
    assert sent(request) == {
        "messages": [{"role": "user", "content": [{"text": "hello"}]}],
        "inferenceConfig": {"temperature": 0.5, "topP": 0.9, "maxTokens": 9, "stopSequences": ["END"]},
        "additionalModelRequestFields": {"top_k": 4},
    }


def test_files_go_out_as_documents_or_as_text() -> None:
    pdf = FilePart(name="a_b.pdf", data=b"%PDF", media_type="application/pdf")
    ((first,), (second,)) = (
        sent(ChatRequest(messages=(UserTurn(parts),)))["messages"]
        for parts in ((pdf,), (FilePart(name="a.txt", data=b"hi"),))
    )
    assert first["content"] == [
        {"document": {"format": "pdf", "name": "a-b-pdf", "source": {"bytes": "JVBERg=="}}},
        {"text": "(nothing)"},
    ]
    assert "hi" in second["content"][0]["text"]
    with pytest.raises(ModelError, match=says("work.models.aws.bedrock._image")):
        sent(ChatRequest(messages=(UserTurn((ImagePart(url="https://x/y.png"),)),)))


def test_a_schema_is_a_tool_that_must_be_called() -> None:
    request = ChatRequest(messages=HELLO.messages, response_schema=SCHEMA)
    config = sent(request)["toolConfig"]
    assert config["toolChoice"] == {"tool": {"name": "structured_answer"}}
    assert config["tools"][0]["toolSpec"]["inputSchema"] == {"json": SCHEMA}
    use = {"toolUseId": "1", "name": "structured_answer"}
    reply = whole(answer({"toolUse": {**use, "input": {"n": 1}}}, stop="tool_use"), request)
    deltas, streamed = read(
        event("contentBlockStart", contentBlockIndex=0, start={"toolUse": use})
        + event("contentBlockDelta", contentBlockIndex=0, delta={"toolUse": {"input": '{"n":1}'}})
        + event("messageStop", stopReason="tool_use"),
        request=request,
    )
    assert reply == streamed == ChatReply(text='{"n":1}', stop="end")
    assert TextDelta('{"n":1}') in deltas


# --- what comes back --------------------------------------------------------------------------------------

USED = {"inputTokens": 7, "outputTokens": 5, "totalTokens": 15, "cacheReadInputTokens": 2, "cacheWriteInputTokens": 1}
STREAM = (
    event("messageStart", role="assistant"),
    event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"text": "Hm"}}),
    event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"signature": "c2ln"}}),
    event("contentBlockStop", contentBlockIndex=0),
    event("contentBlockDelta", contentBlockIndex=1, delta={"text": "Grüße, "}),
    event("contentBlockDelta", contentBlockIndex=1, delta={"text": "you"}),
    event("contentBlockStop", contentBlockIndex=1),
    event("contentBlockStart", contentBlockIndex=2, start={"toolUse": {"toolUseId": "tooluse_a", "name": "add"}}),
    event("contentBlockDelta", contentBlockIndex=2, delta={"toolUse": {"input": '{"a"'}}),
    event("contentBlockDelta", contentBlockIndex=2, delta={"toolUse": {"input": ": 1}"}}),
    event("contentBlockStop", contentBlockIndex=2),
    event("contentBlockStart", contentBlockIndex=3, start={"toolUse": {"toolUseId": "tooluse_b", "name": "now"}}),
    event("contentBlockStop", contentBlockIndex=3),
    event("messageStop", stopReason="tool_use"),
    event("metadata", usage=USED, metrics={"latencyMs": 551}),
)
WHOLE = answer(
    {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "c2ln"}}},
    {"text": "Grüße, you"},
    {"toolUse": {"toolUseId": "tooluse_a", "name": "add", "input": {"a": 1}}},
    {"toolUse": {"toolUseId": "tooluse_b", "name": "now", "input": {}}},
    stop="tool_use",
    usage=USED,
    metrics={"latencyMs": 551},
)
SAID = ChatReply(
    text="Grüße, you",
    reasoning="Hm",
    thought=Thought(form="bedrock", data=[{"reasoningText": {"text": "Hm", "signature": "c2ln"}}]),
    tool_calls=(ToolCall(id="tooluse_a", name="add", arguments={"a": 1}), ToolCall(id="tooluse_b", name="now")),
    stop="tools",
    usage=TokenUsage(input_tokens=10, output_tokens=5, cached_tokens=2, cache_write_tokens=1),
)


@pytest.mark.parametrize("size", [1, 11, 10_000])
def test_whole_and_streamed_answers_mean_the_same(size: int) -> None:
    deltas, reply = read(b"".join(STREAM), size=size)
    assert reply == whole(WHOLE) == SAID
    assert [delta for delta in deltas if isinstance(delta, TextDelta | ReasoningDelta)] == [
        ReasoningDelta("Hm"),
        TextDelta("Grüße, "),
        TextDelta("you"),
    ]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "refused"),
        ("content_filtered", "refused"),
        ("something_new", "end"),
    ],
)
def test_why_it_stopped(reason: str, stop: str) -> None:
    assert whole(answer({"text": "a"}, stop=reason)).stop == stop


@pytest.mark.parametrize("body", [[], {}, {"output": {}}, {"output": 1}, {"message": "no"}])
def test_an_answer_without_sense_is_a_model_error(body: Any) -> None:
    with pytest.raises(ModelError):
        whole(body)


def test_a_stream_that_breaks_off_may_be_tried_again() -> None:
    with pytest.raises(UpstreamError, match=says("work.models.codec.StreamReader.finish")):
        read(b"".join(STREAM[:-2]))


@pytest.mark.parametrize(
    ("kind", "error", "status"),
    [
        ("throttlingException", UpstreamError, 429),
        ("modelStreamErrorException", UpstreamError, None),
        ("internalServerException", UpstreamError, None),
        ("serviceUnavailableException", UpstreamError, None),
        ("validationException", ModelError, None),
    ],
)
def test_a_stream_may_tell_an_error(kind: str, error: type[ModelError], status: int | None) -> None:
    with pytest.raises(error, match=f"Too bad. \\({kind}\\)") as caught:
        read(STREAM[0] + exception(kind, "Too bad."))
    assert type(caught.value) is error
    assert caught.value.status == status
    with pytest.raises(error) as caught:
        read(STREAM[0] + STREAM[4] + exception(kind, "Too bad."))
    assert caught.value.status is None


def test_an_error_without_a_payload_is_told_by_its_headers() -> None:
    headers = {":message-type": "error", ":error-code": "InternalError", ":error-message": "An internal error"}
    with pytest.raises(UpstreamError, match=r"An internal error \(InternalError\)"):
        read(message(headers, b""))


# --- over the wire ----------------------------------------------------------------------------------------

KEYS = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "secret", "session_token": "token"}
BINARY = {"content-type": "application/vnd.amazon.eventstream"}


def client(api_base: str = "", **fields: str) -> ClientSettings:
    return ClientSettings(type="bedrock", name="bedrock", api_base=api_base, **{"region": "us-east-1", **fields})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_gateway_signs_what_it_sends(fake_model: FakeModels, stream: bool) -> None:
    fake_model.script(Reply(raw=b"".join(STREAM), headers=BINARY) if stream else Reply(raw=json.dumps(WHOLE).encode()))
    request = ChatRequest(model=f"bedrock:{MODEL}", messages=HELLO.messages, tools=(ADD,), stream=stream)
    deltas: list[Delta] = []
    async with reaching(Settings(clients=(client(fake_model.url, **KEYS),))) as gateway:
        reply = await gateway.chat(Silent(), request, on_delta=deltas.append)
    assert (reply.text, reply.tool_calls, reply.usage) == (SAID.text, SAID.tool_calls, SAID.usage)
    assert (TextDelta("you") in deltas) is stream
    (got,) = fake_model.requests
    assert got.path == f"/model/{MODEL.replace(':', '%3A')}/{'converse-stream' if stream else 'converse'}"
    assert got.headers["x-amz-security-token"] == "token"
    day = got.headers["x-amz-date"][:8]
    assert got.headers["authorization"].startswith(
        f"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{day}/us-east-1/bedrock/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature="
    )


async def test_a_key_of_bedrocks_own_needs_no_signature(fake_model: FakeModels) -> None:
    fake_model.script(Reply(raw=json.dumps(WHOLE).encode()))
    environ = {"AWS_BEARER_TOKEN_BEDROCK": "bearer", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    async with reaching(Settings(clients=(client(fake_model.url),)), environ) as gateway:
        await gateway.chat(Silent(), ChatRequest(model=f"bedrock:{MODEL}", messages=HELLO.messages))
    assert fake_model.requests[0].headers["authorization"] == "Bearer bearer"
    assert "x-amz-date" not in fake_model.requests[0].headers


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (403, "The security token included in the request is invalid.", CredentialsError),
        (400, "The provided model identifier is invalid.", ModelError),
        (500, "The system encountered an unexpected error.", UpstreamError),
    ],
)
async def test_what_it_refuses_is_told_in_its_words(
    fake_model: FakeModels, status: int, words: str, kind: type[Exception]
) -> None:
    fake_model.script(Reply(status=status, raw=json.dumps({"message": words}).encode()))
    async with reaching(Settings(clients=(client(fake_model.url, **KEYS),))) as gateway:
        with pytest.raises(kind, match=words.rstrip(".")):
            await gateway.chat(Silent(), ChatRequest(model="bedrock:m", messages=HELLO.messages), attempts=1)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_one_request_too_many_waits_for_its_turn(
    fake_model: FakeModels, stream: bool, autojump_clock: object
) -> None:
    too_many = Reply(status=429, raw=b'{"message": "Too many requests, please wait before trying again."}')
    if stream:
        too_many = Reply(raw=exception("throttlingException", "Too many requests"), headers=BINARY)
    done = answer({"text": "done"})
    ends = event("contentBlockDelta", contentBlockIndex=0, delta={"text": "done"}) + event(
        "messageStop", stopReason="end_turn"
    )
    fake_model.script(too_many, Reply(raw=ends, headers=BINARY) if stream else Reply(raw=json.dumps(done).encode()))
    request = ChatRequest(model="bedrock:m", messages=HELLO.messages, stream=stream)
    async with reaching(Settings(clients=(client(fake_model.url, **KEYS),))) as gateway:
        reply = await gateway.chat(Silent(), request, attempts=1, on_delta=lambda delta: None)
    assert (reply.text, len(fake_model.requests)) == ("done", 2)


# --- whose requests they are ------------------------------------------------------------------------------


def test_config_yaml_has_the_keys_of_loki() -> None:
    text = """
clients:
  - type: bedrock
    access_key_id: AKIDEXAMPLE
    secret_access_key: ${SECRET}
    region: eu-central-1
    session_token: t
"""
    settings, problems = read_settings(text, "config.yaml", {"SECRET": "s"})
    assert problems == []
    target = ModelCatalog(settings, {}).target(f"bedrock:{MODEL}")
    assert (target.api_base, target.name, target.headers) == (
        "https://bedrock-runtime.eu-central-1.amazonaws.com",
        MODEL,
        {},
    )


def test_it_needs_no_entry_where_the_environment_says_all(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "AWS_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    assert (
        ModelCatalog(Settings(), environ).target("bedrock:m").api_base.startswith("https://bedrock-runtime.us-west-2.")
    )


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.raises(
        ConfigError, match=says("work.models.catalog.ModelCatalog._api_base", name="bedrock", file="config.yaml")
    ):
        ModelCatalog(Settings(), environ).target("bedrock:m")
    with pytest.raises(ConfigError, match=says("work.models.aws.credential_chain.signer_of")):
        ModelCatalog(Settings(clients=(client("http://x", region=""),)), environ).target("bedrock:m")
    with pytest.raises(CredentialsError, match=says("work.models.aws.keys.keys_of", name="bedrock")):
        ModelCatalog(Settings(clients=(client(),)), environ).target("bedrock:m")


def test_nothing_is_signed_for_an_address_that_a_file_names(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    ours = Settings(clients=(client(**KEYS),))
    described = client_of("bedrock", "http://stranger", None, ours, environ)
    assert described == ClientSettings(type="bedrock", name="bedrock", api_base="http://stranger", region="us-east-1")
    catalog = ModelCatalog(ours, environ)
    with pytest.raises(CredentialsError, match=says("work.models.catalog.ModelCatalog._refuse_adopted")):
        catalog.target(f"{catalog.adopt(described)}:m")
