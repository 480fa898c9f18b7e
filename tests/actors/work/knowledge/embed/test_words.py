"""Vectors of the words themselves."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, cast

import numpy as np
import trio

from callboard.actors.work.knowledge.embed.embedders import Embedders
from callboard.actors.work.knowledge.embed.local import WORDS as MODEL
from callboard.protocol.settings import Settings

ME = cast("Any", None)


async def vectors(*texts: str) -> Any:
    async with aclosing(Embedders(Settings(), {})) as embedders:
        embedder = embedders.of(MODEL)
        rows = await embedder.embed(ME, texts)
        assert rows.shape == (len(texts), embedder.dimension)
        return rows


async def test_texts_are_near_where_they_share_words_and_long_ones_above_all() -> None:
    question, same, near, short, other = await vectors(
        "How are bicycles repaired?",
        "how ARE bicycles repaired",
        "A bicycle, and how it is repaired.",
        "How are you?",
        "Eggs make cakes.",
    )
    likeness = [float(question @ row) for row in (same, near, short, other)]
    assert likeness[0] > 0.999
    assert likeness == sorted(likeness, reverse=True)
    assert likeness[1] > 0.4
    assert abs(likeness[3]) < 0.1


async def test_scripts_without_spaces_are_near_by_their_pairs() -> None:
    question, near, other = await vectors("自行车修理", "怎样修理自行车", "鸡蛋蛋糕")
    assert question @ near > 0.5 > 0.1 > abs(question @ other)


async def test_a_text_of_no_words_is_like_nothing() -> None:
    rows = await vectors("", "...", "word")
    assert not rows[:2].any()
    assert np.isclose(rows[2] @ rows[2], 1.0)


async def test_many_texts_leave_others_their_turn() -> None:
    with trio.fail_after(60):
        rows = await vectors(*(f"word{number} and more" for number in range(1000)))
    assert np.isclose(np.linalg.norm(rows, axis=1), 1.0).all()
