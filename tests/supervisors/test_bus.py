"""Events: gapless, in one order for everybody, and never a reason to wait. Numbers are those of docs/kernel.md."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard.protocol.events import Event, Warned, encode
from callboard.supervisors import Actor, Root


async def returns(me: Actor) -> None:
    pass


async def waits(me: Actor) -> None:
    await trio.sleep_forever()


def warn(root: Root, text: str) -> None:
    root.actor.emit(Warned(code="test", message=text))


async def test_62_events_of_a_run_are_numbered_without_gaps(root: Root) -> None:
    heard: list[Event] = []
    stream = root.bus.open("run-1")
    with root.bus.listen(heard.append):
        for _ in range(50):
            root.spawn(returns)
            root.spawn(returns, stream=stream)
        await wait_all_tasks_blocked()
    for run in ("", "run-1"):
        assert [event.seq for event in heard if event.run == run] == list(range(1, 101))
    assert all(encode(event).startswith(b'{"schema_version":1,') for event in heard)


async def test_62_children_report_to_the_run_of_their_parent(root: Root, events: list[Event]) -> None:
    async def parent(me: Actor) -> None:
        await me.spawn(returns).wait()

    await root.spawn(parent, stream=root.bus.open("run-1")).wait()
    assert {(event.actor, event.parent, event.run) for event in events} == {
        ("/parent", "/", "run-1"),
        ("/parent/returns", "/parent", "run-1"),
    }


async def test_62_events_that_a_listener_causes_come_after_for_all(root: Root) -> None:
    first: list[str] = []
    second: list[str] = []

    def causes(event: Event) -> None:
        first.append(event.data.message)
        if event.data.message == "a":
            warn(root, "caused by a")

    with root.bus.listen(causes), root.bus.listen(lambda event: second.append(event.data.message)):
        warn(root, "a")
        warn(root, "b")
    assert first == second == ["a", "caused by a", "b"]


async def test_62_a_listener_may_hear_one_run_only(root: Root) -> None:
    heard: list[str] = []
    stream = root.bus.open("mine")
    with stream.listen(lambda event: heard.append(event.actor)):
        root.spawn(returns, name="other")
        root.spawn(returns, name="mine", stream=stream)
        await wait_all_tasks_blocked()
    root.spawn(returns, name="late", stream=stream)
    await wait_all_tasks_blocked()
    assert heard == ["/mine", "/mine"]


async def test_62_without_listeners_no_event_is_built(root: Root) -> None:
    stream = root.bus.open("quiet")
    assert not stream.heard
    root.spawn(returns, stream=stream)
    await wait_all_tasks_blocked()
    with root.bus.listen(lambda event: None):
        assert stream.heard
    assert not stream.heard


@pytest.mark.parametrize(
    ("overflow", "kept", "cut"), [("drop_oldest", ["7", "8", "9"], False), ("end", ["0", "1", "2"], True)]
)
async def test_63_a_slow_feed_stalls_nobody(root: Root, overflow: Any, kept: list[str], cut: bool) -> None:
    with root.bus.feed(bound=3, overflow=overflow) as feed:
        for number in range(10):
            with trio.testing.assert_no_checkpoints():
                warn(root, str(number))
        feed.close()
        assert [event.data.message async for event in feed] == kept
        assert (feed.dropped, feed.cut) == (0 if cut else 7, cut)


async def test_63_a_feed_wakes_its_reader(root: Root) -> None:
    got: list[str] = []
    with root.bus.feed() as feed:
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                async for event in feed:
                    got.append(event.data.message)  # noqa: PERF401 - seen while it goes on

            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            warn(root, "one")
            await wait_all_tasks_blocked()
            assert got == ["one"]
            warn(root, "two")
            feed.close()
    assert got == ["one", "two"]


async def test_64_a_broken_listener_is_dropped_and_the_others_go_on(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    calls = 0

    def broken(event: Event) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("disk full")

    with root.bus.listen(broken), root.bus.listen(lambda event: heard.append(event.data.message)):
        warn(root, "a")
        warn(root, "b")
    assert heard == ["a", "b"]
    assert calls == 1
    assert "an event listener raised on run.warning and is no longer called" in caplog.text
