"""Random trees under random crashes, cancels and stops, with many seeds of trio's scheduler.

Whatever happens: no task and no open question is left, every actor ends exactly once, and no child outlives its parent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from trio._core import _run

from callboard.protocol.errors import ActorError, CallboardError, NobodyToAsk
from callboard.protocol.kernel.questions import Question
from callboard.supervisors import Actor, Backoff, ChildSpec, Ref, Root, Supervisor

from .notes import Note

SEEDS = [pytest.param(seed, marks=[pytest.mark.soak] if seed >= 20 else []) for seed in range(220)]


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], random.Random]]:
    """Makes trio's scheduling repeatable; returns the dice for a seed."""
    monkeypatch.setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)

    def seed(number: int) -> random.Random:
        _run._r.seed(number)
        return random.Random(number)

    yield seed
    _run._r.seed()


class Storm:
    """Grows a tree, then throws things at it."""

    def __init__(self, root: Root, dice: random.Random) -> None:
        self.root = root
        self.dice = dice
        self.refs: list[Ref] = []
        self.sites: list[Supervisor] = []
        self.ends: dict[Ref, int] = {}
        self.count = 0

    def watch(self, ref: Ref) -> None:
        if ref in self.ends:
            return  # a restart
        self.refs.append(ref)
        self.ends[ref] = 0

        def ended(end: Any) -> None:
            self.ends[ref] += 1
            actor = ref._actor
            assert not actor._children, "its children ended before"

        ref.on_end(ended)

    async def member(self, me: Actor, depth: int) -> Any:
        """Any actor of the tree."""
        dice = self.dice
        self.watch(me.ref)
        for _ in range(dice.randrange(depth - 1, 4) if depth else 0):
            self.grow(me, depth - 1)
        if dice.random() < 0.2:
            me.policy = lambda asked: dice.choice(self.verdicts())
        if dice.random() < 0.1:
            raise ValueError("at the start")
        try:
            if dice.random() < 0.3:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.work, me)
                    await self.work(me)
                    nursery.cancel_scope.cancel()
            else:
                await self.work(me)
        finally:
            if dice.random() < 0.5:
                with me.cleanup():
                    await trio.sleep(dice.random() * 0.4)
                    if dice.random() < 0.1:
                        raise OSError("in the clean-up")

    def verdicts(self) -> list[Any]:
        from callboard.supervisors import HOLD, PASS

        return [HOLD, PASS]

    async def work(self, me: Actor) -> None:
        dice = self.dice
        lent = []
        for _ in range(dice.randrange(1, 12)):
            what = dice.random()
            try:
                if what < 0.3:
                    await trio.sleep(dice.random())
                elif what < 0.5:
                    with trio.move_on_after(dice.random()):
                        message = await me.receive()
                        if dice.random() < 0.3:
                            lent.append(me.take_request())
                        else:
                            me.reply(message)
                elif what < 0.65:
                    await dice.choice(self.refs).tell(Note("mail"))
                elif what < 0.8:
                    await dice.choice(self.refs).ask(Note("?"), timeout=dice.choice([None, 0.3, 1.0]))
                elif what < 0.88:
                    await me.ask_person(Question(id="", actor="", text="?", timeout=dice.choice([None, 0.5])))
                elif what < 0.95 and lent:
                    lent.pop().reply("late")
                elif what < 0.97:
                    raise ValueError("crash")
            except (RuntimeError, trio.BusyResourceError, NobodyToAsk):
                pass
            except CallboardError as error:
                if error.code == "end_of_mail":
                    raise

    def grow(self, me: Actor, depth: int) -> None:
        dice = self.dice
        if dice.random() < 0.35:
            specs = [self.spec(depth) for _ in range(dice.randrange(4))]
            site = Supervisor(
                *specs,
                strategy=dice.choice(["one_for_one", "one_for_all", "rest_for_one"]),
                intensity=dice.randrange(4),
                auto_shutdown="all_significant",
                backoff=Backoff(first=dice.choice([0.0, 0.2])),
                rand=dice.random,
            )
            self.sites.append(site)
            self.watch(me.spawn(site, name="site", link=dice.random() < 0.3, bound=2))
        else:
            ref = me.spawn(
                self.member, depth, link=dice.random() < 0.3, stop_within=dice.choice([0.1, 0.5, 1.0]), bound=2
            )
            self.watch(ref)

    def spec(self, depth: int) -> ChildSpec:
        self.count += 1
        restart = self.dice.choice(["permanent", "transient", "temporary"])
        return ChildSpec(
            name=f"m{self.count}",
            body=self.member,
            args=(max(depth - 1, 0),),
            restart=restart,
            significant=restart != "permanent" and self.dice.random() < 0.3,
            wait=self.dice.random() < 0.3,
            stop_within=self.dice.choice([0.1, 0.5]),
            bound=3,
        )

    async def throw(self) -> None:
        """One piece of bad weather after another."""
        dice = self.dice
        for _ in range(40):
            await trio.sleep(dice.random() * 0.2)
            ref = dice.choice(self.refs)
            what = dice.random()
            try:
                if what < 0.25:
                    ref.cancel()
                elif what < 0.4:
                    with trio.move_on_after(dice.random()):
                        await ref.stop()
                elif what < 0.5:
                    ref._actor.crash(ValueError("struck"))
                elif what < 0.6:
                    with trio.move_on_after(dice.random()):
                        await ref.ask(Note("?"))
                elif what < 0.75 and self.sites:
                    await self.meddle(dice.choice(self.sites))
                elif self.root.questions.open:
                    asked = dice.choice(self.root.questions.open)
                    if dice.random() < 0.5:
                        self.root.questions.pass_on(asked.id)
                    else:
                        self.root.questions.answer(asked.id, "yes")
            except ActorError:
                pass

    async def meddle(self, site: Supervisor) -> None:
        dice = self.dice
        with trio.move_on_after(dice.random()):
            what = dice.randrange(3)
            if what == 0 or not site.names:
                self.watch(await site.start_child(self.spec(1)))
            elif what == 1:
                await site.stop_child(dice.choice(site.names))
            else:
                await site.restart_child(dice.choice(site.names))


class Nobody:
    name = "terminal"

    def asked(self, question: Question) -> None:
        pass

    def closed(self, question_id: str, by: str) -> None:
        pass


@pytest.mark.parametrize("seed", SEEDS)
def test_16_a_storm_leaves_nothing_behind(
    seed: int, seeded: Callable[[int], random.Random], run: Callable[..., Any]
) -> None:
    async def main() -> Storm:
        dice = seeded(seed)
        with trio.move_on_after(dice.choice([1.0, 5.0, 1000.0])):
            async with Root(stop_within=60) as root:
                storm = Storm(root, dice)
                with root.questions.attach(Nobody()):
                    for _ in range(4):
                        storm.watch(root.spawn(storm.member, 3, link=False))
                    await storm.throw()
        assert root.tasks == {}
        assert root.questions.open == ()
        return storm

    storm = run(main)
    assert len(storm.ends) > 4
    assert set(storm.ends.values()) == {1}
    assert all(ref.state in ("done", "failed") for ref in storm.refs)
