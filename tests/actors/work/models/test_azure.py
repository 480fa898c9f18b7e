"""OpenAI's models on Azure: both kinds of URLs, the key's header, and what older versions don't know."""

from __future__ import annotations

import json

import pytest
from support.fake_models import FakeModels, Reply
from support.gateways import Silent, reaching
from support.messages import says

from callboard.actors.work.models.azure import AzureCodec, azure
from callboard.actors.work.models.catalog import ModelCatalog
from callboard.actors.work.models.providers import client_of
from callboard.protocol.chat import ChatRequest, Delta, ImagePart, TextDelta, TextPart, Tool, ToolCall, UserTurn
from callboard.protocol.errors import ConfigError, CredentialsError, ModelError, ReplyFiltered, UpstreamError
from callboard.protocol.settings import ClientSettings, Settings, read_settings

HELLO = ChatRequest(messages=(UserTurn("hello"),))
ADD = Tool(name="add", description="Add numbers", parameters={"type": "object"})
CLASSIC = "/openai/deployments/{}/chat/completions?api-version={}"


def client(api_base: str, **fields: str) -> ClientSettings:
    return ClientSettings(type="azure-openai", name="azure", api_base=api_base, **fields)


def settings(api_base: str, **fields: str) -> Settings:
    return Settings(clients=(client(api_base, api_key="secret", **fields),))


# --- URLs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["http://r", "http://r/", "http://r/openai", "http://r/openai/"])
def test_a_resource_has_a_url_for_each_deployment(base: str) -> None:
    place = azure(base, client(base))
    assert place.base + place.path("gpt-4o", "chat/completions") == "http://r" + CLASSIC.format(
        "gpt-4o", "2024-12-01-preview"
    )
    assert place.path("a/b c", "embeddings").startswith("/openai/deployments/a%2Fb%20c/embeddings?")


@pytest.mark.parametrize(("version", "query"), [("", ""), ("preview", "?api-version=preview")])
def test_the_newer_urls_name_no_deployment_and_want_no_version(version: str, query: str) -> None:
    place = azure("http://r/openai/v1/", client("", api_version=version))
    assert place.base + place.path("gpt-4o", "chat/completions") == f"http://r/openai/v1/chat/completions{query}"


@pytest.mark.parametrize(
    "base",
    [
        "https://r.openai.azure.com/openai/deployments/gpt-4o",
        "https://r.openai.azure.com/openai/deployments/gpt-4o/chat/completions?api-version=2025-01-01-preview",
        "https://r.openai.azure.com?api-version=2025-01-01-preview",
    ],
)
def test_the_url_of_one_operation_is_refused_with_the_right_one(base: str) -> None:
    with pytest.raises(ConfigError, match=says("work.models.azure.azure", fixed="https://r.openai.azure.com")):
        ModelCatalog(settings(base), {}).target("azure:gpt-4o")


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=says("work.models.azure.azure.2", name="azure", version="latest")):
        ModelCatalog(settings("http://r", api_version="latest"), {}).target("azure:gpt-4o")


def test_a_client_without_a_base_url_or_a_key_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=says("work.models.catalog.ModelCatalog._api_base.2", name="azure", file="config.yaml")
    ):
        ModelCatalog(settings(""), {}).target("azure:gpt-4o")
    with pytest.raises(
        CredentialsError,
        match=says("work.models.catalog.ModelCatalog._vertex_access.2", tried="AZURE_API_KEY or AZURE_OPENAI_API_KEY"),
    ):
        ModelCatalog(Settings(clients=(client("http://r"),)), {"OPENAI_API_KEY": "x"}).target("azure:gpt-4o")


@pytest.mark.parametrize("variable", ["AZURE_API_KEY", "AZURE_OPENAI_API_KEY"])
def test_the_key_may_come_from_the_environment(variable: str) -> None:
    target = ModelCatalog(Settings(clients=(client("http://r"),)), {variable: "k"}).target("azure:gpt-4o")
    assert target.headers == {"api-key": "k"}


def test_a_file_may_describe_another_resource_which_gets_no_key_of_ours() -> None:
    environ = {"AZURE_OPENAI_API_KEY": "x"}
    ours = settings("http://r", api_version="2025-01-01-preview")
    described = client_of("azure", "http://other", None, ours, environ)
    assert described is not None
    assert described == client("http://other", api_version="2025-01-01-preview")
    catalog = ModelCatalog(Settings(), environ)
    with pytest.raises(CredentialsError, match=says("work.models.catalog.ModelCatalog._vertex_access")):
        catalog.target(f"{catalog.adopt(described)}:m")
    by_type = client_of("azure-openai", "http://other", "k", Settings(), environ)
    assert by_type is not None
    assert by_type.type == "azure-openai"


def test_config_yaml_has_the_keys_of_loki_and_the_version() -> None:
    text = """
clients:
  - type: azure-openai
    api_base: https://r.openai.azure.com
    api_key: secret
    api_version: 2025-01-01-preview
    models:
      - {name: gpt-4o, max_input_tokens: 128000, supports_vision: true, supports_function_calling: true}
  - {type: azure-openai, name: older, api_base: 'https://r.openai.azure.com', api_key: k, api_version: 2024-10-21}
"""
    read, problems = read_settings(text, "config.yaml", {})
    assert problems == []
    assert [each.api_version for each in read.clients] == ["2025-01-01-preview", "2024-10-21"]
    assert ModelCatalog(read, {}).target("azure-openai:gpt-4o").headers == {"api-key": "secret"}


# --- what versions know -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "knows"),
    [
        ("2024-02-01", False),
        ("2024-10-21", False),
        ("2024-08-01-preview", False),
        ("2024-09-01-preview", True),
        ("2024-10-01-preview", True),
        ("2025-04-01-preview", True),
        ("2099-01-01", True),
        ("", True),
    ],
)
def test_what_a_version_does_not_know_is_not_sent(version: str, knows: bool) -> None:
    place = azure("http://r", client("http://r", api_version=version))
    request = ChatRequest(messages=HELLO.messages, max_tokens=5)
    body = json.loads(AzureCodec(place).encode(request, "m", stream=False).body)
    assert body.get("max_completion_tokens" if knows else "max_tokens") == 5
    assert ModelCatalog(settings("http://r", api_version=version), {}).target("azure:m").model.no_stream is not knows


# --- over the wire ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["", "/openai/v1"], ids=["classic", "v1"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_tools_pictures_and_schemas_go_both_ways(fake_model: FakeModels, base: str, stream: bool) -> None:
    request = ChatRequest(
        model="azure:gpt-4o",
        messages=(UserTurn((TextPart("what is it?"), ImagePart(data=b"\x89PNG", media_type="image/png"))),),
        tools=(ADD,),
        response_schema={"type": "object"},
        stream=stream,
    )
    fake_model.script(Reply("Let me add.", calls=[("add", {"a": 1})]))
    deltas: list[Delta] = []
    async with reaching(settings(fake_model.url + base)) as gateway:
        reply = await gateway.chat(Silent(), request, on_delta=deltas.append)
    assert reply.text == "Let me add."
    assert reply.tool_calls == (ToolCall(id="call_0", name="add", arguments={"a": 1}),)
    assert (reply.model, reply.stop, reply.usage.input_tokens, reply.usage.output_tokens) == (
        "azure:gpt-4o",
        "tools",
        10,
        5,
    )
    assert (len([delta for delta in deltas if isinstance(delta, TextDelta)]) > 1) is stream
    (sent,) = fake_model.requests
    assert sent.path == (f"{base}/chat/completions" if base else CLASSIC.format("gpt-4o", "2024-12-01-preview"))
    assert sent.headers["api-key"] == "secret"
    assert "authorization" not in sent.headers
    assert sent.offered == ["add"]
    assert sent.json["messages"][0]["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="
    assert sent.json["response_format"]["type"] == "json_schema"
    assert sent.json.get("stream_options") == ({"include_usage": True} if stream else None)


async def test_with_an_older_version_a_reply_comes_whole_since_a_stream_would_not_be_counted(
    fake_model: FakeModels,
) -> None:
    deltas: list[Delta] = []
    request = ChatRequest(model="azure:gpt-4o", messages=HELLO.messages, stream=True)
    async with reaching(settings(fake_model.url, api_version="2024-10-21")) as gateway:
        reply = await gateway.chat(Silent(), request, on_delta=deltas.append)
    assert (reply.text, reply.usage.output_tokens, deltas) == ("ok", 5, [TextDelta("ok")])
    assert not fake_model.requests[0].json.get("stream")


FILTERED = (
    {"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}], "model": ""},
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "content_filter_results": {}}]},
    {"choices": [{"index": 0, "delta": {"content": "Well"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {"check_offset": 4}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "content_filter"}]},
)


async def test_a_stream_may_tell_what_its_filters_found(fake_model: FakeModels) -> None:
    events = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in FILTERED)
    fake_model.script(Reply(raw=events + b"data: [DONE]\n\n"))
    request = ChatRequest(model="azure:gpt-4o", messages=HELLO.messages, stream=True)
    async with reaching(settings(fake_model.url)) as gateway:
        with pytest.raises(ReplyFiltered, match="content_filter"):
            await gateway.chat(Silent(), request, on_delta=lambda delta: None)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (401, "Access denied due to invalid subscription key or wrong API endpoint.", CredentialsError),
        (404, "The API deployment for this resource does not exist.", ModelError),
        (400, "The response was filtered due to the prompt triggering Azure OpenAI's policy.", ModelError),
        (500, "The server had an error", UpstreamError),
    ],
)
async def test_what_azure_refuses_is_told_in_its_words(
    fake_model: FakeModels, status: int, error: str, kind: type[Exception]
) -> None:
    body = json.dumps({"error": {"code": str(status), "message": error}}).encode()
    fake_model.script(Reply(status=status, raw=body))
    async with reaching(settings(fake_model.url)) as gateway:
        with pytest.raises(kind, match=error.rstrip(".")):
            await gateway.chat(Silent(), ChatRequest(model="azure:gpt-4o", messages=HELLO.messages), attempts=1)


async def test_one_request_too_many_waits_for_its_turn(fake_model: FakeModels) -> None:
    fake_model.script(Reply(status=429, error="rate limit is exceeded", headers={"retry-after-ms": "20"}), "done")
    async with reaching(settings(fake_model.url)) as gateway:
        reply = await gateway.chat(Silent(), ChatRequest(model="azure:gpt-4o", messages=HELLO.messages), attempts=1)
    assert reply.text == "done"
    assert len(fake_model.requests) == 2
