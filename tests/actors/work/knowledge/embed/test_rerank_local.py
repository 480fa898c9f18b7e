"""`local:minilm` as a reranker, in the local engine on the real weights where they were pulled."""

from __future__ import annotations

import os
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.work.knowledge.embed.cache import EmbeddingCache
from callboard.actors.work.knowledge.embed.embedders import Embedders
from callboard.actors.work.models import weights
from callboard.protocol.settings import Settings
from callboard.supervisors import Root

pytestmark = pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the extra `local` is not installed")

QUERY = "How do I get my money back?"
TEXTS = [
    "Money back then was made of silver, and how people got it is a story of its own.",
    "Refunds are paid within ten days after the goods have arrived in our warehouse.",
    "The opening hours of the shop.",
]


async def test_what_answers_comes_before_what_shares_words(tmp_path: Path, event_collector: Any) -> None:
    if not weights.KNOWN["minilm"].are_in(weights.directory(os.environ)):
        pytest.skip("run: callboard models pull minilm")
    cache = EmbeddingCache(tmp_path / "embeddings.sqlite")
    async with (
        Root() as root,
        aclosing(Embedders(Settings(), os.environ, owner=root, cache=cache)) as embedders,
    ):
        reranker = embedders.reranker("local:minilm")
        scores = await reranker.rerank(event_collector, QUERY, TEXTS)
        assert max(scores) == scores[1]
        assert min(scores) == scores[2]
        assert await reranker.rerank(event_collector, QUERY, TEXTS) == scores
