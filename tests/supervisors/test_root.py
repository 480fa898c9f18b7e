"""The root: leaving the block leaves nothing behind, in order and in time. Numbers are those of docs/kernel.md."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from support.messages import says
from trio.testing import wait_all_tasks_blocked

from callboard.protocol.errors import ActorError, ActorFailed, ShuttingDown
from callboard.protocol.kernel.questions import Question
from callboard.supervisors import Actor, Root

pytestmark = pytest.mark.usefixtures("autojump_clock")


class Log:
    """Actors that write down how they end."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def cleans(self, me: Actor, seconds: float = 0.0) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with me.cleanup():
                await trio.sleep(seconds)
                self.lines.append(me.path)


async def test_45_leaving_the_block_stops_the_tree() -> None:
    log = Log()
    async with Root() as root:
        root.spawn(log.cleans, name="a")
        root.spawn(log.cleans, 0.5, name="b")
        await wait_all_tasks_blocked()
    assert log.lines == ["/a", "/b"]
    assert root.tasks == {}
    assert root.actor.state == "done"


async def test_45_a_root_may_live_inside_a_root() -> None:
    log = Log()

    async def inner(me: Actor) -> str:
        async with Root() as root:
            root.spawn(log.cleans, name="deep")
            await wait_all_tasks_blocked()
        return "done"

    async with Root() as root:
        assert await root.spawn(inner).result() == "done"
    assert log.lines == ["/deep"]


async def test_46_a_cancel_from_outside_becomes_an_ordered_stop() -> None:
    log = Log()

    async def parent(me: Actor) -> None:
        me.spawn(log.cleans, 0.3, name="child")
        await log.cleans(me)

    with trio.move_on_after(1) as scope:
        async with Root() as root:
            root.spawn(parent, name="p")
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert log.lines == ["/p", "/p/child"]
    assert trio.current_time() == pytest.approx(1.3)


async def test_46_a_root_entered_in_a_cancelled_scope_goes_away_again() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        async with Root():
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert trio.current_time() == 0


async def test_47_the_stop_of_a_root_ends_by_its_deadline() -> None:
    async def slow(me: Actor) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with me.cleanup():
                await trio.sleep(50)

    async def stubborn(me: Actor) -> None:
        while trio.current_time() < 60:
            try:
                await trio.sleep(1)
            except trio.Cancelled:
                with trio.move_on_after(0.1, shield=True):
                    await trio.sleep_forever()
        raise trio.ClosedResourceError

    async with Root(stop_within=3.0) as root:
        root.spawn(slow, stop_within=100)
        await wait_all_tasks_blocked()
    assert trio.current_time() == pytest.approx(3.0)


async def test_47_many_slow_ones_share_that_deadline() -> None:
    log = Log()
    async with Root(stop_within=3.0) as root:
        for _ in range(100):
            root.spawn(log.cleans, 2.0, stop_within=2.5)
        await wait_all_tasks_blocked()
    assert trio.current_time() == pytest.approx(2.0)
    assert len(log.lines) == 100


async def test_47_a_crash_behind_the_deadline_does_not_become_the_blocks_error() -> None:
    async def body(me: Actor) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
                    await trio.sleep_forever()
                await trio.lowlevel.checkpoint()
            finally:
                raise OSError("late")

    ends: list[Any] = []
    async with Root(stop_within=1.0) as root:
        ref = root.spawn(body, link=False)
        ref.on_end(ends.append)
        await wait_all_tasks_blocked()
    assert [end.reason for end in ends] == ["crashed"]


async def test_48_an_error_in_the_block_passes_unwrapped() -> None:
    async def raises(error: BaseException) -> None:
        async with Root() as root:
            root.spawn(Log().cleans)
            await wait_all_tasks_blocked()
            raise error

    cause = KeyError("the cause")
    try:
        raise ValueError("mine") from cause
    except ValueError as mine:
        error = mine
    with pytest.raises(ValueError, match="mine") as caught:
        await raises(error)
    assert caught.value is error
    assert error.__cause__ is cause
    group = ExceptionGroup("my own", [ValueError()])
    with pytest.raises(ExceptionGroup, match="my own") as grouped:
        await raises(group)
    assert grouped.value.exceptions == group.exceptions, "trio may have copied the group, not its content"
    with pytest.raises(KeyboardInterrupt):
        await raises(KeyboardInterrupt())


async def test_49_the_crash_of_a_linked_top_actor_ends_the_block() -> None:
    log = Log()

    async def crashes(me: Actor) -> None:
        raise ValueError("top")

    with pytest.raises(ActorFailed, match="/crashes crashed: top") as caught:  # noqa: PT012 - the block is the test
        async with Root() as root:
            root.spawn(log.cleans, name="other")
            await wait_all_tasks_blocked()
            root.spawn(crashes)
            await trio.sleep_forever()
    assert isinstance(caught.value.__cause__, ValueError)
    assert log.lines == ["/other"]


async def test_50_a_root_that_stops_admits_no_new_work() -> None:
    refused: list[str] = []

    async def body(me: Actor) -> None:
        try:
            await trio.sleep_forever()
        finally:
            for act in (lambda: me.spawn(Log().cleans), lambda: root.spawn(Log().cleans)):
                with pytest.raises(ShuttingDown) as caught:
                    act()
                refused.append(str(caught.value))
            with me.cleanup(), pytest.raises(ShuttingDown, match=says("supervisors.escalation.OpenQuestions.ask")):
                await me.ask_person(Question(id="", actor="", text="really?"))

    async with Root() as root:
        root.spawn(body)
        await wait_all_tasks_blocked()
        await root.stop()
        with pytest.raises(ShuttingDown):
            root.spawn(body)
    assert refused == ["/body accepts no new work: it is stopping", "/ accepts no new work: it is stopping"]


async def test_50_an_actor_that_stops_the_root_is_ended_with_it() -> None:
    async def body(me: Actor) -> None:
        await me.root.stop()
        raise AssertionError("not reached")

    async with Root() as root:
        ref = root.spawn(body)
        assert (await ref.wait()).reason == "cancelled"
    assert trio.current_time() == 0


async def test_45_signals_belong_to_the_main_thread() -> None:
    async def enter() -> None:
        async with Root(signals=True):
            pass

    def in_a_thread() -> None:
        trio.run(enter)

    with pytest.raises(ActorError, match=says("supervisors.signals.SignalHandlers.installed")):
        await trio.to_thread.run_sync(in_a_thread)
