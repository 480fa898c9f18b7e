"""What a query gets: the best of both indexes, within its filters, without holding anybody up."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import pytest
import trio
import trio.testing
from support.knowledge_library import Library, hashed
from support.messages import says

from callboard.actors.work.knowledge.base.base import Fusion, KnowledgeBase
from callboard.actors.work.knowledge.base.model import BaseSettings
from callboard.protocol.errors import KnowledgeError
from callboard.supervisors import Actor

TEXTS = {
    "animals/cats": "# Cats\n\nCats purr when they are content.\n\nThey sleep sixteen hours.",
    "animals/dogs": "Dogs bark at strangers.\n\nError code XK-4471 means a lost collar.",
    "plants/trees": "Oaks live for centuries.\n\nBirches are pale.",
}


@pytest.fixture(params=["exact", "graph"])
async def base(request: pytest.FixtureRequest, library: Library) -> AsyncIterator[KnowledgeBase]:
    library.holds(**TEXTS)
    await library.build(settings=BaseSettings(exact_below=0 if request.param == "graph" else 100))
    base = await KnowledgeBase.open(library.directory)
    yield base
    base.close()


def _vector(text: str) -> np.ndarray:
    return hashed([text])[0]


async def test_both_sides_find(base: KnowledgeBase) -> None:
    found = await base.retrieve("how long do oaks live", _vector("how long do oaks live"), top_k=1)
    assert found.context == "[Source: plants/trees.md]\nOaks live for centuries."
    found = await base.retrieve("xk 4471", None, top_k=1)  # words only
    assert found.chunks[0].text.startswith("Error code XK-4471")
    found = await base.retrieve("", _vector("birches pale"), top_k=1)  # vectors only
    assert found.chunks[0].text == "Birches are pale."
    for fusion in ("weighted", "ranks"):
        found = await base.retrieve("cats purr", _vector("cats purr"), top_k=1, fusion=fusion)
        assert found.sources == ("animals/cats.md",)


async def test_what_a_rag_node_gets_is_the_seed_s_shape_and_the_chunks(base: KnowledgeBase) -> None:
    found = msgspec.to_builtins(await base.retrieve("oaks", None, top_k=1))
    assert list(found) == ["context", "sources", "chunks"]
    assert found["sources"] == ("plants/trees.md",)
    [chunk] = found["chunks"]
    assert set(chunk) == {"text", "source", "score", "lines"}  # and `heading`, where there is one


async def test_words_are_compared_by_their_stems_and_headings_are_words(base: KnowledgeBase) -> None:
    assert (await base.retrieve("SLEEPS", None)).sources == ("animals/cats.md",)
    assert len((await base.retrieve("cat", None)).chunks[0].text.split("\n\n")) == 2  # one says it, one is headed so


async def test_filters_leave_sources_out(base: KnowledgeBase) -> None:
    query = "live bark purr pale"
    for filters, sources in (
        (["plants/*"], {"plants/trees.md"}),
        (["*/dogs.md", "*trees*"], {"animals/dogs.md", "plants/trees.md"}),
        (["*.md"], {"animals/cats.md", "animals/dogs.md", "plants/trees.md"}),
        (["nothing"], set()),
    ):
        for vector in (_vector(query), None):
            found = await base.retrieve(query, vector, top_k=10, filters=filters, min_score=0.001)
            assert set(found.sources) == sources


async def test_a_least_score_leaves_chunks_out(base: KnowledgeBase) -> None:
    everything = await base.retrieve("", _vector("birches are pale"), top_k=10, min_score=-1)
    assert len(everything.sources) == 3
    some = await base.retrieve("", _vector("birches are pale"), top_k=10, min_score=0.9)
    assert [hit.text for hit in some.chunks] == ["Birches are pale."]


async def test_a_reranker_sees_the_headings_as_well(library: Library) -> None:
    library.holds(cats="# Cats\n\nThey purr.")
    await library.build()
    seen: list[str] = []

    async def rerank(texts: Sequence[str]) -> Sequence[float]:
        await trio.lowlevel.checkpoint()
        seen.extend(texts)
        return [1.0] * len(texts)

    [hit] = (await library.find("purr", rerank=rerank)).chunks
    assert (seen, hit.text) == (["Cats\nThey purr."], "They purr.")


async def test_a_reranker_has_the_last_word(base: KnowledgeBase) -> None:
    seen: list[str] = []

    async def by_length(texts: Sequence[str]) -> Sequence[float]:
        await trio.lowlevel.checkpoint()
        seen.extend(texts)
        return [-len(text) for text in texts]

    found = await base.retrieve("cats", _vector("cats"), top_k=1, rerank=by_length, min_score=-1)
    assert [hit.text for hit in found.chunks] == [min(seen, key=len)]
    assert len(seen) == 4


@pytest.mark.parametrize(
    "query",
    ["", "   ", "?!", '" AND (', "a" * 100_000, "wort " * 10_000, "\0 \ud800"],
)
async def test_strange_queries_find_what_they_find(base: KnowledgeBase, query: str) -> None:
    found = await base.retrieve(query, np.zeros(64, dtype=np.float32))
    assert found.chunks == ()


async def test_a_vector_of_another_model_is_refused(base: KnowledgeBase) -> None:
    with pytest.raises(
        KnowledgeError,
        match=says("work.knowledge.base.base.Generation._direction", dimension=64, model="hash", size=3),
    ):
        await base.retrieve("x", np.ones(3, dtype=np.float32))


async def test_fifty_at_once_share_it_while_it_is_refreshed_and_the_loop_ticks(library: Library) -> None:
    library.holds(**{f"s{number}": f"text {number} " + "word " * 50 for number in range(200)})
    await library.build()
    base = await KnowledgeBase.open(library.directory)
    ticks: list[float] = []

    async def tick(me: Actor) -> None:
        while True:
            ticks.append(time.thread_time())  # not the clock: the machine may have others to look after
            await trio.sleep(0.001)

    async def ask(number: int) -> None:
        for _ in range(4):
            found = await base.retrieve(f"text {number}", _vector(f"text {number} " + "word " * 50), top_k=1)
            assert found.sources == (f"s{number}.md",)

    gc.freeze()  # what the other tests have left need not be gone through meanwhile
    ticking = library.me.spawn(tick)
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(ask, number)
        library.holds(**{f"s{number}": f"text {number} " + "word " * 50 for number in range(201)})
        await library.build()
        assert await base.refresh()
    ticking.cancel()
    gc.unfreeze()
    assert base.meta.sources == 201
    base.close()
    longest = max(later - earlier for earlier, later in pairwise(ticks))
    print(f"longest stall: {longest * 1000:.1f} ms of this thread's own work")
    assert longest < 5 * 0.020
    with pytest.raises(trio.ClosedResourceError):
        await base.retrieve("x", None)


async def test_a_base_may_be_closed_while_it_is_used_and_refreshed(library: Library) -> None:
    library.holds(a="apple")
    await library.build()
    base = await KnowledgeBase.open(library.directory)
    library.holds(a="apple", b="banana")
    await library.build()
    found: list[str] = []

    async def ask() -> None:
        found.extend((await base.retrieve("apple", None)).sources)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(base.refresh)
        await trio.testing.wait_all_tasks_blocked()
        base.close()
        base.close()
    assert found == ["a.md"]
    assert len(list(library.directory.glob("gen-*"))) == 2
    await library.build()
    assert len(list(library.directory.glob("gen-*"))) == 1  # no lock was left


@pytest.mark.parametrize("fusion", ["weighted", "ranks"])
async def test_no_chunks_wanted_are_no_chunks_found(base: KnowledgeBase, fusion: Fusion) -> None:
    assert (await base.retrieve("cats", _vector("cats"), top_k=0, fusion=fusion)).chunks == ()


async def test_sources_and_chunks_can_be_listed(base: KnowledgeBase) -> None:
    assert [known.source for known in await base.sources()] == [f"{name}.md" for name in TEXTS]
    found: list[str] = []
    await base.export(lambda chunks: found.extend(chunk.text for chunk in chunks))
    assert found[:2] == ["Cats purr when they are content.", "They sleep sixteen hours."]
    assert len(found) == 6


def test_whoever_names_no_query_loads_no_engine() -> None:
    names = "base", "build"
    script = (
        f"import sys; {'; '.join(f'import callboard.actors.work.knowledge.base.{name}' for name in names)};"
        " print(sorted({'numpy', 'tantivy', 'usearch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
