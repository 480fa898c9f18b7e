"""MiniLM in the local engine, on the real weights where they were pulled."""

from __future__ import annotations

import os
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from support.messages import has_message, says

from callboard.actors.work.knowledge.embed.embedders import MINILM, Embedders
from callboard.actors.work.models import weights
from callboard.protocol.errors import ConfigError
from callboard.protocol.settings import Settings
from callboard.supervisors import Root

pytestmark = pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the extra `local` is not installed")


@pytest.fixture
def pulled() -> None:
    if not weights.KNOWN["minilm"].are_in(weights.directory(os.environ)):
        pytest.skip("run: callboard models pull minilm")


async def test_without_weights_the_command_is_named(tmp_path: Any) -> None:
    async with aclosing(Embedders(Settings(), {"XDG_CACHE_HOME": str(tmp_path)})) as embedders:
        with pytest.raises(ConfigError, match=says("work.models.weights.pulled.3", name="minilm")):
            embedders.of(MINILM)


async def test_without_an_owner_no_engine_is_started(pulled: None) -> None:
    async with aclosing(Embedders(Settings(), os.environ)) as embedders:
        with pytest.raises(ConfigError, match=says("work.knowledge.embed.embedders.Embedders._of_the_engine")):
            embedders.of(MINILM)


async def test_the_vectors_are_those_of_the_original_model(pulled: None, event_collector: Any) -> None:
    """The similarities are the ones that its publisher shows for these sentences."""
    texts = ["That is a happy person", "That is a very happy person", "That is a happy dog", "Today is a sunny day"]
    async with Root() as root, aclosing(Embedders(Settings(), os.environ, owner=root)) as embedders:
        embedder = embedders.of(MINILM)
        vectors = await embedder.embed(event_collector, texts)
        assert embedder.dimension == 384
        np.testing.assert_allclose(vectors @ vectors[0], [1, 0.943, 0.695, 0.257], atol=0.01)
        long = await embedder.embed(event_collector, ["x y " * 3000, "short", ""])
        np.testing.assert_allclose(np.linalg.norm(long, axis=1), 1, rtol=1e-5)
        assert has_message(
            event_collector.events[-1].message,
            "work.knowledge.embed.remote.Remote.embed",
            count="1 text was",
            model="local:minilm",
        )
