"""Codecs of embedding models on Amazon Bedrock and Google's Vertex AI.

    amazon.titan-embed-...      POST {base}/model/{model}/invoke                                one text per request
    cohere.embed-...            POST {base}/model/{model}/invoke                                Cohere's format
    text-embedding-005, ...     POST {base}/{project}/publishers/google/models/{model}:predict
    gemini-embedding-001        the same, one text per request
    gemini-embedding-2, ...     POST {base}/{project}/publishers/google/models/{model}:embedContent

Sources: AWS, Bedrock user guide, `model-parameters-titan-embed-text` and `model-parameters-embed`; google-genai
(`models._embed_content`); Google, `EmbedContentRequest` of aiplatform v1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from .....protocol.errors import Unsupported
from ...models.codec import bearer
from ...models.vertex.location import maker_of
from .codecs import COHERE, Embedded, EmbeddingCodec, decoded

# --- Bedrock ----------------------------------------------------------------------------------------------


class _OfTitan(msgspec.Struct):
    embedding: list[float]
    tokens: float | None = msgspec.field(name="inputTextTokenCount", default=None)


def _to_titan(model: str, texts: Sequence[str], _query: bool) -> tuple[str, bytes]:
    return invoke(model), msgspec.json.encode({"inputText": texts[0]})


def _from_titan(body: bytes) -> Embedded:
    answer = decoded(body, _OfTitan)
    return Embedded([answer.embedding], answer.tokens)


def _to_cohere(model: str, texts: Sequence[str], query: bool) -> tuple[str, bytes]:
    kind = "search_query" if query else "search_document"
    body = {"texts": texts, "input_type": kind, "embedding_types": ["float"], "truncate": "NONE"}
    return invoke(model), msgspec.json.encode(body)


def invoke(model: str) -> str:
    """Return the path that invokes a model on Bedrock."""
    return f"/model/{quote(model, safe='')}/invoke"


_TITAN = EmbeddingCodec(headers=bearer, encode=_to_titan, decode=_from_titan, most=1, batch=1, tokens=8192)
_COHERE = EmbeddingCodec(
    headers=bearer, encode=_to_cohere, decode=COHERE.decode, most=96, batch=96, dimensions="output_dimension"
)


def of_bedrock(model: str) -> EmbeddingCodec:
    """Return the codec of a model, by its id or ARN. Raises Unsupported if it is not known."""
    if "titan-embed-text" in model or "titan-embed-g1-text" in model:
        return _TITAN
    if "cohere.embed-" in model:  # version 3 accepts 2,048 characters
        return msgspec.structs.replace(_COHERE, tokens=512) if re.search(r"embed-\w+-v3", model) else _COHERE
    known = "amazon.titan-embed-text... and cohere.embed-..."
    raise Unsupported(f"'{model}' makes no vectors as far as is known; on Bedrock {known} do")


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


def _path(model: str, what: str) -> str:
    maker, name = maker_of(model)
    return f"/publishers/{maker}/models/{quote(name, safe='@')}:{what}"


def _task(query: bool) -> str:
    return "RETRIEVAL_QUERY" if query else "RETRIEVAL_DOCUMENT"


def _to_predict(model: str, texts: Sequence[str], query: bool) -> tuple[str, bytes]:
    instances = [{"content": text, "task_type": _task(query)} for text in texts]
    body = {"instances": instances, "parameters": {"autoTruncate": False}}
    return _path(model, "predict"), msgspec.json.encode(body)


def _from_predict(body: bytes) -> Embedded:
    found = [each.embeddings for each in decoded(body, _Predictions).predictions]
    counts = [each.statistics.token_count for each in found if each.statistics is not None]
    return Embedded([each.values for each in found], sum(counts) if counts else None)


def _to_content(model: str, texts: Sequence[str], query: bool) -> tuple[str, bytes]:
    body = {"content": {"parts": [{"text": texts[0]}]}, "taskType": _task(query), "autoTruncate": False}
    return _path(model, "embedContent"), msgspec.json.encode(body)


def _from_content(body: bytes) -> Embedded:
    answer = decoded(body, _Content)
    return Embedded([answer.embedding.values], answer.usage.tokens if answer.usage else None)


def _headers(key: str) -> dict[str, str]:
    return {"x-goog-api-key": key} if key else {}


_PREDICT = EmbeddingCodec(
    headers=_headers,
    encode=_to_predict,
    decode=_from_predict,
    most=250,
    batch=32,
    tokens=2048,
    dimensions="parameters.outputDimensionality",
)
_CONTENT = EmbeddingCodec(
    headers=_headers,
    encode=_to_content,
    decode=_from_content,
    most=1,
    batch=1,
    tokens=8192,
    dimensions="outputDimensionality",
)


def of_vertex(model: str) -> EmbeddingCodec:
    """Return the codec of a model."""
    name = maker_of(model)[1]
    if name.startswith("gemini-embedding-001"):
        return msgspec.structs.replace(_PREDICT, most=1, batch=1)
    return _CONTENT if "gemini" in name or "maas" in name else _PREDICT
