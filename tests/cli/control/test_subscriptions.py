"""What is subscribed to survives lost connections, slow readers and servers that lose events."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
from support.scripted_control_server import Refuse, SmallServer
from support.waiting import PATIENCE

from callboard.cli.control import connection as connection_module
from callboard.cli.control.client import ControlClient, QuestionWatch, RunEvents, TreeWatch
from callboard.protocol.errors import CallboardError
from callboard.protocol.events import Event, LlmDelta, RunStarted, decode, encode

RUN = "run-1"


def event(seq: int) -> Event:
    data = LlmDelta(text=f"{seq}")
    return Event(seq=seq, ts=datetime(2026, 11, 3, tzinfo=UTC), run=RUN, actor=f"/{RUN}", kind=data.kind, data=data)


def numbered(small: SmallServer, newest: int = 0) -> None:
    """`_run/subscribe` answers with subscriptions s1, s2, ..."""
    ids = itertools.count(1)
    small.answers["_run/subscribe"] = lambda _: {"subscription": f"s{next(ids)}", "seq": newest}


async def next_seq(events: RunEvents) -> int:
    with trio.fail_after(PATIENCE):
        found = decode(await anext(events))
    assert found is not None
    return found.seq


async def test_events_come_in_order_each_once_until_the_run_ends(small: SmallServer, client: ControlClient) -> None:
    numbered(small, newest=2)
    events = RunEvents(client, RUN, after=1)
    await events.begin()
    assert (await small.heard("_run/subscribe"))[0] == {"run": RUN, "after": 1}
    for seq in (2, 3, 3, 2, 4):
        await small.event(event(seq), "s1")
    await small.event(event(99), "another")
    await small.tell("_run/ended", subscription="s1", run=RUN, status="done")
    assert [decode(line).seq async for line in events] == [2, 3, 4]
    assert (events.status, events.newest, events.seq) == ("done", 2, 4)


async def test_a_first_event_that_overtakes_whoever_subscribed_is_not_lost(
    small: SmallServer, client: ControlClient, nursery: trio.Nursery
) -> None:
    def answer(_: Any) -> Any:
        nursery.start_soon(small.event, event(1), "s1")
        return {"subscription": "s1", "seq": 0}

    small.answers["_run/subscribe"] = answer
    assert await next_seq(RunEvents(client, RUN)) == 1


@pytest.mark.parametrize("how", ["cut", "lagged"])
async def test_after_a_lag_or_a_cut_it_goes_on_behind_the_last_event(
    small: SmallServer, client: ControlClient, how: str
) -> None:
    numbered(small)
    events = RunEvents(client, RUN)
    await events.begin()
    await small.event(event(1), "s1")
    assert await next_seq(events) == 1
    if how == "cut":
        await small.drop()
    else:
        await small.tell("_run/lagged", subscription="s1", run=RUN, after=1, seq=9)

    async def go_on() -> None:
        assert (await small.heard("_run/subscribe", 2))[1] == {"run": RUN, "after": 1}
        await small.event(event(2), "s2")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on)
        assert await next_seq(events) == 2


async def test_a_reader_who_is_too_slow_subscribes_anew_and_misses_nothing(
    small: SmallServer, client: ControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "BOUND", 5)
    numbered(small)
    small.answers["_run/list"] = lambda _: {"runs": []}
    events = RunEvents(client, RUN)
    await events.begin()
    for seq in range(1, 20):
        await small.event(event(seq), "s1")
    await client.ask("_run/list", dict)  # all of them have arrived
    assert [await next_seq(events) for _ in range(5)] == [1, 2, 3, 4, 5]

    async def go_on() -> None:
        assert (await small.heard("_run/subscribe", 2))[1]["after"] == 5
        await small.event(event(6), "s2")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on)
        assert await next_seq(events) == 6


async def test_events_that_nobody_can_have_are_counted_and_passed_over(
    small: SmallServer, client: ControlClient
) -> None:
    numbered(small)
    events = RunEvents(client, RUN)
    await events.begin()
    await small.event(event(1), "s1")
    await small.tell("_run/lost", subscription="s1", run=RUN, first=2, last=4)
    await small.event(event(5), "s1")
    assert [await next_seq(events), await next_seq(events)] == [1, 5]
    assert events.missing == 3


async def test_a_run_that_is_not_there_says_so(small: SmallServer, client: ControlClient) -> None:
    def refuse(_: Any) -> Any:
        raise Refuse("not_found", "no run")

    small.answers["_run/subscribe"] = refuse
    with pytest.raises(CallboardError, match="no run"):
        await anext(RunEvents(client, RUN))


def actor(path: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "parent": "", "name": path[1:], **more}


async def test_the_tree_is_kept_and_after_a_cut_it_is_a_fresh_one(small: SmallServer, client: ControlClient) -> None:
    ids = itertools.count(1)
    now = [actor("/a"), actor("/b")]
    small.answers["_actor/subscribe"] = lambda _: {"subscription": f"t{next(ids)}", "actors": list(now)}
    watch = TreeWatch(client, None, interval=0.2)
    with trio.fail_after(PATIENCE):
        await watch.change()
        assert sorted(watch.actors) == ["/a", "/b"]
        await small.tell(
            "_actor/changed", subscription="t1", changed=[actor("/a", mailbox=3), actor("/c")], gone=["/b"]
        )
        await watch.change()
        assert sorted(watch.actors) == ["/a", "/c"]
        assert watch.actors["/a"].mailbox == 3
        now[:] = [actor("/d")]
        await small.drop()
        await watch.change()
        assert sorted(watch.actors) == ["/d"]


def question(id: str, run: str = RUN) -> dict[str, Any]:
    return {"id": id, "actor": f"/{run}/gate", "text": "Go?", "run": run}


def asked(watch: QuestionWatch) -> Callable[[], Any]:
    async def following() -> tuple[str, str, str]:
        with trio.fail_after(PATIENCE):
            change = await anext(watch)
        return change.what, change.question.id, change.by

    return following


async def test_questions_are_told_once_and_of_one_run_only(small: SmallServer, client: ControlClient) -> None:
    small.answers["_question/subscribe"] = lambda _: {"subscription": "q"}
    small.answers["_question/list"] = lambda params: {"questions": [question("q1")]}
    following = asked(QuestionWatch(client, RUN))
    assert await following() == ("asked", "q1", "")
    for each in (question("q1"), question("q2", "run-2"), question("q3")):
        await small.tell("_question/asked", subscription="q", question=each)
    assert await following() == ("asked", "q3", "")
    for id in ("q2", "q1"):
        await small.tell("_question/closed", subscription="q", question=id, by="ann")
    assert await following() == ("closed", "q1", "ann")


@pytest.mark.parametrize("how", ["cut", "lagged"])
async def test_a_question_that_was_closed_while_nobody_listened_is_told_afterwards(
    small: SmallServer, client: ControlClient, how: str
) -> None:
    small.answers["_question/subscribe"] = lambda _: {"subscription": "q"}
    small.answers["_question/list"] = lambda _: {"questions": [question("q1")]}
    following = asked(QuestionWatch(client, RUN))
    assert await following() == ("asked", "q1", "")
    small.answers["_question/list"] = lambda _: {"questions": [question("q2")]}
    if how == "cut":
        await small.drop()
    else:
        await small.tell("_question/lagged", subscription="q")
    assert {await following(), await following()} == {("closed", "q1", ""), ("asked", "q2", "")}


def test_an_event_is_read_as_it_was_written() -> None:
    data = RunStarted(target="t", name="n", dialect="graph", prompt="\x1b[2J")
    told = Event(
        seq=3, ts=datetime(2026, 11, 3, tzinfo=UTC), run=RUN, actor="/a", kind=data.kind, data=data, id="x", parent="/"
    )
    assert decode(encode(told)) == told


@pytest.mark.parametrize("line", [b"", b"[]", b'{"seq": 1}', encode(event(1)).replace(b"llm.delta", b"llm.new")])
def test_what_this_callboard_does_not_know_is_no_event(line: bytes) -> None:
    assert decode(line) is None
