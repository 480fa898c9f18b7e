"""An actor's timers: messages that it tells itself later."""

from __future__ import annotations

import gc

import pytest
import trio
import trio.testing
from support.messages import says

from callboard.protocol.events import Event
from callboard.protocol.messages import Message
from callboard.supervisors import Actor, ChildSpec, Root, Supervisor
from callboard.supervisors.scheduler import COMPACT_AT


class Tick(Message, frozen=True):
    n: int


class Fill(Message, frozen=True):
    n: int


async def still(me: Actor) -> None:
    me.started()
    await trio.sleep_forever()


def put_up(root: Root, bound: int = 8) -> Actor:
    """An actor that reads no mail, with a mailbox that may be read in its place."""
    actor = root.actor.adopt(still, (), name="still", bond="watched", bound=bound)
    actor.launch()
    return actor


def mail(actor: Actor) -> list[object]:
    return list(actor.mailbox.mail or ())


async def test_98_messages_come_at_their_times_in_the_order_of_their_times(root: Root) -> None:
    received: list[tuple[float, int]] = []

    async def body(me: Actor) -> None:
        for n, seconds in enumerate((3.0, 1.0, 2.0, 1.0, 0.0)):
            me.tell_later(seconds, Tick(n))
        for _ in range(5):
            message = await me.receive()
            received.append((trio.current_time(), message.n))

    await root.spawn(body).wait()
    assert received == [(0.0, 4), (1.0, 1), (1.0, 3), (2.0, 2), (3.0, 0)]


async def test_98_a_message_comes_behind_the_mail_and_into_a_full_mailbox(root: Root) -> None:
    actor = put_up(root, bound=2)
    await actor.ref.tell(Fill(1))
    actor.tell_later(1, Tick(1))
    await actor.ref.tell(Fill(2))
    await trio.sleep(2)
    assert mail(actor) == [Fill(1), Fill(2), Tick(1)]


async def test_98_senders_that_wait_for_room_are_let_in_behind_a_timers_message(root: Root) -> None:
    received: list[Message] = []

    async def body(me: Actor) -> None:
        me.tell_later(1, Tick(1))
        await trio.sleep(2)
        while len(received) < 4:
            received.append(await me.receive())

    ref = root.spawn(body, bound=1)
    for n in range(3):
        await ref.tell(Fill(n))
    await ref.wait()
    assert received == [Fill(0), Tick(1), Fill(1), Fill(2)]


async def test_99_a_cancelled_timer_puts_no_message(root: Root) -> None:
    actor = put_up(root)
    timer = actor.tell_later(1, Tick(1))
    assert timer.waits
    assert timer.cancel()
    assert not timer.waits
    assert not timer.cancel()
    await trio.sleep(2)
    assert mail(actor) == []


async def test_99_the_message_of_a_timer_that_is_cancelled_is_taken_out_of_the_mailbox(root: Root) -> None:
    actor = put_up(root)
    same = Tick(1)
    first, second = actor.tell_later(1, same), actor.tell_later(2, same)
    await trio.sleep(3)
    await actor.ref.tell(same)
    assert not second.waits
    assert len(mail(actor)) == 3
    assert second.cancel()
    assert len(mail(actor)) == 2
    actor.take_mail()
    assert not first.cancel()
    assert not second.cancel()
    assert mail(actor) == [same]


async def test_99_taking_out_the_last_message_lets_those_in_who_wait_for_room(root: Root) -> None:
    actor = put_up(root, bound=1)
    timer = actor.tell_later(0, Tick(1))
    await trio.sleep(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor.ref.tell, Fill(1))
        await trio.testing.wait_all_tasks_blocked()
        assert mail(actor) == [Tick(1)]
        assert timer.cancel()
    assert mail(actor) == [Fill(1)]


async def test_100_a_timer_ends_with_its_actor_and_leaves_no_dead_letter(root: Root, events: list[Event]) -> None:
    actor = put_up(root)
    timer = actor.tell_later(5, Tick(1))
    await actor.ref.stop()
    assert not timer.waits
    assert not timer.cancel()
    await trio.sleep(10)
    assert "mail.dead" not in [event.kind for event in events]


async def test_100_a_timer_does_not_come_to_the_next_life(root: Root) -> None:
    lives: list[list[Message]] = []

    async def body(me: Actor) -> None:
        lives.append([])
        if len(lives) == 1:
            me.tell_later(1, Tick(1))
            raise ValueError("crashed")
        me.tell_later(3, Tick(2))
        async for message in me:
            lives[-1].append(message)

    spec = ChildSpec(name="worker", body=body, restart="transient")
    await root.start(Supervisor(spec), name="site")
    await trio.sleep(10)
    assert lives == [[], [Tick(2)]]


async def test_an_actor_that_ended_is_not_kept_by_its_timers(root: Root) -> None:
    async def body(me: Actor) -> None:
        me.tell_later(1e9, Tick(1))

    await root.spawn(body, name="kept-by-a-timer").wait()
    await trio.testing.wait_all_tasks_blocked()
    gc.collect()
    assert not [actor for actor in gc.get_objects() if isinstance(actor, Actor) and actor.name == "kept-by-a-timer"]


async def test_cancelled_timers_do_not_pile_up(root: Root) -> None:
    actor = put_up(root)
    for n in range(3 * COMPACT_AT):
        actor.tell_later(3_600, Tick(n)).cancel()
        assert len(root.alarms) <= COMPACT_AT + 1
    assert not actor.timers


@pytest.mark.parametrize("wrong", [-1.0, float("nan")])
async def test_a_time_that_is_past_or_no_number_is_refused(root: Root, wrong: float) -> None:
    with pytest.raises(ValueError, match=says("supervisors.actor.Actor.tell_later")):
        put_up(root).tell_later(wrong, Tick(1))
