"""Mail: order, back-pressure, signals, fairness, dead letters. Numbers are those of docs/kernel.md."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import has_message, says
from trio.testing import assert_checkpoints, assert_no_checkpoints, wait_all_tasks_blocked

from callboard.protocol.errors import MailboxFull
from callboard.protocol.events import Event
from callboard.supervisors import Actor, Ref, Root

from .notes import Note


class Inbox:
    """An actor that keeps what it gets; `gate` holds it back before each message."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.gate = trio.Event()
        self.gate.set()

    async def __call__(self, me: Actor) -> None:
        await self.gate.wait()
        async for message in me:
            self.got.append(message.said)
            await self.gate.wait()


async def test_01_messages_of_one_sender_arrive_in_the_order_they_were_sent(root: Root) -> None:
    inbox = Inbox()
    ref = root.spawn(inbox, bound=4)
    for number in range(100):
        await ref.tell(Note(number))
    await wait_all_tasks_blocked()
    assert inbox.got == list(range(100))


@settings(max_examples=60, deadline=None)
@given(
    bound=st.integers(1, 20),
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    pauses=st.lists(st.integers(0, 3), min_size=1, max_size=20),
)
def test_01_order_per_sender_holds_for_any_bound_and_any_senders(
    run: Callable[..., Any], bound: int, counts: list[int], pauses: list[int]
) -> None:
    """02 as well: nothing is lost and nothing doubled."""

    async def main() -> None:
        got: list[tuple[int, int]] = []

        async def reader(me: Actor) -> None:
            async for message in me:
                got.append(message.said)
                assert len(me.mailbox.mail or ()) <= bound
                for _ in range(pauses[len(got) % len(pauses)]):
                    await trio.lowlevel.checkpoint()

        async def sender(ref: Ref[Note], me: int, count: int) -> None:
            for number in range(count):
                await ref.tell(Note((me, number)))
                for _ in range(pauses[(me + number) % len(pauses)] - 1):
                    await trio.lowlevel.checkpoint()

        async with Root() as root:
            ref = root.spawn(reader, bound=bound)
            async with trio.open_nursery() as nursery:
                for index, count in enumerate(counts):
                    nursery.start_soon(sender, ref, index, count)
            await wait_all_tasks_blocked()
        for index, count in enumerate(counts):
            assert [number for who, number in got if who == index] == list(range(count))
        assert len(got) == sum(counts)

    run(main)


async def test_02_a_full_mailbox_makes_tell_wait_and_tell_nowait_raise(root: Root) -> None:
    inbox = Inbox()
    inbox.gate = trio.Event()
    ref = root.spawn(inbox, bound=2)
    with assert_no_checkpoints():
        await ref.tell(Note(1))
        await ref.tell(Note(2))
    with pytest.raises(MailboxFull, match=says("supervisors.mailbox.Mailbox.put_nowait.2", self=2, bound=2)):
        ref.tell_nowait(Note(3))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ref.tell, Note(3))
        await wait_all_tasks_blocked()
        assert inbox.got == []
        inbox.gate.set()
    await wait_all_tasks_blocked()
    assert inbox.got == [1, 2, 3]


async def test_02_a_hundred_senders_through_a_small_mailbox_lose_nothing(root: Root) -> None:
    inbox = Inbox()
    ref = root.spawn(inbox, bound=16)

    async def sender(me: int) -> None:
        for number in range(100):
            await ref.tell(Note((me, number)))

    async with trio.open_nursery() as nursery:
        for me in range(100):
            nursery.start_soon(sender, me)
    await wait_all_tasks_blocked()
    assert sorted(inbox.got) == [(me, number) for me in range(100) for number in range(100)]


async def test_02_a_mailbox_may_fill_before_its_actor_has_started(root: Root) -> None:
    inbox = Inbox()
    ref = root.spawn(inbox, bound=1)
    assert ref.tell_nowait(Note(1))
    with pytest.raises(MailboxFull):
        ref.tell_nowait(Note(2))
    await ref.tell(Note(3))
    await wait_all_tasks_blocked()
    assert inbox.got == [1, 3]


async def test_02_a_sender_that_waited_for_room_wakes_a_reader_that_has_fallen_asleep_since(root: Root) -> None:
    inbox = Inbox()
    inbox.gate = trio.Event()
    ref = root.spawn(inbox, bound=1)
    await ref.tell(Note(1))

    async def sender() -> None:
        await ref.tell(Note(2))
        await wait_all_tasks_blocked()
        await ref.tell(Note(3))
        await ref.tell(Note(4))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender)
        await wait_all_tasks_blocked()
        inbox.gate.set()
    await wait_all_tasks_blocked()
    assert inbox.got == [1, 2, 3, 4]


async def test_03_a_cancelled_tell_that_waited_for_room_has_sent_nothing(root: Root) -> None:
    inbox = Inbox()
    inbox.gate = trio.Event()
    ref = root.spawn(inbox, bound=1)
    await ref.tell(Note("first"))
    with trio.move_on_after(1) as scope:
        await ref.tell(Note("never sent"))
    assert scope.cancelled_caught
    inbox.gate.set()
    await ref.tell(Note("last"))
    await wait_all_tasks_blocked()
    assert inbox.got == ["first", "last"]


async def test_04_signals_overtake_all_mail_and_are_never_refused(root: Root) -> None:
    inbox = Inbox()
    inbox.gate = trio.Event()
    ref = root.spawn(inbox, bound=3)
    for number in range(3):
        ref.tell_nowait(Note(number))
    for number in range(1000):
        assert ref.signal(Note(f"signal {number}"))
    inbox.gate.set()
    await wait_all_tasks_blocked()
    assert inbox.got == [*(f"signal {number}" for number in range(1000)), 0, 1, 2]


async def test_04_stop_is_seen_before_a_hundred_thousand_queued_messages(root: Root) -> None:
    inbox = Inbox()
    inbox.gate = trio.Event()
    ref = root.spawn(inbox, bound=100_000)
    for number in range(100_000):
        ref.tell_nowait(Note(number))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ref.stop)
        await wait_all_tasks_blocked()
        inbox.gate.set()
    assert inbox.got == []


async def test_05_an_actor_handles_one_message_at_a_time(root: Root) -> None:
    busy: list[Any] = []

    async def body(me: Actor) -> None:
        async for message in me:
            assert not busy
            busy.append(message)
            await trio.sleep(1)
            busy.clear()
            me.reply(message)

    ref = root.spawn(body)
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(ref.ask, Note(number))
    assert trio.current_time() == pytest.approx(5)


async def test_05_only_one_task_at_a_time_receives(root: Root) -> None:
    async def body(me: Actor) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(me.receive)
            await wait_all_tasks_blocked()
            try:
                await me.receive()
            except trio.BusyResourceError as error:
                nursery.cancel_scope.cancel()
                return str(error)
        return ""

    assert has_message(await root.spawn(body).result(), "supervisors.mailbox.Mailbox.park")


async def test_06_an_actor_that_never_runs_out_of_mail_lets_others_run(root: Root) -> None:
    handled = 0

    async def chatty(me: Actor) -> None:
        nonlocal handled
        me.ref.tell_nowait(Note(0))
        async for _ in me:
            handled += 1
            me.ref.tell_nowait(Note(0))

    ref = root.spawn(chatty)
    await trio.lowlevel.checkpoint()
    gaps = []
    for _ in range(50):
        before = handled
        await trio.lowlevel.checkpoint()
        gaps.append(handled - before)
    assert max(gaps) <= 2 * 64
    ref.cancel()
    assert (await ref.wait()).reason == "cancelled"


async def test_07_telling_and_receiving_are_checkpoints_only_when_they_wait(root: Root) -> None:
    async def body(me: Actor) -> None:
        await me.receive()
        with assert_no_checkpoints():
            await me.receive()
        with assert_checkpoints():
            await me.receive()

    ref = root.spawn(body)
    with assert_no_checkpoints():
        await ref.tell(Note(1))
        await ref.tell(Note(2))
    await wait_all_tasks_blocked()
    await ref.tell(Note(3))
    assert (await ref.wait()).reason == "normal"


async def test_08_a_message_that_reaches_nobody_is_a_dead_letter(root: Root, events: list[Event]) -> None:
    async def body(me: Actor) -> None:
        await me.receive()

    ref = root.spawn(body)
    for number in range(3):
        await ref.tell(Note(number))
    await ref.wait()
    assert await ref.tell(Note("too late")) is False
    assert ref.tell_nowait(Note("too late")) is False
    assert ref.signal(Note("too late")) is False
    dead = [(event.data.message, event.data.reason) for event in events if event.kind == "mail.dead"]
    assert dead == [
        ("Note(said=1)", "the actor ended before it handled the message"),
        ("Note(said=2)", "the actor ended before it handled the message"),
        *[("Note(said='too late')", "the actor has ended")] * 3,
    ]


async def test_08_a_sender_that_waits_for_room_when_the_actor_ends_has_a_dead_letter(
    root: Root, events: list[Event]
) -> None:
    inbox = Inbox()
    inbox.gate = trio.Event()
    ref = root.spawn(inbox, bound=1)
    await ref.tell(Note(1))
    sent: list[bool] = []

    async def sender() -> None:
        sent.append(await ref.tell(Note(2)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender)
        await wait_all_tasks_blocked()
        ref.cancel()
    assert sent == [False]
    assert [event.data.message for event in events if event.kind == "mail.dead"] == ["Note(said=1)", "Note(said=2)"]


async def test_02_a_sender_that_waits_is_let_in_although_others_never_stop_telling(root: Root) -> None:
    seen: list[str] = []
    slow_is_in = trio.Event()

    async def reader(me: Actor) -> None:
        async for message in me:
            seen.append(message.said)
            await trio.lowlevel.checkpoint()  # slower than those who tell

    ref = root.spawn(reader, bound=8)

    async def slow() -> None:
        await ref.tell(Note("slow"))
        slow_is_in.set()

    async def chatty() -> None:
        while not slow_is_in.is_set():
            with contextlib.suppress(MailboxFull):
                ref.tell_nowait(Note("chatty"))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            ref.tell_nowait(Note("first"))
        nursery.start_soon(slow)
        await trio.lowlevel.checkpoint()
        for _ in range(3):
            nursery.start_soon(chatty)
    await wait_all_tasks_blocked()
    assert "slow" in seen


async def test_03_when_the_last_waiting_sender_gives_up_there_is_room_again(root: Root) -> None:
    inbox = Inbox()
    inbox.gate = trio.Event()
    ref = root.spawn(inbox, bound=2)
    await ref.tell(Note(1))
    await ref.tell(Note(2))
    with trio.move_on_after(1):
        await ref.tell(Note(3))
    inbox.gate.set()
    await wait_all_tasks_blocked()
    assert ref.tell_nowait(Note(4))
    await wait_all_tasks_blocked()
    assert inbox.got == [1, 2, 4]
