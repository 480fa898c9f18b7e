"""How often the right answer is found: recall@5 and MRR of words, vectors and both, on the FAQ of Perl.

    python benchmarks/retrieval.py [--model MODEL]... [--chunk-size N]... [--rerank] [--corpus DIR]

Some 280 questions that have an answer each, among 40 pages of Perl's manual: see harness/perl_faq.py. A question counts
as answered by the document of its answer, and by no other, however good. The constants of `generation` were chosen on
every other question; the figures are of the rest and of all. The corpus is fetched once (Debian's package perl-doc, 8
MB); `--corpus` names a directory with perlfaq1.pod and so on. Weights come from `callboard models pull wordllama
minilm`.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio
from harness import perl_faq
from harness.perl_faq import Question

from callboard.actors.io.directories import cache_dir
from callboard.actors.work.knowledge.base.base import Fusion, KnowledgeBase
from callboard.actors.work.knowledge.base.build import build
from callboard.actors.work.knowledge.base.model import BaseSettings
from callboard.actors.work.knowledge.embed.cache import EmbeddingCache, default_path
from callboard.actors.work.knowledge.embed.embedders import DEFAULT, MINILM, Embedders
from callboard.actors.work.knowledge.sources.gather import gather
from callboard.actors.work.knowledge.split import SIZE, split
from callboard.protocol.errors import ConfigError
from callboard.protocol.knowledge import Retrieved
from callboard.protocol.settings import Settings as UserSettings
from callboard.supervisors import Actor, Root

RECALL_AT = 5
RANKED = 10
"""Hits among which the answer's rank is looked for."""

MARGIN = 0.01
"""What hybrid may be below the best single one."""

Ask = Callable[[Question, int, int], Awaitable[Retrieved]]
"""What the base says to a question of this number, given how many chunks are wanted."""


class Figures(NamedTuple):
    """Of some questions: in how many the answer is among the first five chunks, and the mean of 1/rank."""

    recall: float
    mrr: float


class Way(NamedTuple):
    """One way to look."""

    name: str
    words: bool
    vectors: bool
    fusion: Fusion = "weighted"
    rerank: bool = False


KEYWORD, VECTOR = Way("keyword", True, False), Way("vector", False, True)
HYBRID, RANKS = Way("hybrid", True, True), Way("hybrid, by ranks", True, True, "ranks")


async def measured(ask: Ask, questions: Sequence[Question]) -> tuple[Figures, Figures, float]:
    """Of the questions that nothing was tuned on, and of all; and the median of the milliseconds that one took."""
    found, ranks, taken = [], [], []
    for number, question in enumerate(questions):
        began = time.perf_counter()
        some = await ask(question, number, RECALL_AT)
        taken.append((time.perf_counter() - began) * 1e3)
        found.append(float(question.answer in some.sources))
        hits = [hit.source for hit in (await ask(question, number, RANKED)).chunks]
        ranks.append(1 / (hits.index(question.answer) + 1) if question.answer in hits else 0.0)
    mean = statistics.fmean
    return Figures(mean(found[1::2]), mean(ranks[1::2])), Figures(mean(found), mean(ranks)), statistics.median(taken)


async def compare(me: Actor, model: str, size: int, place: Path, given: Given) -> bool:
    """Build a base and ask it everything, in every way; whether hybrid keeps up."""
    embedder = given.embedders.of(model)
    directory = place / f"{model.replace(':', '-')}-{size}.kb"
    began = time.perf_counter()
    found = gather(me, ["."], base=given.documents, environ=os.environ)
    settings = BaseSettings(chunk_size=size)
    report = await build(me, directory, found, embedder=embedder, splitter=partial(split, size=size), settings=settings)
    took = time.perf_counter() - began
    vectors = await embedder.embed(me, [question.text for question in given.questions], query=True)
    base = await KnowledgeBase.open(directory)
    ways = [KEYWORD, VECTOR, HYBRID, RANKS]
    if given.rerank is not None:
        ways.append(Way(f"hybrid, reranked by {MINILM}", True, True, rerank=True))
    print(f"\n{model}, chunks of {size}: {report.chunks:,} chunks, built in {took:.0f} s")
    print(f"  {'':32}{'recall@5':>10}{'MRR':>8}{'of all':>12}{'MRR':>8}{'ms':>8}")
    figures = {}
    try:
        for way in ways:

            async def ask(question: Question, number: int, top_k: int, way: Way = way) -> Retrieved:
                return await base.retrieve(
                    question.text if way.words else "",
                    vectors[number] if way.vectors else None,
                    top_k=top_k,
                    fusion=way.fusion,
                    rerank=partial(given.rerank, question.text) if way.rerank and given.rerank else None,
                )

            rest, every, wait = await measured(ask, given.questions)
            figures[way] = (*rest, *every)
            print(f"  {way.name:32}{rest.recall:10.3f}{rest.mrr:8.3f}{every.recall:12.3f}{every.mrr:8.3f}{wait:8.1f}")
    finally:
        base.close()
    return judged(figures[HYBRID], figures[KEYWORD], figures[VECTOR])


def judged(hybrid: Sequence[float], *singles: Sequence[float]) -> bool:
    """Print whether hybrid is at least the best single one, less the margin, by every figure."""
    apart = [mine - max(theirs) for mine, *theirs in zip(hybrid, *singles, strict=True)]
    met = min(apart) >= -MARGIN
    print(f"  hybrid - best single one: {', '.join(f'{each:+.3f}' for each in apart)}: {'met' if met else 'NOT MET'}")
    return met


class Given(NamedTuple):
    """What all comparisons share."""

    documents: Path
    questions: Sequence[Question]
    embedders: Embedders
    rerank: Callable[[str, Sequence[str]], Awaitable[Sequence[float]]] | None


async def compare_all(options: argparse.Namespace, documents: Path, questions: Sequence[Question]) -> bool:
    cache = EmbeddingCache(default_path(os.environ))
    settings = UserSettings()
    with tempfile.TemporaryDirectory() as place:
        async with (
            Root() as root,
            aclosing(Embedders(settings, os.environ, owner=root, cache=cache)) as embedders,
        ):
            try:
                rerank = partial(embedders.reranker(MINILM).rerank, root.actor) if options.rerank else None
                given = Given(documents, questions, embedders, rerank)
                met = [
                    await compare(root.actor, model, size, Path(place), given)
                    for model in options.model or [DEFAULT]
                    for size in options.chunk_size or [SIZE]
                ]
            except ConfigError as missing:
                print(f"not measured: {missing}")
                met = []
            root.begin_stop()
    return all(met)


def main() -> int:
    """Prints the figures; 1 if hybrid is worse than one of its halves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help=f"{DEFAULT} unless said otherwise")
    parser.add_argument("--chunk-size", action="append", type=int, metavar="N")
    parser.add_argument("--rerank", action="store_true", help=f"have {MINILM} look again at what was found")
    parser.add_argument("--corpus", type=Path, metavar="DIR")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # nothing is left behind
    with tempfile.TemporaryDirectory() as documents:
        try:
            pods = perl_faq.unpacked(options.corpus or cache_dir(os.environ) / "benchmarks" / "perl-doc")
        except LookupError as missing:
            print(f"retrieval\nnot measured: {missing}")
            return 0
        questions = perl_faq.write(pods, Path(documents))
        print(
            f"retrieval\n{len(questions)} questions; in front, of the {len(questions) // 2} that nothing was tuned on"
        )
        return 0 if trio.run(compare_all, options, Path(documents), questions) else 1


if __name__ == "__main__":
    sys.exit(main())
