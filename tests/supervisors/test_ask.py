"""Asking: exactly one reply or error, and never a wait that can't end. Numbers are those of docs/kernel.md."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from support.messages import fragment, has_message, says
from trio.testing import wait_all_tasks_blocked

from callboard.protocol.errors import ActorDead, ActorFailed, AskTimeout, Deadlock, NoReply
from callboard.protocol.events import Event
from callboard.supervisors import Actor, Ref, Request, Root

from .notes import Note


async def echo(me: Actor) -> None:
    async for message in me:
        me.reply(message.said)


async def silent(me: Actor) -> None:
    """Takes one message and keeps it in hand."""
    await me.receive()
    me.spawn(trio_sleeper, link=False)
    await trio.sleep_forever()


async def trio_sleeper(me: Actor) -> None:
    await trio.sleep_forever()


def dead_letters(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.data.message, event.data.reason) for event in events if event.kind == "mail.dead"]


async def test_09_every_ask_gets_its_own_reply(root: Root) -> None:
    ref = root.spawn(echo, bound=4)
    replies: dict[int, Any] = {}

    async def asker(number: int) -> None:
        replies[number] = await ref.ask(Note(number))

    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(asker, number)
    assert replies == {number: number for number in range(200)}


async def test_09_a_second_reply_is_a_dead_letter(root: Root, events: list[Event]) -> None:
    async def body(me: Actor) -> None:
        async for _ in me:
            request = me.take_request()
            request.reply(1)
            request.reply(2)

    assert await root.spawn(body).ask(Note("?")) == 1
    assert dead_letters(events) == [("Value(2)", "already answered")]


async def test_09_reply_to_a_told_message_does_nothing_and_it_can_not_be_taken(root: Root) -> None:
    async def body(me: Actor) -> None:
        await me.receive()
        me.reply("nobody asked")
        with pytest.raises(RuntimeError, match=says("supervisors.actor.Actor.take_request")):
            me.take_request()

    ref = root.spawn(body)
    await ref.tell(Note(1))
    assert (await ref.wait()).reason == "normal"


async def test_10_asking_an_ended_actor_fails_at_once(root: Root, events: list[Event]) -> None:
    ref = root.spawn(echo)
    await ref.stop()
    before = trio.current_time()
    with pytest.raises(ActorDead, match=says("supervisors.ref.Ref._nobody.2", path="/echo")):
        await ref.ask(Note("anyone?"), timeout=10)
    assert trio.current_time() == before
    assert dead_letters(events) == [("Note(said='anyone?')", "the actor has ended")]


async def test_10_an_ask_still_in_the_mailbox_fails_when_the_actor_ends(root: Root, events: list[Event]) -> None:
    ref = root.spawn(silent, bound=2)
    await ref.tell(Note("in hand"))
    await wait_all_tasks_blocked()
    errors: list[str] = []

    async def asker(number: int) -> None:
        with pytest.raises(ActorDead) as caught:
            await ref.ask(Note(number))
        errors.append(str(caught.value))

    async with trio.open_nursery() as nursery:
        for number in range(3):  # two in the mailbox, one waits for room
            nursery.start_soon(asker, number)
            await wait_all_tasks_blocked()
        ref.cancel()
    assert sorted(errors) == ["/silent ended before it handled this message"] * 2 + [
        "/silent has ended and can't answer"
    ]
    letters = [message for message, _ in dead_letters(events)]
    assert letters == [f"Note(said={number})" for number in range(3)], "each is reported once"


async def test_10_an_answer_that_is_itself_an_actor_dead_passes_as_it_is(root: Root, events: list[Event]) -> None:
    async def forwards(me: Actor) -> None:
        async for _ in me:
            me.refuse(ActorDead("/somebody/else has ended"))

    with pytest.raises(ActorDead, match="/somebody/else has ended"):
        await root.spawn(forwards).ask(Note(1))
    assert dead_letters(events) == []


async def test_11_a_crash_while_handling_fails_the_ask_with_the_crash_as_cause(root: Root) -> None:
    async def body(me: Actor) -> None:
        await me.receive()
        raise ValueError("bad luck")

    ref = root.spawn(body, link=False)
    with pytest.raises(ActorFailed, match="/body crashed: bad luck") as caught:
        await ref.ask(Note(1))
    assert isinstance(caught.value.__cause__, ValueError)


async def test_11_a_thousand_asks_to_an_actor_that_crashes_fail_once_each(root: Root) -> None:
    async def body(me: Actor) -> None:
        await me.receive()
        raise ValueError

    ref = root.spawn(body, link=False, bound=100)
    failed: list[type[BaseException]] = []

    async def asker() -> None:
        try:
            await ref.ask(Note(1))
        except (ActorFailed, ActorDead) as error:
            failed.append(type(error))

    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(asker)
    assert sorted(kind.__name__ for kind in failed) == ["ActorDead"] * 999 + ["ActorFailed"]


async def test_12_going_on_without_a_reply_fails_the_ask(root: Root) -> None:
    async def body(me: Actor) -> None:
        async for _ in me:
            pass

    with pytest.raises(NoReply, match=says("supervisors.actor.Actor._take")):
        await root.spawn(body).ask(Note(1))


async def test_13_an_ask_times_out_and_the_late_reply_goes_to_nobody_else(root: Root, events: list[Event]) -> None:
    async def slow(me: Actor) -> None:
        async for message in me:
            await trio.sleep(2)
            me.reply(message.said)

    ref = root.spawn(slow)
    with pytest.raises(AskTimeout, match=says("supervisors.ref.Ref.ask", path="/slow", timeout=1)):
        await ref.ask(Note("first"), timeout=1)
    assert await ref.ask(Note("second"), timeout=10) == "second"
    assert dead_letters(events) == [("Value('first')", fragment("supervisors.ref.Request.resolve"))]


async def test_13_the_timeout_covers_the_wait_for_room(root: Root) -> None:
    ref = root.spawn(trio_sleeper, bound=1)
    await ref.tell(Note(1))
    with pytest.raises(AskTimeout) as caught:
        await ref.ask(Note(2), timeout=3)
    assert trio.current_time() == pytest.approx(3)
    assert caught.value.__context__ is None


async def test_13_a_reply_after_the_asker_has_ended_is_a_dead_letter(root: Root, events: list[Event]) -> None:
    requests: list[Request] = []

    async def keeper(me: Actor) -> None:
        async for _ in me:
            requests.append(me.take_request())  # noqa: PERF401 - the loop never ends

    keeper_ref = root.spawn(keeper)

    async def asker(me: Actor) -> None:
        await keeper_ref.ask(Note("?"))

    ref = root.spawn(asker)
    await wait_all_tasks_blocked()
    ref.cancel()
    await ref.wait()
    requests[0].reply("!")
    assert dead_letters(events) == [("Value('!')", fragment("supervisors.ref.Request.resolve"))]


async def test_14_requests_can_be_answered_later_in_any_order(root: Root) -> None:
    async def body(me: Actor) -> None:
        taken: list[Request] = []
        async for _ in me:
            taken.append(me.take_request())
            if len(taken) == 1000:
                random.Random(1).shuffle(taken)
                for request in taken:
                    request.reply(request.message.said * 2)
                assert not me.lent

    ref = root.spawn(body)
    replies: dict[int, int] = {}

    async def asker(number: int) -> None:
        replies[number] = await ref.ask(Note(number))

    async with trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(asker, number)
    assert replies == {number: number * 2 for number in range(1000)}


async def test_14_a_request_whose_asker_was_cancelled_before_it_was_received_is_not_kept(root: Root) -> None:
    go = trio.Event()

    async def body(me: Actor) -> None:
        await go.wait()
        async for _ in me:
            assert not me.take_request().waits
            assert not me.lent

    ref = root.spawn(body)
    with trio.move_on_after(0.1) as scope:
        await ref.ask(Note("?"))
    assert scope.cancelled_caught
    go.set()
    await wait_all_tasks_blocked()
    assert ref.state != "failed"


async def test_14_requests_taken_and_not_answered_fail_when_the_actor_ends(root: Root) -> None:
    async def body(me: Actor) -> None:
        for _ in range(3):
            await me.receive()
            me.take_request()

    ref = root.spawn(body)
    errors: list[BaseException] = []

    async def asker() -> None:
        expected = says("supervisors.actor._failure", path="/body", reason="normal")
        with pytest.raises(ActorDead, match=expected) as caught:
            await ref.ask(Note("?"))
        errors.append(caught.value)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(asker)
    assert len({id(error) for error in errors}) == 3


async def test_15_an_actor_that_asks_itself_is_told_so(root: Root) -> None:
    async def body(me: Actor) -> str:
        with pytest.raises(Deadlock, match="/body -> /body") as caught:
            await me.ref.ask(Note("me"))
        return str(caught.value)

    assert has_message(await root.spawn(body).result(), "supervisors.ref.refuse_circle")


@pytest.mark.parametrize("length", [2, 3, 10])
async def test_15_a_circle_of_asks_is_refused_where_it_closes(root: Root, length: int) -> None:
    refs: list[Ref] = []
    deadlocks: list[str] = []

    async def member(me: Actor, index: int) -> None:
        async for message in me:
            try:
                me.reply(await refs[(index + 1) % length].ask(message))
            except Deadlock as error:
                deadlocks.append(str(error))
                me.refuse(error)

    refs.extend(root.spawn(member, index, name=f"m{index}") for index in range(length))
    with pytest.raises(Deadlock):
        await refs[0].ask(Note("round we go"))
    assert len(deadlocks) == length, "the one that closed it, and those it travelled back through"


async def test_15_actors_that_ask_one_another_without_a_circle_are_fine(root: Root) -> None:
    last = root.spawn(echo, name="last")

    async def middle(me: Actor, to: Ref) -> None:
        async for message in me:
            me.reply(await to.ask(message))

    one = root.spawn(middle, last, name="one")
    two = root.spawn(middle, one, name="two")
    assert await two.ask(Note(5)) == 5
    assert await one.ask(Note(6)) == 6
