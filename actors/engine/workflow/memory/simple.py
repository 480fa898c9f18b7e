r"""Simple store: inputs and outputs of nodes, searched by similarity.

    stored    "Input: ...\nOutput: ...", once, with the vector of the text without these headings
    found     the nearest by vector within the threshold, three times as many as requested; the best of these by
              .7 of the cosine and .3 of `likeness`

Vectors of another model than the current one are recomputed on demand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec
import trio

from .....supervisors import Actor
from ....work.knowledge.embed import local
from .notebook import Note, Notebook
from .similarity import brief, likeness, plain
from .stores import MemoryStore
from .vectors import OrWords

# `MOST`, `SHORTEST`, `BY_VECTOR`, and the factor 3 in `_nearest` are DevAll's.
MOST = 1000
"""Most stored texts."""

SHORTEST = 20
"""Shortest text in characters that is stored."""

QUERY = 500
LONGEST = 8_000
"""Most stored characters of the input, and of the output."""

BY_VECTOR = 0.7
"""Weight of the cosine in the score; the rest is `likeness`."""


class SimpleMemory(MemoryStore):
    """Memory store in a notebook.

    Args:
        notes: the notebook.
        vectors: computes the vectors.
        whole: store the whole output; otherwise its first sentences.
    """

    def __init__(self, notes: Notebook, vectors: OrWords, *, whole: bool) -> None:
        self._notes = notes
        self._vectors = vectors
        self._whole = whole

    async def recall(self, me: Actor, text: str, *, top_k: int, threshold: float) -> list[str]:
        notes: Mapping[int, Note] = await self._notes.all()
        text = plain(text, QUERY)
        if not notes or not text:
            return []
        asked = (await self._vectors.embed(me, [text], query=True))[0].tobytes()
        notes = await self._with_vectors(me, notes, len(asked))
        if self._vectors.model == local.WORDS:  # cosines of word vectors are lower: a single common word is near enough
            threshold = min(threshold, local.LEAST)
        return await trio.to_thread.run_sync(_nearest, list(notes.values()), asked, text, top_k, threshold)

    async def remember(self, me: Actor, given: str, said: str, key: str | None = None) -> None:  # noqa: ARG002 - a `MemoryStore`
        if self._whole:
            text = f"Input: {given.strip()[:LONGEST]}\nOutput: {said.strip()[:LONGEST]}"
        else:
            text = brief(f"Input: {given}\nOutput: {said}")
        if not said.strip() or len(text) < SHORTEST:
            return
        vector = (await self._vectors.embed(me, [_bare(text)]))[0].tobytes()
        digest = hashlib.md5(text.encode(errors="replace"), usedforsecurity=False).hexdigest()
        await self._notes.add(Note(text=text, digest=digest, model=self._vectors.model, vector=vector))

    def close(self) -> None:
        self._notes.close()

    async def _with_vectors(self, me: Actor, notes: Mapping[int, Note], size: int) -> Mapping[int, Note]:
        """Return the notes, each with a vector of this model and of `size` bytes."""
        model = self._vectors.model
        # Another model or another size of the same model: cosines between both mean nothing.
        old = [
            number
            for number, note in notes.items()
            if note.vector is None or note.model != model or len(note.vector) != size
        ]
        if not old:
            return notes
        rows = await self._vectors.embed(me, [_bare(notes[number].text) for number in old])
        made = {number: row.tobytes() for number, row in zip(old, rows, strict=True)}
        await self._notes.set_vectors(model, made)
        again = {number: msgspec.structs.replace(notes[number], model=model, vector=made[number]) for number in old}
        return {**notes, **again}


def _bare(text: str) -> str:
    """Return a note without its headings, which are in all notes and would make all of them similar."""
    return text.removeprefix("Input: ").replace("\nOutput: ", "\n", 1)


def _nearest(notes: list[Note], asked: bytes, text: str, top_k: int, threshold: float) -> list[str]:
    import numpy as np

    vectors = [note.vector for note in notes]
    rows = np.stack([np.frombuffer(vector or b"", dtype=np.float32) for vector in vectors])
    cosines = rows @ np.frombuffer(asked, dtype=np.float32)
    # Stable, so that a replay finds equal texts in the same order.
    near = np.argsort(-cosines, kind="stable")[: 3 * top_k]
    scored = [
        (BY_VECTOR * float(cosines[i]) + (1 - BY_VECTOR) * likeness(text, notes[i].text), i)
        for i in near
        if cosines[i] >= threshold
    ]
    scored.sort(key=lambda each: (-each[0], each[1]))
    return [notes[i].text for _, i in scored[:top_k]]
