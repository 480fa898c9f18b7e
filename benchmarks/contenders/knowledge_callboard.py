"""Ours: a base on disk, built and read as rag nodes do, with an embedder that has all vectors already."""

from __future__ import annotations

import hashlib
import resource
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import trio
from _knowledge import (
    DIMENSION,
    HOME,
    PER_SOURCE,
    TOP_K,
    Floats,
    nearest,
    number_of,
    quantiles,
    queries,
    texts,
    vectors,
)
from _serve import clock, in_a_fresh_process, resident, serve

from callboard.actors.work.knowledge.base.base import KnowledgeBase
from callboard.actors.work.knowledge.base.build import build
from callboard.actors.work.knowledge.base.model import BuildReport
from callboard.protocol.knowledge import Chunk, Document
from callboard.supervisors import Actor, Root

QUERIES, WARM = 500, 50
CHANGED = 100
"""One source of so many is another in the second build."""


class Text:
    """A source in memory."""

    mtime = None
    reader = ""

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self.text = text
        self.size = len(text)

    async def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    async def documents(self) -> list[Document]:
        return [Document(source=self.source, text=self.text, kind="text")]


def split(document: Document) -> list[Chunk]:
    return [
        Chunk(
            id=hashlib.sha256(f"{document.source}\0{text}".encode()).hexdigest()[:32],
            source=document.source,
            text=text,
            lines=(2 * line + 1, 2 * line + 1),
        )
        for line, text in enumerate(document.text.split("\n\n"))
    ]


class Prepared:
    """Looks vectors up, and counts how many."""

    model = "prepared"
    dimension = DIMENSION

    def __init__(self, n: int) -> None:
        self._vectors = vectors(n)
        self.embedded = 0

    async def embed(self, me: Actor, texts: Sequence[str], *, query: bool = False) -> Floats:  # noqa: ARG002 - no matter
        await trio.lowlevel.checkpoint()
        self.embedded += len(texts)
        return self._vectors[[number_of(text) for text in texts]]


async def sources(n: int, *, changed: bool) -> AsyncIterator[Text]:
    chunks = texts(n)
    for number, start in enumerate(range(0, n, PER_SOURCE)):
        some = chunks[start : start + PER_SOURCE]
        if changed and number % CHANGED == 0:
            some = [f"{text} changed" for text in some]
        yield Text(f"{number:06d}.md", "\n\n".join(some))


def built(n: int, *, changed: bool = False) -> BuildReport:
    async def main() -> BuildReport:
        async with Root() as root:
            embedder = Prepared(n)
            report = await build(
                root.actor, HOME / f"{n}.kb", sources(n, changed=changed), embedder=embedder, splitter=split
            )
            assert embedder.embedded == report.embedded
            root.begin_stop()
            return report

    return trio.run(main)


def first_build(n: int) -> float:
    shutil.rmtree(HOME / f"{n}.kb", ignore_errors=True)
    texts(n), vectors(n)
    began = clock()
    built(n)
    return clock() - began


def second_build(n: int) -> dict[str, float]:
    """With one source in a hundred changed, and then as it was."""
    ready(n)
    began = clock()
    report = built(n, changed=True)
    taken = clock() - began
    built(n)
    return {"seconds": taken, "embedded": 100 * report.embedded / n}


def ready(n: int) -> None:
    if not (HOME / f"{n}.kb" / "current").exists():
        built(n)


def with_base(work: Callable[[KnowledgeBase, int], Awaitable[Any]]) -> Callable[[int], Any]:
    """A case that has the base open; the other process knows its place by the environment."""

    def case(n: int) -> Any:
        ready(n)

        async def main() -> Any:
            base = await KnowledgeBase.open(HOME / f"{n}.kb")
            try:
                return await work(base, n)
            finally:
                base.close()

        return trio.run(main)

    return case


def reopen(n: int) -> float:
    """Milliseconds until it is open, in a process that has never seen it but has imported what that takes."""
    import tantivy  # noqa: F401 - so that importing it is not measured
    import usearch.index  # noqa: F401 - the same

    async def main() -> float:
        began = time.perf_counter()
        base = await KnowledgeBase.open(HOME / f"{n}.kb")
        taken = time.perf_counter() - began
        base.close()
        return taken * 1e3

    return trio.run(main)


def asked(*, words: bool, vector: bool) -> Callable[[int], Any]:
    async def work(base: KnowledgeBase, n: int) -> dict[str, float]:
        questions, found = queries(n, WARM + QUERIES)
        taken = []
        for text, near in zip(questions, found, strict=True):
            began = time.perf_counter()
            await base.retrieve(text if words else "", near if vector else None, top_k=TOP_K)
            taken.append((time.perf_counter() - began) * 1e3)
        return quantiles(taken[WARM:])

    return with_base(work)


@with_base
async def recall(base: KnowledgeBase, n: int) -> float:
    """How many of the nearest chunks are found, in per cent."""
    hits = 0
    _, some = queries(n, 100)
    for near in some:
        found = await base.retrieve("", near, top_k=TOP_K)
        chunks = {number_of(text) for hit in found.chunks for text in hit.text.split("\n\n")}
        hits += len(chunks & nearest(n, near))
    return hits / len(some) / TOP_K * 100


@with_base
async def memory(base: KnowledgeBase, n: int) -> float:
    """MB of this process after queries everywhere in the base."""
    random = np.random.default_rng(8)
    for near in random.standard_normal((QUERIES, DIMENSION)).astype(np.float32):
        words = " ".join(str(number) for number in random.integers(n, size=3))
        await base.retrieve(words, near, top_k=TOP_K)
    return resident() / 1024


def disk(n: int) -> float:
    ready(n)
    return sum(path.stat().st_size for path in (HOME / f"{n}.kb").rglob("*") if path.is_file()) / 1e6


def prepared(case: Callable[[int], Any]) -> Callable[[int], Any]:
    """The same once there is a base."""

    def run(n: int) -> Any:
        ready(n)
        return case(n)

    return run


HYBRID, VECTOR = asked(words=True, vector=True), asked(words=False, vector=True)

if __name__ == "__main__":
    serve(
        {
            "build": first_build,
            "peak": lambda _: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "reopen": prepared(in_a_fresh_process("reopen_here")),
            "reopen_here": reopen,
            "hybrid_p50": lambda n: HYBRID(n)["p50"],
            "hybrid_p95": lambda n: HYBRID(n)["p95"],
            "vector_p50": lambda n: VECTOR(n)["p50"],
            "vector_p95": lambda n: VECTOR(n)["p95"],
            "recall": recall,
            "memory": prepared(in_a_fresh_process("memory_here")),
            "memory_here": memory,
            "disk": disk,
            "again": lambda n: second_build(n)["seconds"],
            "again_embedded": lambda n: second_build(n)["embedded"],
        }
    )
