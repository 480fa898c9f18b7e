"""Codecs of embedding providers: they encode requests and decode answers, without I/O.

    openai, compatible   POST {base}/embeddings                         and the local engine, which has the same API
    azure-openai         the same at Azure's URLs
    ollama               POST {base}/api/embed
    cohere               POST {base}/embed                              version 2
    gemini               POST {base}/models/{model}:batchEmbedContents
    bedrock, vertexai    see `clouds`

If a provider would truncate long texts silently, the request forbids it, so that `remote` can truncate and warn.
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from .....protocol.decoding import json_decoder
from .....protocol.errors import ModelError
from ...models.azure import Azure, AzureCodec
from ...models.codec import bearer, read

Rows = list[list[float]]
T = TypeVar("T")


class Embedded(msgspec.Struct, frozen=True):
    """Decoded answer: one row per text, and the tokens of all texts, if the provider reports them."""

    rows: Rows
    tokens: float | None = None


class EmbeddingCodec(msgspec.Struct, frozen=True, kw_only=True):
    """Codec of one provider.

    Attributes:
        headers: returns the headers of every request, from the key.
        encode: returns path and body, from the model, the texts, and a flag for queries.
        decode: decodes an answer, with its rows in the order of the texts.
        most: most texts in one request.
        batch: default number of texts in one request.
        tokens: limit of a text, if the provider truncates silently or the model is known.
        dimensions: dotted path in the body to the key for the vector length; a list on the path means each of its
            items.
    """

    headers: Callable[[str], dict[str, str]]
    encode: Callable[[str, Sequence[str], bool], tuple[str, bytes]]
    decode: Callable[[bytes], Embedded]
    most: int
    batch: int
    tokens: int | None = None
    dimensions: str = "dimensions"


def sized(codec: EmbeddingCodec, dimensions: int | None) -> EmbeddingCodec:
    """Return the codec with vectors of this length; None leaves the default of the model."""
    if dimensions is None:
        return codec
    *parents, key = codec.dimensions.split(".")

    def encode(model: str, texts: Sequence[str], query: bool) -> tuple[str, bytes]:
        path, body = codec.encode(model, texts, query)
        request = msgspec.json.decode(body)
        places = [request]
        for parent in parents:
            inner = [place.setdefault(parent, {}) for place in places]
            places = [each for found in inner for each in (found if isinstance(found, list) else [found])]
        for place in places:
            place[key] = dimensions
        return path, msgspec.json.encode(request)

    return msgspec.structs.replace(codec, encode=encode)


def vector(numbers: list[float] | str) -> list[float]:
    """Return a vector, which servers also send as the base64 of 32-bit numbers. Raises ModelError if it is neither."""
    if not isinstance(numbers, str):
        return numbers
    try:
        found = array("f", base64.b64decode(numbers, validate=True))
    except ValueError as error:
        raise ModelError(
            f"the answer has a vector that is no list and no base64 of 32-bit numbers ({error})"
        ) from error
    if sys.byteorder != "little":
        found.byteswap()
    return found.tolist()


def decoded(body: bytes, type: type[T]) -> T:
    """Decode an answer. Raises ModelError if it does not have the provider's format."""
    return read(json_decoder(type).decode, body)


# --- OpenAI


class _Embedding(msgspec.Struct):
    embedding: list[float] | str
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
    return Embedded([vector(entry.embedding) for entry in data], usage.prompt_tokens or usage.total_tokens)


OPENAI = EmbeddingCodec(headers=bearer, encode=_to_openai, decode=_from_openai, most=2048, batch=256)
COMPATIBLE = EmbeddingCodec(headers=bearer, encode=_to_openai, decode=_from_openai, most=2048, batch=32)


def of_azure(place: Azure) -> EmbeddingCodec:
    """Return the codec of OpenAI for a resource at Azure."""

    def encode(model: str, texts: Sequence[str], query: bool) -> tuple[str, bytes]:
        return place.path(model, "embeddings"), _to_openai(model, texts, query)[1]

    return msgspec.structs.replace(OPENAI, headers=AzureCodec(place).headers, encode=encode)


# --- Ollama


class _Several(msgspec.Struct):
    embeddings: list[list[float] | str]
    prompt_eval_count: float | None = None


def _to_ollama(model: str, texts: Sequence[str], _query: bool) -> tuple[str, bytes]:
    return "/api/embed", msgspec.json.encode({"model": model, "input": texts, "truncate": False})


def _from_ollama(body: bytes) -> Embedded:
    answer = decoded(body, _Several)
    return Embedded([vector(each) for each in answer.embeddings], answer.prompt_eval_count)


OLLAMA = EmbeddingCodec(headers=bearer, encode=_to_ollama, decode=_from_ollama, most=2048, batch=32)


# --- Cohere


class _ByType(msgspec.Struct):
    float: Rows | None = None
    base64: list[str] | None = None


class _Units(msgspec.Struct):
    input_tokens: float | None = None


class _Billed(msgspec.Struct):
    billed_units: _Units | None = None


class _OfCohere(msgspec.Struct):
    embeddings: _ByType | Rows
    meta: _Billed | None = None


def _to_cohere(model: str, texts: Sequence[str], query: bool) -> tuple[str, bytes]:
    kind = "search_query" if query else "search_document"
    body = {"model": model, "texts": texts, "input_type": kind, "embedding_types": ["float"], "truncate": "NONE"}
    return "/embed", msgspec.json.encode(body)


def _from_cohere(body: bytes) -> Embedded:
    answer = decoded(body, _OfCohere)
    units = answer.meta.billed_units if answer.meta else None
    found = answer.embeddings
    rows = found if isinstance(found, list) else found.float or [vector(each) for each in found.base64 or ()]
    return Embedded(rows, units.input_tokens if units else None)


COHERE = EmbeddingCodec(
    headers=bearer, encode=_to_cohere, decode=_from_cohere, most=96, batch=96, dimensions="output_dimension"
)


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


GEMINI = EmbeddingCodec(
    headers=lambda key: {"x-goog-api-key": key} if key else {},
    encode=_to_gemini,
    decode=_from_gemini,
    most=100,
    batch=100,
    tokens=2048,
    dimensions="requests.outputDimensionality",
)


BY_TYPE = {"openai": OPENAI, "openai-compatible": COMPATIBLE, "ollama": OLLAMA, "cohere": COHERE, "gemini": GEMINI}
"""Codecs by the type of the client; codecs of Azure depend on the client itself."""
