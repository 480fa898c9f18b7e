"""Static embeddings: the mean of the tokens' vectors, from weights in the cache directory."""

from __future__ import annotations

import os
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
import trio.testing
from support.messages import says
from support.tiny_weights import put_weights
from support.waiting import PATIENCE

from callboard.actors.work.knowledge.embed import local
from callboard.actors.work.knowledge.embed.embedders import Embedders
from callboard.actors.work.models import weights
from callboard.protocol.errors import ConfigError
from callboard.protocol.settings import Settings


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The vectors of "[UNK]", "a", "b", "c", which are the weights in a cache directory."""
    return put_weights(monkeypatch, tmp_path, "abc")


@pytest.fixture
def environ(tmp_path: Path, matrix: Any) -> dict[str, str]:
    """Where those weights are."""
    return {"XDG_CACHE_HOME": str(tmp_path)}


def unit(row: Any) -> Any:
    return row / np.linalg.norm(row)


async def test_a_text_is_the_mean_of_its_words(environ: dict[str, str], matrix: Any, event_collector: Any) -> None:
    async with aclosing(Embedders(Settings(), environ)) as embedders:
        embedder = embedders.of()
        assert (embedder.model, embedder.dimension) == ("local:static", 256)
        vectors = await embedder.embed(event_collector, ["a", "a b", "b a", "", "c c c", "\ud800"])
    rows = matrix.astype(np.float32)
    expected = [rows[1], rows[1] + rows[2], rows[1] + rows[2], None, rows[3], rows[0]]
    for vector, row in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(vector, np.zeros(256) if row is None else unit(row), atol=1e-6)


async def test_any_number_of_texts_keeps_its_order(
    environ: dict[str, str], event_collector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_AT_A_TIME", 50)
    texts = ["a b c"[: 1 + 2 * (n % 3)] for n in range(120)]
    async with aclosing(Embedders(Settings(), environ)) as embedders:
        vectors = await embedders.of().embed(event_collector, texts)
        assert (await embedders.of().embed(event_collector, [])).shape == (0, 256)
    np.testing.assert_array_equal(vectors, vectors[[n % 3 for n in range(120)]])


async def test_the_event_loop_goes_on_meanwhile(
    environ: dict[str, str], event_collector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    vectors = local._Weights.vectors

    def waiting(self: local._Weights, texts: list[str]) -> Any:
        assert goes_on.wait(PATIENCE), "the event loop stood still"
        return vectors(self, texts)

    monkeypatch.setattr(local._Weights, "vectors", waiting)
    async with aclosing(Embedders(Settings(), environ)) as embedders, trio.open_nursery() as nursery:
        nursery.start_soon(embedders.of().embed, event_collector, ["a"])
        await trio.testing.wait_all_tasks_blocked()
        goes_on.set()


async def test_without_weights_the_command_is_named(tmp_path: Path) -> None:
    async with aclosing(Embedders(Settings(), {"XDG_CACHE_HOME": str(tmp_path)})) as embedders:
        with pytest.raises(
            ConfigError, match=says("work.models.weights.pulled.3", id="local:static", name="wordllama")
        ):
            embedders.of("local:static")


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("data", [None, b"", b"x" * 500, b"\xff\xff\xff\xff\xff\xff\xff\x7f{}"])
async def test_weights_that_went_or_broke_meanwhile_are_told(
    environ: dict[str, str], event_collector: Any, number: int, data: bytes | None
) -> None:
    async with aclosing(Embedders(Settings(), environ)) as embedders:
        embedder = embedders.of()
        path = weights.pulled("wordllama", environ, kind="embedding")[number]
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(ConfigError, match=says("work.knowledge.embed.local.Static._ready", PULLED_AS="wordllama")):
            await embedder.embed(event_collector, ["a"])


async def test_without_tokenizers_the_extra_is_named(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    async with aclosing(Embedders(Settings(), environ)) as embedders:
        with pytest.raises(ConfigError, match=says("work.knowledge.embed.local.Static.__init__")):
            embedders.of("local:static")


async def test_the_real_weights_know_what_is_alike(event_collector: Any) -> None:
    if not weights.KNOWN["wordllama"].are_in(weights.directory(os.environ)):
        pytest.skip("run: callboard models pull wordllama")
    texts = ["The doctor examined the patient", "A physician saw a sick man", "The train leaves at noon"]
    async with aclosing(Embedders(Settings(), os.environ)) as embedders:
        vectors = await embedders.of().embed(event_collector, texts)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.15
