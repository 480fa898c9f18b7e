"""With the real sources and the real splitter: from a directory of files to an answer that names file and lines."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from pathlib import Path

from support.knowledge_library import Hashing, Library, hashed

from callboard.actors.work.knowledge.base.base import KnowledgeBase
from callboard.actors.work.knowledge.base.build import build
from callboard.actors.work.knowledge.base.model import BuildReport
from callboard.actors.work.knowledge.sources.gather import gather
from callboard.actors.work.knowledge.split import split

HANDBOOK = """\
# Handbook

Welcome.

## Warranty

The warranty is two years. It begins with the day of delivery.

## Returns

Send it back within thirty days.
"""


async def _build(library: Library, home: Path, embedder: Hashing) -> BuildReport:
    async with aclosing(gather(library.me, ["docs/**", "missing.md"], base=home, environ={})) as found:
        return await build(library.me, library.directory, found, embedder=embedder, splitter=partial(split, size=80))


async def test_files_become_answers_and_only_what_was_edited_is_embedded_again(
    library: Library, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "handbook.md").write_text(HANDBOOK)
    (docs / "prices.csv").write_text("item,price\nchair,40\ntable,90\n")
    (docs / "main.py").write_text("def warm_up(engine):\n    engine.start()\n")
    embedder = Hashing()
    report = await _build(library, tmp_path, embedder)
    assert (report.added, [each.source for each in report.unreadable]) == (3, ["missing.md"])

    base = await KnowledgeBase.open(library.directory)
    question = "how long is the warranty from delivery"
    [hit] = (await base.retrieve(question, hashed([question])[0], top_k=1)).chunks
    assert (hit.source, hit.heading[-1]) == ("docs/handbook.md", "Warranty")
    assert "two years" in "\n".join(HANDBOOK.split("\n")[hit.lines[0] - 1 : hit.lines[1]])
    assert (await base.retrieve("price of a table", None, top_k=1)).sources == ("docs/prices.csv",)
    assert (await base.retrieve("warm_up", None, top_k=1, filters=["*.py"])).sources == ("docs/main.py",)
    base.close()

    embedder.texts.clear()
    assert (await _build(library, tmp_path, embedder)).unchanged == 3
    (docs / "handbook.md").write_text(HANDBOOK.replace("thirty", "sixty"))
    (docs / "main.py").unlink()
    report = await _build(library, tmp_path, embedder)
    assert (report.changed, report.removed, report.unchanged) == (1, 1, 1)
    [text] = embedder.texts
    assert "sixty days" in text
