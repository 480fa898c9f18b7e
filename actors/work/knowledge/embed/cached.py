"""An embedder that asks the cache first, and keeps what it had to make, part by part: what is done stays done."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from .....protocol.events import Warned
from ...models.gateway import Emitter
from .cache import EmbeddingCache, key_of
from .embedder import Embedder, OnProgress, normalised

if TYPE_CHECKING:
    from .embedder import Vectors

PART = 512
"""Texts after which what was made is kept."""


class Cached:
    """An `Embedder` that embeds no text twice, across processes and runs.

    What it gives back is always as the cache keeps it, rounded to half precision, so that the same text has the same
    vector the first time and every other.
    """

    def __init__(self, embedder: Embedder, cache: EmbeddingCache, limiter: trio.CapacityLimiter) -> None:
        self._embedder = embedder
        self._cache = cache
        self._limiter = limiter
        self._dimension: int | None = None
        self._broken = False

    @property
    def model(self) -> str:
        """Its id."""
        return self._embedder.model

    @property
    def dimension(self) -> int | None:
        """Numbers per vector."""
        return self._embedder.dimension or self._dimension

    async def embed(
        self, me: Emitter, texts: Sequence[str], *, query: bool = False, on_progress: OnProgress | None = None
    ) -> Vectors:
        """See `Embedder.embed`."""
        keys = [key_of(self.model, text, query=query) for text in texts]
        wanted = dict(zip(keys, texts, strict=True))
        found = await self._kept(me, list(wanted))
        missing = [key for key in wanted if key not in found]
        done = len(texts) - len(missing)

        def tell(part: int, _of: int) -> None:
            if on_progress is not None:
                on_progress(done + part, len(texts))

        tell(0, 0)
        for first in range(0, len(missing), PART):
            part = missing[first : first + PART]
            vectors = await self._embedder.embed(me, [wanted[key] for key in part], query=query, on_progress=tell)
            new = dict(zip(part, _packed(vectors), strict=True))
            found |= new
            done += len(part)
            await self._keep(me, new)
        rows = await trio.to_thread.run_sync(self._unpacked, keys, found, limiter=self._limiter)
        if len(rows):
            self._dimension = rows.shape[1]
        return rows

    def _unpacked(self, keys: Sequence[bytes], found: Mapping[bytes, bytes]) -> Vectors:
        import numpy as np

        if not keys:
            return np.empty((0, self.dimension or 0), np.float32)
        return normalised([np.frombuffer(found[key], "<f2") for key in keys], self.model)

    async def _kept(self, me: Emitter, keys: list[bytes]) -> dict[bytes, bytes]:
        try:
            found = {} if self._broken else await self._cache.get(keys)
        except (sqlite3.Error, OSError) as error:
            self._do_without(me, error)
            return {}
        size = None if self.dimension is None else 2 * self.dimension
        sizes = {len(vector) for vector in found.values()} | ({size} if size else set())
        return found if len(sizes) <= 1 else {}  # the server has another model under that name by now

    async def _keep(self, me: Emitter, vectors: Mapping[bytes, bytes]) -> None:
        try:
            if not self._broken:
                await self._cache.put(vectors)
        except (sqlite3.Error, OSError) as error:
            self._do_without(me, error)

    def _do_without(self, me: Emitter, error: Exception) -> None:
        self._broken = True
        text = f"{self._cache.path} can't be used ({error}): what is embedded now will be embedded again the next time"
        me.emit(Warned(code="embedding_cache", message=text))


def _packed(vectors: Vectors) -> list[bytes]:
    rows = vectors.astype("<f2")
    return [row.tobytes() for row in rows]
