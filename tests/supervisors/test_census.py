"""Looking at the tree from outside, and making parts of it pause."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
import trio.testing
from support.waiting import PATIENCE

from callboard.protocol.events import Event
from callboard.supervisors import Actor, Ref, Root
from callboard.supervisors.introspection import census, count_sent, find, is_paused, pause, resume, sent_by

from .notes import Note


async def _still(me: Actor) -> None:
    me.started()
    await trio.sleep_forever()


def _child(parent: Actor, name: str) -> Actor:
    child = parent.adopt(_still, (), name=name, bond="watched")
    child.launch()
    return child


async def test_a_census_names_everybody_parents_first() -> None:
    async with Root() as root:
        a = _child(root.actor, "a")
        _child(_child(a, "b"), "c")
        _child(a, "d")
        _child(root.actor, "e")
        seen = list(census(root))
        assert [one.path for one in seen] == ["/a", "/a/b", "/a/b/c", "/a/d", "/e"]
        assert [one.parent and one.parent.path for one in seen] == ["/", "/a", "/a/b", "/a", "/"]
        assert seen[0].child_count == 2
        assert [one.path for one in census(root, a)] == ["/a", "/a/b", "/a/b/c", "/a/d"]


async def test_actors_are_found_by_path_also_if_names_hold_slashes() -> None:
    async with Root() as root:
        odd = _child(_child(root.actor, "a/b"), "c/d")
        _child(root.actor, "a")
        assert find(root, odd.path) is odd
        assert find(root, "/a") is not None
        assert find(root, "/") is root.actor
        for path in ("", "a", "/x", "/a/b/c", "/a/b/c/d/e", "//", "/a/"):
            assert find(root, path) is None


class Steps:
    """An actor that takes a step whenever it is told, if nothing holds it."""

    def __init__(self, parent: Actor, name: str) -> None:
        self.taken = 0
        self._go = trio.Event()
        self.actor = parent.adopt(self._body, (), name=name, bond="watched")
        self.actor.launch()

    async def _body(self, me: Actor) -> None:
        me.started()
        while True:
            await self._go.wait()
            self._go = trio.Event()
            if me.root.pauses is not None:
                await me.root.pauses.passed(me)
            self.taken += 1

    def go(self) -> None:
        self._go.set()


async def test_101_a_paused_actor_and_all_below_it_begin_nothing_new() -> None:
    async with Root() as root:
        top = Steps(root.actor, "top")
        below = Steps(top.actor, "below")
        beside = Steps(root.actor, "beside")
        kinds: list[tuple[str, str]] = []

        def hears(event: Event) -> None:
            kinds.append((event.kind, event.actor))

        with root.bus.listen(hears):
            assert pause(top.actor)
            assert not pause(top.actor)
            for steps in (top, below, beside):
                steps.go()
            await trio.testing.wait_all_tasks_blocked()
            assert (top.taken, below.taken, beside.taken) == (0, 0, 1)
            assert [is_paused(one) for one in census(root)] == [True, True, False]
            assert resume(top.actor)
            assert not resume(top.actor)
            await trio.testing.wait_all_tasks_blocked()
        assert (top.taken, below.taken, beside.taken) == (1, 1, 1)
        assert root.pauses is None
        assert kinds == [("actor.paused", "/top"), ("actor.resumed", "/top")]


async def test_who_is_paused_twice_is_resumed_twice() -> None:
    async with Root() as root:
        top = Steps(root.actor, "top")
        below = Steps(top.actor, "below")
        pause(top.actor)
        pause(below.actor)
        below.go()
        resume(top.actor)
        await trio.testing.wait_all_tasks_blocked()
        assert below.taken == 0
        resume(below.actor)
        await trio.testing.wait_all_tasks_blocked()
        assert below.taken == 1


async def test_a_pause_ends_with_its_actor_and_a_paused_one_can_be_ended() -> None:
    async with Root() as root:
        top = Steps(root.actor, "top")
        pause(top.actor)
        top.go()
        await trio.testing.wait_all_tasks_blocked()
        top.actor.interrupt()
        with trio.fail_after(PATIENCE):
            await top.actor.wait_over()
        assert root.pauses is None
        assert not pause(top.actor)
        pause(_child(root.actor, "other"))
    assert root.pauses is None


@pytest.mark.parametrize("seed", range(10))
async def test_whoever_is_paused_and_resumed_in_whatever_order_nobody_steps_while_held(seed: int) -> None:
    dice = random.Random(seed)
    async with Root() as root:
        all_of_them = [Steps(root.actor, "s0")]
        for number in range(1, 12):
            all_of_them.append(Steps(dice.choice(all_of_them).actor, f"s{number}"))
        paused: set[Actor] = set()

        def held(actor: Actor | None) -> bool:
            return actor is not None and (actor in paused or held(actor.parent))

        for _ in range(60):
            steps = dice.choice(all_of_them)
            does: Callable[[Actor], bool] = dice.choice((pause, resume))
            assert does(steps.actor) is ((steps.actor in paused) is (does is resume))
            (paused.add if does is pause else paused.discard)(steps.actor)
            await trio.testing.wait_all_tasks_blocked()
            before = {each: each.taken for each in all_of_them}
            for each in all_of_them:
                each.go()
            await trio.testing.wait_all_tasks_blocked()
            for each in all_of_them:
                assert (each.taken == before[each]) is held(each.actor)
            assert (root.pauses is None) is (not paused)


async def test_messages_that_were_taken_are_counted_however_they_came() -> None:
    async def body(me: Actor) -> None:
        me.started()
        async for message in me:
            if message.said == "look":
                while me.has_mail:
                    me.take_mail()

    async with Root() as root:
        ref = root.spawn(body, name="box", bound=16)
        for number in range(200):  # more than there is room for, and than are taken in one turn
            await ref.tell(Note(number))
        ref.signal(Note("and a signal"))
        await trio.testing.wait_all_tasks_blocked()
        (seen,) = census(root)
        assert (seen.mailbox.received, len(seen.mailbox)) == (201, 0)
        await ref.tell(Note("look"))
        for number in range(10):
            await ref.tell(Note(number))
        await trio.testing.wait_all_tasks_blocked()
        (seen,) = census(root)
        assert seen.mailbox.received == 212


async def test_104_messages_are_counted_for_the_actor_that_sends_them_while_that_is_wanted(root: Root) -> None:
    async def sink(me: Actor) -> None:
        async for message in me:
            me.reply(message)

    async def source(me: Actor, sink: Ref) -> None:
        async for _ in me:
            await sink.tell(Note(1))
            await sink.tell(Note(2))
            sink.tell_nowait(Note(3))
            sink.signal(Note(4))
            await sink.ask(Note(5))

    to = root.spawn(sink, bound=3)
    ref = root.spawn(source, to)

    async def round_of_mail() -> dict[str, int]:
        await ref.tell(Note("go"))
        await trio.testing.wait_all_tasks_blocked()
        return {seen.name: sent_by(seen) for seen in census(root)}

    assert await round_of_mail() == {"sink": 0, "source": 0}
    with count_sent(root):
        assert await round_of_mail() == {"sink": 1, "source": 5}
        with count_sent(root):
            assert await round_of_mail() == {"sink": 2, "source": 10}
        assert await round_of_mail() == {"sink": 3, "source": 15}
        await ref.stop()
        assert [sender.path for sender in root.sent or ()] == ["/sink"]  # it replied to the one that was asked
    assert root.sent is None
