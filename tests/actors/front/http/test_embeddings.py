"""`/v1/embeddings`: vectors in OpenAI's shape, by the models that knowledge bases use."""

from __future__ import annotations

import base64
import json
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels, Reply, Request
from support.http_server import ApiServer, Serve

from callboard.actors.work.spending.book import BookFile, SpendingBook

PATH = "/v1/embeddings"


def answer(request: Request) -> Reply:
    """A vector that points where the text's length does, as long as is asked for."""
    asked = request.json
    rows = [[3.0, 4.0 * len(text), 0.0][: asked.get("dimensions", 3)] for text in asked["input"]]
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    body = {"object": "list", "data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}}
    return Reply(raw=json.dumps(body).encode())


def settings(models: FakeModels) -> dict[str, Any]:
    client = {"type": "openai-compatible", "name": "vectors", "api_base": models.openai_base, "api_key": "sk-test"}
    return {"clients": [client], "rag_embedding_model": "vectors:small"}


@pytest.mark.parametrize("model", ["vectors:small", "small"])
async def test_texts_become_vectors_in_their_order(serve: Serve, fake_model: FakeModels, model: str) -> None:
    fake_model.answer_with(answer)
    async with serve(**settings(fake_model)) as api_server:
        reply = await api_server.post(PATH, {"model": model, "input": ["a", "aaa"], "user": "ann"})
        assert [entry["index"] for entry in reply["data"]] == [0, 1]
        assert reply["data"][0]["embedding"] == pytest.approx([0.6, 0.8, 0.0], abs=1e-3)
        assert (reply["object"], reply["model"]) == ("list", model)
        assert reply["usage"] == {"prompt_tokens": 7, "total_tokens": 7}


async def test_what_a_provider_counts_is_charged_to_the_caller(
    serve: Serve, fake_model: FakeModels, tmp_path: Path
) -> None:
    fake_model.answer_with(answer)
    async with serve(**settings(fake_model)) as api_server:
        root = api_server.agent_runner.root
        book = root.book = SpendingBook(root.kernel, BookFile(tmp_path / "usage.db"), now=time.time)
        await api_server.post(PATH, {"model": "small", "input": "a"})
        (usage,) = (await api_server.get("/v1/usage", params={"by": "model,key"}))["usage"]
        assert (usage["model"], usage["key"], usage["input_tokens"]) == ("vectors:small", "local", 7)
        await book.aclose()


async def test_vectors_as_base64_and_of_another_length(serve: Serve, fake_model: FakeModels) -> None:
    fake_model.answer_with(answer)
    async with serve(**settings(fake_model)) as api_server:
        body = {"model": "small", "input": "a", "encoding_format": "base64", "dimensions": 2}
        (entry,) = (await api_server.post(PATH, body))["data"]
        assert struct.unpack("<2f", base64.b64decode(entry["embedding"])) == pytest.approx((0.6, 0.8), abs=1e-3)
        assert fake_model.requests[-1].json["dimensions"] == 2
        (entry,) = (await api_server.post(PATH, {"model": "small", "input": "a"}))["data"]  # not the cached short one
        assert len(entry["embedding"]) == 3


async def test_models_of_this_machine_need_no_provider(api_server: ApiServer) -> None:
    reply = await api_server.post(PATH, {"model": "local:words", "input": ["the sky is blue"] * 2, "dimensions": 1024})
    first, second = (entry["embedding"] for entry in reply["data"])
    assert len(first) == 1024
    assert first == second
    assert not api_server.agent_runner.models.requests


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"model": "nobody:nothing", "input": "x"}, 404, None),
        ({"model": "text-embedding-ada-002", "input": "x"}, 404, None),
        ({"model": "local:words", "input": "x", "dimensions": 3}, 400, "dimensions"),
        ({"model": "local:words", "input": [[1, 2]]}, 400, "input[0]"),
        ({"model": "local:words", "input": []}, 400, "input"),
        ({"model": "local:words", "input": "x", "encoding_format": "int8"}, 400, "encoding_format"),
        ({"input": "x"}, 400, None),
    ],
)
async def test_what_can_not_be_embedded_is_refused(
    api_server: ApiServer, body: dict[str, Any], status: int, param: str | None
) -> None:
    error = (await api_server.post(PATH, body, status))["error"]
    assert error["param"] == param
    if status == 404:
        assert "local:static" in error["message"]


async def test_a_provider_that_refuses_is_told(serve: Serve, fake_model: FakeModels) -> None:
    fake_model.answer_with(lambda _: Reply(status=400, error="no such model"))
    async with serve(**settings(fake_model)) as api_server:
        error = (await api_server.post(PATH, {"model": "small", "input": "x"}, 502))["error"]
        assert "no such model" in error["message"]
