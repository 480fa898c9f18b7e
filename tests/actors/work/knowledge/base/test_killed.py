"""kill -9 during a build: the generation before answers, the build is gone on with, and nothing is embedded twice."""

from __future__ import annotations

import json
import random
import signal
import sys
from pathlib import Path

import pytest
import trio
from support import knowledge_library as small_library
from support.knowledge_library import SMALL, Library

from callboard.actors.work.knowledge.base.base import KnowledgeBase

SOURCES = 16
PARAGRAPHS = 5


class ChangingSources:
    """Sources that change."""

    def __init__(self, rand: random.Random) -> None:
        self._rand = rand
        self._written = 0
        self.texts = {f"s{number}": self._text() for number in range(SOURCES)}

    def _paragraph(self) -> str:
        self._written += 1
        return f"paragraph {self._written} with {' '.join(self._rand.choices(WORDS, k=5))}"

    def _text(self) -> str:
        return "\n\n".join(self._paragraph() for _ in range(PARAGRAPHS))

    def change(self) -> str:
        """Write some sources anew, in part or whole; a paragraph that stays."""
        gone, *names = self._rand.sample(sorted(self.texts), 9)
        del self.texts[gone]
        for name in names[:4]:
            self.texts[name] = self._text()
        for name in names[4:]:
            first, _, *others = self.texts[name].split("\n\n")
            self.texts[name] = "\n\n".join((first, self._paragraph(), *others))
        self.texts[f"s{SOURCES + self._written}"] = self._text()
        return self.texts[names[-1]].split("\n\n")[0]

    @property
    def paragraphs(self) -> set[str]:
        return {paragraph for text in self.texts.values() for paragraph in text.split("\n\n")}


WORDS = ["sun", "moon", "star", "sea", "hill", "tree", "stone", "bird", "rain", "wind"]


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.soak)])
async def test_a_killed_build_costs_no_more_than_the_block_it_was_at(
    library: Library, tmp_path: Path, kills: int
) -> None:
    rand = random.Random(5)
    changing_sources = ChangingSources(rand)
    events = int(await _build(tmp_path / "dry.kb", tmp_path / "dry", changing_sources.texts) or 0)
    kept, before, killed, round = "", set[str](), 0, 0
    while killed < kills:
        # Most files are touched at the end, most time goes by in the middle.
        log, at = tmp_path / f"{round}", rand.choice([events // 2, rand.randrange(events // 2, events)])
        done = await _build(library.directory, log, changing_sources.texts, at=at, delay=rand.uniform(0, 0.15))
        killed += done is None
        begun = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        if before:
            assert await _all(library) in (before, changing_sources.paragraphs), (
                "a whole generation: the old one or the new"
            )
            assert (await library.find(kept, top_k=1)).chunks[0].text == kept

        library.holds(**changing_sources.texts)
        report = await library.build()
        again = library.embedder.texts
        assert not set(begun[: -SMALL.block]) & set(again), "all but the block at which it was killed was kept"
        assert len(set(again)) == len(again) == report.embedded
        assert not before & {*begun, *again}, "what had been embedded before it changed elsewhere"
        assert await _all(library) == changing_sources.paragraphs
        assert sorted(path.name for path in library.directory.iterdir()) == [
            "builder.lock",
            "current",
            f"gen-{report.generation:06d}",
        ]
        before = changing_sources.paragraphs
        kept = changing_sources.change()
        round += 1


async def _build(directory: Path, log: Path, texts: dict[str, str], *, at: int = 0, delay: float = 0.0) -> str | None:
    """Build in a process that is killed after so many events; what it printed, or None if it was killed."""
    sources = log.with_suffix(".json")
    sources.write_text(json.dumps(texts))
    argv = [sys.executable, small_library.__file__, directory, log, sources, at, delay]
    done = await trio.run_process(list(map(str, argv)), capture_stdout=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    return done.stdout.decode() if done.returncode == 0 else None


async def _all(library: Library) -> set[str]:
    """The text of every chunk, of a base whose indexes were checked by opening it."""
    found: list[str] = []
    base = await KnowledgeBase.open(library.directory)
    await base.export(lambda chunks: found.extend(chunk.text for chunk in chunks))
    base.close()
    assert len(set(found)) == len(found)
    return set(found)
