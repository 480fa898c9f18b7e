"""Encodes requests of providers and decodes their answers: no codec opens a connection.

    openai, compatible   POST {base}/embeddings                         and our own engine, which speaks the same
    azure-openai         the same at Azure's URLs
    ollama               POST {base}/api/embed
    cohere               POST {base}/embed                              version 2
    gemini               POST {base}/models/{model}:batchEmbedContents
    bedrock, vertexai    see `clouds`

Where a provider would cut long texts silently, the request forbids it, so that `remote` can do it and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from .....protocol.decoding import json_decoder
from ...models.azure import Azure, AzureCodec
from ...models.codec import bearer, read

Rows = list[list[float]]
T = TypeVar("T")


class Embedded(msgspec.Struct, frozen=True):
    """What an answer says: a row per text, and how many tokens all of them were, if the provider tells."""

    rows: Rows
    tokens: float | None = None


class Codec(msgspec.Struct, frozen=True, kw_only=True):
    """One provider's language.

    Attributes:
        headers: what every request carries, made of the key.
        encode: path and body for a model, texts, and whether they are queries.
        decode: what an answer says, its rows in the order of the texts.
        most: texts in one request.
        batch: the same, by default.
        tokens: what a text may have, where the provider cuts in silence or the model is known.
    """

    headers: Callable[[str], dict[str, str]]
    encode: Callable[[str, Sequence[str], bool], tuple[str, bytes]]
    decode: Callable[[bytes], Embedded]
    most: int
    batch: int
    tokens: int | None = None


def decoded(body: bytes, type: type[T]) -> T:
    """An answer; raises ModelError if it is not in the provider's format."""
    return read(json_decoder(type).decode, body)


# --- OpenAI


class _Embedding(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Prompt(msgspec.Struct):
    prompt_tokens: float | None = None
    total_tokens: float | None = None


class _Embeddings(msgspec.Struct):
    data: list[_Embedding]
    usage: _Prompt | None = None


def _to_openai(model: str, texts: Sequence[str], _query: bool) -> tuple[str, bytes]:
    return "/embeddings", msgspec.json.encode({"model": model, "input": texts})


def _from_openai(body: bytes) -> Embedded:
    answer = decoded(body, _Embeddings)
    data, usage = answer.data, answer.usage or _Prompt()
    if all(entry.index is not None for entry in data):
        data.sort(key=lambda entry: entry.index or 0)
    return Embedded([entry.embedding for entry in data], usage.prompt_tokens or usage.total_tokens)


OPENAI = Codec(headers=bearer, encode=_to_openai, decode=_from_openai, most=2048, batch=256)
COMPATIBLE = Codec(headers=bearer, encode=_to_openai, decode=_from_openai, most=2048, batch=32)


def of_azure(place: Azure) -> Codec:
    """OpenAI's language at a resource of Azure's."""

    def encode(model: str, texts: Sequence[str], query: bool) -> tuple[str, bytes]:
        return place.path(model, "embeddings"), _to_openai(model, texts, query)[1]

    return msgspec.structs.replace(OPENAI, headers=AzureCodec(place).headers, encode=encode)


# --- Ollama


class _Several(msgspec.Struct):
    embeddings: Rows
    prompt_eval_count: float | None = None


def _to_ollama(model: str, texts: Sequence[str], _query: bool) -> tuple[str, bytes]:
    return "/api/embed", msgspec.json.encode({"model": model, "input": texts, "truncate": False})


def _from_ollama(body: bytes) -> Embedded:
    answer = decoded(body, _Several)
    return Embedded(answer.embeddings, answer.prompt_eval_count)


OLLAMA = Codec(headers=bearer, encode=_to_ollama, decode=_from_ollama, most=2048, batch=32)


# --- Cohere


class _ByType(msgspec.Struct):
    float: Rows


class _Units(msgspec.Struct):
    input_tokens: float | None = None


class _Billed(msgspec.Struct):
    billed_units: _Units | None = None


class _OfCohere(msgspec.Struct):
    embeddings: _ByType
    meta: _Billed | None = None


def _to_cohere(model: str, texts: Sequence[str], query: bool) -> tuple[str, bytes]:
    kind = "search_query" if query else "search_document"
    body = {"model": model, "texts": texts, "input_type": kind, "embedding_types": ["float"], "truncate": "NONE"}
    return "/embed", msgspec.json.encode(body)


def _from_cohere(body: bytes) -> Embedded:
    answer = decoded(body, _OfCohere)
    units = answer.meta.billed_units if answer.meta else None
    return Embedded(answer.embeddings.float, units.input_tokens if units else None)


COHERE = Codec(headers=bearer, encode=_to_cohere, decode=_from_cohere, most=96, batch=96)


# --- Gemini


class _Values(msgspec.Struct):
    values: list[float]


class _GeminiUsage(msgspec.Struct):
    tokens: float | None = msgspec.field(name="promptTokenCount", default=None)


class _OfGemini(msgspec.Struct):
    embeddings: list[_Values]
    usage: _GeminiUsage | None = msgspec.field(name="usageMetadata", default=None)


def _to_gemini(model: str, texts: Sequence[str], query: bool) -> tuple[str, bytes]:
    name = model if model.startswith("models/") else f"models/{model}"
    task = "RETRIEVAL_QUERY" if query else "RETRIEVAL_DOCUMENT"
    requests = [{"model": name, "content": {"parts": [{"text": text}]}, "taskType": task} for text in texts]
    return f"/{name}:batchEmbedContents", msgspec.json.encode({"requests": requests})


def _from_gemini(body: bytes) -> Embedded:
    answer = decoded(body, _OfGemini)
    rows = [entry.values for entry in answer.embeddings]
    return Embedded(rows, answer.usage.tokens if answer.usage else None)


GEMINI = Codec(
    headers=lambda key: {"x-goog-api-key": key} if key else {},
    encode=_to_gemini,
    decode=_from_gemini,
    most=100,
    batch=100,
    tokens=2048,
)


BY_TYPE = {"openai": OPENAI, "openai-compatible": COMPATIBLE, "ollama": OLLAMA, "cohere": COHERE, "gemini": GEMINI}
"""By the type of the client; those of Azure differ by the client itself."""
