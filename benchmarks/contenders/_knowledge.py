"""Seeded chunks with vectors, the same for everybody: words as frequent as in a language, vectors in clusters.

Everybody is handed the vectors: how long a model takes to make them is no matter of an index.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIMENSION = 256
"""Of `local:static`."""

PER_SOURCE = 100
VOCABULARY = 50_000
WORDS = 100
IN_A_QUERY = 5
TOP_K = 10

Floats = NDArray[np.float32]

_PLACE = "KNOWLEDGE_HOME"
_IS_MINE = _PLACE not in os.environ
HOME = Path(os.environ.get(_PLACE) or tempfile.mkdtemp(prefix="knowledge-"))
"""Where a contender writes. The processes that it starts find it by the environment."""
os.environ[_PLACE] = str(HOME)
if _IS_MINE:  # nothing is left behind, also by one that is told to end
    atexit.register(shutil.rmtree, HOME, ignore_errors=True)

    def _told_to_end(*_: object) -> None:
        """Not by `sys.exit`: raised while the interpreter ends by itself, that would break off the removal."""
        shutil.rmtree(HOME, ignore_errors=True)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, _told_to_end)


@cache
def vectors(n: int) -> Floats:
    """One per chunk, of length 1."""
    random = np.random.default_rng(5)
    centres = random.standard_normal((max(1, n // 200), DIMENSION), dtype=np.float32)
    matrix = random.standard_normal((n, DIMENSION), dtype=np.float32)
    matrix *= 0.7
    matrix += centres[random.integers(len(centres), size=n)]
    return _unit(matrix)


@cache
def texts(n: int) -> list[str]:
    """The chunks; the first word of each is its number."""
    random = np.random.default_rng(6)
    share = 1.0 / np.arange(3, VOCABULARY + 3)
    edges = np.cumsum(share / share.sum())
    vocabulary = np.array([_word(number) for number in range(VOCABULARY)])
    chunks = []
    for number in range(n):
        words = np.searchsorted(edges, random.random(WORDS)).clip(max=VOCABULARY - 1)
        chunks.append(f"{number} {' '.join(vocabulary[words])}")
    return chunks


def number_of(text: str) -> int:
    """Which chunk it is."""
    return int(text.partition(" ")[0])


def queries(n: int, count: int) -> tuple[list[str], Floats]:
    """Some words of a chunk each, and a vector not far from its own."""
    random = np.random.default_rng(7)
    chosen = random.integers(n, size=count)
    asked = [" ".join(texts(n)[number].split()[-IN_A_QUERY:]) for number in chosen]
    return asked, _unit(vectors(n)[chosen] + 0.04 * random.standard_normal((count, DIMENSION), dtype=np.float32))


def nearest(n: int, query: Floats) -> set[int]:
    """The chunks that are really the nearest."""
    return set(np.argsort(-(vectors(n) @ query))[:TOP_K].tolist())


def milliseconds(work: Callable[[], Any]) -> float:
    """Wall time of it."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def quantiles(taken: list[float]) -> dict[str, float]:
    """The middle one, and the one that 19 of 20 don't exceed."""
    return {"p50": float(np.quantile(taken, 0.5)), "p95": float(np.quantile(taken, 0.95))}


def _word(number: int) -> str:
    """A pronounceable word, another for each number."""
    letters = ""
    while True:
        number, rest = divmod(number, 95)
        letters += "bcdfghjklmnprstvwxz"[rest // 5] + "aeiou"[rest % 5]
        if not number:
            return letters


def _unit(matrix: Floats) -> Floats:
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix
