"""A small library for tests of knowledge bases: texts as sources, a splitter by paragraphs, an embedder that hashes.

Run as a program, it is a builder that kills itself: `small_library.py DIRECTORY LOG SOURCES AT DELAY`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import trio

from callboard.actors.work.knowledge.base.base import KnowledgeBase
from callboard.actors.work.knowledge.base.build import build
from callboard.actors.work.knowledge.base.model import BaseSettings, BuildReport, KnowledgeSource
from callboard.protocol.knowledge import Chunk, Document, Retrieved, Unreadable
from callboard.supervisors import Actor, Root


class Text:
    """A source that is in memory. Counts what is done with it."""

    reader = ""

    def __init__(self, source: str, text: str, *, mtime: float | None = None) -> None:
        self.source = source
        self.text = text
        self.size = len(text.encode())
        self.mtime = mtime
        self.done: Counter[str] = Counter()

    async def digest(self) -> str | Unreadable:
        self.done["digest"] += 1
        return hashlib.sha256(self.text.encode()).hexdigest()

    async def documents(self) -> Sequence[Document | Unreadable]:
        self.done["documents"] += 1
        return [Document(source=self.source, text=self.text, kind="text")]


class Listing(Text):
    """A source that is a list of documents."""

    async def documents(self) -> Sequence[Document | Unreadable]:
        found: list[Document | Unreadable] = []
        for name, text in json.loads(self.text).items():
            if text is None:
                found.append(Unreadable(source=name, reason="no text"))
            else:
                found.append(Document(source=name, text=text, kind="text"))
        return found


class Unknowable(Text):
    """A source whose bytes can't be had."""

    async def digest(self) -> str | Unreadable:
        return Unreadable(source=self.source, reason="not to be had")


def by_paragraph(document: Document) -> list[Chunk]:
    """A chunk per paragraph; one that begins with `# ` is the heading of those below."""
    chunks: list[Chunk] = []
    heading: tuple[str, ...] = ()
    line = 1
    for text in document.text.split("\n\n"):
        last = line + text.count("\n")
        if text.startswith("# "):
            heading = (text.removeprefix("# "),)
        elif text.strip():
            key = "\0".join((document.source, *heading, text))
            id = hashlib.sha256(key.encode()).hexdigest()[:32]
            chunks.append(Chunk(id=id, source=document.source, text=text, heading=heading, lines=(line, last)))
        line = last + 2
    return chunks


def hashed(texts: Sequence[str], size: int = 64) -> Any:
    """A vector per text: each word adds 1 somewhere."""
    matrix = np.zeros((len(texts), size), dtype=np.float32)
    for row, text in enumerate(texts):
        for word in re.findall(r"\w+", text.lower()):
            matrix[row, int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % size] += 1
    return matrix


class Hashing:
    """An embedder.

    Attributes:
        texts: what it was given, in order.
        calls: how often it was asked.
        pause: seconds that it takes each time.
    """

    def __init__(self, model: str = "hash", size: int = 64) -> None:
        self.model = model
        self.dimension: int | None = size
        self.size = size
        self.texts: list[str] = []
        self.calls = 0
        self.pause = 0.0

    async def embed(self, me: Actor, texts: Sequence[str], *, query: bool = False) -> Any:
        await trio.sleep(self.pause)
        self.calls += 1
        self.texts += texts
        return hashed(texts, self.size)


class Library:
    """A base in a directory, and what it is built from.

    Attributes:
        directory: of the base.
        me: on whose behalf it is built.
        sources: what the next build is given, in order.
        embedder: what it is embedded with.
        progress: what the last build told.
    """

    def __init__(self, root: Root, directory: Path) -> None:
        self.directory = directory
        self.me = root.actor
        self.sources: list[KnowledgeSource | Unreadable] = []
        self.embedder = Hashing()
        self.progress: list[Any] = []

    def holds(self, **texts: str) -> None:
        """Have the next build find these: `a="..."` is the source `a.md`."""
        self.sources = [Text(f"{name}.md", text) for name, text in texts.items()]

    async def build(self, **options: Any) -> BuildReport:
        """Build it. The texts that were embedded are `embedder.texts`."""
        self.embedder.texts.clear()
        self.progress.clear()
        usual = {
            "embedder": self.embedder,
            "splitter": by_paragraph,
            "settings": SMALL,
            "on_progress": self.progress.append,
        }
        return await build(self.me, self.directory, each_of(self.sources), **{**usual, **options})

    async def find(self, text: str, **options: Any) -> Retrieved:
        """Open it, ask it, close it. Chunks without a common word are left out."""
        base = await KnowledgeBase.open(self.directory)
        try:
            return await base.retrieve(text, hashed([text])[0], **{"min_score": 0.01, **options})
        finally:
            base.close()


SMALL = BaseSettings(block=4)


async def each_of(sources: Iterable[KnowledgeSource | Unreadable]) -> AsyncIterator[KnowledgeSource | Unreadable]:
    """As if they were found one after the other."""
    for source in sources:
        await trio.lowlevel.checkpoint()
        yield source


class _Writing(Hashing):
    """Writes down what it begins with."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    async def embed(self, me: Actor, texts: Sequence[str], *, query: bool = False) -> Any:
        with self._log.open("a") as file:
            file.writelines(json.dumps(text) + "\n" for text in texts)
        return await super().embed(me, texts)


def _kill_us(at: int, delay: float) -> list[int]:
    """Count what Python tells auditors (files opened, moved, removed, ...), and have us killed after so many."""
    count = [0]

    def heard(event: str, _: object) -> None:
        count[0] += 1
        if count[0] == at:
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()

    sys.addaudithook(heard)
    return count


async def _be_killed(directory: Path, log: Path, texts: dict[str, str], at: int, delay: float) -> None:
    async with Root() as root:
        library = Library(root, directory)
        library.holds(**texts)
        library.embedder = _Writing(log)
        library.embedder.pause = 0.01
        count = _kill_us(at, delay)
        await library.build()
        print(count[0], flush=True)


if __name__ == "__main__":
    place, log, sources, at, delay = sys.argv[1:]
    trio.run(_be_killed, Path(place), Path(log), json.loads(Path(sources).read_text()), int(at), float(delay))
