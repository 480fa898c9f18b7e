"""A stage for embedders: a scripted provider whose vectors tell which text they are of."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.fake_models import FakeModels, Reply, Request
from support.model_events import Impatient

from callboard.actors.work.knowledge.embed.embedders import Embedders
from callboard.actors.work.knowledge.embed.remote import OnUsage
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings


def vector(text: str) -> list[float]:
    """Points where only this text's length points: (3, 4 * length)."""
    return [3.0, 4.0 * len(text)]


def texts_in(request: Request) -> list[str]:
    """What a request asks to embed, whichever the provider."""
    body = request.json
    if "requests" in body:
        return [entry["content"]["parts"][0]["text"] for entry in body["requests"]]
    return list(body.get("texts", body.get("input")))


def answer(request: Request) -> Reply:
    """The vectors in the provider's format."""
    rows = [vector(text) for text in texts_in(request)]
    if request.path.endswith("/api/embed"):
        body: Any = {"model": "m", "embeddings": rows}
    elif request.path.endswith("/embed"):
        body = {"id": "1", "embeddings": {"float": rows}, "texts": []}
    elif request.path.endswith(":batchEmbedContents"):
        body = {"embeddings": [{"values": row} for row in rows]}
    else:
        data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
        body = {"object": "list", "data": data[::-1], "usage": {"prompt_tokens": 1, "total_tokens": 1}}
    return Reply(raw=json.dumps(body).encode())


def openai_body(*rows: Any) -> bytes:
    """An answer in OpenAI's format."""
    return json.dumps({"data": [{"index": n, "embedding": row} for n, row in enumerate(rows)]}).encode()


Make = Callable[..., Any]


@pytest.fixture
def provider(fake_model: FakeModels) -> FakeModels:
    """The scripted server, as a provider of embeddings."""
    fake_model.answer_with(answer)
    return fake_model


@pytest.fixture
async def made(provider: FakeModels) -> AsyncIterator[Make]:
    """`made(type=..., **fields of the client)` is the embedder of the model `fake:m` on that server."""
    embedders: list[Embedders] = []

    def make(
        type: str = "openai-compatible",
        batch: int | None = None,
        model: dict[str, Any] | None = None,
        on_usage: OnUsage | None = None,
        **fields: Any,
    ) -> Any:
        base = {
            "azure-openai": provider.url,
            "cohere": f"{provider.url}/v2",
            "gemini": f"{provider.url}/v1beta",
            "ollama": provider.url,
        }
        options = {"api_base": base.get(type, provider.openai_base), "api_key": "sk-test", **fields}
        models = (ModelSettings(name="m", type="embedding", **model),) if model else ()
        client = ClientSettings(type=type, name="fake", models=models, **options)
        embedders.append(Embedders(Settings(clients=(client,)), {}, on_usage=on_usage, rng=Impatient()))
        return embedders[-1].of("fake:m", batch=batch)

    yield make
    for each in embedders:
        await each.aclose()
