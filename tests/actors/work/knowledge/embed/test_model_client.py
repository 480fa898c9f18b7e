"""Requests to models of knowledge: their limiter, which is that of chats, their waits, and their patches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from support.fake_models import FakeModels, Reply, Request
from support.messages import says
from support.model_events import EventCollector, Impatient

from callboard.actors.work.knowledge.embed.embedders import Embedders
from callboard.actors.work.knowledge.embed.remote import WITHIN, ModelClient, Post
from callboard.actors.work.models.limiter import AllowanceRules, Gates
from callboard.actors.work.models.prices.price import Price
from callboard.actors.work.models.prices.table import FREE
from callboard.protocol.errors import UpstreamError
from callboard.protocol.events import EventData, LlmEmbedding, LlmWaiting
from callboard.protocol.settings import Settings, read_settings
from callboard.supervisors import Root

from .conftest import answer


class Run(EventCollector):
    """An actor of a run, under a clock that stands still but for the waits for its turn."""

    def __init__(self, path: str, clock: trio.testing.MockClock, nursery: trio.Nursery) -> None:
        super().__init__()
        self.path = path
        self._clock = clock
        self._nursery = nursery

    def emit(self, data: EventData, *, id: str = "", corr: str = "") -> None:
        super().emit(data, id=id, corr=corr)
        if isinstance(data, LlmWaiting):
            self._nursery.start_soon(self._jump, data.wait)

    async def _jump(self, wait: float) -> None:
        await trio.testing.wait_all_tasks_blocked()
        self._clock.jump(wait)


@pytest.fixture
async def root(mock_clock: trio.testing.MockClock) -> AsyncIterator[Root]:
    async with Root() as root:
        yield root


@pytest.fixture
def me(mock_clock: trio.testing.MockClock, nursery: trio.Nursery) -> Run:
    return Run("/run/a", mock_clock, nursery)


def settings(server: FakeModels, more: str = "") -> Settings:
    lines = "\n".join(f"    {line}" for line in more.splitlines())
    client = f"  - type: openai-compatible\n    name: lab\n    api_base: {server.openai_base}\n    api_key: sk-lab\n"
    found, problems = read_settings(f"clients:\n{client}{lines}\n", "config.yaml", {})
    assert problems == []
    return found


# --- turns


async def test_a_request_that_is_one_too_many_waits_and_is_no_failed_try(
    provider: FakeModels, root: Root, me: Run, mock_clock: trio.testing.MockClock
) -> None:
    limited = Reply(status=429, error="slow down", headers={"retry-after": "20"})
    provider.script(*[limited] * 4)
    async with aclosing(Embedders(settings(provider), {}, gates=Gates(root))) as embedders:
        vectors = await embedders.of("lab:e").embed(me, ["a", "bb"])
    assert len(vectors) == 2
    assert len(provider.requests) == 5, "three tries would have been too few"
    assert trio.current_time() == pytest.approx(80)
    assert set(me.kinds()) == {"llm.waiting"}
    assert me.events[0].error == "lab:e: slow down (HTTP 429)"


async def test_one_cooldown_holds_for_all_requests_to_the_model(
    provider: FakeModels, root: Root, me: Run, mock_clock: trio.testing.MockClock
) -> None:
    provider.script(Reply(status=429, error="slow down", headers={"retry-after": "20"}))
    async with aclosing(Embedders(settings(provider), {}, gates=Gates(root))) as embedders:
        first, second = embedders.of("lab:e"), embedders.of("lab:e", batch=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.embed, me, ["a"])
            await provider.arrived(1)
            nursery.start_soon(second.embed, me, ["b"])
    assert len(provider.requests) == 3
    assert [(event.reason, event.wait) for event in me.events] == [("refused", pytest.approx(20))] * 2


async def test_who_may_not_wait_is_told_at_once(
    provider: FakeModels, root: Root, me: Run, mock_clock: trio.testing.MockClock
) -> None:
    provider.script(Reply(status=429, error="slow down", headers={"retry-after": "20"}))
    embedders = Embedders(settings(provider), {}, gates=Gates(root), may_wait=lambda _: False)
    async with aclosing(embedders):
        with pytest.raises(
            UpstreamError, match=says("work.models.call.busy.2", words="lab:e: slow down (HTTP 429)", seconds="20.0")
        ):
            await embedders.of("lab:e").embed(me, ["a"])
        provider.script(Reply(status=429, error="slow down", headers={"retry-after": "20"}))
        with pytest.raises(UpstreamError, match=says("work.models.call.busy.2", seconds="20…")):
            await embedders.reranker("lab:r").rerank(me, "q", ["a"])
    assert me.events == []


async def test_a_rate_of_the_settings_is_kept_to(
    provider: FakeModels, root: Root, me: Run, mock_clock: trio.testing.MockClock
) -> None:
    async with aclosing(Embedders(settings(provider, "requests_per_minute: 10"), {}, gates=Gates(root))) as embedders:
        for text in ("a", "b", "c"):
            await embedders.of("lab:e").embed(me, [text])
    assert [event.reason for event in me.events] == ["rate", "rate"]
    assert trio.current_time() == pytest.approx(12)


async def test_tokens_of_a_minute_are_kept_to(
    provider: FakeModels, root: Root, me: Run, mock_clock: trio.testing.MockClock
) -> None:
    async with aclosing(Embedders(settings(provider, "tokens_per_minute: 6000"), {}, gates=Gates(root))) as embedders:
        for _ in range(3):
            await embedders.of("lab:e").embed(me, ["x" * 2_400])  # about 600, and a tenth of a minute's may go at once
    assert [event.reason for event in me.events] == ["rate", "rate"]
    assert 10 < trio.current_time() < 14


async def test_as_many_are_under_way_as_may_be_and_runs_take_turns(
    provider: FakeModels, root: Root, mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    held = trio.Event()
    order: list[str] = []

    def reply(request: Request) -> Reply:
        order.append(request.json["input"][0])
        return Reply(raw=answer(request).raw, hold=held)

    provider.answer_with(reply)
    one, two = Run("/one", mock_clock, nursery), Run("/two", mock_clock, nursery)
    gates = Gates(root)
    async with aclosing(Embedders(settings(provider, "max_concurrency: 2"), {}, gates=gates)) as embedders:
        embedder = embedders.of("lab:e", batch=1)
        async with trio.open_nursery() as work:
            for text in ("a", "b", "c", "d"):
                work.start_soon(embedder.embed, one, [text])
                await trio.testing.wait_all_tasks_blocked()
            work.start_soon(embedder.embed, two, ["question"])
            await provider.arrived(2)
            await trio.testing.wait_all_tasks_blocked()
            assert order == ["a", "b"]
            held.set()
    assert order.index("question") <= 3, "it does not wait behind all of the other run"


async def test_a_request_that_is_cancelled_in_line_leaves_it(provider: FakeModels, root: Root, me: Run) -> None:
    provider.answer_with(lambda request: Reply(raw=answer(request).raw, hold=trio.Event()))
    async with aclosing(Embedders(settings(provider, "max_concurrency: 1"), {}, gates=Gates(root))) as embedders:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(embedders.of("lab:e").embed, me, ["a"])
            nursery.start_soon(embedders.of("lab:e").embed, me, ["b"])
            await provider.arrived(1)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        provider.answer_with(answer)
        assert len(await embedders.of("lab:e").embed(me, ["c"])) == 1


# --- patches


async def test_requests_for_vectors_and_for_an_order_have_patches_of_their_own(
    provider: FakeModels, root: Root, me: Run
) -> None:
    more = f"""
models:
  - name: e
    type: embedding
    patch: {{body: {{user: me}}, headers: {{x-a: model}}}}
patch:
  chat_completions: {{'.*': {{body: {{seed: 1}}}}}}
  embeddings: {{'e.*': {{body: {{dimensions: 2}}, headers: {{x-a: client, Authorization: null}}}}}}
  rerank: {{'.*': {{body: {{top_n: 1}}, url: '{provider.url}/elsewhere/rerank?x=1'}}}}
"""
    async with aclosing(Embedders(settings(provider, more), {}, gates=Gates(root))) as embedders:
        await embedders.of("lab:e").embed(me, ["a"])
        provider.script(Reply(raw=b'{"results": [{"index": 0, "relevance_score": 1}]}'))
        await embedders.reranker("lab:r").rerank(me, "q", ["a"])
    vectors, order = provider.requests
    assert vectors.json == {"model": "e", "input": ["a"], "user": "me", "dimensions": 2}
    assert (vectors.headers["x-a"], "authorization" in vectors.headers) == ("client", False)
    assert order.path == "/elsewhere/rerank?x=1"
    assert order.json["top_n"] == 1
    assert order.headers["authorization"] == "Bearer sk-lab"


# --- a server that is stuck


async def test_a_server_that_never_answers_is_given_up(
    event_collector: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async def stuck(*_: object) -> bytes:
        await trio.sleep_forever()
        raise AssertionError

    @asynccontextmanager
    async def door() -> AsyncIterator[Any]:
        yield stuck

    async def read(answer: bytes) -> tuple[bytes, float | None]:
        return answer, None

    client = ModelClient(
        "fake:m", door, rules=AllowanceRules(max_concurrency=1), price=Price(lambda: FREE), rng=Impatient()
    )
    with pytest.raises(UpstreamError, match=f"did not answer within {WITHIN:g} s, after 3 tries"):
        await client.ask(event_collector, Post("/embeddings", b"{}", LlmEmbedding, 1), read)
    assert 3 * WITHIN <= trio.current_time() < 3 * WITHIN + 60
