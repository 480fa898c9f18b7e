"""The supervisor against a pure model of OTP's rules, driven step by step by hypothesis."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from trio.testing import wait_all_tasks_blocked

from callboard.protocol.errors import ActorError
from callboard.supervisors import Actor, Backoff, ChildSpec, Root, Supervisor

from .notes import Note

KINDS = ("permanent", "transient", "temporary")
STRATEGIES = ("one_for_one", "one_for_all", "rest_for_one")
RUNNING, WAITING, IDLE = "running", "waiting", "idle"


class Model:
    """What should happen. A child is running, waiting for its restart, or idle (only its spec is kept)."""

    def __init__(self, *, strategy: str, intensity: int, period: float, auto: str, first: float) -> None:
        self.strategy, self.intensity, self.period, self.auto, self.first = strategy, intensity, period, auto, first
        self.now = 0.0
        self.alive = True
        self.kinds: dict[str, str] = {}
        self.significant: set[str] = set()
        self.states: dict[str, str] = {}
        self.listed: list[str] = []
        self.attempts: Counter[str] = Counter()
        self.charges: list[float] = []
        self.due: list[tuple[float, list[str]]] = []
        self.refuse: Counter[str] = Counter()
        self.diary: list[str] = []
        self.last: list[str] = []
        """Who ended with the supervisor; the added ones come first, in any order."""

    def add(self, name: str, kind: str, significant: bool) -> bool:
        self.kinds[name] = kind
        if significant:
            self.significant.add(name)
        if self.start(name):
            return True
        self.forget(name)
        return False

    def start(self, name: str) -> bool:
        if self.refuse[name]:
            self.refuse[name] -= 1
            self.diary.append(f"{name} fails")
            self.states[name] = IDLE
            return False
        self.diary.append(f"{name} starts")
        self.states[name] = RUNNING
        return True

    def forget(self, name: str) -> None:
        del self.kinds[name]
        self.states.pop(name, None)
        self.significant.discard(name)
        self.attempts.pop(name, None)

    def ended(self, name: str, *, crashed: bool) -> None:
        kind = self.kinds[name]
        if kind == "permanent" or (kind == "transient" and crashed):
            self.restart(name)
            return
        significant = name in self.significant
        self.states[name] = IDLE
        if kind == "temporary":
            self.forget(name)
        left = [other for other in self.significant if self.states[other] != IDLE]
        if significant and (self.auto == "any_significant" or (self.auto == "all_significant" and not left)):
            self.end()

    def restart(self, name: str) -> None:
        self.charges = [at for at in self.charges if at >= self.now - self.period] + [self.now]
        if len(self.charges) > self.intensity:
            self.states[name] = IDLE
            self.end()
            return
        self.attempts[name] = self.attempts[name] + 1 if len(self.charges) > 1 else 1
        order = list(self.kinds)
        names = {
            "one_for_one": [name],
            "one_for_all": order,
            "rest_for_one": order[order.index(name) :],
        }[self.strategy]
        self.not_due(names)
        self.states[name] = WAITING
        for other in reversed(names):
            if self.states[other] == RUNNING:
                self.diary.append(f"{other} ends")
                self.states[other] = WAITING
                if self.kinds[other] == "temporary":
                    self.forget(other)
        wait = min(30.0, self.first * 2 ** (self.attempts[name] - 1))
        if wait:
            self.due.append((self.now + wait, names))
        else:
            self.start_all(names)

    def start_all(self, names: list[str]) -> None:
        for name in names:
            if name in self.kinds and self.states[name] != RUNNING and not self.start(name):
                self.ended(name, crashed=True)
                return

    def not_due(self, names: list[str]) -> None:
        rest = [(at, [name for name in waiting if name not in names]) for at, waiting in self.due]
        self.due = [(at, waiting) for at, waiting in rest if waiting]

    def advance(self, seconds: float) -> None:
        self.now += seconds
        while self.alive and self.due and min(self.due)[0] <= self.now:
            due = min(self.due)
            self.due.remove(due)
            self.start_all(due[1])

    def end(self) -> None:
        self.alive = False
        running = [name for name in self.kinds if self.states[name] == RUNNING]
        self.last = [name for name in running if name not in self.listed]
        self.last += [name for name in reversed(self.listed) if name in running]


class RootThread:
    """A real root in a thread of its own, on a mock clock, called from outside step by step."""

    def __init__(self) -> None:
        self.clock = trio.testing.MockClock()
        self.up = threading.Event()
        self.thread = threading.Thread(target=lambda: trio.run(self._live, clock=self.clock))
        self.thread.start()
        self.up.wait()

    async def _live(self) -> None:
        self.token = trio.lowlevel.current_trio_token()
        self.over = trio.Event()
        async with Root() as self.root:
            self.up.set()
            await self.over.wait()

    def call(self, function: Any, *args: Any) -> Any:
        async def settled() -> Any:
            result = await function(*args)
            await wait_all_tasks_blocked()
            return result

        return trio.from_thread.run(settled, trio_token=self.token)

    def close(self) -> None:
        trio.from_thread.run_sync(self.over.set, trio_token=self.token)
        self.thread.join()


class SupervisorMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root_thread = RootThread()
        self.count = 0

    def teardown(self) -> None:
        self.root_thread.close()
        assert not self.root_thread.root.tasks

    async def play(self, me: Actor, name: str) -> None:
        if self.refuse[name]:
            self.refuse[name] -= 1
            self.diary.append(f"{name} fails")
            raise OSError
        self.diary.append(f"{name} starts")
        try:
            if (await me.receive()).said == "crash":
                raise ValueError
        finally:
            self.diary.append(f"{name} ends")

    @initialize(
        strategy=st.sampled_from(STRATEGIES),
        kinds=st.lists(st.tuples(st.sampled_from(KINDS), st.booleans()), max_size=4),
        intensity=st.integers(0, 6),
        period=st.sampled_from([1.0, 5.0]),
        auto=st.sampled_from(["never", "any_significant", "all_significant"]),
        first=st.sampled_from([0.0, 0.0, 1.0, 4.0]),
    )
    def begin(
        self, strategy: Any, kinds: list[tuple[Any, bool]], intensity: int, period: float, auto: Any, first: float
    ) -> None:
        self.model = Model(strategy=strategy, intensity=intensity, period=period, auto=auto, first=first)
        self.refuse: Counter[str] = Counter()
        self.diary: list[str] = []
        specs = [self.spec(kind, significant) for kind, significant in kinds]
        self.model.listed = [spec.name for spec in specs]
        for spec in specs:
            self.model.add(spec.name, spec.restart, spec.significant)
        self.site = Supervisor(
            *specs,
            strategy=strategy,
            intensity=intensity,
            period=period,
            auto_shutdown=auto,
            backoff=Backoff(first=first, jitter=0),
        )

        async def start() -> Any:
            return await self.root_thread.root.start(self.site, link=False)

        self.ref = self.root_thread.call(start)

    def spec(self, kind: Any, significant: bool) -> ChildSpec:
        self.count += 1
        name = f"c{self.count}"
        significant = significant and kind != "permanent" and self.model.auto != "never"
        return ChildSpec(name=name, body=self.play, args=(name,), restart=kind, significant=significant, wait=True)

    def pick(self, data: st.DataObject, *states: str) -> str | None:
        names = [name for name, state in self.model.states.items() if state in states]
        return data.draw(st.sampled_from(names)) if names else None

    alive = precondition(lambda self: self.model.alive)

    @alive
    @rule(data=st.data(), crash=st.booleans())
    def a_child_ends(self, data: st.DataObject, crash: bool) -> None:
        name = self.pick(data, RUNNING)
        if name is not None:
            child = self.site.child(name)
            assert child is not None
            self.root_thread.call(child.tell, Note("crash" if crash else "return"))
            self.model.states[name] = WAITING
            self.model.diary.append(f"{name} ends")
            self.model.ended(name, crashed=crash)

    @alive
    @rule(data=st.data(), times=st.integers(1, 3))
    def the_next_starts_fail(self, data: st.DataObject, times: int) -> None:
        name = self.pick(data, RUNNING, WAITING, IDLE)
        if name is not None:
            self.refuse[name] = self.model.refuse[name] = times

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 5.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        async def jump() -> None:
            self.root_thread.clock.jump(seconds)

        self.root_thread.call(jump)
        self.model.advance(seconds)

    @alive
    @rule(kind=st.sampled_from(KINDS), significant=st.booleans(), fails=st.booleans())
    def a_child_is_added(self, kind: Any, significant: bool, fails: bool) -> None:
        spec = self.spec(kind, significant)
        self.refuse[spec.name] = self.model.refuse[spec.name] = int(fails)
        if self.model.add(spec.name, kind, spec.significant):
            self.root_thread.call(self.site.start_child, spec)
        else:
            with pytest.raises(ActorError):
                self.root_thread.call(self.site.start_child, spec)

    @alive
    @rule(data=st.data())
    def a_child_is_stopped(self, data: st.DataObject) -> None:
        name = self.pick(data, RUNNING, WAITING)
        if name is not None:
            self.root_thread.call(self.site.stop_child, name)
            if self.model.states[name] == RUNNING:
                self.model.diary.append(f"{name} ends")
            self.model.states[name] = IDLE
            self.model.not_due([name])
            if self.model.kinds[name] == "temporary":
                self.model.forget(name)

    @alive
    @rule(data=st.data())
    def a_child_is_started_again(self, data: st.DataObject) -> None:
        name = self.pick(data, IDLE)
        if name is not None:
            if self.model.start(name):
                self.root_thread.call(self.site.restart_child, name)
            else:
                with pytest.raises(ActorError):
                    self.root_thread.call(self.site.restart_child, name)

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        if not hasattr(self, "model"):
            return
        model = self.model
        assert self.ref.alive is model.alive
        if model.last:  # it ended in this step
            added = len([name for name in model.last if name not in model.listed])
            tail = self.diary[len(model.diary) :]
            assert sorted(tail[:added]) == sorted(f"{name} ends" for name in model.last[:added])
            assert tail[added:] == [f"{name} ends" for name in model.last[added:]]
            del self.diary[len(model.diary) :]
            model.last = []
        assert self.diary == model.diary
        if model.alive:
            assert list(self.site.names) == list(model.kinds)
            assert [name for name in self.site.names if self.site.child(name) is not None] == [
                name for name in model.kinds if model.states[name] != IDLE
            ]


class TestSupervisor(SupervisorMachine.TestCase):
    settings = settings(
        max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


@pytest.mark.soak
class TestSupervisorForLong(SupervisorMachine.TestCase):
    settings = settings(
        max_examples=2000, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
