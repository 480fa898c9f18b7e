"""What was embedded once is found again: by other processes, after damage, within its bound."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_models import FakeModels, Reply, Request
from support.messages import has_message
from support.starter import forked_code

from callboard.actors.work.knowledge.embed import cache as cache_module
from callboard.actors.work.knowledge.embed.cache import (
    KEPT,
    OF_A_ROW,
    TOUCHED_EVERY,
    EmbeddingCache,
    default_path,
    key_of,
)
from callboard.actors.work.knowledge.embed.embedders import Embedders
from callboard.protocol.errors import ModelError
from callboard.protocol.settings import ClientSettings, Settings

KEYS = [key_of("m", str(n), query=False) for n in range(40)]
VECTOR = bytes(100)


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[EmbeddingCache]:
    cache = EmbeddingCache(tmp_path / "deep" / "c.sqlite")
    yield cache
    await cache.aclose()


async def test_what_was_put_is_found_also_after_closing(cache: EmbeddingCache) -> None:
    assert await cache.get(KEYS) == {}
    await cache.put({KEYS[0]: b"one", KEYS[1]: b"two"})
    await cache.aclose()
    assert await cache.get(KEYS) == {KEYS[0]: b"one", KEYS[1]: b"two"}


def test_keys_tell_models_texts_and_queries_apart() -> None:
    keys = {key_of(model, text, query=query) for model in "ab" for text in ("x", "y") for query in (True, False)}
    assert len(keys) == 8


def test_it_lives_in_the_cache_directory() -> None:
    assert default_path({"XDG_CACHE_HOME": "/c"}) == Path("/c/callboard/embeddings.sqlite")


async def test_the_first_vector_of_a_text_stays_unless_its_length_is_another(cache: EmbeddingCache) -> None:
    await cache.put({KEYS[0]: b"one"})
    await cache.put({KEYS[0]: b"two"})
    assert await cache.get(KEYS) == {KEYS[0]: b"one"}
    await cache.put({KEYS[0]: b"four"})
    assert await cache.get(KEYS) == {KEYS[0]: b"four"}


async def test_beyond_its_bound_the_longest_unused_go(tmp_path: Path) -> None:
    clock = Clock()
    row = len(VECTOR) + OF_A_ROW
    cache = EmbeddingCache(tmp_path / "c.sqlite", most=20 * row, now=clock)
    await cache.put(dict.fromkeys(KEYS[:10], VECTOR))
    clock.time += TOUCHED_EVERY
    await cache.put(dict.fromkeys(KEYS[10:20], VECTOR))
    clock.time += TOUCHED_EVERY
    assert len(await cache.get(KEYS[:2])) == 2
    await cache.aclose()
    for key in KEYS[20:22]:
        await cache.put({key: VECTOR})
    left = await cache.get(KEYS)
    assert len(left) in (int(20 * KEPT), int(20 * KEPT) + 1)
    assert set(KEYS[20:22]) | set(KEYS[:2]) <= set(left)
    assert KEYS[2] not in left
    await cache.aclose()
    with sqlite3.connect(tmp_path / "c.sqlite") as file:
        assert file.execute("SELECT bytes FROM total").fetchone() == (len(left) * row,)
    file.close()


@pytest.mark.parametrize("content", [b"this is no database " * 100, b"SQLite format 3\0" + b"x" * 5000])
async def test_a_broken_file_is_begun_anew(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.sqlite").write_bytes(content)
    cache = EmbeddingCache(tmp_path / "c.sqlite")
    assert await cache.get(KEYS) == {}
    await cache.put({KEYS[0]: b"one"})
    assert await cache.get(KEYS) == {KEYS[0]: b"one"}
    await cache.aclose()


async def test_a_file_of_another_version_is_begun_anew(cache: EmbeddingCache) -> None:
    await cache.put({KEYS[0]: b"one"})
    await cache.aclose()
    with sqlite3.connect(cache.path) as file:
        file.execute("PRAGMA user_version = 99")
    file.close()
    assert await cache.get(KEYS) == {}
    await cache.put({KEYS[0]: b"two"})
    assert await cache.get(KEYS) == {KEYS[0]: b"two"}


SEVERAL = """
import sys, trio
from pathlib import Path
from callboard.actors.work.knowledge.embed.cache import EmbeddingCache, key_of

async def main(path, who):
    cache = EmbeddingCache(Path(path), most=30_000)
    for n in range(60):
        mine = key_of("m", f"{who} {n}", query=False)
        await cache.put({mine: bytes(100), key_of("m", f"all {n}", query=False): bytes(100)})
        assert len(await cache.get([mine])) <= 1
    await cache.aclose()

trio.run(main, *sys.argv[1:])
"""


def test_several_processes_use_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    arguments = [*forked_code(SEVERAL), str(path)]
    processes = [subprocess.Popen([*arguments, str(who)]) for who in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    with sqlite3.connect(path) as file:
        rows, size = file.execute("SELECT count(*), sum(length(vector) + 120) FROM vectors").fetchone()
        assert file.execute("SELECT bytes FROM total").fetchone() == (size,)
    file.close()
    assert 0 < size <= 30_000
    assert rows > 50


# --- an embedder with a cache -----------------------------------------------------------------------------


@pytest.fixture
async def make(provider: FakeModels, cache: EmbeddingCache) -> AsyncIterator[Any]:
    """A new embedder with the same cache, as another run would have it."""
    made: list[Embedders] = []

    def one(**options: Any) -> Any:
        client = ClientSettings(type="openai-compatible", name="fake", api_base=provider.openai_base)
        made.append(Embedders(Settings(clients=(client,)), {}, cache=options.pop("cache", cache)))
        return made[-1].of("fake:m", **options)

    yield one
    for each in made:
        await each.aclose()


def asked(provider: FakeModels) -> list[str]:
    return [text for request in provider.requests for text in request.json["input"]]


async def test_no_text_is_embedded_twice(provider: FakeModels, make: Any, event_collector: Any) -> None:
    first = await make().embed(event_collector, ["a", "bb", "a"])
    assert asked(provider) == ["a", "bb"]
    again = await make().embed(event_collector, ["a", "ccc", "bb"])
    assert asked(provider) == ["a", "bb", "ccc"]
    np.testing.assert_array_equal(first[0], first[2])
    np.testing.assert_array_equal(again[[0, 2]], first[:2])  # to the last bit
    np.testing.assert_allclose(np.linalg.norm(again, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(again[1] / again[1][0], [1, 4], rtol=2e-3)


async def test_queries_are_no_texts(provider: FakeModels, make: Any, event_collector: Any) -> None:
    await make().embed(event_collector, ["a"])
    await make().embed(event_collector, ["a"], query=True)
    assert asked(provider) == ["a", "a"]


async def test_what_was_done_before_a_failure_is_kept(
    provider: FakeModels, make: Any, event_collector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "PART", 2)
    ready = provider._answer

    def failing(request: Request) -> Any:
        return Reply(status=400, error="no") if "5" in request.json["input"] else ready(request)

    provider.answer_with(failing)
    with pytest.raises(ModelError):
        await make().embed(event_collector, list("123456"))
    provider.answer_with(ready)
    await make().embed(event_collector, list("123456"))
    assert asked(provider) == ["1", "2", "3", "4", "5", "6", "5", "6"]


async def test_a_cache_that_cannot_be_used_is_told_once_and_done_without(
    provider: FakeModels, make: Any, event_collector: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    embedder = make(cache=EmbeddingCache(tmp_path / "file" / "c.sqlite"))
    for _ in range(2):
        assert len(await embedder.embed(event_collector, ["a", "bb"])) == 2
    (warning,) = event_collector.events
    assert warning.code == "embedding_cache"
    assert has_message(warning.message, "work.knowledge.embed.cache.Cached._do_without", path="…c.sqlite")


async def test_another_model_under_the_same_name_is_noticed(
    provider: FakeModels, make: Any, event_collector: Any
) -> None:
    await make().embed(event_collector, ["a", "bb"])
    embedder = make()
    provider.script(Reply(raw=b'{"data": [{"embedding": [1, 2, 3]}]}'))
    assert (await embedder.embed(event_collector, ["new"])).shape == (1, 3)
    provider.script(Reply(raw=b'{"data": [{"embedding": [1, 2, 3]}, {"embedding": [3, 2, 1]}]}'))
    assert (await embedder.embed(event_collector, ["a", "bb"])).shape == (2, 3)
    assert (await make().embed(event_collector, ["bb", "a"])).shape == (2, 3)
    assert len(provider.requests) == 3
