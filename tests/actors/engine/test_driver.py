"""The driver, with deciders that are written here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from support.second_decider import Twin
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.engine.driver import Driver, drive
from callboard.protocol.effects import Effect, Emit, Finish, InPlace, Reject, SetTimer, WhenIdle, Work
from callboard.protocol.errors import NodeFailed, UpstreamError
from callboard.protocol.events import Event, NodeSkipped
from callboard.protocol.kernel.messages import Message
from callboard.protocol.messages import Failure, FromBelow, Idle, Interrupted, TimerFired, WorkDone, WorkFailed
from callboard.supervisors import Actor, Root
from callboard.supervisors.introspection import find, pause, resume


class Job(Work, frozen=True, kw_only=True):
    """Work of these tests."""


class Own(InPlace, frozen=True, kw_only=True):
    """Work of these tests that is done in place."""


def job(key: int, lane: str | None = None) -> Job:
    return Job(key=key, name=f"job{key}", lane=lane)


class Begin(Message, frozen=True):
    """What the deciders of these tests begin with."""


class Note(Message, frozen=True):
    """Mail of these tests."""


class Closed(FromBelow, frozen=True, kw_only=True):
    """What a decider of these tests is told from below."""


class Scripted:
    """Says what the test has written down, and keeps what it was told."""

    def __init__(self, first: list[Effect], then: Callable[[Scripted, Message], list[Effect]]) -> None:
        self.heard = True
        self.told: list[Message] = []
        self._first = first
        self._then = then

    def begin(self, _: Begin) -> list[Effect]:
        return self._first

    def on(self, message: Message) -> list[Effect]:
        self.told.append(message)
        return self._then(self, message)

    def remembers(self) -> tuple[object, ...]:
        return (self.told,)


async def done(_: Actor, work: Job) -> WorkDone:
    return WorkDone(work.key)


def all_of(number: int) -> Callable[[Scripted, Message], list[Effect]]:
    return lambda decider, _: [Finish(decider.told)] if len(decider.told) == number else []


async def played(
    first: list[Effect],
    then: Callable[[Scripted, Message], list[Effect]],
    perform: Callable[[Actor, Job], Awaitable[WorkDone]] = done,
    at_once: int = 1_000,
    on_event: Callable[[Event], None] = lambda _: None,
    while_it_runs: Callable[[Root], Awaitable[None]] | None = None,
) -> Any:
    """The result of a decider that is played under a root of its own, by the actor `/play`."""

    async def play(me: Actor) -> Any:
        return await drive(me, lambda: Scripted(first, then), Begin(), {Job: perform, Own: perform}, limit=at_once)

    async with Root() as root:
        with root.bus.listen(on_event):
            ref = root.spawn(play, name="play", link=False)
            if while_it_runs is not None:
                await wait_all_tasks_blocked()
                await while_it_runs(root)
            end = await ref.wait()
    if end.error is not None:
        raise end.error
    return end.value


async def test_the_end_of_each_work_is_one_message_of_the_driver_s_mailbox() -> None:
    received: list[int] = []

    def then(decider: Scripted, _: Message) -> list[Effect]:
        return [Finish(decider.told)] if len(decider.told) == 3 else []

    async def play(me: Actor) -> Any:
        result = await drive(me, lambda: Scripted([job(1), job(2), job(3)], then), Begin(), {Job: done})
        received.append(me.mailbox.received)
        return result

    async with Root() as root:
        told = await root.spawn(play).result()
    assert sorted(message.key for message in told) == [1, 2, 3]
    assert received == [3]


async def test_no_more_than_its_bound_is_under_way_and_the_rest_keeps_its_order() -> None:
    running: set[int] = set()
    most = 0
    order: list[int] = []

    async def perform(_: Actor, work: Job) -> WorkDone:
        nonlocal most
        running.add(work.key)
        order.append(work.key)
        most = max(most, len(running))
        await trio.lowlevel.checkpoint()
        running.discard(work.key)
        return WorkDone(work.key)

    await played([job(key) for key in range(10)], all_of(10), perform, at_once=3)
    assert most == 3
    assert sorted(order[:3]) == [0, 1, 2]
    assert sorted(order) == list(range(10))


async def test_of_a_lane_one_is_under_way_at_a_time_in_the_order_asked() -> None:
    running = 0
    order: list[int] = []

    async def perform(_: Actor, work: Job) -> WorkDone:
        nonlocal running
        running += 1
        order.append(work.key)
        assert running == 1
        await trio.lowlevel.checkpoint()
        running -= 1
        return WorkDone(work.key)

    await played([job(key, "people") for key in range(5)], all_of(5), perform)
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("bug", [ValueError("oops"), UpstreamError("gone")])
async def test_work_that_crashes_is_told_as_a_failure_of_its_class(bug: Exception) -> None:
    async def perform(_: Actor, work: Job) -> WorkDone:
        raise bug

    (message,) = await played([job(7)], all_of(1), perform)
    assert isinstance(message, WorkFailed)
    error = message.failure.restore()
    assert isinstance(error, UpstreamError if isinstance(bug, UpstreamError) else NodeFailed)
    assert str(bug) in str(error)


async def test_work_that_is_cancelled_from_outside_is_told_and_events_about_it_bear_its_path() -> None:
    events: list[Event] = []

    def then(_: Scripted, message: Message) -> list[Effect]:
        assert isinstance(message, WorkFailed)
        return [Emit(NodeSkipped(node="n", reason="cancelled"), about=message.key), Finish(message.failure.text)]

    async def cancel(root: Root) -> None:
        actor = find(root, "/play/job1")
        assert actor is not None
        actor.interrupt()

    async def forever(_: Actor, __: Job) -> WorkDone:
        await trio.sleep_forever()

    text = await played([job(1)], then, forever, on_event=events.append, while_it_runs=cancel)
    assert text == "it was cancelled"
    assert [event.actor for event in events if event.kind == "node.skipped"] == ["/play/job1"]


async def test_what_is_under_way_at_the_finish_is_interrupted_and_counted(autojump_clock: MockClock) -> None:
    ended: list[str] = []
    deciders: list[Scripted] = []

    async def perform(_: Actor, work: Job) -> WorkDone:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(work.name)

    def then(decider: Scripted, message: Message) -> list[Effect]:
        deciders.append(decider)
        return [Finish(message)] if isinstance(message, TimerFired) else []

    assert await played([job(1), job(2), SetTimer("limit", 30)], then, perform) == TimerFired("limit")
    assert sorted(ended) == ["job1", "job2"]
    interrupted = [message for message in deciders[0].told if isinstance(message, Interrupted)]
    assert sorted(interrupted, key=lambda message: message.key) == [
        Interrupted(1, seconds=30.0),
        Interrupted(2, seconds=30.0),
    ]


async def test_a_paused_driver_begins_no_work_until_it_goes_on() -> None:
    begun: list[int] = []

    async def perform(_: Actor, work: Job) -> WorkDone:
        begun.append(work.key)
        if work.key == 1:
            await trio.sleep_forever()
        return WorkDone(work.key)

    def then(decider: Scripted, message: Message) -> list[Effect]:
        return [job(2)] if len(decider.told) == 1 else [Finish()]

    async def hold(root: Root) -> None:
        play, one = find(root, "/play"), find(root, "/play/job1")
        assert play is not None
        assert one is not None
        pause(play)
        one.interrupt()
        await wait_all_tasks_blocked()
        assert begun == [1]
        resume(play)

    await played([job(1)], then, perform, while_it_runs=hold)
    assert begun == [1, 2]


async def test_work_in_place_is_done_by_the_actor_itself_and_told_behind_the_mail_that_came_meanwhile() -> None:
    paths: list[str] = []

    async def perform(me: Actor, work: Work) -> WorkDone:
        paths.append(me.path)
        me.ref.tell_nowait(TimerFired("meanwhile"))
        return WorkDone(work.key)

    assert await played([Own(key=1)], all_of(2), perform) == [TimerFired("meanwhile"), WorkDone(1)]
    assert paths == ["/play"]


async def test_work_in_place_that_fails_is_told_as_a_failure_and_a_bug_in_it_ends_the_actor() -> None:
    async def fails(_: Actor, work: Work) -> WorkDone:
        raise UpstreamError("gone")

    (message,) = await played([Own(key=1)], all_of(1), fails)
    assert isinstance(message, WorkFailed)
    assert isinstance(message.failure.restore(), UpstreamError)

    async def crashes(_: Actor, work: Work) -> WorkDone:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await played([Own(key=1)], all_of(1), crashes)


async def test_work_in_place_that_is_cancelled_with_its_actor_is_counted(autojump_clock: MockClock) -> None:
    deciders: list[Scripted] = []

    def afresh() -> Scripted:
        deciders.append(Scripted([Own(key=1)], lambda _, __: []))
        return deciders[-1]

    async def perform(_: Actor, work: Work) -> WorkDone:
        await trio.sleep_forever()
        raise AssertionError

    async def play(me: Actor) -> None:
        with trio.move_on_after(5):
            await drive(me, afresh, Begin(), {Own: perform})

    async with Root() as root:
        await root.spawn(play).result()
    assert deciders[0].told == [Interrupted(1, seconds=5.0)]


async def test_a_decider_is_told_that_it_is_idle_behind_all_mail_and_not_while_it_is_paused() -> None:
    def then(decider: Scripted, message: Message) -> list[Effect]:
        if isinstance(message, Idle):
            return [Finish(decider.told)]
        return [WhenIdle("turn")] if message == TimerFired("go") else []

    async def hold(root: Root) -> None:
        play = find(root, "/play")
        assert play is not None
        play.ref.tell_nowait(TimerFired("go"))
        play.ref.tell_nowait(TimerFired("more"))
        pause(play)
        await wait_all_tasks_blocked()
        play.ref.tell_nowait(TimerFired("while paused"))
        resume(play)

    told = await played([], then, while_it_runs=hold)
    assert told == [TimerFired("go"), TimerFired("more"), TimerFired("while paused"), Idle("turn")]


async def test_a_message_that_is_not_for_the_decider_is_a_dead_letter() -> None:
    events: list[Event] = []

    def then(_: Scripted, message: Message) -> list[Effect]:
        return [Finish()] if message == TimerFired("end") else [Reject(message, "not for me")]

    async def tell(root: Root) -> None:
        play = find(root, "/play")
        assert play is not None
        play.ref.tell_nowait(TimerFired("odd"))
        play.ref.tell_nowait(TimerFired("end"))

    await played([], then, on_event=events.append, while_it_runs=tell)
    (letter,) = [event for event in events if event.kind == "mail.dead"]
    assert "odd" in str(letter.data)


@pytest.mark.parametrize("paused", [False, True])
async def test_what_is_told_from_below_is_decided_before_anything_else_goes_on(paused: bool) -> None:
    """Also behind older mail, for which the driver has been woken, and while it waits for a pause to end."""

    def afresh() -> Scripted:
        first: list[Effect] = [WhenIdle("turn")] if paused else []
        return Scripted(first, lambda _, message: [Finish("over")] if type(message) is Note else [])

    decider = afresh()

    async def play(me: Actor) -> Any:
        drivers.append(Driver(me, decider, {}, limit=1, fresh=afresh))
        return await drivers[0].run(Begin())

    drivers: list[Driver] = []
    async with Root() as root:
        if paused:
            pause(root.actor)
        ref = root.spawn(play, name="play", link=False)
        await wait_all_tasks_blocked()
        ref.tell_nowait(Begin())
        drivers[0].deliver(Closed())
        assert [type(message) for message in decider.told] == [Begin, Closed]
        ref.tell_nowait(Note())
        drivers[0].deliver(Closed())
        assert [type(message) for message in decider.told] == [Begin, Closed, Note]  # it is over, and the rest is late
        if paused:
            resume(root.actor)
        assert await ref.result() == "over"


async def test_a_failure_to_finish_with_is_raised() -> None:
    with pytest.raises(UpstreamError, match="gone"):
        await played([Finish(failure=Failure.of(UpstreamError("gone")))], all_of(1))


async def test_every_message_goes_to_the_twin_as_well(replayed: list[Twin]) -> None:
    await played([job(1), job(2)], all_of(2))
    assert [twin.told for twin in replayed] == [3]
