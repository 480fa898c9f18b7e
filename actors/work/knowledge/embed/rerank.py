"""Reranking: scores for the relevance of found texts to a query, from a model that reads both.

Ids are `client:model`: a client of `config.yaml` of the type `cohere` or `openai-compatible`, one of these by its own
name (`cohere`, `jina`, `voyageai`), Cohere's models on Bedrock, and `local:minilm`, which needs no provider.

Providers (Cohere, Jina, Voyage, vLLM, llama.cpp, Infinity, LocalAI and others) get POST {base}/rerank. They have all
adopted Cohere's format. They differ in the name of the list in the answer, and in the texts that they repeat. On
Bedrock a model is invoked by its path, with Cohere's body and its API version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from .....protocol.decoding import json_decoder
from .....protocol.errors import ModelError, Unsupported
from .....protocol.events import LlmRerank
from ...models.call import Emitter
from ...models.catalog import ModelAccess
from ...models.codec import read
from .codecs import invoke
from .embedder import Embedder
from .remote import BYTES_PER_TOKEN, ModelClient, Post, batches, shortened

_BY_TYPE: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "openai-compatible": (500, {"return_documents": False}),
    "cohere": (1000, {}),
    "bedrock": (1000, {"api_version": 2}),
}
"""By the type of the client: texts in one request, and additional fields of its requests."""


class RemoteReranker:
    """Reranker over HTTP: all texts of a query in one request, or in several if they exceed the limits of one."""

    def __init__(self, client: ModelClient, access: ModelAccess) -> None:
        self.model: str = client.model
        self._client = client
        self._bytes = (access.model.max_tokens_per_chunk or access.model.max_input_tokens or 0) * BYTES_PER_TOKEN
        self._most, more = _BY_TYPE[access.client.type]
        self._path = "/rerank"
        self._more: Mapping[str, Any] = {"model": access.name, **more}
        if access.client.type == "bedrock":
            if "cohere.rerank-" not in access.name:
                known = "cohere.rerank-v3-5:0"
                raise Unsupported(f"'{access.name}' is not a known reranker; on Bedrock use {known}")
            self._path, self._more = invoke(access.name), more

    async def rerank(self, me: Emitter, query: str, texts: Sequence[str]) -> list[float]:
        """Return a score for each text; higher is better. Scores of two calls can't be compared.

        Every text is scored by itself, so its request makes no difference. The part of a text above the token limit of
        the model can't be scored, and is not sent.

        Args:
            me: receives the events.

        Raises:
            ConfigError, CredentialsError: the model or its key is missing.
            ModelError: the provider refused the texts, or its answer is invalid.
            UpstreamError: all attempts failed.
            BudgetReached: the run's budget is used up.
        """
        scores: list[float] = []
        sent = [shortened(text, self._bytes) for text in texts]
        # the model reads the query with every text, and each time is counted
        again = len(query.encode(errors="surrogatepass"))
        for _, batch in batches(sent, self._most):
            body = {**self._more, "query": query, "documents": batch}

            async def scored(data: bytes, texts: int = len(batch)) -> tuple[list[float], float | None]:
                answer = read(_decode, data)
                return self._in_order(answer, texts), answer.usage.total_tokens if answer.usage else None

            sending = msgspec.json.encode(body)
            most = len(sending) + again * (len(batch) - 1)
            post = Post(self._path, sending, LlmRerank, len(batch), most)
            scores += await self._client.ask(me, post, scored)
        return scores

    def _in_order(self, answer: _Answer, texts: int) -> list[float]:
        """Return exactly one score for each text, or raise ModelError."""
        results = answer.results if answer.results is not None else answer.data or []
        scores = {result.index: result.relevance_score for result in results}
        if len(results) != texts or scores.keys() != set(range(texts)):
            raise ModelError(
                f"{self.model} returned {len(results)} scores for {texts} texts, or not exactly one for each text"
            )
        return [scores[number] for number in range(texts)]


class _Result(msgspec.Struct):
    index: int
    relevance_score: float


class _Usage(msgspec.Struct):
    total_tokens: float | None = None


class _Answer(msgspec.Struct):
    results: list[_Result] | None = None
    data: list[_Result] | None = None
    usage: _Usage | None = None


_decode = json_decoder(_Answer).decode


class MiniLM:
    """Reranker `local:minilm`: it embeds query and texts separately and compares the vectors.

    This is less precise than a model that reads both at once, but it needs no provider. A base built with the fast
    `local:static` gets the precision of MiniLM for its top hits. Texts that were embedded once are in the embedding
    cache.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.model: str = embedder.model
        self._embedder = embedder

    async def rerank(self, me: Emitter, query: str, texts: Sequence[str]) -> list[float]:
        """Return the cosine of each text to the query; see `RemoteReranker.rerank`."""
        if not texts:
            return []
        [wanted] = await self._embedder.embed(me, [query], query=True)
        vectors = await self._embedder.embed(me, texts)
        scores: list[float] = (vectors @ wanted).tolist()
        return scores


Reranker: TypeAlias = RemoteReranker | MiniLM
