"""Codecs of embedding providers: they encode requests and decode answers, without I/O.

    openai, compatible   POST {base}/embeddings                         and the local engine, which has the same API
    azure-openai         the same at Azure's URLs
    ollama               POST {base}/api/embed
    cohere               POST {base}/embed                              version 2
    gemini               POST {base}/models/{model}:batchEmbedContents
    bedrock              POST {base}/model/{model}/invoke
                           amazon.titan-embed-...: one text per request; cohere.embed-...: Cohere's format
    vertexai             POST {base}/{project}/publishers/google/models/{model}:predict
                           text-embedding-005, ...; gemini-embedding-001: one text per request
                         POST {base}/{project}/publishers/google/models/{model}:embedContent
                           gemini-embedding-2, ...

If a provider would truncate long texts silently, the request forbids it, so that `remote` can truncate and warn.

Sources for the clouds: AWS, Bedrock user guide, `model-parameters-titan-embed-text` and `model-parameters-embed`;
google-genai (`models._embed_content`); Google, `EmbedContentRequest` of aiplatform v1.
"""

from __future__ import annotations

import base64
import re
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import quote

import msgspec

from .....protocol.decoding import json_decoder
from .....protocol.errors import ModelError, Unsupported
from ...models.azure import Azure, AzureCodec
from ...models.codec import bearer, read
from ...models.vertex.location import maker_of

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
            f"the response has a vector that is neither a list of numbers nor 32-bit numbers in base64 ({error})"
        ) from error
    if sys.byteorder != "little":
        found.byteswap()
    return found.tolist()


def decoded(body: bytes, type: type[T]) -> T:
    """Decode a provider's JSON. Raises ModelError if it does not have the provider's format."""
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


# --- Bedrock ----------------------------------------------------------------------------------------------


class _OfTitan(msgspec.Struct):
    embedding: list[float]
    tokens: float | None = msgspec.field(name="inputTextTokenCount", default=None)


def _to_titan(model: str, texts: Sequence[str], _query: bool) -> tuple[str, bytes]:
    return invoke(model), msgspec.json.encode({"inputText": texts[0]})


def _from_titan(body: bytes) -> Embedded:
    answer = decoded(body, _OfTitan)
    return Embedded([answer.embedding], answer.tokens)


def _to_cohere_on_bedrock(model: str, texts: Sequence[str], query: bool) -> tuple[str, bytes]:
    kind = "search_query" if query else "search_document"
    body = {"texts": texts, "input_type": kind, "embedding_types": ["float"], "truncate": "NONE"}
    return invoke(model), msgspec.json.encode(body)


def invoke(model: str) -> str:
    """Return the URL path that invokes a model on Bedrock."""
    return f"/model/{quote(model, safe='')}/invoke"


_TITAN = EmbeddingCodec(headers=bearer, encode=_to_titan, decode=_from_titan, most=1, batch=1, tokens=8192)
_COHERE_ON_BEDROCK = EmbeddingCodec(
    headers=bearer, encode=_to_cohere_on_bedrock, decode=COHERE.decode, most=96, batch=96, dimensions="output_dimension"
)


def of_bedrock(model: str) -> EmbeddingCodec:
    """Return the codec of an embedding model on Bedrock, by its id or ARN. Raises Unsupported for an unknown model."""
    if "titan-embed-text" in model or "titan-embed-g1-text" in model:
        return _TITAN
    if "cohere.embed-" in model:  # version 3 accepts 2,048 characters
        return (
            msgspec.structs.replace(_COHERE_ON_BEDROCK, tokens=512)
            if re.search(r"embed-\w+-v3", model)
            else _COHERE_ON_BEDROCK
        )
    known = "amazon.titan-embed-text... and cohere.embed-..."
    raise Unsupported(f"'{model}' is not a known embedding model; on Bedrock use {known}")


# --- Vertex AI --------------------------------------------------------------------------------------------


class _Statistics(msgspec.Struct):
    token_count: float = 0


class _Vector(msgspec.Struct):
    values: list[float]
    statistics: _Statistics | None = None


class _Prediction(msgspec.Struct):
    embeddings: _Vector


class _Predictions(msgspec.Struct):
    predictions: list[_Prediction]


class _Usage(msgspec.Struct):
    tokens: float | None = msgspec.field(name="promptTokenCount", default=None)


class _Content(msgspec.Struct):
    embedding: _Vector
    usage: _Usage | None = msgspec.field(name="usageMetadata", default=None)


def _vertex_path(model: str, what: str) -> str:
    maker, name = maker_of(model)
    return f"/publishers/{maker}/models/{quote(name, safe='@')}:{what}"


def _task(query: bool) -> str:
    return "RETRIEVAL_QUERY" if query else "RETRIEVAL_DOCUMENT"


def _to_predict(model: str, texts: Sequence[str], query: bool) -> tuple[str, bytes]:
    instances = [{"content": text, "task_type": _task(query)} for text in texts]
    body = {"instances": instances, "parameters": {"autoTruncate": False}}
    return _vertex_path(model, "predict"), msgspec.json.encode(body)


def _from_predict(body: bytes) -> Embedded:
    found = [each.embeddings for each in decoded(body, _Predictions).predictions]
    counts = [each.statistics.token_count for each in found if each.statistics is not None]
    return Embedded([each.values for each in found], sum(counts) if counts else None)


def _to_content(model: str, texts: Sequence[str], query: bool) -> tuple[str, bytes]:
    body = {"content": {"parts": [{"text": texts[0]}]}, "taskType": _task(query), "autoTruncate": False}
    return _vertex_path(model, "embedContent"), msgspec.json.encode(body)


def _from_content(body: bytes) -> Embedded:
    answer = decoded(body, _Content)
    return Embedded([answer.embedding.values], answer.usage.tokens if answer.usage else None)


def _vertex_headers(key: str) -> dict[str, str]:
    return {"x-goog-api-key": key} if key else {}


_PREDICT = EmbeddingCodec(
    headers=_vertex_headers,
    encode=_to_predict,
    decode=_from_predict,
    most=250,
    batch=32,
    tokens=2048,
    dimensions="parameters.outputDimensionality",
)
_CONTENT = EmbeddingCodec(
    headers=_vertex_headers,
    encode=_to_content,
    decode=_from_content,
    most=1,
    batch=1,
    tokens=8192,
    dimensions="outputDimensionality",
)


def of_vertex(model: str) -> EmbeddingCodec:
    """Return the codec of an embedding model on Vertex AI, by its name."""
    name = maker_of(model)[1]
    if name.startswith("gemini-embedding-001"):
        return msgspec.structs.replace(_PREDICT, most=1, batch=1)
    return _CONTENT if "gemini" in name or "maas" in name else _PREDICT
