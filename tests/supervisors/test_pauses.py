"""An actor that reads its mail while it is paused is signalled when it is free again."""

from __future__ import annotations

import trio
import trio.testing

from callboard.protocol.messages import Resumed
from callboard.supervisors import Actor, Root
from callboard.supervisors.census import pause, resume

from .notes import Note


async def still(me: Actor) -> None:
    me.started()
    await trio.sleep_forever()


def put_up(parent: Actor, name: str) -> Actor:
    """An actor that reads no mail, with a mailbox that may be read in its place."""
    actor = parent.adopt(still, (), name=name, bond="watched")
    actor.launch()
    return actor


def signals(actor: Actor) -> list[object]:
    return list(actor.mailbox.signals or ())


async def test_102_an_actor_below_a_paused_one_is_signalled_once_when_it_is_free(root: Root) -> None:
    top = put_up(root.actor, "top")
    below = put_up(top, "below")
    assert pause(top)
    assert pause(below)
    assert root.pauses is not None
    assert root.pauses.signal_when_free(below)
    assert root.pauses.signal_when_free(below)
    resume(below)
    assert signals(below) == []
    resume(top)
    assert signals(below) == [Resumed()]
    assert signals(top) == []
    pause(top)
    resume(top)
    assert signals(below) == [Resumed()]


async def test_102_an_actor_that_is_free_is_not_signalled(root: Root) -> None:
    top, beside = put_up(root.actor, "top"), put_up(root.actor, "beside")
    pause(top)
    assert root.pauses is not None
    assert not root.pauses.signal_when_free(beside)
    resume(top)
    assert signals(beside) == []


async def test_102_mail_is_read_while_what_is_to_begin_is_held_back(root: Root) -> None:
    did: list[str] = []

    async def driver(me: Actor) -> None:
        held: list[str] = []
        async for message in me:
            pauses = me.root.pauses
            if not isinstance(message, Resumed):
                did.append(f"read {message.said}")
                held.append(message.said)
            if pauses is None or not pauses.signal_when_free(me):
                did.extend(f"began {each}" for each in held)
                held.clear()

    ref = root.spawn(driver)
    await ref.tell(Note("a"))
    await trio.testing.wait_all_tasks_blocked()
    actor = root.actor.child("driver")
    assert actor is not None
    pause(actor)
    await ref.tell(Note("b"))
    await ref.tell(Note("c"))
    await trio.testing.wait_all_tasks_blocked()
    assert did == ["read a", "began a", "read b", "read c"]
    resume(actor)
    await trio.testing.wait_all_tasks_blocked()
    assert did[4:] == ["began b", "began c"]


async def test_the_end_of_a_paused_actor_frees_those_that_wait_and_an_ended_one_is_forgotten(root: Root) -> None:
    top = put_up(root.actor, "top")
    below, gone = put_up(top, "below"), put_up(top, "gone")
    pause(top)
    pauses = root.pauses
    assert pauses is not None
    pauses.signal_when_free(below)
    pauses.signal_when_free(gone)
    await gone.ref.stop()
    assert not pauses.signal_when_free(gone)
    top.interrupt()
    await top.wait_over()
    assert root.pauses is None
    assert not pauses._to_signal
