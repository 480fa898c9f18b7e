"""Requests for vectors and for an order are reserved in an account before they go out, and settled after it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.messages import says
from support.model_events import EventCollector
from support.waiting import until

from callboard.actors.work.knowledge.embed.embedders import Embedders
from callboard.actors.work.models.limiter import Gates
from callboard.actors.work.spending.accounts import Account, Amount
from callboard.protocol.errors import BudgetReached, ModelError, Unpriced, UpstreamError
from callboard.protocol.requests import Limits
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings
from callboard.supervisors import Root

from .conftest import texts_in, vector

BODY = len(b'{"model":"e","input":["0000000000000000"]}')
"""Bytes of a request for the vector of a text of 16 characters, and what it comes to at most."""

TEXTS = [f"{number:016}" for number in range(20)]

PRICE = 1_000.0
"""USD for a million tokens: a thousandth for each."""


def answer(request: Request, tokens: int | None = 10) -> Reply:
    rows = [{"index": n, "embedding": vector(text)} for n, text in enumerate(texts_in(request))]
    usage = {} if tokens is None else {"prompt_tokens": tokens, "total_tokens": tokens}
    return Reply(raw=json.dumps({"data": rows, "usage": usage}).encode())


@pytest.fixture
async def charged(fake_model: FakeModels) -> AsyncIterator[Callable[..., Embedders]]:
    """`charged(account)`: models whose requests are charged to it; `lab:e` makes vectors, `lab:r` an order."""
    fake_model.answer_with(answer)
    async with Root() as root:
        opened: list[Embedders] = []

        def make(account: Account, *, price: float | None = PRICE, gates: bool = True) -> Embedders:
            models = (
                ModelSettings(name="e", type="embedding", input_price=price),
                ModelSettings(name="r", type="reranker", input_price=price),
            )
            options = {"api_base": fake_model.openai_base, "api_key": "sk-lab", "models": models}
            client = ClientSettings(type="openai-compatible", name="lab", **options)
            found = Settings(clients=(client,), file="config.yaml")
            limiters = Gates(root) if gates else None
            opened.append(Embedders(found, {}, account_of=lambda _: account, gates=limiters))
            return opened[-1]

        yield make
        for each in opened:
            await each.aclose()


def limited(**limits: Any) -> Account:
    return Account("the run", Limits(**limits))


def held(account: Account) -> bool:
    """Whether something is reserved: a request that fits exactly has no room then."""
    account.limits = Limits(max_tokens=account.tokens + 1)
    hold = account.hold(Amount(tokens=1), turn=False)
    if hold is not None:
        hold.release()
    return hold is None


@pytest.mark.parametrize("gates", [True, False], ids=["limiter", "alone"])
@pytest.mark.parametrize("limits", [{"max_tokens": 100}, {"max_cost": 0.1}], ids=["tokens", "money"])
async def test_many_at_once_pass_no_limit_by_more_than_one_of_them(
    limits: dict[str, Any], gates: bool, fake_model: FakeModels, charged: Any, event_collector: EventCollector
) -> None:
    fake_model.answer_with(lambda request: answer(request, tokens=30))
    account = limited(**limits)
    embedder = charged(account, gates=gates).of("lab:e", batch=1)
    refused: list[BudgetReached] = []

    async def embed(text: str) -> None:
        try:
            await embedder.embed(event_collector, [text])
        except BudgetReached as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        for text in TEXTS:
            nursery.start_soon(embed, text)
    assert account.tokens == 120, "four of 30 tokens; a fifth would have begun beyond the limit"
    assert account.cost == pytest.approx(0.12)
    assert len(refused) == len(TEXTS) - 4
    assert {event.reason for event in event_collector.events} == {"budget"}
    assert account.turns == 0


async def test_what_fits_goes_out_at_once_and_what_does_not_waits(
    fake_model: FakeModels, charged: Any, event_collector: EventCollector
) -> None:
    held = trio.Event()
    fake_model.answer_with(lambda request: Reply(raw=answer(request).raw, hold=held))
    embedder = charged(limited(max_tokens=2 * BODY)).of("lab:e", batch=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(embedder.embed, event_collector, TEXTS[:4])
        await fake_model.arrived(2)
        await until(lambda: len(event_collector.events) == 2)
        assert len(fake_model.requests) == 2
        assert [(event.kind, event.reason) for event in event_collector.events] == [("llm.waiting", "budget")] * 2
        held.set()
    assert len(fake_model.requests) == 4


async def test_a_turn_is_none_of_them(charged: Any, event_collector: EventCollector) -> None:
    account = limited(max_turns=1)
    embedders = charged(account)
    turn = account.hold(Amount())
    assert turn is not None
    await embedders.of("lab:e", batch=1).embed(event_collector, TEXTS[:3])
    turn.spend(Amount(tokens=1))
    await embedders.of("lab:e").embed(event_collector, TEXTS[:3])
    assert (account.turns, account.tokens) == (1, 41)


async def test_tokens_that_the_provider_does_not_tell_are_estimated(
    fake_model: FakeModels, charged: Any, event_collector: EventCollector
) -> None:
    fake_model.answer_with(lambda request: answer(request, tokens=None))
    account = limited(max_tokens=1_000)
    await charged(account).of("lab:e").embed(event_collector, TEXTS[:1])
    assert (account.tokens, account.estimated) == (BODY // 4, BODY // 4)


@pytest.mark.parametrize(
    ("reply", "estimated"),
    [
        (Reply(status=400, error="no"), False),
        (Reply(drop="at once"), True),
        (Reply(drop="middle"), True),
        (Reply(raw=b"<html>"), True),
    ],
    ids=["refused", "not answered", "broken", "unreadable"],
)
async def test_a_request_that_came_to_nothing_costs_nothing_if_it_was_refused(
    reply: Reply,
    estimated: bool,
    fake_model: FakeModels,
    charged: Any,
    event_collector: EventCollector,
    autojump_clock: object,
) -> None:
    fake_model.answer_with(lambda _: reply)
    account = limited(max_tokens=1_000)
    with pytest.raises(ModelError) as caught:
        await charged(account).of("lab:e").embed(event_collector, TEXTS[:1])
    tries = 3 if isinstance(caught.value, UpstreamError) else 1
    assert account.tokens == account.estimated == (tries * (BODY // 4) if estimated else 0)
    assert not held(account)


async def test_a_request_that_is_cancelled_on_its_way_is_estimated(
    fake_model: FakeModels, charged: Any, event_collector: EventCollector
) -> None:
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))
    account = limited(max_tokens=BODY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(charged(account).of("lab:e", batch=1).embed, event_collector, TEXTS[:2])
        await fake_model.arrived(1)
        await until(lambda: event_collector.events)
        nursery.cancel_scope.cancel()
    assert account.tokens == BODY // 4, "the one that waited for room costs nothing"
    assert not held(account)


async def test_what_a_reranker_reads_again_with_every_text_is_reserved(
    fake_model: FakeModels, charged: Any, event_collector: EventCollector
) -> None:
    scores = [{"index": n, "relevance_score": 1} for n in range(10)]
    held = trio.Event()
    fake_model.answer_with(
        lambda _: Reply(raw=json.dumps({"results": scores, "usage": {"total_tokens": 900}}).encode(), hold=held)
    )
    account = limited(max_tokens=1_000)
    reranker = charged(account).reranker("lab:r")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reranker.rerank, event_collector, "q" * 100, ["x"] * 10)
        await fake_model.arrived(1)
        assert account.hold(Amount()) is None, "a hundred bytes, ten times"
        held.set()
    assert account.tokens == 900
    assert account.hold(Amount()) is not None


async def test_money_wants_a_price(fake_model: FakeModels, charged: Any, event_collector: EventCollector) -> None:
    embedders = charged(limited(max_cost=1.0), price=None)
    with pytest.raises(Unpriced, match=says("protocol.errors.Unpriced.of", model="lab:e", file="config.yaml")):
        await embedders.of("lab:e").embed(event_collector, TEXTS)
    with pytest.raises(Unpriced, match=says("protocol.errors.Unpriced.of", model="lab:r", file="config.yaml")):
        await embedders.reranker("lab:r").rerank(event_collector, "q", TEXTS)
    assert fake_model.requests == []


# --- events


async def test_each_request_tells_how_it_ended(
    fake_model: FakeModels, charged: Any, event_collector: EventCollector
) -> None:
    embedders = charged(limited(max_tokens=1_000))
    await embedders.of("lab:e", batch=2).embed(event_collector, TEXTS[:3])
    fake_model.script(Reply(status=503, error="busy"), Reply(raw=b'{"results": [{"index": 0, "relevance_score": 1}]}'))
    await embedders.reranker("lab:r").rerank(event_collector, "q", ["a"])
    told = [
        (each.kind, each.model, each.texts, each.attempt, each.input_tokens, each.error)
        for each in event_collector.requests
    ]
    assert sorted(told[:2], key=lambda each: each[2]) == [
        ("llm.embedding", "lab:e", 1, 1, 10, None),
        ("llm.embedding", "lab:e", 2, 1, 10, None),
    ]
    assert told[2:] == [("llm.rerank", "lab:r", 1, 2, 0, None)]
    assert all(each.seconds > 0 for each in event_collector.requests)


async def test_a_request_that_is_given_up_tells_why(
    fake_model: FakeModels, charged: Any, event_collector: EventCollector
) -> None:
    fake_model.answer_with(lambda _: Reply(status=400, error="no such thing"))
    embedders = charged(limited(max_tokens=1_000))
    for asked in (
        embedders.of("lab:e").embed(event_collector, TEXTS[:2]),
        embedders.reranker("lab:r").rerank(event_collector, "q", ["a"]),
    ):
        with pytest.raises(ModelError):
            await asked
    told = [(each.kind, each.texts, each.code) for each in event_collector.requests]
    assert told == [("llm.embedding", 2, "model"), ("llm.rerank", 1, "model")]
    assert "no such thing (HTTP 400)" in str(event_collector.requests[0].error)


async def test_a_request_that_never_went_out_tells_nothing(charged: Any, event_collector: EventCollector) -> None:
    account = limited(max_tokens=10)
    embedder = charged(account).of("lab:e", batch=1)
    await embedder.embed(event_collector, TEXTS[:1])
    with pytest.raises(BudgetReached):
        await embedder.embed(event_collector, TEXTS[1:2])
    assert len(event_collector.requests) == 1
