"""Models on Vertex AI over their wire: Gemini, Claude, open models; whole, streamed, with tools, pictures, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.gateways import Silent, reaching
from support.google_services import Google, answer, events, gemini, service_account
from support.messages import has_message, says

from callboard.actors.work.models.catalog import ModelCatalog
from callboard.actors.work.models.gateway import Gateway
from callboard.actors.work.models.providers import client_of
from callboard.actors.work.models.vertex.codecs import CLAUDE_VERSION, VertexAccess, vertex_codec
from callboard.protocol.chat import (
    ChatRequest,
    Delta,
    ImagePart,
    TextDelta,
    TextPart,
    TokenUsage,
    Tool,
    UserTurn,
)
from callboard.protocol.errors import ConfigError, CredentialsError, ModelError, UpstreamError
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings, read_settings

ADD = Tool(name="add", description="Add numbers", parameters={"type": "object", "properties": {"a": {}}})
BELOW = "/projects/my-project/locations/europe-west4"

CLAUDE = {
    "id": "msg_vrtx_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-4-5-20251001",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 9, "cache_read_input_tokens": 3, "output_tokens": 2},
}


def settings(server: FakeModels, key: Path, **more: Any) -> Settings:
    client = ClientSettings(
        type="vertexai", name="vertexai", api_base=server.url, location="europe-west4", adc_file=str(key), **more
    )
    return Settings(clients=(client,))


async def ask(gateway: Gateway, model: str, request: ChatRequest | None = None, **more: Any) -> tuple[Any, list[Delta]]:
    said: list[Delta] = []
    asked = request or ChatRequest(messages=(UserTurn("hello"),))
    import msgspec

    asked = msgspec.structs.replace(asked, model=f"vertexai:{model}")
    reply = await gateway.chat(Silent(), asked, on_delta=said.append if more.get("stream") else None, attempts=1)
    return reply, said


# --- Gemini -----------------------------------------------------------------------------------------------


async def test_gemini_answers_whole_under_the_project(fake_model: FakeModels, tmp_path: Path) -> None:
    google = Google(fake_model)
    async with reaching(settings(fake_model, service_account(tmp_path, fake_model.url))) as gateway:
        reply, _ = await ask(gateway, "gemini-2.5-flash")
        again, _ = await ask(gateway, "gemini-2.5-pro")
    assert (reply.text, reply.usage) == ("ok", TokenUsage(input_tokens=4, output_tokens=2))
    assert reply.cost == pytest.approx(4 * 0.3e-6 + 2 * 2.5e-6)
    first, second = google.asked
    assert first.path == f"{BELOW}/publishers/google/models/gemini-2.5-flash:generateContent"
    assert second.path == f"{BELOW}/publishers/google/models/gemini-2.5-pro:generateContent"
    assert first.headers["authorization"] == second.headers["authorization"] == "Bearer ya29.1"
    assert "x-goog-api-key" not in first.headers
    assert first.json == {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
    assert google.tokens == 1  # one client, one token
    assert again.model == "vertexai:gemini-2.5-pro"


async def test_gemini_streams_and_calls_tools(fake_model: FakeModels, tmp_path: Path) -> None:
    call = {"functionCall": {"name": "add", "args": {"a": 1}}, "thoughtSignature": "c2ln"}
    chunk = {"candidates": [{"content": {"role": "model", "parts": [call]}, "finishReason": "STOP"}]}
    google = Google(fake_model, events({"candidates": [{"content": {"parts": [{"text": "Let"}]}}]}, chunk))
    picture = ImagePart(data=b"\x89PNG", media_type="image/png")
    request = ChatRequest(messages=(UserTurn((TextPart("what?"), picture)),), tools=(ADD,))
    async with reaching(settings(fake_model, service_account(tmp_path, fake_model.url))) as gateway:
        reply, said = await ask(gateway, "gemini-2.5-flash", request, stream=True)
    assert said[0] == TextDelta("Let")
    (made,) = reply.tool_calls
    assert (made.name, made.arguments, made.signature, reply.stop) == ("add", {"a": 1}, "c2ln", "tools")
    (asked,) = google.asked
    assert asked.path.endswith("/gemini-2.5-flash:streamGenerateContent?alt=sse")
    assert asked.json["contents"][0]["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    assert asked.json["tools"][0]["functionDeclarations"][0]["name"] == "add"


async def test_a_tuned_model_is_asked_at_its_endpoint(fake_model: FakeModels, tmp_path: Path) -> None:
    google = Google(fake_model)
    tuned = "projects/9/locations/us-central1/endpoints/7"
    async with reaching(settings(fake_model, service_account(tmp_path, fake_model.url))) as gateway:
        await ask(gateway, "endpoints/7")
        await ask(gateway, tuned)
    assert [each.path for each in google.asked] == [
        f"{BELOW}/endpoints/7:generateContent",
        f"/{tuned}:generateContent",
    ]


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (403, CredentialsError, r"denied.*\(HTTP 403\); check the credentials of client 'vertexai'"),
        (404, ModelError, r"denied \(HTTP 404\)"),
        (500, UpstreamError, r"denied \(HTTP 500\)"),
    ],
)
async def test_errors_are_told_in_googles_words(
    fake_model: FakeModels, tmp_path: Path, status: int, error: type[Exception], words: str
) -> None:
    text = "Permission 'aiplatform.endpoints.predict' denied"
    Google(fake_model, answer({"error": {"code": status, "message": text, "status": "X"}}, status))
    async with reaching(settings(fake_model, service_account(tmp_path, fake_model.url))) as gateway:
        with pytest.raises(error, match=words) as caught:
            await ask(gateway, "gemini-2.5-flash")
    assert "VERTEXAI_API_KEY" not in str(caught.value)


async def test_a_token_that_is_refused_is_replaced_once_by_one_request_for_all(
    fake_model: FakeModels, tmp_path: Path
) -> None:
    google = Google(fake_model)
    good = google.answer

    def revoking(request: Request) -> Reply:
        if request.headers.get("authorization") == "Bearer ya29.1":
            return answer({"error": {"code": 401, "message": "invalid authentication credentials"}}, 401)
        return good(request)

    fake_model.answer_with(revoking)
    async with reaching(settings(fake_model, service_account(tmp_path, fake_model.url))) as gateway:
        texts: list[str] = []

        async def one() -> None:
            texts.append((await ask(gateway, "gemini-2.5-flash"))[0].text)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
        assert texts == ["ok"] * 20
        assert google.tokens == 2
        fake_model.answer_with(
            lambda request: (
                good(request) if request.path == "/token" else answer({"error": {"code": 401, "message": "no"}}, 401)
            )
        )
        with pytest.raises(CredentialsError, match=r"no \(HTTP 401\); check the credentials of client 'vertexai'"):
            await ask(gateway, "gemini-2.5-flash")
        assert google.tokens == 3


# --- Claude -----------------------------------------------------------------------------------------------


async def test_claude_has_its_version_in_the_body_and_no_model(fake_model: FakeModels, tmp_path: Path) -> None:
    google = Google(fake_model, answer(CLAUDE))
    data = ImagePart(url="data:image/png;base64,iVBORw==", media_type="image/png")
    request = ChatRequest(system="Be kind.", messages=(UserTurn((TextPart("what?"), data)),), tools=(ADD,))
    async with reaching(settings(fake_model, service_account(tmp_path, fake_model.url))) as gateway:
        reply, _ = await ask(gateway, "claude-haiku-4-5@20251001", request)
    assert (reply.text, reply.usage.input_tokens, reply.usage.cached_tokens) == ("hello", 12, 3)
    assert reply.cost is not None
    (asked,) = google.asked
    assert asked.path == f"{BELOW}/publishers/anthropic/models/claude-haiku-4-5@20251001:rawPredict"
    assert (asked.headers["authorization"], "x-api-key" in asked.headers) == ("Bearer ya29.1", False)
    body = asked.json
    assert "model" not in body
    assert "stream" not in body
    assert body["anthropic_version"] == CLAUDE_VERSION == "vertex-2023-10-16"
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert body["messages"][0]["content"][1]["source"]["data"] == "iVBORw=="


async def test_claude_streams(fake_model: FakeModels, tmp_path: Path) -> None:
    usage = {"input_tokens": 9, "output_tokens": 1}
    google = Google(
        fake_model,
        events(
            {"type": "message_start", "message": {**CLAUDE, "content": [], "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "ping"},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hel"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ),
    )
    async with reaching(settings(fake_model, service_account(tmp_path, fake_model.url))) as gateway:
        reply, said = await ask(gateway, "claude-haiku-4-5", stream=True)
    assert (reply.text, said) == ("hello", [TextDelta("hel"), TextDelta("lo")])
    assert reply.usage == TokenUsage(input_tokens=9, output_tokens=2)
    (asked,) = google.asked
    assert asked.path.endswith("/claude-haiku-4-5:streamRawPredict")
    assert asked.json["stream"] is True


async def test_claude_takes_no_picture_by_its_url(fake_model: FakeModels, tmp_path: Path) -> None:
    google = Google(fake_model)
    request = ChatRequest(messages=(UserTurn((ImagePart(url="https://a.example/x.png", media_type="image/png"),)),))
    async with reaching(settings(fake_model, service_account(tmp_path, fake_model.url))) as gateway:
        with pytest.raises(ModelError, match=says("work.models.vertex.codecs.ClaudeOnVertex.encode")):
            await ask(gateway, "claude-haiku-4-5", request)
    assert google.asked == []


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("gemini-2.5-flash", {"thinkingBudget": 8192, "includeThoughts": True}),
        ("google/gemini-3-pro-preview", {"thinkingLevel": "medium", "includeThoughts": True}),
        ("claude-haiku-4-5@20251001", {"type": "enabled", "budget_tokens": 3750}),
        ("anthropic/claude-opus-4-6", {"type": "adaptive"}),
    ],
)
def test_models_are_told_to_think_in_their_makers_words(model: str, told: Any) -> None:
    request = ChatRequest(messages=(UserTurn("x"),), reasoning_effort="medium", max_tokens=5000)
    codec = vertex_codec(model, VertexAccess("eu", None, "p"), "auto", "g")
    body = json.loads(codec.encode(request, model, stream=False).body)
    assert body.get("thinking") == told or body["generationConfig"]["thinkingConfig"] == told


# --- others -----------------------------------------------------------------------------------------------


async def test_models_of_other_makers_speak_openais_format(fake_model: FakeModels, tmp_path: Path) -> None:
    said = {"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]}
    google = Google(fake_model, answer({**said, "usage": {"prompt_tokens": 3, "completion_tokens": 1}}))
    async with reaching(settings(fake_model, service_account(tmp_path, fake_model.url))) as gateway:
        reply, _ = await ask(gateway, "meta/llama-3.3-70b-instruct-maas")
    assert (reply.text, reply.cost) == ("hi", None)
    (asked,) = google.asked
    assert asked.path == f"{BELOW}/endpoints/openapi/chat/completions"
    assert asked.json["model"] == "meta/llama-3.3-70b-instruct-maas"


async def test_models_of_mistral_have_a_path_of_their_own(fake_model: FakeModels, tmp_path: Path) -> None:
    said = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}
    google = Google(fake_model, events(said))
    async with reaching(settings(fake_model, service_account(tmp_path, fake_model.url))) as gateway:
        reply, _ = await ask(gateway, "mistral-medium-3", stream=True)
    assert reply.text == "hi"
    (asked,) = google.asked
    assert asked.path == f"{BELOW}/publishers/mistralai/models/mistral-medium-3:streamRawPredict"
    assert asked.json["model"] == "mistral-medium-3"


async def test_patches_hold_here_too(fake_model: FakeModels, tmp_path: Path) -> None:
    google = Google(fake_model)
    patch = {"chat_completions": {".*": {"headers": {"X-Team": "blue"}, "body": {"labels": {"team": "blue"}}}}}
    key = service_account(tmp_path, fake_model.url)
    client = {"type": "vertexai", "api_base": fake_model.url, "adc_file": str(key), "patch": patch}
    read, problems = read_settings(json.dumps({"user_agent": "auto", "clients": [client]}), "config.yaml", {})
    assert problems == []
    async with reaching(read) as gateway:
        await ask(gateway, "gemini-2.5-flash")
    (asked,) = google.asked
    assert (asked.headers["x-team"], asked.json["labels"]) == ("blue", {"team": "blue"})
    assert asked.headers["authorization"] == "Bearer ya29.1"
    assert asked.headers["user-agent"].startswith("callboard/")


# --- keys and settings ------------------------------------------------------------------------------------


async def test_an_api_key_needs_no_project(fake_model: FakeModels) -> None:
    google = Google(fake_model)
    client = ClientSettings(type="vertexai", name="vertexai", api_base=fake_model.url)
    async with reaching(Settings(clients=(client,)), {"VERTEXAI_API_KEY": "AQ.key"}) as gateway:
        await ask(gateway, "gemini-2.5-flash")
        with pytest.raises(
            ConfigError,
            match=says("work.models.vertex.codecs.vertex_codec", client="vertexai", model="claude-haiku-4-5"),
        ):
            await ask(gateway, "claude-haiku-4-5")
    (asked,) = google.asked
    assert asked.path == "/publishers/google/models/gemini-2.5-flash:generateContent"
    assert (asked.headers["x-goog-api-key"], "authorization" in asked.headers) == ("AQ.key", False)


async def test_an_api_key_may_be_for_a_project(fake_model: FakeModels) -> None:
    google = Google(fake_model, answer(gemini("ok")))
    client = ClientSettings(
        type="vertexai", name="vertexai", api_base=fake_model.url, api_key="AQ.key", project_id="p", location="eu"
    )
    async with reaching(Settings(clients=(client,))) as gateway:
        await ask(gateway, "gemini-2.5-flash")
    assert google.asked[0].path == "/projects/p/locations/eu/publishers/google/models/gemini-2.5-flash:generateContent"


def test_the_keys_of_loki_are_read() -> None:
    text = """
clients:
  - type: vertexai
    project_id: xxx
    location: us-east5
    adc_file: ~/adc.json
    models: [{name: gemini-2.5-pro, max_input_tokens: 1000000}]
  - {type: openai, location: us}
"""
    read, (problem,) = read_settings(text, "config.yaml", {})
    client = read.clients[0]
    assert (client.project_id, client.location, client.adc_file) == ("xxx", "us-east5", "~/adc.json")
    assert has_message(str(problem), "protocol.settings.read._Reading._client.4", key="location", types="vertexai")
    assert str(ModelCatalog(read, {}).choice()).startswith("model: vertexai:gemini-2.5-pro")


def test_a_client_needs_no_entry_where_there_are_credentials(tmp_path: Path) -> None:
    key = service_account(tmp_path, "http://127.0.0.1:1")
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(key), "GOOGLE_CLOUD_LOCATION": "us-east5"}
    target = ModelCatalog(Settings(), environ).target("vertexai:claude-sonnet-4-5@20250929")
    assert target.api_base == "https://us-east5-aiplatform.googleapis.com/v1"
    assert target.signed_in is not None
    with pytest.raises(CredentialsError, match=says("work.models.vertex.location.source_of.3")):
        ModelCatalog(Settings(), {"HOME": str(tmp_path / "none"), "NO_GCE_CHECK": "true"}).target(
            "vertexai:gemini-2.5-pro"
        )


@pytest.mark.parametrize(
    ("model", "seller"),
    [
        ("gemini-2.5-pro", "google"),
        ("google/gemini-2.5-pro", "google"),
        ("claude-opus-4-6", "google"),
        ("claude-haiku-4-5@20251001", "anthropic"),
        ("claude-sonnet-4-5@20250929", "google"),
        ("anthropic/claude-sonnet-4-5", "google"),
        ("meta/llama-3.3-70b-instruct-maas", ""),
    ],
)
def test_prices_are_those_of_google(model: str, seller: str) -> None:
    client = ClientSettings(type="vertexai", name="vertexai")
    catalog = ModelCatalog(Settings(clients=(client,)), {})
    found = catalog.prices.finder.find(client, ModelSettings(name=model), "https://aiplatform.googleapis.com/v1")
    assert (found.seller, found.tariff is not None) == (seller, bool(seller))


async def test_what_a_strangers_file_describes_gets_no_credentials_of_ours(
    fake_model: FakeModels, tmp_path: Path
) -> None:
    google = Google(fake_model)
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, fake_model.url))}
    client = client_of("vertexai", "http://127.0.0.1:9/v1", None, Settings(), environ)
    assert client is not None
    async with reaching(Settings(), environ) as gateway:
        name = gateway.catalog.adopt(client)
        with pytest.raises(CredentialsError, match=says("work.models.catalog.ModelCatalog._refuse_adopted")):
            gateway.catalog.target(f"{name}:gemini-2.5-pro")
    assert google.tokens == 0


def test_a_body_is_what_it_was_for_claude_itself() -> None:
    """The hook for this room has changed nothing there."""
    from callboard.actors.work.models.anthropic import AnthropicCodec

    body = json.loads(AnthropicCodec().encode(ChatRequest(messages=(UserTurn("x"),)), "m", stream=False).body)
    assert body == {"model": "m", "max_tokens": 4096, "messages": [{"role": "user", "content": "x"}]}


async def test_a_page_in_place_of_an_answer_is_told(fake_model: FakeModels, tmp_path: Path) -> None:
    page = Reply(raw=b"<html>sign in</html>", headers={"content-type": "text/html"})
    Google(fake_model, page)
    async with reaching(settings(fake_model, service_account(tmp_path, fake_model.url))) as gateway:
        with pytest.raises(ModelError):
            await ask(gateway, "gemini-2.5-flash")
