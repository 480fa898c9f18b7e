"""A simple store: what nodes were given and said, found again by likeness.

    kept      "Input: ...\\nOutput: ...", once, with the vector of what follows the headings
    found     the nearest by their vectors, three times as many as are wanted, that are near enough; of those the best
              by .7 of the cosine and .3 of `likeness`

Vectors of another model than today's are made anew when they are needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....work.knowledge.embed import local
from .likeness import brief, likeness, plain
from .notebook import Note, Notebook
from .stores import Experience, Question

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .vectors import Vectorizer

MOST = 1000
"""Texts that are kept."""

SHORTEST = 20
"""Characters of a text that is worth keeping."""

QUERY = 500
LONGEST = 8_000
"""Characters of what was given, and of what was said, that are kept."""

BY_VECTOR = 0.7
"""Of the score; the rest is `likeness`."""


class Simple:
    """See the module.

    Args:
        path: where it is kept; None for as long as the run.
        embedder: makes vectors, on behalf of the actor it is given.
        whole: keep what was said; else the first sentences.
    """

    def __init__(self, name: str, path: Path | None, embedder: Callable[[Actor], Vectorizer], *, whole: bool) -> None:
        self._notes = Notebook(path, most=MOST, name=name)
        self._embedder = embedder
        self._whole = whole

    async def recall(self, me: Actor, question: Question) -> list[str]:
        """See `Store.recall`."""
        notes: Mapping[int, Note] = await self._notes.all()
        text = plain(question.text, QUERY)
        if not notes or not text:
            return []
        embedder = self._embedder(me)
        asked = (await embedder.embed(me, [text], query=True))[0].tobytes()
        notes = await self._with_vectors(me, embedder, notes, len(asked))
        if embedder.model == local.WORDS:  # other cosines than those of meaning: one word in common is near enough
            question = msgspec.structs.replace(question, threshold=min(question.threshold, local.LEAST))
        return await trio.to_thread.run_sync(partial(_nearest, list(notes.values()), asked, text, question))

    async def remember(self, me: Actor, experience: Experience) -> None:
        """See `Store.remember`."""
        given, said = experience.given, experience.said
        if self._whole:
            text = f"Input: {given.strip()[:LONGEST]}\nOutput: {said.strip()[:LONGEST]}"
        else:
            text = brief(f"Input: {given}\nOutput: {said}")
        if not said.strip() or len(text) < SHORTEST:
            return
        embedder = self._embedder(me)
        vector = (await embedder.embed(me, [_bare(text)]))[0].tobytes()
        digest = hashlib.md5(text.encode(errors="replace"), usedforsecurity=False).hexdigest()
        await self._notes.add(Note(text=text, digest=digest, model=embedder.model, vector=vector))

    async def aclose(self) -> None:
        """See `Store.aclose`."""
        self._notes.close()

    async def _with_vectors(
        self, me: Actor, embedder: Vectorizer, notes: Mapping[int, Note], size: int
    ) -> Mapping[int, Note]:
        """The notes, each with a vector of this model, of so many bytes."""
        old = [
            number
            for number, note in notes.items()
            if note.vector is None or note.model != embedder.model or len(note.vector) != size
        ]
        if not old:
            return notes
        rows = await embedder.embed(me, [_bare(notes[number].text) for number in old])
        vectors = {number: row.tobytes() for number, row in zip(old, rows, strict=True)}
        await self._notes.set_vectors(embedder.model, vectors)
        again = {
            number: msgspec.structs.replace(notes[number], model=embedder.model, vector=vector)
            for number, vector in vectors.items()
        }
        return {**notes, **again}


def _bare(text: str) -> str:
    """A note as its vector means it: the headings are in all of them, and would make all of them alike."""
    return text.removeprefix("Input: ").replace("\nOutput: ", "\n", 1)


def _nearest(notes: list[Note], asked: bytes, text: str, question: Question) -> list[str]:
    """The texts that answer best."""
    import numpy as np

    vectors = [note.vector for note in notes]
    rows = np.stack([np.frombuffer(vector or b"", dtype=np.float32) for vector in vectors])
    cosines = rows @ np.frombuffer(asked, dtype=np.float32)
    near = np.argsort(-cosines, kind="stable")[: 3 * question.top_k]
    scored = [
        (BY_VECTOR * float(cosines[i]) + (1 - BY_VECTOR) * likeness(text, notes[i].text), i)
        for i in near
        if cosines[i] >= question.threshold
    ]
    scored.sort(key=lambda each: (-each[0], each[1]))
    return [notes[i].text for _, i in scored[: question.top_k]]
