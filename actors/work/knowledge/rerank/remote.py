"""Reranking over HTTP: all texts of a query in one request, or in a few where that would be too much for one."""

from __future__ import annotations

from collections.abc import Sequence

from ...models.gateway import Emitter
from ..embed.lines import Line
from ..embed.remote import BYTES_PER_TOKEN, batches, shortened
from .wires import PATH, Wire, judged


class Remote:
    """A `Reranker` over HTTP.

    Args:
        line: where requests go.
        name: what the provider calls the model.
        wire: the provider's language.
        tokens: what a text may have, as far as that is known; what is beyond can't be judged.
    """

    def __init__(self, line: Line, name: str, wire: Wire, *, tokens: int | None = None) -> None:
        self._bytes = (tokens or 0) * BYTES_PER_TOKEN
        self._line = line
        self._name = name
        self._wire = wire

    @property
    def model(self) -> str:
        """Its id."""
        return self._line.model

    async def rerank(self, me: Emitter, query: str, texts: Sequence[str]) -> list[float]:
        """See `Reranker.rerank`. Every text is judged by itself: how they are put into requests makes no difference."""
        scores: list[float] = []
        sent = [shortened(text, self._bytes) for text in texts]
        for _, batch in batches(sent, self._wire.most):
            answer = await self._line.post(me, PATH, self._wire.encode(self._name, query, batch))
            found = judged(answer, len(batch), self.model)
            self._line.count(me, found.tokens)
            scores += found.scores
        return scores
