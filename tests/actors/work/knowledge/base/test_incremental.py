"""However a base came to hold what it holds, it answers as one that was built of that at once."""

from __future__ import annotations

import random

import pytest
from support.knowledge_library import Library, hashed

from callboard.actors.work.knowledge.base.base import KnowledgeBase
from callboard.actors.work.knowledge.base.model import BaseSettings

WORDS = ["sun", "moon", "star", "sea", "hill", "tree", "stone", "bird", "rain", "wind", "ice", "fire"]


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 53))])
async def test_many_changes_end_where_one_build_ends(library: Library, seed: int) -> None:
    rand = random.Random(seed)
    settings = BaseSettings(block=rand.choice([1, 3, 50]), exact_below=rand.choice([0, 8, 1000]))
    texts: dict[str, list[str]] = {}
    for _ in range(4):
        _change(rand, texts)
        library.holds(**{name: "\n\n".join(paragraphs) for name, paragraphs in texts.items()})
        report = await library.build(settings=settings)
        assert report.chunks == sum(map(len, texts.values()))
        assert report.embedded == len(library.embedder.texts) <= report.chunks
        assert report.added + report.changed + report.unchanged == len(texts)
    fresh = Library(library.me.root, library.directory.with_name("fresh.kb"))
    fresh.sources = library.sources
    await fresh.build(settings=settings)

    one, other = await KnowledgeBase.open(library.directory), await KnowledgeBase.open(fresh.directory)
    for _ in range(10):
        query = " ".join(rand.choices(WORDS, k=3))
        filters = rand.choice([(), ("a*",), ("[b-d]*",)])
        left, right = [
            await base.retrieve(query, hashed([query])[0], top_k=100, filters=filters, min_score=0.01)
            for base in (one, other)
        ]
        assert _said(left.chunks) == _said(right.chunks)
    one.close()
    other.close()


def _change(rand: random.Random, texts: dict[str, list[str]]) -> None:
    """Add, remove and edit some sources; every paragraph of a source is another one."""
    for name in rand.sample("abcdefgh", 4):
        if name in texts and rand.random() < 0.3:
            del texts[name]
            continue
        paragraphs = texts.setdefault(name, [])
        for _ in range(rand.randrange(1, 4)):
            new = " ".join(rand.choices(WORDS, k=4))
            if new not in paragraphs:
                paragraphs.insert(rand.randrange(len(paragraphs) + 1), new)
        if rand.random() < 0.5:
            paragraphs.pop(rand.randrange(len(paragraphs)))
        rand.shuffle(paragraphs)


def _said(hits: object) -> dict[tuple[str, tuple[int, int]], tuple[str, float]]:
    return {(hit.source, hit.lines): (hit.text, pytest.approx(hit.score, abs=0.02)) for hit in hits}
