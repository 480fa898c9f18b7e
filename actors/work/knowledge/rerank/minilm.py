"""`local:minilm` as a reranker: it reads query and texts apart and compares their vectors.

Less than a model that reads both at once can do, yet it needs no provider, and a base that was built with the quick
`local:static` is looked up in with MiniLM's judgement where it counts: at the top. Texts that were looked at once
are in the cache of embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...models.gateway import Emitter
from ..embed.embedder import Embedder


class MiniLM:
    """A `Reranker`.

    Args:
        embedder: of `local:minilm`.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def model(self) -> str:
        """Its id."""
        return self._embedder.model

    async def rerank(self, me: Emitter, query: str, texts: Sequence[str]) -> list[float]:
        """See `Reranker.rerank`. Scores are cosines."""
        if not texts:
            return []
        [wanted] = await self._embedder.embed(me, [query], query=True)
        vectors = await self._embedder.embed(me, texts)
        scores: list[float] = (vectors @ wanted).tolist()
        return scores
