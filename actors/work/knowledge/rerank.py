"""A second look at what was found: how well each text answers a query, judged by a model that reads both.

    rerankers = Rerankers(settings, os.environ, embedders)
    reranker = rerankers.of("cohere:rerank-v3.5")
    found = await base.retrieve(query, vector, rerank=partial(reranker.rerank, me))

Ids are `client:model`: a client of `config.yaml` of the type `cohere` or `openai-compatible`, one of these by its own
name (`cohere`, `jina`, `voyageai`), and `local:minilm`, which needs no provider. Like `Embedders`, one `Rerankers`
serves a whole process.

Providers (Cohere, Jina, Voyage, vLLM, llama.cpp, Infinity, LocalAI and others) get POST {base}/rerank. They all took
Cohere's shape, and differ in what they call the list of the answer and whom they repeat the texts to.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import msgspec

from ....protocol.errors import ConfigError, ModelError
from ....protocol.settings import Settings
from ..models.catalog import Access, Catalog
from ..models.codec import bearer, read
from ..models.gateway import Emitter
from .embed.embedder import Embedder
from .embed.embedders import MINILM, Embedders
from .embed.remote import BYTES_PER_TOKEN, Clients, ModelClient, OnUsage, batches, shortened

_BY_TYPE: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "openai-compatible": (500, {"return_documents": False}),
    "cohere": (1000, {}),
}
"""By the type of the client: texts in one request, and what only it is told."""


class Reranker(Protocol):
    """Says how well texts answer a query. Bound to who asks, its `rerank` is what `Base.retrieve` wants."""

    @property
    def model(self) -> str:
        """Its id, `client:model`."""
        ...

    async def rerank(self, me: Emitter, query: str, texts: Sequence[str]) -> list[float]:
        """A score for each text, the higher the better. Scores of two calls can't be compared.

        Args:
            me: whom the events are about.

        Raises:
            ConfigError, CredentialsError: the model or its key is missing.
            ModelError: the provider refused them, or its answer makes no sense.
            UpstreamError: the tries are spent.
            BudgetReached: the run's budget is used up.
        """
        ...


class Rerankers:
    """All rerankers of a process. Call `aclose` at the end, or use it as an async context manager.

    Args:
        settings: what `config.yaml` says.
        environ: the environment: keys, base URLs, proxies.
        embedders: where `local:minilm` comes from; their maker closes them.
        on_usage: gets the tokens that providers count.
        rng: where the jitter of the waits comes from.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        embedders: Embedders,
        *,
        on_usage: OnUsage | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._catalog = Catalog(settings, environ)
        self._embedders = embedders
        self._clients = Clients(environ, on_usage, rng)
        self._rerankers: dict[str, Reranker] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        self._rerankers.clear()
        await self._clients.aclose()

    def of(self, model: str) -> Reranker:
        """The reranker for a model's id; the same one every time.

        Raises:
            ConfigError, CredentialsError, Unsupported: the model can't be used; the text says what to do.
        """
        reranker = self._rerankers.get(model)
        if reranker is None:
            reranker = self._rerankers[model] = self._made(self._catalog.access(model, "reranker"))
        return reranker

    def _made(self, access: Access) -> Reranker:
        if access.client.type != "local":
            return Remote(self._clients.to(access, bearer(access.key)), access)
        if access.id != MINILM:
            raise ConfigError(f"unknown local reranker model '{access.id}'; known is {MINILM}")
        return MiniLM(self._embedders.of(MINILM))


class Remote:
    """A `Reranker` over HTTP: all texts of a query in one request, or in a few where that would be too much for one."""

    def __init__(self, client: ModelClient, access: Access) -> None:
        self.model = client.model
        self._client = client
        self._name = access.name
        self._bytes = (access.model.max_tokens_per_chunk or access.model.max_input_tokens or 0) * BYTES_PER_TOKEN
        self._most, self._more = _BY_TYPE[access.client.type]

    async def rerank(self, me: Emitter, query: str, texts: Sequence[str]) -> list[float]:
        """See `Reranker.rerank`. Every text is judged by itself: how they are put into requests makes no difference.

        What is beyond the tokens that the model takes of a text can't be judged, and is not sent.
        """
        scores: list[float] = []
        sent = [shortened(text, self._bytes) for text in texts]
        for _, batch in batches(sent, self._most):
            body = {"model": self._name, "query": query, "documents": batch, **self._more}
            answer = read(_decode, await self._client.post(me, "/rerank", msgspec.json.encode(body)))
            found = self._in_order(answer, len(batch))
            self._client.count(me, answer.usage.total_tokens if answer.usage else None)
            scores += found
        return scores

    def _in_order(self, answer: _Answer, texts: int) -> list[float]:
        """Exactly one score for each text, or ModelError."""
        results = answer.results if answer.results is not None else answer.data or []
        scores = {result.index: result.relevance_score for result in results}
        if len(results) != texts or scores.keys() != set(range(texts)):
            raise ModelError(f"{self.model} gave {len(results)} scores for {texts} texts, or not one for each of them")
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


_decode = msgspec.json.Decoder(_Answer).decode


class MiniLM:
    """`local:minilm` as a `Reranker`: it reads query and texts apart and compares their vectors.

    Less than a model that reads both at once can do, yet it needs no provider, and a base that was built with the quick
    `local:static` is looked up in with MiniLM's judgement where it counts: at the top. Texts that were looked at once
    are in the cache of embeddings.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.model = embedder.model
        self._embedder = embedder

    async def rerank(self, me: Emitter, query: str, texts: Sequence[str]) -> list[float]:
        """See `Reranker.rerank`. Scores are cosines."""
        if not texts:
            return []
        [wanted] = await self._embedder.embed(me, [query], query=True)
        vectors = await self._embedder.embed(me, texts)
        scores: list[float] = (vectors @ wanted).tolist()
        return scores
