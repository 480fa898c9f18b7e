"""Rerankers over real sockets: what providers are asked, what is made of their answers, and how they fail."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.messages import says
from support.model_events import Impatient

from callboard.actors.work.knowledge.embed.embedders import Embedders
from callboard.actors.work.knowledge.embed.remote import CHARACTERS
from callboard.actors.work.knowledge.embed.rerank import MiniLM, Reranker
from callboard.protocol.chat import TokenUsage
from callboard.protocol.errors import ConfigError, CredentialsError, ModelError, Unsupported, UpstreamError
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings

TEXTS = ["a", "bbb", "cc"]


def results(request: Request) -> list[dict[str, Any]]:
    """A score per text, its length; best first, as providers do."""
    scores = [{"index": n, "relevance_score": len(text)} for n, text in enumerate(request.json["documents"])]
    return sorted(scores, key=lambda score: -score["relevance_score"])


Make = Callable[..., Reranker]


@pytest.fixture
async def made(fake_model: FakeModels) -> AsyncIterator[Make]:
    """`made(type, **fields of the client)` is the reranker `fake:m` of the scripted server."""
    fake_model.answer_with(lambda request: Reply(raw=json.dumps({"results": results(request)}).encode()))
    opened: list[Embedders] = []

    def make(type: str = "openai-compatible", *, on_usage: Any = None, **fields: Any) -> Reranker:
        options = {"api_base": fake_model.openai_base, "api_key": "sk-test", **fields}
        settings = Settings(clients=(ClientSettings(type=type, name="fake", **options),))
        embedders = Embedders(settings, {}, on_usage=on_usage, rng=Impatient())
        opened.append(embedders)
        assert embedders.reranker("fake:m") is embedders.reranker("fake:m")
        return embedders.reranker("fake:m")

    yield make
    for each in opened:
        await each.aclose()


@pytest.mark.parametrize(
    ("type", "more"), [("openai-compatible", {"return_documents": False}), ("cohere", {})], ids=["compatible", "cohere"]
)
async def test_every_provider_is_asked_in_its_own_words(
    type: str, more: dict[str, Any], fake_model: FakeModels, made: Make, event_collector: Any
) -> None:
    reranker = made(type)
    assert reranker.model == "fake:m"
    assert await reranker.rerank(event_collector, "q", TEXTS) == [1.0, 3.0, 2.0]
    (request,) = fake_model.requests
    assert (request.method, request.path) == ("POST", "/v1/rerank")
    assert request.headers["authorization"] == "Bearer sk-test"
    assert request.json == {"model": "m", "query": "q", "documents": TEXTS, **more}
    assert event_collector.events == []


async def test_voyage_calls_its_list_data(fake_model: FakeModels, made: Make, event_collector: Any) -> None:
    fake_model.answer_with(lambda request: Reply(raw=json.dumps({"data": results(request)}).encode()))
    assert await made().rerank(event_collector, "q", TEXTS) == [1.0, 3.0, 2.0]


async def test_the_models_real_name_is_what_the_provider_hears(
    fake_model: FakeModels, made: Make, event_collector: Any
) -> None:
    models = (ModelSettings(name="m", type="reranker", real_name="rerank-2"),)
    await made(models=models).rerank(event_collector, "q", ["a"])
    assert fake_model.requests[0].json["model"] == "rerank-2"


async def test_no_texts_are_no_request(fake_model: FakeModels, made: Make, event_collector: Any) -> None:
    assert await made().rerank(event_collector, "q", []) == []
    assert fake_model.requests == []


async def test_too_many_texts_for_one_request_go_in_several(
    fake_model: FakeModels, made: Make, event_collector: Any
) -> None:
    texts = ["x", "y" * CHARACTERS, "zz"]
    assert await made().rerank(event_collector, "q", texts) == [1.0, float(CHARACTERS), 2.0]
    assert [len(request.json["documents"]) for request in fake_model.requests] == [1, 1, 1]


async def test_of_a_text_only_what_the_model_takes_is_sent(
    fake_model: FakeModels, made: Make, event_collector: Any
) -> None:
    models = (ModelSettings(name="m", type="reranker", max_tokens_per_chunk=10),)
    assert await made(models=models).rerank(event_collector, "q", ["x" * 50, "y"]) == [40.0, 1.0]


async def test_what_may_pass_is_tried_again_and_then_given_up(
    fake_model: FakeModels, made: Make, event_collector: Any
) -> None:
    fake_model.script(Reply(status=503, error="busy"))
    assert await made().rerank(event_collector, "q", TEXTS) == [1.0, 3.0, 2.0]
    assert event_collector.kinds() == ["llm.retry"]
    fake_model.answer_with(lambda request: Reply(status=429, error="slow"))
    with pytest.raises(UpstreamError, match=r"fake:m: slow \(HTTP 429\), after 3 tries"):
        await made().rerank(event_collector, "q", TEXTS)


async def test_a_refused_key_is_not_tried_again(fake_model: FakeModels, made: Make, event_collector: Any) -> None:
    fake_model.script(Reply(status=401, error="bad key"))
    with pytest.raises(CredentialsError, match="FAKE_API_KEY"):
        await made().rerank(event_collector, "q", TEXTS)
    assert len(fake_model.requests) == 1


@pytest.mark.parametrize(
    "found",
    [
        [],
        [{"index": 0, "relevance_score": 1}],
        [{"index": n, "relevance_score": 1} for n in (0, 1, 1)],
        [{"index": n, "relevance_score": 1} for n in (0, 1, 3)],
        [{"index": n, "relevance_score": 1} for n in (0, 1, -1)],
        [{"index": n, "relevance_score": 1} for n in (0, 1, 2, 2)],
    ],
)
async def test_scores_that_are_not_one_for_each_text_are_an_error(
    found: Any, fake_model: FakeModels, made: Make, event_collector: Any
) -> None:
    fake_model.script(Reply(raw=json.dumps({"results": found}).encode()))
    with pytest.raises(ModelError, match=says("work.knowledge.embed.rerank.RemoteReranker._in_order", texts=3)):
        await made().rerank(event_collector, "q", TEXTS)


@pytest.mark.parametrize("body", [b"<html>", b'{"results": "none"}', b'{"results": [{"index": "0"}]}'])
async def test_an_answer_that_makes_no_sense_is_an_error(
    body: bytes, fake_model: FakeModels, made: Make, event_collector: Any
) -> None:
    fake_model.script(Reply(raw=body))
    with pytest.raises(ModelError, match=says("work.models.codec.read")):
        await made().rerank(event_collector, "q", TEXTS)


async def test_tokens_are_told_where_the_provider_counts_them(
    fake_model: FakeModels, made: Make, event_collector: Any
) -> None:
    told: list[Any] = []
    body = {"results": [{"index": 0, "relevance_score": 0.5}], "usage": {"total_tokens": 9}}
    fake_model.script(Reply(raw=json.dumps(body).encode()))
    await made(on_usage=lambda *what: told.append(what)).rerank(event_collector, "q", ["a"])
    assert told == [(event_collector, "fake:m", TokenUsage(input_tokens=9), None)]


async def test_cancelling_closes_the_connection(fake_model: FakeModels, made: Make, event_collector: Any) -> None:
    fake_model.answer_with(lambda request: Reply(hold=trio.Event()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made().rerank, event_collector, "q", TEXTS)
        await fake_model.arrived(1)
        nursery.cancel_scope.cancel()
    await fake_model.until(lambda server: server.open == 0)


class Pointing:
    """An embedder: a text points where its first letter says."""

    model = "local:minilm"
    dimension = 2

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], bool]] = []

    async def embed(self, me: Any, texts: Sequence[str], *, query: bool = False) -> Any:
        self.asked.append((list(texts), query))
        angles = np.array([ord(text[0]) for text in texts]) / 60
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


async def test_minilm_compares_vectors(event_collector: Any) -> None:
    embedder = Pointing()
    scores = await MiniLM(embedder).rerank(event_collector, "c", ["a", "b", "c"])
    assert sorted(scores) == scores
    assert scores[2] == pytest.approx(1.0)
    assert embedder.asked == [(["c"], True), (["a", "b", "c"], False)]
    assert await MiniLM(embedder).rerank(event_collector, "c", []) == []


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (
            "cohere:rerank-v3.5",
            CredentialsError,
            says("work.models.catalog.ModelCatalog._vertex_access.2", tried="COHERE_API_KEY or CO_API_KEY"),
        ),
        ("openai:gpt", Unsupported, says("work.models.catalog.ModelCatalog.access", type="openai", task="reranker")),
        ("gemini:x", Unsupported, says("work.models.catalog.ModelCatalog.access", type="gemini", task="reranker")),
        ("opena:m", ConfigError, "unknown reranker model 'opena:m'.*did you mean 'openai:...'"),
        (
            "listed:other",
            ConfigError,
            says("work.models.catalog.ModelCatalog.access.2", client_name="listed", known="listed:r"),
        ),
        (
            "local:static",
            ConfigError,
            says("work.knowledge.embed.embedders.Embedders.reranker", id="local:static", MINILM="local:minilm"),
        ),
        ("local:minilm", ConfigError, says("work.models.weights.pulled.3", name="minilm")),
    ],
)
async def test_a_model_that_cannot_be_had_is_refused_with_what_to_do(
    model: str, error: Any, words: str, tmp_path: Any
) -> None:
    models = (ModelSettings(name="c"), ModelSettings(name="r", type="reranker"))
    clients = (ClientSettings(type="openai-compatible", name="listed", api_base="http://x", models=models),)
    settings, environ = Settings(clients=clients), {"XDG_CACHE_HOME": str(tmp_path)}
    async with aclosing(Embedders(settings, environ)) as embedders:
        with pytest.raises(error, match=words):
            embedders.reranker(model)


@pytest.mark.parametrize(
    ("model", "variable"), [("jina:r", "JINA_API_KEY"), ("voyageai:r", "VOYAGEAI_API_KEY"), ("cohere:r", "CO_API_KEY")]
)
async def test_providers_are_known_by_their_names(model: str, variable: str) -> None:
    environ = {variable: "k"}
    async with aclosing(Embedders(Settings(), environ)) as embedders:
        assert embedders.reranker(model).model == model
