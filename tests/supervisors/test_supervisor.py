"""Supervisors keep OTP's rules. Numbers are those of docs/kernel.md."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import says
from trio.testing import wait_all_tasks_blocked

from callboard.protocol.errors import ActorError, ActorFailed, DoesNotEnd, ShuttingDown, TooManyRestarts
from callboard.protocol.events import Event
from callboard.supervisors import Actor, Backoff, ChildSpec, Ref, Root, Supervisor
from callboard.supervisors.policy import Intensity

from .notes import Note

TERMINAL = ("actor.stopped", "actor.failed")


class Troupe:
    """Children that obey: tell one `crash`, `return`; its lives are kept in the diary."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.refuse: dict[str, int] = {}
        """How many starts of a child crash before it is ready."""

    def spec(self, name: str, **options: Any) -> ChildSpec:
        return ChildSpec(name=name, body=self.play, args=(name,), **options)

    async def play(self, me: Actor, name: str) -> None:
        if self.refuse.get(name, 0) > 0:
            self.refuse[name] -= 1
            self.diary.append(f"{name} fails")
            raise OSError(f"{name} can't start")
        self.diary.append(f"{name} starts")
        try:
            async for message in me:
                if message.said == "crash":
                    raise ValueError("told to crash")
                if message.said == "return":
                    return
                me.reply(message.said)
        finally:
            self.diary.append(f"{name} ends")

    def since(self) -> list[str]:
        """What happened since the last look."""
        diary, self.diary = self.diary, []
        return diary


@pytest.fixture
def troupe() -> Troupe:
    return Troupe()


async def up(root: Root, site: Supervisor, **options: Any) -> Ref:
    ref = await root.start(site, name="site", link=False, **options)
    await wait_all_tasks_blocked()
    return ref


async def do(site: Supervisor, name: str, message: str) -> None:
    child = site.child(name)
    assert child is not None
    await child.tell(Note(message))
    await wait_all_tasks_blocked()


# --- who is restarted --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("restart", "message", "comes_back"),
    [
        ("permanent", "crash", True),
        ("permanent", "return", True),
        ("transient", "crash", True),
        ("transient", "return", False),
        ("temporary", "crash", False),
        ("temporary", "return", False),
    ],
)
async def test_31_what_an_end_means_depends_on_the_kind_of_child(
    root: Root, troupe: Troupe, restart: Any, message: str, comes_back: bool
) -> None:
    site = Supervisor(troupe.spec("a", restart=restart))
    await up(root, site)
    await do(site, "a", message)
    assert troupe.since() == ["a starts", "a ends", *(["a starts"] if comes_back else [])]
    assert site.names == (() if restart == "temporary" else ("a",))


async def test_31_cancelled_by_others_is_no_crash(root: Root, troupe: Troupe) -> None:
    site = Supervisor(troupe.spec("p"), troupe.spec("t", restart="transient"))
    await up(root, site)
    for name in ("p", "t"):
        child = site.child(name)
        assert child is not None
        child.cancel()
    await wait_all_tasks_blocked()
    assert site.child("t") is None
    assert site.child("p") is not None
    assert troupe.since().count("p starts") == 2


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("one_for_one", ["b ends", "b starts"]),
        ("rest_for_one", ["b ends", "c ends", "b starts", "c starts"]),
        ("one_for_all", ["b ends", "c ends", "a ends", "a starts", "b starts", "c starts"]),
    ],
)
async def test_32_the_strategy_says_whom_a_restart_concerns(
    root: Root, troupe: Troupe, strategy: Any, expected: list[str]
) -> None:
    """37 as well: stopped in reverse order, started in order."""
    specs = [troupe.spec(name, wait=True) for name in "abc"]
    site = Supervisor(*specs, strategy=strategy, intensity=2)
    ref = await up(root, site)
    troupe.since()
    await do(site, "b", "crash")
    assert troupe.since() == expected
    assert ref.alive


# --- how often ---------------------------------------------------------------------------------------------


async def test_33_more_restarts_than_allowed_within_the_period_and_it_gives_up(root: Root, troupe: Troupe) -> None:
    site = Supervisor(troupe.spec("a"), troupe.spec("b"), intensity=2, period=5)
    ref = await up(root, site)
    for _ in range(2):
        await do(site, "a", "crash")
    await trio.sleep(5.01)  # the window slides
    for _ in range(2):
        await do(site, "a", "crash")
    assert ref.alive
    await do(site, "a", "crash")
    end = await ref.wait()
    assert isinstance(end.error, TooManyRestarts)
    assert str(end.error) == ("/site gives up: more than 2 restarts within 5 s, the last of 'a' (told to crash)")
    assert isinstance(end.error.__cause__, ValueError)
    assert troupe.diary[-1] == "b ends"


async def test_33_giving_up_fails_upwards(root: Root, troupe: Troupe) -> None:
    inner = Supervisor(troupe.spec("a"), intensity=0)
    outer = Supervisor(ChildSpec(name="inner", body=inner, restart="permanent"), intensity=1)
    ref = await up(root, outer)
    await do(inner, "a", "crash")
    assert ref.alive, "the outer one restarted the inner one"
    assert troupe.since() == ["a starts", "a ends", "a starts"]
    await do(inner, "a", "crash")
    end = await ref.wait()
    assert isinstance(end.error, TooManyRestarts)


async def test_33_failed_starts_are_charged_like_crashes(root: Root, troupe: Troupe) -> None:
    site = Supervisor(troupe.spec("a", wait=True), intensity=3)
    ref = await up(root, site)
    troupe.refuse["a"] = 2
    await do(site, "a", "crash")
    assert troupe.since() == ["a starts", "a ends", "a fails", "a fails", "a starts"]
    troupe.refuse["a"] = 100
    await do(site, "a", "crash")
    assert isinstance((await ref.wait()).error, TooManyRestarts)
    assert troupe.since() == ["a ends"], "charged before the attempt, so this one was not even tried"


async def test_33_a_crash_in_the_first_start_fails_the_supervisor(root: Root, troupe: Troupe) -> None:
    troupe.refuse["b"] = 1
    site = Supervisor(*(troupe.spec(name, wait=True) for name in "abc"))
    with pytest.raises(ActorFailed, match="/site crashed: /site/b crashed: b can't start"):
        await root.start(site, name="site")
    assert troupe.diary == ["a starts", "b fails", "a ends"]


@settings(max_examples=200, deadline=None)
@given(
    intensity=st.integers(0, 5),
    period=st.floats(0.1, 20),
    gaps=st.lists(st.floats(0, 10), min_size=1, max_size=30),
)
def test_33_the_window_agrees_with_its_definition(intensity: int, period: float, gaps: list[float]) -> None:
    window = Intensity(intensity, period)
    charges: list[float] = []
    now = 0.0
    for gap in gaps:
        now += gap
        charges.append(now)
        allowed = sum(1 for at in charges if at >= now - period) <= intensity
        assert window.charge(now) is allowed


@settings(max_examples=40, deadline=None)
@given(intensity=st.integers(0, 4), gaps=st.lists(st.sampled_from([0.0, 1.0, 2.0, 4.9, 5.1]), min_size=1, max_size=12))
def test_33_a_supervisor_gives_up_exactly_when_the_window_says(
    run: Callable[..., Any], intensity: int, gaps: list[float]
) -> None:
    window = Intensity(intensity, 5)
    crashes = 0

    async def crashing(me: Actor) -> None:
        nonlocal crashes
        if crashes < len(gaps):
            await trio.sleep(gaps[crashes])
            crashes += 1
            raise ValueError
        await trio.sleep_forever()

    async def main() -> None:
        async with Root() as root:
            ref = root.spawn(Supervisor(ChildSpec(name="a", body=crashing), intensity=intensity), link=False)
            now, expected, gave_up = 0.0, 0, False
            for gap in gaps:
                now += gap
                expected += 1
                if not window.charge(now):
                    gave_up = True
                    break
            await trio.sleep(sum(gaps) + 1)
            assert (crashes, ref.alive) == (expected, not gave_up)

    run(main)


# --- special children --------------------------------------------------------------------------------------


async def test_34_a_temporary_child_is_not_restarted_by_a_sibling(root: Root, troupe: Troupe) -> None:
    site = Supervisor(troupe.spec("a"), troupe.spec("t", restart="temporary"), strategy="one_for_all")
    await up(root, site)
    await do(site, "a", "crash")
    assert site.names == ("a",)
    assert "t starts" not in troupe.since()[3:]


async def test_32_a_transient_child_that_had_returned_comes_back_with_its_siblings(root: Root, troupe: Troupe) -> None:
    """As in OTP: a restart of all starts all whose spec is kept."""
    site = Supervisor(troupe.spec("a"), troupe.spec("t", restart="transient"), strategy="one_for_all")
    await up(root, site)
    await do(site, "t", "return")
    assert site.child("t") is None
    await do(site, "a", "crash")
    assert site.child("t") is not None


@pytest.mark.parametrize(
    ("auto", "ends", "alive"),
    [
        ("never", "", True),
        ("any_significant", "x", False),
        ("any_significant", "n", True),
        ("all_significant", "x", True),
        ("all_significant", "xy", False),
    ],
)
async def test_35_significant_children_can_end_their_supervisor(
    root: Root, troupe: Troupe, auto: Any, ends: str, alive: bool
) -> None:
    significant = auto != "never"
    site = Supervisor(
        troupe.spec("x", restart="transient", significant=significant),
        troupe.spec("y", restart="temporary", significant=significant),
        troupe.spec("n", restart="transient"),
        auto_shutdown=auto,
    )
    ref = await up(root, site)
    for name in ends:
        await do(site, name, "return")
    assert ref.alive is alive
    if not alive:
        assert (await ref.wait()).reason == "normal"


async def test_35_only_a_childs_own_end_counts_for_that(root: Root, troupe: Troupe) -> None:
    site = Supervisor(
        troupe.spec("a"),
        troupe.spec("x", restart="transient", significant=True),
        strategy="one_for_all",
        auto_shutdown="any_significant",
    )
    ref = await up(root, site)
    await do(site, "a", "crash")
    await site.stop_child("x")
    assert ref.alive


async def test_35_a_significant_child_must_be_able_to_end(troupe: Troupe) -> None:
    for options in ({"auto_shutdown": "never", "restart": "transient"}, {"auto_shutdown": "any_significant"}):
        auto = options.pop("auto_shutdown")
        with pytest.raises(ActorError, match=says("supervisors.supervisor.Supervisor._check.2", name="x")):
            Supervisor(troupe.spec("x", significant=True, **options), auto_shutdown=auto)
    with pytest.raises(ActorError, match=says("supervisors.supervisor.Supervisor._check", name="x")):
        Supervisor(troupe.spec("x"), troupe.spec("x"))


# --- order -------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    listed=st.integers(0, 6),
    added=st.integers(0, 6),
    takes=st.lists(st.floats(0, 0.9), min_size=12, max_size=12),
    how=st.sampled_from(["stop", "cancel", "crash"]),
)
def test_36_added_children_end_together_then_the_listed_ones_in_reverse(
    run: Callable[..., Any], listed: int, added: int, takes: list[float], how: str
) -> None:
    ended: list[tuple[str, float]] = []

    async def child(me: Actor, name: str, take: float) -> None:
        try:
            await me.receive()
            raise ValueError
        finally:
            with me.cleanup():
                await trio.sleep(take)
            ended.append((name, trio.current_time()))

    async def main() -> None:
        specs = [ChildSpec(name=f"l{i}", body=child, args=(f"l{i}", takes[i])) for i in range(listed)]
        site = Supervisor(*specs, ChildSpec(name="trigger", body=child, args=("trigger", 0)), intensity=0)
        async with Root(stop_within=100) as root:
            ref = await root.start(site, link=False)
            for i in range(added):
                await site.start_child(ChildSpec(name=f"a{i}", body=child, args=(f"a{i}", takes[6 + i])))
            await wait_all_tasks_blocked()
            start = trio.current_time()
            if how == "crash":
                trigger = site.child("trigger")
                assert trigger is not None
                await trigger.tell(Note("crash"))
            elif how == "stop":
                await ref.stop()
            else:
                ref.cancel()
            await ref.wait()
        ends = [(name, at - start) for name, at in ended if name != "trigger"]
        together = [name for name, _ in ends[:added]]
        assert sorted(together) == [f"a{i}" for i in range(added)]
        assert [at for _, at in ends[:added]] == pytest.approx(sorted(takes[6 : 6 + added]))
        assert [name for name, _ in ends[added:]] == [f"l{i}" for i in reversed(range(listed))]
        at = max(takes[6 : 6 + added], default=0.0)
        for name, when in ends[added:]:
            at += takes[int(name[1:])]
            assert when == pytest.approx(at)

    run(main)


async def test_36_a_listed_child_started_again_keeps_its_place_in_that_order(root: Root, troupe: Troupe) -> None:
    site = Supervisor(*(troupe.spec(name, restart="transient") for name in "abc"))
    ref = await up(root, site)
    await do(site, "a", "return")
    await site.restart_child("a")
    await wait_all_tasks_blocked()
    troupe.since()
    await ref.stop()
    assert troupe.since() == ["c ends", "b ends", "a ends"]


async def test_36_a_slow_child_is_given_its_own_time_and_no_more(root: Root, events: list[Event]) -> None:
    async def stubborn(me: Actor) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with me.cleanup():
                await trio.sleep_forever()

    specs = [ChildSpec(name=name, body=stubborn, stop_within=0.5) for name in "abc"]
    ref = await up(root, Supervisor(*specs))
    await ref.stop()
    assert trio.current_time() == pytest.approx(1.5)
    assert not [event for event in events if event.kind == "actor.stuck"]


async def test_37_a_restart_of_others_in_the_middle_goes_on_after_one_that_needs_none(
    root: Root, troupe: Troupe
) -> None:
    async def cancels_itself_the_second_time(me: Actor) -> None:
        troupe.diary.append("x starts")
        if troupe.diary.count("x starts") == 2:
            me.ref.cancel()
        await me.receive()

    site = Supervisor(
        troupe.spec("a", wait=True),
        ChildSpec(name="x", body=cancels_itself_the_second_time, restart="transient", wait=True),
        troupe.spec("c", wait=True),
        strategy="one_for_all",
    )
    await up(root, site)
    await do(site, "a", "crash")
    assert troupe.since()[-3:] == ["a starts", "x starts", "c starts"]


@pytest.mark.parametrize(("restart", "restarted"), [("permanent", True), ("transient", False)])
async def test_38_a_supervisor_that_gave_up_is_restarted_only_if_permanent(
    root: Root, troupe: Troupe, restart: Any, restarted: bool
) -> None:
    inner = Supervisor(troupe.spec("a"), intensity=0)
    outer = Supervisor(ChildSpec(name="inner", body=inner, restart=restart))
    ref = await up(root, outer)
    await do(inner, "a", "crash")
    assert troupe.since() == ["a starts", "a ends", *(["a starts"] if restarted else [])]
    assert ref.alive


# --- what survives a restart -------------------------------------------------------------------------------


async def test_39_mail_survives_a_restart_except_the_message_in_hand(root: Root, troupe: Troupe) -> None:
    got: list[Any] = []

    async def body(me: Actor) -> None:
        async for message in me:
            got.append(message.said)
            if message.said == "poison":
                raise ValueError
            me.reply("ok")

    site = Supervisor(ChildSpec(name="a", body=body, bound=4))
    await up(root, site)
    ref = site.child("a")
    assert ref is not None
    replies: list[Any] = []

    async def asker() -> None:
        replies.append(await ref.ask(Note("asked")))

    async with trio.open_nursery() as nursery:
        for message in ("before", "poison", "after"):
            await ref.tell(Note(message))
        for _ in range(3):  # one has room, the others wait for it through the restart
            nursery.start_soon(asker)
    assert got == ["before", "poison", "after", "asked", "asked", "asked"]
    assert replies == ["ok"] * 3


async def test_39_an_ask_in_hand_fails_at_the_crash(root: Root, troupe: Troupe) -> None:
    site = Supervisor(troupe.spec("a"))
    await up(root, site)
    ref = site.child("a")
    assert ref is not None
    with pytest.raises(ActorFailed, match="/site/a crashed: told to crash"):
        await ref.ask(Note("crash"))
    assert await ref.ask(Note("hello")) == "hello"


async def test_39_a_restart_forgets_a_stop_meant_for_the_life_before(root: Root, troupe: Troupe) -> None:
    async def body(me: Actor) -> None:
        troupe.diary.append("starts")
        if len(troupe.diary) == 1:
            await trio.sleep(1)
            raise ValueError
        async for message in me:
            me.reply(message.said)

    site = Supervisor(ChildSpec(name="a", body=body))
    await up(root, site)
    ref = site.child("a")
    assert ref is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ref.stop)
    assert await ref.ask(Note("again"), timeout=5) == "again"


async def test_40_refs_and_monitors_survive_restarts(root: Root, troupe: Troupe, events: list[Event]) -> None:
    site = Supervisor(troupe.spec("a"), intensity=10)
    await up(root, site)
    ref = site.child("a")
    assert ref is not None
    ended: list[str] = []
    ref.on_end(lambda end: ended.append(end.reason))
    for _ in range(3):
        await do(site, "a", "crash")
        assert await ref.ask(Note("hello")) == "hello"
        assert site.child("a") is ref
    assert ended == []
    assert [event.kind for event in events if event.actor == "/site/a" and event.kind in TERMINAL] == []
    assert [event.data.restarts for event in events if event.kind == "actor.restarted"] == [1, 2, 3]
    await site.stop_child("a")
    assert ended == ["cancelled"]
    assert [event.kind for event in events if event.actor == "/site/a" and event.kind in TERMINAL] == ["actor.stopped"]


async def test_40_a_stop_through_the_ref_ends_one_life(root: Root, troupe: Troupe) -> None:
    site = Supervisor(troupe.spec("a"))
    ref = await up(root, site)
    child = site.child("a")
    assert child is not None
    assert (await child.stop()).reason == "normal"
    assert await child.ask(Note("back?"), timeout=5) == "back?"
    assert ref.alive


async def test_41_ends_that_a_siblings_restart_caused_are_not_charged(root: Root, troupe: Troupe) -> None:
    site = Supervisor(
        *(troupe.spec(name) for name in "abcdef"),
        strategy="one_for_all",
        intensity=1,
        backoff=Backoff(first=1.0, jitter=0),
    )
    ref = await up(root, site)
    troupe.since()
    await do(site, "c", "crash")
    assert troupe.since() == ["c ends", "f ends", "e ends", "d ends", "b ends", "a ends"]
    await trio.sleep(1.01)
    assert ref.alive
    assert sorted(troupe.since()) == [f"{name} starts" for name in "abcdef"]


async def test_41_a_sibling_that_crashes_at_the_same_time_is_charged_once_at_most(root: Root, troupe: Troupe) -> None:
    site = Supervisor(*(troupe.spec(name) for name in "abc"), strategy="one_for_all", intensity=1)
    ref = await up(root, site)
    for name in "abc":
        child = site.child(name)
        assert child is not None
        child.tell_nowait(Note("crash"))
    await wait_all_tasks_blocked()
    assert ref.alive


# --- back-off and requests ---------------------------------------------------------------------------------


async def test_42_back_off_waits_longer_each_time_and_a_stop_interrupts_it(root: Root, troupe: Troupe) -> None:
    site = Supervisor(troupe.spec("a"), intensity=10, period=100, backoff=Backoff(first=1, most=4, jitter=0))
    ref = await up(root, site)
    for wait in (1, 2, 4, 4):
        await do(site, "a", "crash")
        troupe.since()
        await trio.sleep(wait - 0.01)
        assert troupe.since() == []
        await trio.sleep(0.02)
        assert troupe.since() == ["a starts"]
    await do(site, "a", "crash")
    before = trio.current_time()
    await ref.stop()
    assert trio.current_time() == before


def test_42_jitter_shortens_by_at_most_its_share() -> None:
    backoff = Backoff(first=1, most=30, jitter=0.5)
    assert backoff.seconds(3, lambda: 0.0) == 4
    assert backoff.seconds(3, lambda: 1.0) == 2
    assert backoff.seconds(1000, lambda: 0.0) == 30
    assert Backoff().seconds(5) == 0


async def test_42_a_restart_of_an_earlier_sibling_supersedes_one_that_is_due(root: Root, troupe: Troupe) -> None:
    site = Supervisor(
        *(troupe.spec(name) for name in "abc"),
        strategy="rest_for_one",
        intensity=5,
        backoff=Backoff(first=2, most=100, jitter=0),
    )
    await up(root, site)
    await do(site, "b", "crash")
    await trio.sleep(1)
    troupe.since()
    await do(site, "a", "crash")  # due at 3 s, while b and c were due at 2 s
    await trio.sleep(1.5)
    assert troupe.since() == ["a ends"], "b and c need a, and wait for it"
    await trio.sleep(1)
    assert sorted(troupe.since()) == ["a starts", "b starts", "c starts"]


async def test_43_stop_child_ends_it_for_good_also_while_it_waits_for_its_restart(root: Root, troupe: Troupe) -> None:
    site = Supervisor(troupe.spec("a"), troupe.spec("b"), backoff=Backoff(first=1, jitter=0))
    await up(root, site)
    ref = site.child("a")
    assert ref is not None
    await do(site, "a", "crash")
    ref.cancel()  # between two lives there is nothing to cancel
    assert (await site.stop_child("a")).reason == "crashed"
    assert not ref.alive
    await trio.sleep(10)
    assert troupe.since().count("a starts") == 1
    with pytest.raises(ActorError, match=says("supervisors.supervisor.Supervisor.stop_child", name="a")):
        await site.stop_child("a")
    await site.restart_child("a")
    with pytest.raises(ActorError, match=says("supervisors.supervisor.Supervisor.restart_child", name="a")):
        await site.restart_child("a")
    with pytest.raises(ActorError, match="no child 'z'; there are: a, b"):
        await site.stop_child("z")


async def test_43_a_cancel_between_two_lives_does_not_cost_the_next_one(root: Root, troupe: Troupe) -> None:
    site = Supervisor(troupe.spec("a"), backoff=Backoff(first=1, jitter=0))
    await up(root, site)
    ref = site.child("a")
    assert ref is not None
    await do(site, "a", "crash")
    ref.cancel()
    await ref.stop()
    await trio.sleep(1.1)
    assert await ref.ask(Note("there?"), timeout=1) == "there?"


async def test_43_a_start_that_fails_on_request_leaves_no_trace(root: Root, troupe: Troupe) -> None:
    site = Supervisor()
    ref = await up(root, site)
    troupe.refuse["a"] = 1
    with pytest.raises(ActorFailed, match="a can't start"):
        await site.start_child(troupe.spec("a", wait=True))
    assert site.names == ()
    child = await site.start_child(troupe.spec("a", wait=True))
    assert child.path == "/site/a"
    await do(site, "a", "crash")
    assert await child.ask(Note("restarted?")) == "restarted?"
    assert ref.alive


async def test_43_the_number_of_children_can_be_bounded(root: Root, troupe: Troupe) -> None:
    site = Supervisor(max_children=2)
    await up(root, site)
    await site.start_child(troupe.spec("a"))
    await site.start_child(troupe.spec("b"))
    with pytest.raises(ActorError, match=says("supervisors.supervisor.Supervisor.start_child", path="/site", _max=2)):
        await site.start_child(troupe.spec("c"))
    await site.stop_child("a")
    await site.start_child(troupe.spec("c"))


async def test_43_a_supervisor_that_does_not_run_starts_nothing(root: Root, troupe: Troupe) -> None:
    site = Supervisor()
    with pytest.raises(ShuttingDown, match=says("supervisors.supervisor.Supervisor._running")):
        await site.start_child(troupe.spec("a"))
    ref = await up(root, site)
    await ref.stop()
    with pytest.raises(ShuttingDown):
        await site.start_child(troupe.spec("a"))


async def test_43_a_child_may_have_itself_stopped(root: Root) -> None:
    async def body(me: Actor) -> None:
        await me.receive()
        await site.stop_child("a")

    site = Supervisor(ChildSpec(name="a", body=body))
    ref = await up(root, site)
    child = site.child("a")
    assert child is not None
    await child.tell(Note("go"))
    await child.wait()
    await wait_all_tasks_blocked()
    assert site.child("a") is None
    assert ref.alive


async def test_43_a_child_that_does_not_end_is_never_doubled(root: Root) -> None:
    gate = trio.Event()

    async def stuck(me: Actor) -> None:
        with trio.move_on_after(60, shield=True):  # longer than the test takes; one that fails must not hang
            await gate.wait()

    site = Supervisor(
        ChildSpec(name="s", body=stuck), ChildSpec(name="a", body=fails_once(trio.Event())), strategy="one_for_all"
    )
    ref = await up(root, site)
    with trio.move_on_after(10):
        end = await ref.wait()
    gate.set()
    assert isinstance(end.error, DoesNotEnd)


def fails_once(done: trio.Event) -> Callable[[Actor], Any]:
    async def body(me: Actor) -> None:
        if not done.is_set():
            done.set()
            raise ValueError
        await me.receive()

    return body


async def test_44_a_restart_runs_in_the_context_of_the_first_start(root: Root) -> None:
    who = contextvars.ContextVar("who", default="nobody")
    seen: list[str] = []

    async def body(me: Actor) -> None:
        seen.append(who.get())
        who.set("the crashed one")
        if len(seen) == 1:
            raise ValueError
        await me.receive()

    who.set("the starter")
    site = Supervisor(ChildSpec(name="a", body=body))
    await up(root, site)
    assert seen == ["the starter", "the starter"]


async def test_44_a_restart_storm_leaves_nothing_behind(root: Root, events: list[Event]) -> None:
    lives = 0

    async def crashing(me: Actor) -> None:
        nonlocal lives
        lives += 1
        if lives <= 2000:
            raise ValueError
        await me.receive()

    ref = await up(root, Supervisor(ChildSpec(name="a", body=crashing), intensity=2000))
    assert lives == 2001
    assert ref.alive
    assert len(root.tasks) == 3  # the root, the supervisor, the child
