"""Providers over real sockets: what they are asked, what is made of their answers, and every way they can fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import httpx
import numpy as np
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.fake_models import FakeModels, Reply, Request
from support.messages import has_message, says

from callboard.actors.work.knowledge.embed.embedders import Embedders
from callboard.actors.work.knowledge.embed.remote import CHARACTERS, batches
from callboard.protocol.chat import TokenUsage
from callboard.protocol.errors import (
    BudgetReached,
    ConfigError,
    CredentialsError,
    ModelError,
    Unsupported,
    UpstreamError,
)
from callboard.protocol.events import UsageUpdate
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings

TEXTS = ["a", "bb", "ccc"]
UNIT = np.array([[3, 4 * n] for n in (1, 2, 3)]) / np.array([[np.hypot(3, 4 * n)] for n in (1, 2, 3)])


# --- what is asked ----------------------------------------------------------------------------------------

BEARER = ("authorization", "Bearer sk-test")
ASKED: dict[str, tuple[str, tuple[str, str], Any]] = {
    "openai": ("/v1/embeddings", BEARER, {"model": "m", "input": TEXTS}),
    "openai-compatible": ("/v1/embeddings", BEARER, {"model": "m", "input": TEXTS}),
    "azure-openai": (
        "/openai/deployments/m/embeddings?api-version=2024-12-01-preview",
        ("api-key", "sk-test"),
        {"model": "m", "input": TEXTS},
    ),
    "ollama": ("/api/embed", BEARER, {"model": "m", "input": TEXTS, "truncate": False}),
    "cohere": (
        "/v2/embed",
        BEARER,
        {
            "model": "m",
            "texts": TEXTS,
            "input_type": "search_document",
            "embedding_types": ["float"],
            "truncate": "NONE",
        },
    ),
    "gemini": (
        "/v1beta/models/m:batchEmbedContents",
        ("x-goog-api-key", "sk-test"),
        {
            "requests": [
                {"model": "models/m", "content": {"parts": [{"text": text}]}, "taskType": "RETRIEVAL_DOCUMENT"}
                for text in TEXTS
            ]
        },
    ),
}


@pytest.mark.parametrize("type", ASKED)
async def test_every_provider_is_asked_in_its_own_words(
    type: str, provider: FakeModels, made: Any, event_collector: Any
) -> None:
    embedder = made(type)
    assert embedder.model == "fake:m"
    assert embedder.dimension is None
    vectors = await embedder.embed(event_collector, TEXTS)
    path, (header, value), body = ASKED[type]
    (request,) = provider.requests
    assert (request.method, request.path) == ("POST", path)
    assert request.headers[header] == value
    assert request.json == body
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, UNIT, rtol=1e-6)
    assert embedder.dimension == 2
    assert event_collector.events == []


@pytest.mark.parametrize(("type", "word"), [("cohere", "search_query"), ("gemini", "RETRIEVAL_QUERY")])
async def test_who_tells_queries_apart_is_told(
    type: str, word: str, provider: FakeModels, made: Any, event_collector: Any
) -> None:
    await made(type).embed(event_collector, ["q"], query=True)
    assert word in provider.requests[0].body.decode()


async def test_the_models_real_name_is_what_the_provider_hears(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    await made(model={"real_name": "embed-3"}).embed(event_collector, ["q"])
    assert provider.requests[0].json["model"] == "embed-3"


async def test_a_proxy_is_used_as_for_chats(provider: FakeModels, event_collector: Any) -> None:
    client = ClientSettings(type="openai-compatible", name="far", api_base="http://far.test/v1", api_key="k")
    async with aclosing(Embedders(Settings(clients=(client,)), {"HTTP_PROXY": provider.url})) as embedders:
        await embedders.of("far:m").embed(event_collector, ["q"])
    assert provider.requests[0].path == "http://far.test/v1/embeddings"


# --- batches ----------------------------------------------------------------------------------------------


async def test_batches_are_bounded_by_count_and_by_characters(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    long = "x" * (CHARACTERS - 1)
    texts = ["a", "b", "c", "d", "e", long, "f", long]
    vectors = await made(batch=3).embed(event_collector, texts)
    sizes = sorted(len(request.json["input"]) for request in provider.requests)
    assert sizes == [1, 2, 2, 3]
    assert len(vectors) == len(texts)
    assert vectors[0][1] < vectors[5][1]


@given(lengths=st.lists(st.integers(0, CHARACTERS * 2), max_size=30), most=st.integers(1, 10))
def test_batches_are_all_texts_in_order_within_both_bounds(lengths: list[int], most: int) -> None:
    texts = ["x" * length for length in lengths]
    found = list(batches(texts, most))
    assert [text for _, batch in found for text in batch] == texts
    for first, batch in found:
        assert texts[first : first + len(batch)] == batch
        assert 1 <= len(batch) <= most
        assert len(batch) == 1 or sum(map(len, batch)) <= CHARACTERS


async def test_no_batch_is_larger_than_the_provider_takes(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    await made("cohere", batch=1000).embed(event_collector, ["t"] * 200)
    assert sorted(len(request.json["texts"]) for request in provider.requests) == [8, 96, 96]


async def test_rows_are_in_the_order_of_the_texts_whichever_batch_is_ready_first(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    first = trio.Event()

    def reply(request: Request) -> Reply:
        (text,) = request.json["input"]
        if text == "a":
            return Reply(raw=openai_rows(text), hold=first)
        if text == "ccc":
            first.set()
        return Reply(raw=openai_rows(text))

    provider.answer_with(reply)
    np.testing.assert_allclose(await made(batch=1).embed(event_collector, TEXTS), UNIT, rtol=1e-6)


async def test_rows_of_one_answer_are_in_the_order_of_their_index(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    rows = json.loads(openai_rows(*TEXTS))["data"]
    numbered = [{"index": index, **row} for index, row in enumerate(rows)]
    provider.script(Reply(raw=json.dumps({"data": numbered[::-1]}).encode()))
    np.testing.assert_allclose(await made().embed(event_collector, TEXTS), UNIT, rtol=1e-6)


def openai_rows(*texts: str) -> bytes:
    return json.dumps({"data": [{"embedding": [3.0, 4.0 * len(text)]} for text in texts]}).encode()


async def test_no_more_requests_are_under_way_than_allowed(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    go = trio.Event()
    provider.answer_with(lambda request: Reply(raw=openai_rows(*request.json["input"]), hold=go))
    embedder = made(batch=1, max_concurrency=2)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(embedder.embed, event_collector, ["t"] * 5)
        await provider.arrived(2)
        await trio.testing.wait_all_tasks_blocked()
        assert len(provider.requests) == 2
        go.set()
    assert len(provider.requests) == 10


async def test_no_texts_are_no_requests(provider: FakeModels, made: Any, event_collector: Any) -> None:
    assert len(await made().embed(event_collector, [])) == 0
    assert provider.requests == []


async def test_a_blank_text_is_sent_as_one_that_providers_accept(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    await made().embed(event_collector, ["", " \n"])
    assert provider.requests[0].json["input"] == [" ", " "]


# --- what it costs ----------------------------------------------------------------------------------------

COUNTS: dict[str, dict[str, Any]] = {
    "openai": {"data": [{"index": 0, "embedding": [3, 4]}], "usage": {"prompt_tokens": 7, "total_tokens": 7}},
    "openai-compatible": {"data": [{"embedding": [3, 4]}], "usage": {"total_tokens": 7}},
    "azure-openai": {"data": [{"index": 0, "embedding": [3, 4]}], "usage": {"prompt_tokens": 7, "total_tokens": 7}},
    "ollama": {"embeddings": [[3, 4]], "prompt_eval_count": 7},
    "cohere": {"embeddings": {"float": [[3, 4]]}, "meta": {"billed_units": {"input_tokens": 7.0}}},
    "gemini": {"embeddings": [{"values": [3, 4]}], "usageMetadata": {"promptTokenCount": 7}},
}


@pytest.mark.parametrize("type", COUNTS)
async def test_tokens_are_told_where_the_provider_counts_them(
    type: str, provider: FakeModels, made: Any, event_collector: Any
) -> None:
    told: list[tuple[Any, ...]] = []
    totals = UsageUpdate(model="fake:m", input_tokens=7, output_tokens=0, cost=14e-6)

    def used(*what: Any) -> UsageUpdate:
        told.append(what)
        return totals

    embedder = made(type, model={"input_price": 2.0}, on_usage=used)
    provider.script(Reply(raw=json.dumps(COUNTS[type]).encode()))
    await embedder.embed(event_collector, ["a"])
    assert told == [(event_collector, "fake:m", TokenUsage(input_tokens=7), 14e-6)]
    assert event_collector.events == [totals]


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": -5, "total_tokens": -5}])
async def test_tokens_that_nobody_counted_are_not_invented(
    usage: Any, provider: FakeModels, made: Any, event_collector: Any
) -> None:
    told: list[int] = []
    body = {"data": [{"embedding": [1]}], "usage": usage}
    provider.script(Reply(raw=json.dumps(body).encode()))
    await made(on_usage=lambda me, model, usage, cost: told.append(usage.input_tokens)).embed(event_collector, ["a"])
    assert sum(told) == 0


async def test_a_budget_that_is_reached_ends_the_embedding(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    def used(*_: Any) -> None:
        raise BudgetReached("enough")

    with pytest.raises(BudgetReached, match="enough"):
        await made(batch=1, max_concurrency=1, on_usage=used).embed(event_collector, TEXTS)
    assert len(provider.requests) == 1


# --- what goes wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply", [Reply(status=503, error="busy"), Reply(status=429, error="slow"), Reply(drop="headers")]
)
async def test_what_may_pass_is_tried_again(
    reply: Reply, provider: FakeModels, made: Any, event_collector: Any
) -> None:
    provider.script(reply)
    assert len(await made().embed(event_collector, TEXTS)) == 3
    assert event_collector.kinds() == ["llm.retry"]
    assert len(provider.requests) == 2


async def test_tries_are_counted(provider: FakeModels, made: Any, event_collector: Any) -> None:
    provider.answer_with(lambda request: Reply(status=503, error="busy"))
    with pytest.raises(UpstreamError, match=r"fake:m: busy \(HTTP 503\), after 3 tries"):
        await made().embed(event_collector, TEXTS)
    assert len(provider.requests) == 3


async def test_a_refused_key_is_not_tried_again(provider: FakeModels, made: Any, event_collector: Any) -> None:
    provider.script(Reply(status=401, error="bad key"))
    with pytest.raises(CredentialsError, match="FAKE_API_KEY"):
        await made().embed(event_collector, TEXTS)
    assert len(provider.requests) == 1


async def test_the_first_failure_ends_the_other_requests(provider: FakeModels, made: Any, event_collector: Any) -> None:
    def reply(request: Request) -> Reply:
        if request.json["input"] == ["bad"]:
            return Reply(status=400, error="no")
        return Reply(raw=b"{}", hold=trio.Event())

    provider.answer_with(reply)
    with pytest.raises(ModelError, match=r"no \(HTTP 400\)"):
        await made(batch=1).embed(event_collector, ["a", "b", "bad", "c", "d", "e"])
    await provider.until(lambda server: server.open <= 1)  # the one that was answered is kept


async def test_cancelling_closes_the_connections(provider: FakeModels, made: Any, event_collector: Any) -> None:
    provider.answer_with(lambda request: Reply(hold=trio.Event()))
    embedder = made(batch=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(embedder.embed, event_collector, TEXTS)
        await provider.arrived(3)
        nursery.cancel_scope.cancel()
    await provider.until(lambda server: server.open == 0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            b'{"data": [{"index": 0, "embedding": [1, 2]}]}',
            says("work.knowledge.embed.remote.Remote._read", rows=1, texts=3),
        ),
        (
            b'{"data": [{"embedding": [1]}, {"embedding": [1, 2]}, {"embedding": [1]}]}',
            says("work.knowledge.embed.embedder.normalised"),
        ),
        (
            b'{"data": [{"embedding": []}, {"embedding": []}, {"embedding": []}]}',
            says("work.knowledge.embed.embedder.normalised.2"),
        ),
        (
            b'{"data": [{"embedding": [1e300]}, {"embedding": [1]}, {"embedding": [1]}]}',
            says("work.knowledge.embed.embedder.normalised.3"),
        ),
        (b'{"data": [{"embedding": null}, {"embedding": [1]}, {"embedding": [1]}]}', "not in the provider's format"),
        (
            b'{"data": [{"embedding": [NaN]}, {"embedding": [1]}, {"embedding": [1]}]}',
            says("work.knowledge.embed.embedder.normalised"),
        ),
        (b'{"data": "none"}', "not in the provider's format"),
        (b"<html>", "not in the provider's format"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
async def test_an_answer_that_makes_no_sense_is_an_error(
    body: bytes, words: str, provider: FakeModels, made: Any, event_collector: Any
) -> None:
    provider.script(Reply(raw=body))
    with pytest.raises(ModelError, match=words):
        await made().embed(event_collector, TEXTS)


async def test_a_model_that_changed_its_dimension_is_noticed(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    embedder = made()
    await embedder.embed(event_collector, ["a"])
    provider.script(Reply(raw=b'{"data": [{"embedding": [1, 2, 3]}]}'))
    with pytest.raises(ModelError, match=says("work.knowledge.embed.remote.Remote._ask", dimension=3, dimension_2=2)):
        await embedder.embed(event_collector, ["a"])


async def test_vectors_of_any_length_come_back_with_length_one(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    rows = [[1e-30, 1e-30], [1e30, -1e30], [0, 0]]
    provider.script(Reply(raw=json.dumps({"data": [{"embedding": row} for row in rows]}).encode()))
    vectors = await made().embed(event_collector, TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 0], rtol=1e-6)


# --- texts that are too long ------------------------------------------------------------------------------

REFUSALS = [
    (400, "This model's maximum context length is 8192 tokens, however you requested 9000"),
    (400, "the input length exceeds the context length"),
    (400, "input (602 tokens) is larger than the max context size (512 tokens). skipping"),
    (400, "too many tokens: total number of tokens in the prompt cannot exceed 512"),
    (500, "input is too large to process. increase the physical batch size"),
]


def refusing(status: int, error: str, most: int) -> Callable[[Request], Reply]:
    def reply(request: Request) -> Reply:
        if any(len(text) > most for text in request.json["input"]):
            return Reply(status=status, error=error)
        return Reply(raw=openai_rows(*request.json["input"]))

    return reply


@pytest.mark.parametrize(("status", "error"), REFUSALS)
async def test_a_text_that_is_refused_for_its_length_is_cut_and_told(
    status: int, error: str, provider: FakeModels, made: Any, event_collector: Any
) -> None:
    provider.answer_with(refusing(status, error, 100))
    texts = [*TEXTS, "x" * 1000, "dddd", "y" * 101]
    vectors = await made().embed(event_collector, texts)
    np.testing.assert_allclose(vectors[:3], UNIT, rtol=1e-6)
    assert len(vectors) == 6
    (warning,) = event_collector.events
    assert warning.code == "embedding_truncated"
    assert has_message(
        warning.message, "work.knowledge.embed.remote.Remote.embed", count="2 texts were", model="fake:m"
    )
    longest = max(len(text) for request in provider.requests for text in request.json["input"] if len(text) <= 100)
    assert longest > 70


async def test_a_batch_that_is_refused_for_its_size_is_halved(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    def reply(request: Request) -> Reply:
        if len(request.json["input"]) > 4:
            return Reply(status=422, error="batch size 16 > maximum allowed batch size 4")
        return Reply(raw=openai_rows(*request.json["input"]))

    provider.answer_with(reply)
    texts = ["x" * n for n in range(20, 36)]
    vectors = await made(batch=16).embed(event_collector, texts)
    assert [round(float(row[1] / row[0] * 3 / 4)) for row in vectors] == list(range(20, 36))
    assert event_collector.events == []


async def test_what_the_settings_know_is_cut_before_it_is_sent(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    await made(model={"max_input_tokens": 10}).embed(event_collector, ["x" * 100, "é" * 30, "short"])
    (request,) = provider.requests
    assert request.json["input"] == ["x" * 40, "é" * 20, "short"]
    assert has_message(
        event_collector.events[0].message, "work.knowledge.embed.remote.Remote.embed", count="2 texts were"
    )


async def test_a_model_that_knows_its_requests_and_its_texts_apart_keeps_to_both(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    model = {"max_input_tokens": 20, "max_tokens_per_chunk": 10, "max_batch_size": 3}
    await made(model=model).embed(event_collector, ["x" * 50, "y" * 40, "z" * 40, "1", "2", "3", "4"])
    sent = [request.json["input"] for request in provider.requests]
    assert sorted([len(text) for text in texts] for texts in sent) == [[1], [1, 1, 1], [40], [40, 40]]


async def test_the_size_of_chunks_that_suits_a_model_is_what_the_settings_say() -> None:
    models = (
        ModelSettings(name="e", type="embedding", default_chunk_size=700),
        ModelSettings(name="f", type="embedding"),
    )
    client = ClientSettings(type="openai-compatible", name="lab", api_base="http://x", models=models)
    async with aclosing(Embedders(Settings(clients=(client,)), {})) as embedders:
        assert (embedders.chunk_size("lab:e"), embedders.chunk_size("lab:f")) == (700, None)
        assert embedders.chunk_size() is None


async def test_too_many_tokens_in_a_minute_are_no_reason_to_cut(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    provider.script(Reply(status=429, error="Request too large: tokens per min limit 40000"))
    await made().embed(event_collector, ["x" * 50])
    assert [len(request.json["input"][0]) for request in provider.requests] == [50, 50]
    assert event_collector.kinds() == ["llm.retry"]


async def test_a_provider_that_refuses_any_length_is_given_up(
    provider: FakeModels, made: Any, event_collector: Any
) -> None:
    provider.answer_with(lambda request: Reply(status=400, error="input too long"))
    with pytest.raises(ModelError, match="input too long"):
        await made().embed(event_collector, ["x" * 50, "y"])


# --- which models there are -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (
            "openai:text-embedding-3-small",
            CredentialsError,
            says("work.models.catalog.ModelCatalog._vertex_access.2", tried="OPENAI_API_KEY"),
        ),
        (
            "cohere:embed-v4.0",
            CredentialsError,
            says("work.models.catalog.ModelCatalog._vertex_access.2", tried="COHERE_API_KEY or CO_API_KEY"),
        ),
        (
            "gemini:text-embedding-004",
            CredentialsError,
            says("work.models.catalog.ModelCatalog._vertex_access.2", tried="GEMINI_API_KEY or GOOGLE_API_KEY"),
        ),
        ("claude:sonnet", Unsupported, says("work.models.catalog.ModelCatalog.access", task="embedding")),
        ("bedrock:e", ConfigError, says("work.models.catalog.ModelCatalog._api_base", name="bedrock")),
        ("vertexai:e", CredentialsError, says("work.models.vertex.location.source_of.2", found="/no/such.json")),
        (
            "azure:e",
            CredentialsError,
            says("work.models.catalog.ModelCatalog._vertex_access.2", tried="AZURE_API_KEY or AZURE_OPENAI_API_KEY"),
        ),
        ("opena:m", ConfigError, "unknown embedding model 'opena:m'.*did you mean 'openai:...'"),
        ("openai", ConfigError, says("work.models.providers.unknown.3", name_2="openai")),
        (
            "listed:other",
            ConfigError,
            says("work.models.catalog.ModelCatalog.access.2", client_name="listed", known="listed:e"),
        ),
        (
            "local:huge",
            ConfigError,
            says("work.knowledge.embed.embedders.Embedders._made", DEFAULT="local:static", MINILM="local:minilm"),
        ),
    ],
)
async def test_a_model_that_cannot_be_had_is_refused_with_what_to_do(model: str, error: Any, words: str) -> None:
    clients = (
        ClientSettings(type="vertexai", name="vertexai", adc_file="/no/such.json"),
        ClientSettings(type="azure-openai", name="azure", api_base="http://x"),
        ClientSettings(
            type="openai-compatible",
            name="listed",
            api_base="http://x",
            models=(ModelSettings(name="c"), ModelSettings(name="e", type="embedding")),
        ),
    )
    async with aclosing(Embedders(Settings(clients=clients), {})) as embedders:
        with pytest.raises(error, match=words):
            embedders.of(model)


@pytest.mark.parametrize(
    ("model", "variable", "url"),
    [
        ("openai:e", "OPENAI_API_KEY", "https://api.openai.com/v1"),
        ("cohere:e", "COHERE_API_KEY", "https://api.cohere.com/v2"),
        ("gemini:e", "GOOGLE_API_KEY", "https://generativelanguage.googleapis.com/v1beta"),
        ("ollama:e", "UNUSED", "http://127.0.0.1:11434"),
        ("mistral:e", "MISTRAL_API_KEY", "https://api.mistral.ai/v1"),
    ],
)
async def test_providers_are_known_by_their_names(model: str, variable: str, url: str) -> None:
    async with aclosing(Embedders(Settings(), {variable: "k"})) as embedders:
        access = embedders._catalog.access(model, "embedding")
        assert httpx.URL(access.api_base).host == httpx.URL(url).host.replace(
            "127.0.0.1", httpx.URL(access.api_base).host
        )
        assert embedders.of(model) is embedders.of(model)
