"""One base for everybody: how often it is opened, what the event loop notices, when it changes and when it goes."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import msgspec
import numpy as np
import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.cpu_time import slowness
from support.fake_models import Reply, Request
from support.tiny_weights import WORDS

import callboard
from callboard.actors.work.knowledge.base.base import SourceChanges
from callboard.actors.work.knowledge.recipe import Recipe
from callboard.actors.work.knowledge.run_knowledge import LOOK
from callboard.actors.work.knowledge.sources.gather import AT_ONCE
from callboard.protocol.errors import KnowledgeMissing
from callboard.protocol.knowledge import Retrieved
from callboard.supervisors import Actor

GOAL = 0.02
"""Seconds of CPU that the event loop may use between two ticks; a busy machine may take five times as long."""

GRAPH = """
start: look
nodes:
  look: {type: rag, documents: [notes/], state_updates: {found: "{{output.sources[0]}}"}, next: e}
  e: {type: end, output: "{{found}}"}
"""


def recipe(home: Path) -> Recipe:
    return Recipe(
        what="the notes", target="notes", directory=home / "notes.kb", documents=("notes/",), base=home, chunk_size=200
    )


async def as_actor(agent_runner: AgentRunner, body: Callable[[Actor], Awaitable[object]]) -> object:
    """Do it as an actor of the stage's root."""
    return await agent_runner.root.kernel.spawn(body, name="test", link=False).result()


async def test_fifty_agents_share_one_open_index_and_the_loop_ticks_on(
    knowing: AgentRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    home = knowing.agent(GRAPH)
    (home / "notes").mkdir()
    for number, word in enumerate(WORDS):
        (home / "notes" / f"{word}.txt").write_text(f"{word} {number}\n\n" * 40)
    await knowing.run("moon")
    reader = callboard.load(home)
    late: list[float] = []
    gc.collect()
    gc.freeze()  # what the tests before have left is not looked at again in the middle

    async def tick(_: Actor) -> None:
        while True:
            began = time.thread_time()
            await trio.sleep(0.002)
            late.append(time.thread_time() - began)

    ticker = knowing.root.kernel.spawn(tick, name="ticker", link=False)
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(knowing.run, WORDS[number % len(WORDS)], reader)
            await trio.lowlevel.checkpoint()  # they come one after the other, as agents do
    ticker.cancel()
    gc.unfreeze()
    found = [data.outcome["output"] for data in knowing.of("run.finished")][1:]
    assert sorted(found) == sorted(f"notes/{WORDS[number % len(WORDS)]}.txt" for number in range(50))
    pool = knowing.root.knowledge.statistics
    assert (pool.opened, pool.lost, pool.leased) == (1, 0, 0)
    with capsys.disabled():
        print(f" [most CPU between two ticks of the event loop: {max(late) * 1e3:.1f} ms] ", end="")
    assert max(late) < 5 * GOAL * slowness()


async def test_what_was_built_is_read_by_those_who_have_it_open(knowing: AgentRunner, tmp_path: Path) -> None:
    knowledge, notes = knowing.root.knowledge, recipe(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("flour")

    async def body(me: Actor) -> tuple[Retrieved, Retrieved]:
        await knowledge.build(me, notes)
        before = await knowledge.retrieve(me, notes, "moon", mode="keyword")
        (tmp_path / "notes" / "b.txt").write_text("moon")
        changes = await knowledge.changes(me, notes)
        assert (changes.added, changes.changed, changes.removed) == (("notes/b.txt",), (), ())
        await knowledge.build(me, notes)
        return before, await knowledge.retrieve(me, notes, "moon", mode="keyword")

    before, after = await as_actor(knowing, body)
    assert (before.sources, after.sources) == ((), ("notes/b.txt",))
    assert knowledge.statistics.opened == 1


async def test_each_mode_looks_with_its_own_index(knowing: AgentRunner, tmp_path: Path) -> None:
    knowledge, notes = knowing.root.knowledge, recipe(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("moon 42")

    async def body(me: Actor) -> None:
        await knowledge.build(me, notes)
        assert not (await knowledge.retrieve(me, notes, "43", mode="keyword")).chunks
        assert (await knowledge.retrieve(me, notes, "moon", mode="vector")).chunks
        assert (await knowledge.retrieve(me, notes, "moon", filters=["notes/*.md"])).chunks == ()

    await as_actor(knowing, body)


async def test_a_dropped_base_is_gone_and_can_be_built_again(knowing: AgentRunner, tmp_path: Path) -> None:
    knowledge, notes = knowing.root.knowledge, recipe(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("flour")

    async def body(me: Actor) -> None:
        await knowledge.build(me, notes)
        await knowledge.retrieve(me, notes, "flour")
        await knowledge.drop(notes)
        assert not notes.directory.exists()
        with pytest.raises(KnowledgeMissing):
            await knowledge.retrieve(me, notes, "flour")
        (tmp_path / "notes" / "a.txt").write_text("eggs")
        await knowledge.build(me, notes)
        assert (await knowledge.retrieve(me, notes, "eggs")).context == "[Source: notes/a.txt]\neggs"

    await as_actor(knowing, body)


async def test_pages_are_not_looked_at_to_see_what_has_changed(knowing: AgentRunner, tmp_path: Path) -> None:
    knowledge = knowing.root.knowledge
    notes = msgspec.structs.replace(
        recipe(tmp_path), documents=("notes/", f"{knowing.models.url}/page", f"{knowing.models.url}/**")
    )
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("flour")

    async def body(me: Actor) -> None:
        report = await knowledge.build(me, notes)
        assert len(report.unreadable) == 2  # private addresses are refused
        assert not await knowledge.changes(me, notes)
        assert (await knowledge.changes(me, notes)).unreadable == ()
        assert len((await knowledge.changes(me, notes, pages=True)).unreadable) == 2

    await as_actor(knowing, body)
    assert knowing.models.requests == []


async def test_the_recipes_reranker_decides_and_is_told_the_query_in_every_mode(
    knowing: AgentRunner, tmp_path: Path
) -> None:
    def judge(request: Request) -> Reply:
        texts = request.json["documents"]
        results = [{"index": n, "relevance_score": float("eggs" in text)} for n, text in enumerate(texts)]
        return Reply(raw=json.dumps({"results": results}).encode())

    knowing.models.answer_with(judge)
    knowledge = knowing.root.knowledge
    notes = msgspec.structs.replace(recipe(tmp_path), reranker_model="fake:judge", top_k=1)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("flour flour")
    (tmp_path / "notes" / "b.txt").write_text("flour eggs")

    async def body(me: Actor) -> None:
        await knowledge.build(me, notes)
        for mode in ("hybrid", "keyword", "vector"):
            assert (await knowledge.retrieve(me, notes, " flour ", mode=mode)).sources == ("notes/b.txt",)
        assert (await knowledge.retrieve(me, notes, "flour", rerank=False)).sources == ("notes/a.txt",)

    await as_actor(knowing, body)
    assert [request.json["query"] for request in knowing.models.requests] == ["flour"] * 3


async def test_who_waits_for_a_vector_while_all_is_built_with_another_model_asks_that_one(
    knowing: AgentRunner, tmp_path: Path
) -> None:
    knowledge, notes = knowing.root.knowledge, recipe(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("flour")
    asked: list[str] = []
    released, waiting = trio.Event(), trio.Event()

    class Slow:
        dimension = 4

        def __init__(self, model: str) -> None:
            self.model = model

        async def embed(self, _: object, texts: list[str], *, query: bool = False) -> object:
            if query:
                asked.append(self.model)
                waiting.set()
                await released.wait()
            return np.ones((len(texts), self.dimension), np.float32)

    for model in ("ollama:old", "ollama:new"):
        knowledge.embedders._embedders[model, None] = Slow(model)

    async def body(me: Actor) -> None:
        await knowledge.build(me, msgspec.structs.replace(notes, embedding_model="ollama:old"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(knowledge.retrieve, me, notes, "flour")
            await waiting.wait()
            await knowledge.build(me, msgspec.structs.replace(notes, embedding_model="ollama:new"), rebuild=True)
            released.set()

    await as_actor(knowing, body)
    assert asked == ["ollama:old", "ollama:new"]


async def test_turns_are_forgotten_when_nobody_waits(knowing: AgentRunner) -> None:
    home = knowing.agent(GRAPH)
    (home / "notes").mkdir()
    (home / "notes" / "a.txt").write_text("moon")
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(knowing.run, "moon")
    assert knowing.root.knowledge._turns == {}


async def test_two_thousand_files_that_nobody_needs_to_read_let_others_have_their_turn(
    knowing: AgentRunner, tmp_path: Path
) -> None:
    knowledge, notes = knowing.root.knowledge, recipe(tmp_path)
    (tmp_path / "notes").mkdir()
    for number in range(2_000):
        (tmp_path / "notes" / f"{number}.txt").touch()
    turns = 0

    async def count(_: Actor) -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async def body(me: Actor) -> None:
        nonlocal turns
        async with aclosing(knowledge._found(me, notes, notes.documents, None)) as found:
            await anext(found)
            turns = 0
            assert len([each async for each in found]) == 1_999

    counter = knowing.root.kernel.spawn(count, name="count", link=False)
    await as_actor(knowing, body)
    counter.cancel()
    assert turns >= 2_000 / AT_ONCE - 1


async def test_a_look_that_takes_too_long_is_not_taken_again_by_everybody(
    knowing: AgentRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    knowledge, looks = knowing.root.knowledge, 0

    async def endless(*_: object) -> SourceChanges:
        nonlocal looks
        looks += 1
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(knowledge, "changes", endless)

    async def body(me: Actor) -> None:
        for _ in range(100):
            with trio.move_on_after(LOOK):
                await knowledge.changes_lately(me, recipe(tmp_path))

    await as_actor(knowing, body)
    assert looks == 1
