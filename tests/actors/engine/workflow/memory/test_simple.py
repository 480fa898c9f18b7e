"""A simple store whose model changes: what was kept is found all the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from callboard.actors.engine.workflow.memory.notebook import Notebook
from callboard.actors.engine.workflow.memory.stores import MOST, SimpleMemory

np = pytest.importorskip("numpy", reason="the extra `embed` is not installed")

ME = cast("Any", None)
WORDS = ("cake", "eggs", "flour", "moon", "rings", "stones")


class Counting:
    """A vector says how often each word is there.

    Attributes:
        embedded: texts that were no queries.
    """

    def __init__(self, model: str, words: Sequence[str]) -> None:
        self.model = model
        self.embedded: list[str] = []
        self._words = words

    async def embed(self, me: Any, texts: Sequence[str], *, query: bool = False) -> Any:
        if not query:
            self.embedded += texts
        rows = np.array([[text.lower().count(word) for word in self._words] for text in texts], dtype=np.float32)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.divide(rows, lengths, out=rows, where=lengths > 0)


async def found(store: SimpleMemory, text: str, **options: Any) -> list[str]:
    return await store.recall(ME, text, **{"top_k": 3, "threshold": 0.1, **options})


@pytest.mark.parametrize("later", [Counting("other", WORDS), Counting("one", WORDS[:4])], ids=["model", "size"])
async def test_vectors_of_another_model_or_size_are_made_anew_once(later: Counting) -> None:
    first = Counting("one", WORDS)
    notes = Notebook(None, most=MOST, name="s")
    store = SimpleMemory(notes, cast("Any", first), whole=True)
    await store.remember(ME, "a cake", "flour and eggs")
    await store.remember(ME, "the moon", "has rings of stones")
    assert await found(store, "flour") == ["Input: a cake\nOutput: flour and eggs"]
    assert first.embedded == ["a cake\nflour and eggs", "the moon\nhas rings of stones"]
    store = SimpleMemory(notes, cast("Any", later), whole=True)
    for _ in range(2):
        assert await found(store, "flour") == ["Input: a cake\nOutput: flour and eggs"]
    assert later.embedded == first.embedded
    store.close()


async def test_the_nearest_come_first_and_only_those_that_are_near_enough() -> None:
    embedder = Counting("one", WORDS)
    store = SimpleMemory(Notebook(None, most=MOST, name="s"), cast("Any", embedder), whole=True)
    for said in ("cake cake eggs", "cake of moon and stones", "only moon, moon, moon"):
        await store.remember(ME, "well", said)
    assert [text.partition("Output: ")[2] for text in await found(store, "cake")] == [
        "cake cake eggs",
        "cake of moon and stones",
    ]
    assert len(await found(store, "cake", top_k=1)) == 1
    assert len(await found(store, "cake", threshold=-1.0)) == 3
    assert await found(store, "  ") == []
    store.close()
