"""Clients that stand in no settings: which model is meant, whose connections, which tries."""

from __future__ import annotations

import json

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.gateways import Silent, reaching
from support.messages import says

from callboard.actors.work.models.anthropic import AnthropicCodec
from callboard.actors.work.models.catalog import ModelCatalog
from callboard.actors.work.models.codec import Codec
from callboard.actors.work.models.ollama import OllamaCodec
from callboard.actors.work.models.openai import OpenAiCodec
from callboard.actors.work.models.providers import client_of, withheld
from callboard.protocol.chat import ChatRequest, UserTurn
from callboard.protocol.errors import CredentialsError, GraphMistake, ModelError, UpstreamError
from callboard.protocol.settings import ClientSettings, Settings
from callboard.supervisors import Backoff, Retry

HELLO = ChatRequest(messages=(UserTurn("hello"),))
LAB = ClientSettings(type="claude", name="lab", api_base="http://lab/v1", api_key="lab-key")
SETTINGS = Settings(clients=(LAB,))


# --- which is meant ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["openai", "gemini", "claude", "groq", "lab"])
def test_a_name_is_enough_where_it_is_known(provider: str) -> None:
    assert client_of(provider, None, None, SETTINGS, {}) is None
    assert client_of(provider, "", "", SETTINGS, {}) is None


def test_a_name_that_nobody_knows_wants_a_base_url() -> None:
    with pytest.raises(GraphMistake, match="no provider 'lap': " + says("protocol.problems.suggestion", name="lab")):
        client_of("lap", None, "key", SETTINGS, {})
    client = client_of("lap", "http://x/v1", None, SETTINGS, {})
    assert client == ClientSettings(type="openai-compatible", name="lap", api_base="http://x/v1")


@pytest.mark.parametrize(
    ("provider", "base_url", "api_key", "meant"),
    [
        ("openai", "http://x/v1", "k", ("openai", "http://x/v1", "k")),
        ("openai", None, "k", ("openai", "", "k")),
        ("gemini", "http://x", "k", ("gemini", "http://x/v1beta", "k")),
        ("gemini", "http://x/", "k", ("gemini", "http://x/v1beta", "k")),
        ("gemini", "http://x/v1", "k", ("gemini", "http://x/v1", "k")),
        ("groq", None, "k", ("openai-compatible", "https://api.groq.com/openai/v1", "k")),
        ("lab", None, "k", ("claude", "http://lab/v1", "k")),
    ],
)
def test_a_description_is_a_client(
    provider: str, base_url: str | None, api_key: str | None, meant: tuple[str, str, str]
) -> None:
    client = client_of(provider, base_url, api_key, SETTINGS, {})
    assert client is not None
    assert (client.type, client.api_base, client.api_key) == meant


def test_the_key_of_a_client_does_not_go_to_another_place() -> None:
    client = client_of("lab", "http://elsewhere/v1", None, SETTINGS, {})
    assert client is not None
    assert client.api_key == ""


# --- keys that no file names ------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["openai", "claude", "anthropic", "gemini", "groq", "ANTHROPIC", "lab"])
def test_no_key_of_the_environment_goes_where_a_file_says(provider: str) -> None:
    environ = dict.fromkeys(
        ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CLAUDE_API_KEY", "GEMINI_API_KEY", "GROQ_API_KEY", "LAB_API_KEY"), "x"
    )
    client = client_of(provider, "https://stranger.example/v1", None, SETTINGS, environ)
    assert client is not None
    catalog = ModelCatalog(SETTINGS, environ)
    model = f"{catalog.adopt(client)}:m"
    assert not any("x" in value or "lab-key" in value for value in catalog.target(model).headers.values())
    if client.type != "claude":
        assert catalog.access(model, "embedding").key == ""


def test_one_provider_is_not_given_the_key_of_another() -> None:
    client = client_of("openai", "https://api.groq.com/openai/v1", None, SETTINGS, {"OPENAI_API_KEY": "x"})
    assert client is not None
    catalog = ModelCatalog(SETTINGS, {"OPENAI_API_KEY": "x"})
    with pytest.raises(CredentialsError, match=says("work.models.catalog.ModelCatalog._vertex_access")):
        catalog.target(f"{catalog.adopt(client)}:m")


@pytest.mark.parametrize(
    ("provider", "base_url"),
    [
        ("openai", "https://api.openai.com/v1/"),
        ("groq", "https://api.groq.com/openai/v1"),
        ("gemini", "https://generativelanguage.googleapis.com"),
        ("lab", "http://lab/v1"),
        ("claude", "https://own.example/v1"),
    ],
)
def test_a_providers_own_address_is_no_description(provider: str, base_url: str) -> None:
    assert client_of(provider, base_url, None, SETTINGS, {"ANTHROPIC_BASE_URL": "https://own.example"}) is None


@pytest.mark.parametrize(
    ("provider", "base_url", "key"),
    [
        ("openai", "http://x/v1", "OPENAI_API_KEY"),
        ("openai", "https://api.openai.com/v1", ""),
        ("gemini", "http://x", ""),
        ("lab", "http://x", "`api_key` of client 'lab' in "),
    ],
)
def test_it_is_known_which_key_stays_here(provider: str, base_url: str, key: str) -> None:
    assert withheld(provider, base_url, SETTINGS, {"OPENAI_API_KEY": "x"}).startswith(key)
    assert bool(withheld(provider, base_url, SETTINGS, {"OPENAI_API_KEY": "x"})) == bool(key)


# --- adopted ----------------------------------------------------------------------------------------------


def test_the_same_client_has_one_name_and_another_another() -> None:
    catalog = ModelCatalog(SETTINGS, {})
    here = ClientSettings(type="openai", name="openai", api_base="http://127.0.0.1:8000/v1", api_key="a")
    assert catalog.adopt(here) == catalog.adopt(here) == "openai@127.0.0.1-8000"
    other = ClientSettings(type="openai", name="openai", api_base="http://127.0.0.1:8000/v1", api_key="b")
    assert catalog.adopt(other) == "openai@127.0.0.1-8000-2"
    assert catalog.adopt(ClientSettings(type="openai", name="openai", api_key="c")) == "openai@own-key"
    target = catalog.target("openai@127.0.0.1-8000-2:llama3:8b")
    assert (target.name, target.api_base) == ("llama3:8b", "http://127.0.0.1:8000/v1")
    assert target.headers == {"authorization": "Bearer b"}


async def test_those_who_describe_the_same_share_its_connections(fake_model: FakeModels) -> None:
    async with reaching(Settings()) as gateway:
        for key in ("a", "a", "b"):
            client = client_of("openai", fake_model.openai_base, key, Settings(), {})
            assert client is not None
            request = ChatRequest(model=f"{gateway.catalog.adopt(client)}:m", messages=HELLO.messages)
            assert (await gateway.chat(Silent(), request)).text == "ok"
    assert fake_model.accepted == 1
    keys = [request.headers["authorization"] for request in fake_model.requests]
    assert keys == ["Bearer a", "Bearer a", "Bearer b"]


# --- more keys --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "codec", [OpenAiCodec(own=True), AnthropicCodec(), OllamaCodec()], ids=["openai", "claude", "ollama"]
)
def test_more_keys_go_into_the_body_and_replace_nothing(codec: Codec) -> None:
    request = ChatRequest(
        messages=HELLO.messages, temperature=0.1, extra={"seed": 7, "model": "no", "options": {"mirostat": 1}}
    )
    body = json.loads(codec.encode(request, "m", stream=False).body)
    assert (body["seed"], body["model"]) == (7, "m")
    assert body["options"]["mirostat"] == 1
    assert 0.1 in (body.get("temperature"), body["options"].get("temperature"))


# --- tries ------------------------------------------------------------------------------------------------


async def test_tries_are_as_somebody_says(fake_model: FakeModels, autojump_clock: trio.testing.MockClock) -> None:
    settings = Settings(
        clients=(ClientSettings(type="openai-compatible", name="fake", api_base=fake_model.openai_base),)
    )
    request = ChatRequest(model="fake:m", messages=HELLO.messages)
    passes = Retry(
        backoff=Backoff(first=9.0, jitter=0.0),
        retryable=lambda error: isinstance(error, ModelError) and error.status == 418,
    )
    async with reaching(settings) as gateway:
        fake_model.script(Reply(status=418), Reply(status=418), "tea")
        began = trio.current_time()
        assert (await gateway.chat(Silent(), request, attempts=passes)).text == "tea"
        assert trio.current_time() - began >= 27.0
        fake_model.script(Reply(status=503))
        with pytest.raises(UpstreamError):
            await gateway.chat(Silent(), request, attempts=passes)
        fake_model.script(*[Reply(status=418)] * 3)
        with pytest.raises(ModelError, match="after 3 tries") as caught:
            await gateway.chat(Silent(), request, attempts=passes)
        assert caught.value.status == 418
    assert len(fake_model.requests) == 7
