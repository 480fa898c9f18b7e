"""Vectors as servers send them, and requests for vectors of another length: a table of all codecs."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from callboard.actors.work.knowledge.embed.codecs import BY_TYPE, EmbeddingCodec, of_bedrock, of_vertex, sized
from callboard.protocol.errors import ModelError

ROW = [0.5, -1.0, 0.25]
ENCODED = base64.b64encode(struct.pack("<3f", *ROW)).decode()

ANSWERS: dict[str, Any] = {
    "openai": {"data": [{"embedding": ENCODED, "index": 0}]},
    "openai-compatible": {"data": [{"embedding": ENCODED}], "usage": {"prompt_tokens": 3.0}},
    "ollama": {"embeddings": [ENCODED]},
    "cohere": {"embeddings": {"base64": [ENCODED]}},
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_vectors_may_be_base64(kind: str) -> None:
    assert BY_TYPE[kind].decode(json.dumps(ANSWERS[kind]).encode()).rows == [ROW]


@pytest.mark.parametrize("text", ["!", "AAA", "AAAA"])
def test_a_text_that_is_no_vector_is_an_error(text: str) -> None:
    with pytest.raises(ModelError):
        BY_TYPE["openai"].decode(json.dumps({"data": [{"embedding": text}]}).encode())


CODECS: dict[str, tuple[EmbeddingCodec, str]] = {
    "openai": (BY_TYPE["openai"], "dimensions"),
    "openai-compatible": (BY_TYPE["openai-compatible"], "dimensions"),
    "ollama": (BY_TYPE["ollama"], "dimensions"),
    "cohere": (BY_TYPE["cohere"], "output_dimension"),
    "gemini": (BY_TYPE["gemini"], "requests.0.outputDimensionality"),
    "titan": (of_bedrock("amazon.titan-embed-text-v2:0"), "dimensions"),
    "cohere on bedrock": (of_bedrock("cohere.embed-v4:0"), "output_dimension"),
    "vertexai": (of_vertex("text-embedding-005"), "parameters.outputDimensionality"),
    "gemini on vertexai": (of_vertex("gemini-embedding-2"), "outputDimensionality"),
}


@pytest.mark.parametrize(("codec", "place"), CODECS.values(), ids=CODECS)
def test_the_length_of_vectors_is_asked_for_where_the_provider_has_it(codec: EmbeddingCodec, place: str) -> None:
    found: Any = json.loads(sized(codec, 256).encode("m", ["a"], False)[1])
    for key in place.split("."):
        found = found[int(key) if isinstance(found, list) else key]
    assert found == 256
    assert "imension" not in codec.encode("m", ["a"], False)[1].decode()
