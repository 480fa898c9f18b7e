"""Models for vectors on Bedrock and on Vertex AI, over their wire: paths, bodies, signatures, tokens, errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_models import FakeModels, Reply, Request
from support.google_services import Google, answer, service_account
from support.messages import says
from support.model_events import Impatient

from callboard.actors.work.knowledge.embed.embedders import Embedders
from callboard.protocol.chat import TokenUsage
from callboard.protocol.errors import CredentialsError, Unsupported
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings

BELOW = "/projects/my-project/locations/global/publishers"


@asynccontextmanager
async def embedding(
    client: ClientSettings, used: list[TokenUsage] | None = None, environ: dict[str, str] | None = None
) -> AsyncIterator[Embedders]:
    def count(me: Any, model: str, usage: TokenUsage, cost: float | None) -> None:
        if used is not None:
            used.append(usage)

    embedders = Embedders(Settings(clients=(client,)), environ or {}, on_usage=count, rng=Impatient())
    try:
        yield embedders
    finally:
        await embedders.aclose()


def on_google(server: FakeModels, key: Path, **more: Any) -> ClientSettings:
    return ClientSettings(type="vertexai", name="g", api_base=server.url, adc_file=str(key), **more)


def on_bedrock(server: FakeModels, **more: Any) -> ClientSettings:
    keys = more or {"access_key_id": "AKID", "secret_access_key": "s"}
    return ClientSettings(type="bedrock", name="b", api_base=server.url, region="eu-central-1", **keys)


# --- Vertex AI --------------------------------------------------------------------------------------------


async def test_vertex_predicts_vectors_for_several_texts(
    fake_model: FakeModels, tmp_path: Path, event_collector: Any
) -> None:
    predictions = [
        {"embeddings": {"values": [3.0, 4.0], "statistics": {"token_count": 2, "truncated": False}}},
        {"embeddings": {"values": [0.0, 1.0], "statistics": {"token_count": 3, "truncated": False}}},
    ]
    google = Google(fake_model, answer({"predictions": predictions}))
    used: list[TokenUsage] = []
    async with embedding(on_google(fake_model, service_account(tmp_path, fake_model.url)), used) as embedders:
        vectors = await embedders.of("g:text-embedding-005").embed(event_collector, ["a", "b"])
    np.testing.assert_allclose(vectors, [[0.6, 0.8], [0.0, 1.0]], rtol=1e-6)
    assert used == [TokenUsage(input_tokens=5)]
    (asked,) = google.asked
    assert asked.path == f"{BELOW}/google/models/text-embedding-005:predict"
    assert asked.headers["authorization"] == "Bearer ya29.1"
    assert asked.json == {
        "instances": [{"content": text, "task_type": "RETRIEVAL_DOCUMENT"} for text in "ab"],
        "parameters": {"autoTruncate": False},
    }


async def test_gemini_makes_one_vector_per_request(
    fake_model: FakeModels, tmp_path: Path, event_collector: Any
) -> None:
    one = {"embeddings": {"values": [1.0, 0.0], "statistics": {"token_count": 2}}}
    content = {"embedding": {"values": [0.0, 1.0]}, "usageMetadata": {"promptTokenCount": 4}, "truncated": False}
    google = Google(fake_model)
    google.replies = [answer({"predictions": [one]}), answer({"predictions": [one]}), answer(content), answer(content)]
    client = on_google(fake_model, service_account(tmp_path, fake_model.url), max_concurrency=1)
    used: list[TokenUsage] = []
    async with embedding(client, used) as embedders:
        await embedders.of("g:gemini-embedding-001").embed(event_collector, ["a", "b"])
        vectors = await embedders.of("g:gemini-embedding-2").embed(event_collector, ["a", "b"], query=True)
    assert vectors.shape == (2, 2)
    assert [each.path.rpartition("/")[2] for each in google.asked] == [
        "gemini-embedding-001:predict",
        "gemini-embedding-001:predict",
        "gemini-embedding-2:embedContent",
        "gemini-embedding-2:embedContent",
    ]
    assert google.asked[3].json == {
        "content": {"parts": [{"text": "b"}]},
        "taskType": "RETRIEVAL_QUERY",
        "autoTruncate": False,
    }
    assert [each.input_tokens for each in used] == [2, 2, 4, 4]
    assert google.tokens == 1


async def test_vertex_lets_an_api_key_in(fake_model: FakeModels, event_collector: Any) -> None:
    google = Google(fake_model, answer({"predictions": [{"embeddings": {"values": [1.0]}}]}))
    client = ClientSettings(type="vertexai", name="g", api_base=fake_model.url, api_key="AQ.k")
    async with embedding(client) as embedders:
        await embedders.of("g:text-embedding-005").embed(event_collector, ["a"])
    (asked,) = google.asked
    assert asked.path == "/publishers/google/models/text-embedding-005:predict"
    assert asked.headers["x-goog-api-key"] == "AQ.k"


async def test_a_refused_token_is_replaced_once_and_then_told(
    fake_model: FakeModels, tmp_path: Path, event_collector: Any
) -> None:
    refused = answer({"error": {"code": 401, "message": "invalid authentication"}}, 401)
    one = answer({"predictions": [{"embeddings": {"values": [1.0]}}]})
    google = Google(fake_model, refused, one, refused, refused)
    async with embedding(on_google(fake_model, service_account(tmp_path, fake_model.url))) as embedders:
        embedder = embedders.of("g:text-embedding-005")
        await embedder.embed(event_collector, ["a"])
        assert [each.headers["authorization"] for each in google.asked] == ["Bearer ya29.1", "Bearer ya29.2"]
        with pytest.raises(CredentialsError, match=r"invalid authentication \(HTTP 401\); check the credentials"):
            await embedder.embed(event_collector, ["a"])


# --- Bedrock ----------------------------------------------------------------------------------------------


async def test_titan_takes_one_text_and_a_signature(fake_model: FakeModels, event_collector: Any) -> None:
    body = {"embedding": [3.0, 4.0], "inputTextTokenCount": 5, "embeddingsByType": {"float": [3.0, 4.0]}}
    fake_model.answer_with(lambda _: Reply(raw=json.dumps(body).encode()))
    used: list[TokenUsage] = []
    async with embedding(on_bedrock(fake_model), used) as embedders:
        vectors = await embedders.of("b:amazon.titan-embed-text-v2:0").embed(event_collector, ["a", "b"])
    np.testing.assert_allclose(vectors, [[0.6, 0.8]] * 2, rtol=1e-6)
    assert [each.input_tokens for each in used] == [5, 5]
    first = fake_model.requests[0]
    assert first.path == "/model/amazon.titan-embed-text-v2%3A0/invoke"
    assert sorted(request.json["inputText"] for request in fake_model.requests) == ["a", "b"]
    assert "Credential=AKID/" in first.headers["authorization"]
    assert "/eu-central-1/bedrock/aws4_request" in first.headers["authorization"]


async def test_cohere_on_bedrock_counts_its_tokens_in_a_header(fake_model: FakeModels, event_collector: Any) -> None:
    def reply(request: Request) -> Reply:
        rows = [[float(len(text)), 0.0] for text in request.json["texts"]]
        raw = json.dumps({"embeddings": {"float": rows}, "id": "1", "response_type": "embeddings_by_type"}).encode()
        return Reply(raw=raw, headers={"X-Amzn-Bedrock-Input-Token-Count": "7"})

    fake_model.answer_with(reply)
    used: list[TokenUsage] = []
    async with embedding(on_bedrock(fake_model, api_key="bedrock-key"), used) as embedders:
        await embedders.of("b:cohere.embed-multilingual-v3").embed(event_collector, ["q" * 3000], query=True)
        await embedders.of("b:eu.cohere.embed-v4:0").embed(event_collector, ["d" * 3000])
    assert [each.input_tokens for each in used] == [7, 7]
    older, newer = fake_model.requests
    assert older.json == {
        "texts": ["q" * 2048],
        "input_type": "search_query",
        "embedding_types": ["float"],
        "truncate": "NONE",
    }
    assert newer.json["texts"] == ["d" * 3000]
    assert newer.path == "/model/eu.cohere.embed-v4%3A0/invoke"
    assert older.headers["authorization"] == "Bearer bedrock-key"


async def test_cohere_on_bedrock_puts_texts_in_order(fake_model: FakeModels, event_collector: Any) -> None:
    scores = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.2}]
    fake_model.answer_with(lambda _: Reply(raw=json.dumps({"results": scores}).encode()))
    async with embedding(on_bedrock(fake_model)) as embedders:
        found = await embedders.reranker("b:cohere.rerank-v3-5:0").rerank(event_collector, "what?", ["a", "b"])
        with pytest.raises(
            Unsupported,
            match=says(
                "work.knowledge.embed.rerank.RemoteReranker.__init__",
                name="amazon.titan-x",
                known="cohere.rerank-v3-5…",
            ),
        ):
            embedders.reranker("b:amazon.titan-x")
    assert found == [0.2, 0.9]
    (request,) = fake_model.requests
    assert request.path == "/model/cohere.rerank-v3-5%3A0/invoke"
    assert request.json == {"query": "what?", "documents": ["a", "b"], "api_version": 2}
    assert "/eu-central-1/bedrock/aws4_request" in request.headers["authorization"]


async def test_roles_renew_their_keys_for_vectors_too(fake_model: FakeModels, event_collector: Any) -> None:
    granted = {"AccessKeyId": "ROLE", "SecretAccessKey": "s", "Token": "t", "Expiration": "2099-01-15T09:00:00Z"}

    def reply(request: Request) -> Reply:
        return Reply(raw=json.dumps(granted if request.path == "/role" else {"embedding": [1.0]}).encode())

    fake_model.answer_with(reply)
    client = ClientSettings(type="bedrock", name="b", api_base=fake_model.url, region="eu-central-1")
    environ = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{fake_model.url}/role",
        "AWS_CONFIG_FILE": "/no/config",
        "AWS_SHARED_CREDENTIALS_FILE": "/no/credentials",
    }
    async with embedding(client, environ=environ) as embedders:
        await embedders.of("b:amazon.titan-embed-text-v2:0").embed(event_collector, ["a"])
    assert fake_model.requests[-1].headers["x-amz-security-token"] == "t"


async def test_other_models_of_bedrock_make_no_vectors(fake_model: FakeModels) -> None:
    client = on_bedrock(fake_model, api_key="k", models=(ModelSettings(name="m", type="embedding"),))
    async with embedding(client) as embedders:
        with pytest.raises(
            Unsupported, match=says("work.knowledge.embed.codecs.of_bedrock.2", model="m", known="amazon.titan…")
        ):
            embedders.of("b:m")
