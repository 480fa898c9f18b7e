"""Which reranker a model's id means.

    rerankers = Rerankers(settings, os.environ, embedders)
    reranker = rerankers.of("cohere:rerank-v3.5")
    found = await base.retrieve(query, vector, rerank=partial(reranker.rerank, me))

Ids are `client:model`: a client of `config.yaml` of the type `cohere` or `openai-compatible`, one of these by its own
name (`cohere`, `jina`, `voyageai`), and `local:minilm`, which needs no provider. Like `Embedders`, one `Rerankers`
serves a whole process.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from .....protocol.errors import ConfigError
from .....protocol.settings import Settings
from ...models.catalog import Access, Catalog
from ...models.gateway import Emitter
from ..embed.embedders import MINILM, Embedders
from ..embed.lines import Lines, OnUsage
from .minilm import MiniLM
from .remote import Remote
from .wires import BY_TYPE


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
        self._lines = Lines(environ, on_usage, rng)
        self._rerankers: dict[str, Reranker] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        self._rerankers.clear()
        await self._lines.aclose()

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
            headers = {"authorization": f"Bearer {access.key}"} if access.key else {}
            tokens = access.model.max_tokens_per_chunk or access.model.max_input_tokens
            wire = BY_TYPE[access.client.type]
            return Remote(self._lines.to(access, headers), access.name, wire, tokens=tokens)
        if access.id != MINILM:
            raise ConfigError(f"unknown local reranker model '{access.id}'; known is {MINILM}")
        return MiniLM(self._embedders.of(MINILM))
