"""How actors end: exactly once, in bounded time, children first. Numbers are those of docs/kernel.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from support.messages import says
from trio.testing import wait_all_tasks_blocked

from callboard.protocol.errors import ActorCancelled, ActorDead, ActorFailed, DoesNotEnd, ShuttingDown
from callboard.protocol.events import Event
from callboard.protocol.messages import Down
from callboard.supervisors import Actor, EndOfMail, Ref, Root

from .notes import Note

TERMINAL = ("actor.stopped", "actor.failed")


async def waits(me: Actor) -> None:
    await trio.sleep_forever()


async def reads(me: Actor) -> int:
    count = 0
    async for _ in me:
        count += 1
    return count


async def returns(me: Actor, value: Any = None) -> Any:
    return value


async def crashes(me: Actor) -> None:
    raise ValueError("broken")


def ends_of(events: list[Event]) -> list[str]:
    """Actors in the order of their terminal events."""
    return [event.actor for event in events if event.kind in TERMINAL]


# --- exactly one end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "act", "reason"),
    [
        (returns, lambda ref: None, "normal"),
        (crashes, lambda ref: None, "crashed"),
        (reads, lambda ref: ref._actor.request_stop(), "normal"),
        (waits, lambda ref: ref.cancel(), "cancelled"),
    ],
)
async def test_16_whatever_happens_there_is_exactly_one_terminal_event(
    root: Root, events: list[Event], body: Any, act: Callable[[Ref], None], reason: str
) -> None:
    ref = root.spawn(body, link=False)
    await wait_all_tasks_blocked()
    act(ref)
    end = await ref.wait()
    assert end.reason == reason
    assert ref.state == end.state == ("failed" if reason == "crashed" else "done")
    ref.cancel()
    await ref.stop()
    assert await ref.wait() is end
    assert ends_of(events) == [ref.path]


async def test_16_the_value_of_the_body_is_the_result(root: Root) -> None:
    assert await root.spawn(returns, 42).result() == 42
    with pytest.raises(ActorFailed, match="/crashes crashed: broken") as caught:
        await root.spawn(crashes, link=False).result()
    assert isinstance(caught.value.__cause__, ValueError)
    ref = root.spawn(waits)
    ref.cancel()
    with pytest.raises(ActorCancelled, match="/waits was cancelled"):
        await ref.result()


async def test_16_a_body_that_returns_although_interrupted_has_a_normal_end(root: Root) -> None:
    async def body(me: Actor) -> str:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            with me.cleanup():
                await trio.sleep(0.5)
            raise
        return "never"

    async def swallows(me: Actor) -> str:
        with trio.CancelScope() as scope:
            scope.cancel()
            await trio.sleep_forever()
        return "done all the same"

    one, two = root.spawn(body), root.spawn(swallows)
    await wait_all_tasks_blocked()
    one.cancel()
    assert (await one.wait()).reason == "cancelled"
    assert await two.result() == "done all the same"


async def test_16_interrupted_before_its_first_step_an_actor_still_ends_once(root: Root, events: list[Event]) -> None:
    ref = root.spawn(waits)
    ref.cancel()
    assert (await ref.wait()).reason == "cancelled"
    assert ends_of(events) == ["/waits"]


async def test_16_a_keyboard_interrupt_in_an_actor_ends_everything_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    events: list[Event] = []

    async def parent(me: Actor) -> None:
        me.spawn(waits)
        me.started()
        await trio.sleep_forever()

    async def interrupted(me: Actor) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the block is the test
        async with Root() as root:
            with root.bus.listen(events.append):
                await root.start(parent)
                root.spawn(interrupted)
                await trio.sleep_forever()
    assert sorted(ends_of(events)) == ["/", "/interrupted", "/parent", "/parent/waits"]


# --- stop and cancel ---------------------------------------------------------------------------------------


async def test_17_stop_lets_the_message_in_hand_finish_and_drops_the_rest(root: Root, events: list[Event]) -> None:
    finished: list[Any] = []

    async def body(me: Actor) -> None:
        async for message in me:
            await trio.sleep(0.5)
            finished.append(message.said)

    ref = root.spawn(body)
    for number in range(3):
        await ref.tell(Note(number))
    await wait_all_tasks_blocked()
    assert (await ref.stop()).reason == "normal"
    assert finished == [0]
    assert [event.data.message for event in events if event.kind == "mail.dead"] == ["Note(said=1)", "Note(said=2)"]


async def test_17_letting_the_end_of_mail_escape_is_being_stopped_also_through_a_nursery(root: Root) -> None:
    async def plain(me: Actor) -> None:
        await me.receive()

    async def nested(me: Actor) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await me.receive()

    async def mixed(me: Actor) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(me.receive)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("as well")

    for body, reason in ((plain, "stopped"), (nested, "stopped"), (mixed, "crashed")):
        ref = root.spawn(body, link=False)
        await wait_all_tasks_blocked()
        end = await ref.stop()
        assert end.reason == reason
    assert isinstance(end.error, ExceptionGroup)
    assert [type(error) for error in end.error.exceptions] == [ValueError]


async def test_18_cancel_interrupts_in_the_middle_of_a_message(root: Root) -> None:
    seen: list[str] = []

    async def body(me: Actor) -> None:
        try:
            await me.receive()
            await trio.sleep(1000)
        except trio.Cancelled:
            seen.append("cancelled")
            raise

    ref = root.spawn(body)
    await ref.tell(Note(1))
    await wait_all_tasks_blocked()
    ref.cancel()
    assert (await ref.wait()).reason == "cancelled"
    assert seen == ["cancelled"]
    assert trio.current_time() == 0


async def test_18_a_thousand_actors_are_cancelled_in_one_tick_and_all_clean_up(root: Root) -> None:
    cleaned = 0

    async def body(me: Actor) -> None:
        nonlocal cleaned
        try:
            await trio.sleep_forever()
        finally:
            with me.cleanup():
                await trio.lowlevel.checkpoint()
                cleaned += 1

    async def parent(me: Actor) -> None:
        for _ in range(1000):
            me.spawn(body)
        me.started()
        await trio.sleep_forever()

    ref = await root.start(parent)
    await wait_all_tasks_blocked()
    ref.cancel()
    await ref.wait()
    assert cleaned == 1000


async def test_18_a_deep_tree_is_cancelled_from_the_top_and_ends_from_the_bottom(
    root: Root, events: list[Event]
) -> None:
    async def level(me: Actor, depth: int) -> None:
        if depth:
            me.spawn(level, depth - 1, name="d")
        await trio.sleep_forever()

    ref = root.spawn(level, 200, name="d", stop_within=0.01)
    await wait_all_tasks_blocked()
    ref.cancel()
    await ref.wait()
    paths = ends_of(events)
    assert len(paths) == 201
    assert paths == sorted(paths, key=len, reverse=True)


async def test_19_a_stop_that_takes_too_long_becomes_an_interrupt(root: Root) -> None:
    async def body(me: Actor) -> None:
        await me.receive()

    async def slow(me: Actor) -> None:
        await trio.sleep(1.5)
        await me.receive()

    polite, late = root.spawn(body, stop_within=2), root.spawn(slow, stop_within=1)
    assert (await polite.stop()).reason == "stopped"
    assert trio.current_time() == 0
    assert (await late.stop()).reason == "cancelled"
    assert trio.current_time() == pytest.approx(1)


# --- clean-up ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("takes", "finishes"), [(0.9, True), (1.1, False)])
async def test_20_clean_up_may_await_for_as_long_as_stop_within(root: Root, takes: float, finishes: bool) -> None:
    finished: list[bool] = []

    async def body(me: Actor) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with me.cleanup():
                await trio.sleep(takes)
                finished.append(True)

    ref = root.spawn(body, stop_within=1.0)
    await wait_all_tasks_blocked()
    ref.cancel()
    await ref.wait()
    assert bool(finished) is finishes
    assert trio.current_time() == pytest.approx(min(takes, 1.0))


async def test_20_all_clean_ups_of_an_actor_share_one_time(root: Root) -> None:
    async def body(me: Actor) -> None:
        try:
            try:
                await trio.sleep_forever()
            finally:
                with me.cleanup():
                    await trio.sleep(0.8)
        finally:
            with me.cleanup():
                await trio.sleep(0.8)

    ref = root.spawn(body)
    await wait_all_tasks_blocked()
    ref.cancel()
    await ref.wait()
    assert trio.current_time() == pytest.approx(1.0)


async def test_20_a_crash_in_the_clean_up_is_the_end_of_a_cancelled_actor(root: Root) -> None:
    async def body(me: Actor) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("can't close")

    ref = root.spawn(body, link=False)
    await wait_all_tasks_blocked()
    ref.cancel()
    end = await ref.wait()
    assert (end.reason, str(end.error)) == ("crashed", "can't close")


@contextmanager
def opened_at_the_end(gate: trio.Event) -> Iterator[None]:
    """So that a failing test doesn't hang: nothing but the gate ends a task that shields itself."""
    try:
        yield
    finally:
        gate.set()


async def stuck(me: Actor, gate: trio.Event) -> None:
    with trio.CancelScope(shield=True):
        await gate.wait()


async def test_21_an_actor_that_does_not_end_is_reported_with_its_stack_and_left(
    root: Root, events: list[Event]
) -> None:
    gate = trio.Event()

    async def parent(me: Actor) -> None:
        me.spawn(stuck, gate)
        me.started()
        await me.receive()

    ref = await root.start(parent)
    await wait_all_tasks_blocked()
    with opened_at_the_end(gate):
        await ref.stop()
    assert trio.current_time() == pytest.approx(1.0)
    reports = [event for event in events if event.kind == "actor.stuck"]
    assert [event.actor for event in reports] == ["/parent/stuck"]
    assert "await gate.wait()" in reports[0].data.stack
    await wait_all_tasks_blocked()
    assert ends_of(events) == ["/parent", "/parent/stuck"]


async def test_21_stopping_an_actor_that_does_not_end_says_so(root: Root, events: list[Event]) -> None:
    gate = trio.Event()
    ref = root.spawn(stuck, gate)
    await wait_all_tasks_blocked()
    with (
        opened_at_the_end(gate),
        pytest.raises(DoesNotEnd, match=says("supervisors.ref.Ref.stop", path="/stuck", time=1)),
    ):
        await ref.stop()
    assert [event.actor for event in events if event.kind == "actor.stuck"] == ["/stuck"]


# --- families ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["returns", "crashes", "cancelled"])
async def test_22_children_end_before_their_parent(root: Root, events: list[Event], how: str) -> None:
    async def parent(me: Actor) -> None:
        me.spawn(waits, name="a")
        me.spawn(reads, name="b")
        await wait_all_tasks_blocked()
        if how == "crashes":
            raise ValueError
        if how == "cancelled":
            me.ref.cancel()
            await trio.sleep_forever()

    ref = root.spawn(parent, link=False)
    await ref.wait()
    assert sorted(ends_of(events)[:2]) == ["/parent/a", "/parent/b"]
    assert ends_of(events)[2:] == ["/parent"]


async def test_22_an_actor_that_ends_admits_no_new_children(root: Root) -> None:
    refused: list[str] = []

    async def late(me: Actor, parent: Actor) -> None:
        try:
            await trio.sleep_forever()
        finally:
            try:
                parent.spawn(waits)
            except ShuttingDown as error:
                refused.append(type(error).__name__)

    async def parent(me: Actor) -> None:
        me.spawn(late, me)
        await wait_all_tasks_blocked()

    await root.spawn(parent).wait()
    assert refused == ["ShuttingDown"]


async def test_22_children_spawned_in_the_clean_up_are_ended_too(root: Root, events: list[Event]) -> None:
    async def body(me: Actor) -> None:
        try:
            await trio.sleep_forever()
        finally:
            me.spawn(waits)

    ref = root.spawn(body)
    await wait_all_tasks_blocked()
    ref.cancel()
    await ref.wait()
    assert ends_of(events) == ["/body/waits", "/body"]


async def test_23_the_crash_of_a_linked_child_is_the_crash_of_its_parent(root: Root, events: list[Event]) -> None:
    async def parent(me: Actor) -> None:
        me.spawn(waits)
        me.spawn(crashes)
        await trio.sleep_forever()

    ref = root.spawn(parent, link=False)
    end = await ref.wait()
    assert end.reason == "crashed"
    assert isinstance(end.error, ActorFailed)
    assert str(end.error) == "/parent/crashes crashed: broken"
    assert isinstance(end.error.__cause__, ValueError)
    assert ends_of(events) == ["/parent/crashes", "/parent/waits", "/parent"]


async def test_23_the_normal_end_or_cancel_of_a_linked_child_is_not(root: Root) -> None:
    async def parent(me: Actor) -> str:
        await me.spawn(returns).wait()
        child = me.spawn(waits)
        child.cancel()
        await child.wait()
        return "fine"

    assert await root.spawn(parent).result() == "fine"


async def test_24_the_crash_of_a_watched_child_is_told_to_those_who_hold_its_ref(root: Root) -> None:
    async def parent(me: Actor) -> str:
        child = me.spawn(crashes, link=False)
        return str((await child.wait()).error)

    assert await root.spawn(parent).result() == "broken"


# --- watching ----------------------------------------------------------------------------------------------


async def test_25_a_monitor_tells_of_the_end_exactly_once_also_afterwards(root: Root) -> None:
    downs: list[Any] = []

    async def watcher(me: Actor) -> None:
        async for message in me:
            downs.append(message)  # noqa: PERF401 - seen while it goes on

    watching = root.spawn(watcher)
    ref = root.spawn(crashes, link=False)
    ref.monitor(watching)
    await ref.wait()
    ref.monitor(watching)
    await wait_all_tasks_blocked()
    assert downs == [Down(actor="/crashes", state="failed", error="broken")] * 2
    assert await ref.monitor().wait() == downs[0]


async def test_25_a_cancelled_monitor_tells_nothing_not_even_what_is_on_its_way(root: Root) -> None:
    downs: list[Any] = []

    async def watcher(me: Actor) -> None:
        async for message in me:
            downs.append(message)  # noqa: PERF401 - seen while it goes on

    watching = root.spawn(watcher)
    one, two = root.spawn(waits), root.spawn(waits)
    early, late = one.monitor(watching), two.monitor(watching)
    await wait_all_tasks_blocked()
    early.cancel()
    one.cancel()
    await one.wait()
    two.cancel()
    await two.wait()
    late.cancel()  # its Down is queued, since the watcher has not run since
    late.cancel()
    await wait_all_tasks_blocked()
    assert downs in ([], [Down(actor="/waits#2", state="done")])  # the scheduler may have let the watcher run


async def test_25_a_hundred_thousand_downs_reach_one_watcher(root: Root) -> None:
    async def watcher(me: Actor) -> int:
        count = 0
        async for _ in me:
            count += 1
        return count

    watching = root.spawn(watcher)
    ref = root.spawn(returns)
    for _ in range(100_000):
        ref.monitor(watching)
    await ref.wait()
    await wait_all_tasks_blocked()
    assert (await watching.stop()).value == 100_000


async def test_25_a_broken_callback_on_an_end_harms_nobody(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    ref = root.spawn(returns)

    def broken(end: Any) -> None:
        raise RuntimeError("not my day")

    ref.on_end(broken)
    ref.on_end(lambda end: seen.append(end.reason))
    await ref.wait()
    assert seen == ["normal"]
    assert "a callback on the end of /returns raised" in caplog.text


async def test_26_a_cancelled_wait_for_an_end_leaves_nothing_behind(root: Root) -> None:
    ref = root.spawn(waits)
    with trio.move_on_after(1):
        await ref.wait()
    ref.cancel()
    assert (await ref.wait()).reason == "cancelled"


async def test_26_the_state_says_where_an_actor_stands(root: Root) -> None:
    gate = trio.Event()

    async def body(me: Actor) -> None:
        await gate.wait()
        me.started()
        await me.receive()

    ref = root.spawn(body)
    assert (ref.state, ref.alive) == ("starting", True)
    await wait_all_tasks_blocked()
    assert ref.state == "running"
    gate.set()
    await ref.stop()
    assert (ref.state, ref.alive) == ("done", False)
    assert "/body done" in repr(ref)


async def test_11_a_crash_of_a_group_reaches_the_asker_as_it_is(root: Root) -> None:
    async def body(me: Actor) -> None:
        await me.receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise ValueError("inside")

    ref = root.spawn(body, link=False)
    with pytest.raises(ActorFailed) as caught:
        await ref.ask(Note(1))
    assert isinstance(caught.value.__cause__, ExceptionGroup)


async def test_10_asking_an_actor_that_is_stopping_fails_when_it_has_ended(root: Root) -> None:
    async def body(me: Actor) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with me.cleanup():
                await trio.sleep(0.5)

    ref = root.spawn(body)
    await wait_all_tasks_blocked()
    ref.cancel()
    with pytest.raises(ActorDead):
        await ref.ask(Note("hello?"))
    assert trio.current_time() == pytest.approx(0.5)


def test_end_of_mail_names_itself() -> None:
    assert EndOfMail.code == "end_of_mail"
