"""`local:words`: vectors of the words themselves, for where there is no model at hand.

Texts are near each other where they have words in common, long ones above all; what means the same in other words is
not found. Each word, and the beginning of a longer one, has a place and a sign in the vector by its checksum. Scripts
without spaces count by pairs of characters. Nothing is read, fetched or learned, so it is always there.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import trio

from ...models.gateway import Emitter
from .embedder import OnProgress, normalised

if TYPE_CHECKING:
    from .embedder import Vectors

MODEL = "local:words"
DIMENSION = 1024

LEAST = 1e-6
"""A likeness that texts have which share a word; others have none, or less by chance."""

_WORD = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af]+|\w+")
_DENSE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af]")
_LONG = 8
"""Letters from which on a word counts in full: short ones are in most texts."""

_BEGINNING = 5
_AT_A_TIME = 256


class Lexical:
    """An `Embedder` in this process.

    Args:
        limiter: of the threads it works in.
    """

    def __init__(self, limiter: trio.CapacityLimiter) -> None:
        self._limiter = limiter

    @property
    def model(self) -> str:
        """Its id."""
        return MODEL

    @property
    def dimension(self) -> int:
        """Numbers per vector."""
        return DIMENSION

    async def embed(
        self,
        me: Emitter,  # noqa: ARG002  (there is nothing to tell)
        texts: Sequence[str],
        *,
        query: bool = False,  # noqa: ARG002  (queries are no different here)
        on_progress: OnProgress | None = None,
    ) -> Vectors:
        """See `Embedder.embed`."""
        import numpy as np

        parts = [np.empty((0, DIMENSION), np.float32)]
        for first in range(0, len(texts), _AT_A_TIME):
            part = list(texts[first : first + _AT_A_TIME])
            parts.append(await trio.to_thread.run_sync(_vectors, part, limiter=self._limiter))
            if on_progress is not None:
                on_progress(first + len(part), len(texts))
        return np.concatenate(parts)


def _vectors(texts: Sequence[str]) -> Vectors:
    import numpy as np

    rows = np.zeros((len(texts), DIMENSION), np.float32)
    for row, text in zip(rows, texts, strict=True):
        for feature, often in Counter(_features(text)).items():
            place = zlib.crc32(feature.encode(errors="replace"))
            weight = min(len(feature), _LONG) / _LONG * (1 + math.log(often))
            row[place % DIMENSION] += weight if place & 0x8000_0000 else -weight
    return normalised(rows, MODEL)


def _features(text: str) -> Iterator[str]:
    for word in _WORD.findall(text.casefold()):
        if _DENSE.match(word):
            yield from (word[i : i + 2] for i in range(max(len(word) - 1, 1)))
            continue
        yield word
        if len(word) > _BEGINNING:
            yield word[:_BEGINNING] + "-"
