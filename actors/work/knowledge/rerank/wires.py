"""Encodes requests of reranking providers and decodes their answers.

    openai-compatible   POST {base}/rerank    Jina, Voyage, vLLM, llama.cpp, Infinity, LocalAI and others
    cohere              POST {base}/rerank    version 2

They all took Cohere's shape, and differ in what they call the list of the answer and whom they repeat the texts to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from .....protocol.errors import ModelError
from ...models.codec import read

PATH = "/rerank"


class Judged(msgspec.Struct, frozen=True):
    """What an answer says: a score per text, and how many tokens all of them were, if the provider tells."""

    scores: tuple[float, ...]
    tokens: float | None = None


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """One provider's language.

    Attributes:
        encode: the body for a model, a query and texts.
        most: texts in one request.
    """

    encode: Callable[[str, str, Sequence[str]], bytes]
    most: int


def _to_compatible(model: str, query: str, texts: Sequence[str]) -> bytes:
    body = {"model": model, "query": query, "documents": texts, "return_documents": False}
    return msgspec.json.encode(body)


def _to_cohere(model: str, query: str, texts: Sequence[str]) -> bytes:
    return msgspec.json.encode({"model": model, "query": query, "documents": texts})


COMPATIBLE = Wire(encode=_to_compatible, most=500)
COHERE = Wire(encode=_to_cohere, most=1000)

BY_TYPE = {"openai-compatible": COMPATIBLE, "cohere": COHERE}
"""By the type of the client."""


class _Result(msgspec.Struct):
    index: int
    relevance_score: float


class _Usage(msgspec.Struct):
    total_tokens: float | None = None


class _Answer(msgspec.Struct):
    results: list[_Result] | None = None
    data: list[_Result] | None = None
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def judged(body: bytes, texts: int, model: str) -> Judged:
    """What an answer says, its scores in the order of the texts.

    Raises:
        ModelError: it makes no sense, or has not exactly one score for each text.
    """
    answer = read(_decode, body)
    results = answer.results if answer.results is not None else answer.data or []
    scores = {result.index: result.relevance_score for result in results}
    if len(results) != texts or scores.keys() != set(range(texts)):
        raise ModelError(f"{model} gave {len(results)} scores for {texts} texts, or not one for each of them")
    tokens = answer.usage.total_tokens if answer.usage else None
    return Judged(tuple(scores[number] for number in range(texts)), tokens)
