"""Starting: ready or nothing. Numbers are those of docs/kernel.md."""

from __future__ import annotations

import contextvars

import pytest
import trio
from support.messages import says
from trio.testing import wait_all_tasks_blocked

from callboard.protocol.errors import ActorCancelled, ActorFailed
from callboard.protocol.events import Event
from callboard.supervisors import Actor, Root


async def slow(me: Actor) -> None:
    await trio.sleep(1)
    me.started()
    await me.receive()


async def test_27_start_returns_when_the_child_is_ready(root: Root) -> None:
    ref = await root.start(slow)
    assert trio.current_time() == pytest.approx(1)
    assert ref.state == "running"


async def test_27_the_first_receive_means_ready(root: Root) -> None:
    async def body(me: Actor) -> None:
        await trio.sleep(1)
        await me.receive()

    await root.start(body)
    assert trio.current_time() == pytest.approx(1)


async def test_27_a_crash_before_ready_is_raised_in_the_starter_only(root: Root, events: list[Event]) -> None:
    async def body(me: Actor) -> None:
        await trio.sleep(1)
        raise OSError("no port left")

    with pytest.raises(ActorFailed, match="/body crashed: no port left") as caught:
        await root.start(body)
    assert isinstance(caught.value.__cause__, OSError)
    assert root.actor.children == ()
    await wait_all_tasks_blocked()
    assert not root.actor.stopping, "linked, but the starter has been told"


async def test_27_a_crash_right_after_ready_is_a_crash_of_the_parent(root: Root) -> None:
    async def body(me: Actor) -> None:
        me.started()
        raise OSError("a moment later")

    async def parent(me: Actor) -> None:
        await me.start(body)
        await trio.sleep_forever()

    end = await root.spawn(parent, link=False).wait()
    assert str(end.error) == "/parent/body crashed: a moment later"


async def test_28_a_cancelled_start_ends_the_child_and_waits_for_it(root: Root, events: list[Event]) -> None:
    async def body(me: Actor) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with me.cleanup():
                await trio.sleep(0.5)

    with trio.move_on_after(1):
        await root.start(body)
    assert trio.current_time() == pytest.approx(1.5)
    assert root.actor.children == ()
    assert [event.kind for event in events] == ["actor.spawned", "actor.stopped"]


async def test_28_a_child_that_others_cancel_while_it_starts_fails_the_start(root: Root) -> None:
    async with trio.open_nursery() as nursery:

        async def starter() -> None:
            with pytest.raises(
                ActorCancelled, match=says("supervisors.actor.Actor.finish", path="/slow", reason="cancelled")
            ):
                await root.start(slow)

        nursery.start_soon(starter)
        await wait_all_tasks_blocked()
        root.actor.children[0].cancel()


async def test_28_a_cancel_at_the_very_moment_of_ready_leaves_one_owner(root: Root) -> None:
    """Either the start returned a living child, or it was cancelled and the child is gone."""
    gate = trio.Event()

    async def body(me: Actor) -> None:
        await gate.wait()
        me.started()
        await me.receive()

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(root.start, body)
            await wait_all_tasks_blocked()
            gate.set()
            scope.cancel()
    await wait_all_tasks_blocked()
    assert [ref.state for ref in root.actor.children] in ([], ["running"])


async def test_29_a_body_that_returns_was_ready_enough(root: Root) -> None:
    async def body(me: Actor) -> int:
        return 7

    ref = await root.start(body)
    assert await ref.result() == 7


async def test_30_names_are_made_unique_among_siblings(root: Root) -> None:
    async def body(me: Actor) -> None:
        await trio.sleep_forever()

    paths = [root.spawn(body).path, root.spawn(body).path, root.spawn(body, name="body").path]
    assert paths == ["/body", "/body#2", "/body#3"]

    async def parent(me: Actor) -> str:
        return me.spawn(body).path

    assert await root.spawn(parent).result() == "/parent/body"


async def test_30_an_actor_starts_in_the_context_of_its_spawner(root: Root) -> None:
    who = contextvars.ContextVar("who", default="nobody")

    async def body(me: Actor) -> str:
        return who.get()

    who.set("me")
    assert await root.spawn(body).result() == "me"
