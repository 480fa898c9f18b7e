"""When what failed may be started again: at once, after a while, or not for now; as the table in `Breaker` says."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import says

from callboard.supervisors import Breaker, TooManyRestarts

COOLDOWN = 30.0


def breaker(most: int = 5, period: float = 60.0, rand: Callable[[], float] = lambda: 0.0) -> Breaker:
    """Its waiting times are in full."""
    return Breaker(most=most, period=period, cooldown=COOLDOWN, rand=rand)


def test_the_first_start_and_the_first_restart_are_at_once() -> None:
    one = breaker()
    assert one.begin(10) == 0
    one.failed("it died", 11)
    assert one.begin(11) == 0
    assert one.restarts == 1


def test_further_restarts_wait_twice_as_long_each_from_the_last_failure_on() -> None:
    one = breaker(most=100)
    waits = []
    for now in range(9):
        one.failed("it died", float(now))
        waits.append(one.begin(float(now)))
    assert waits == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert one.begin(18.0) == 20.0
    assert one.begin(99.0) == 0


def test_waiting_times_are_shortened_by_chance_and_the_same_for_the_same_seed() -> None:
    def waits(seed: int) -> list[float]:
        one = breaker(100, 60, random.Random(seed).random)
        found = []
        for _ in range(8):
            one.failed("it died", 0)
            found.append(one.begin(0))
        return found

    assert waits(1) == waits(1) != waits(2)
    for full, wait in zip([0, 0.5, 1, 2, 4, 8, 16, 30], waits(3), strict=True):
        assert full / 2 <= wait <= full


def test_too_many_failures_in_the_window_and_calls_fail_at_once_saying_when_it_is_tried_again() -> None:
    one = breaker(most=3, period=10)
    for now in (0, 1, 2):
        one.check(now)
        one.failed("exit status 3", now)
    assert one.state(2) == "open"
    said = r"^failed 3 times within 10 s, .* attempt is in 20 s\. The last failure: exit status 3"
    with pytest.raises(TooManyRestarts, match=said):
        one.check(12)
    with pytest.raises(TooManyRestarts, match=says("supervisors.policy.Breaker.check", now=1)):
        one.begin(31.5)


def test_failures_that_lie_further_apart_than_the_window_are_never_too_many() -> None:
    one = breaker(most=3, period=10)
    for now in range(0, 1000, 6):
        one.check(now)
        one.failed("it died", now)
        assert one.state(now) == "closed"


def test_after_the_cooldown_one_start_decides_and_others_are_refused_meanwhile() -> None:
    one = breaker(most=1)
    one.failed("it died", 0)
    assert (one.state(COOLDOWN - 0.1), one.state(COOLDOWN)) == ("open", "half-open")
    assert one.begin(COOLDOWN) == 0
    with pytest.raises(TooManyRestarts, match=says("supervisors.policy.Breaker.check.2")):
        one.begin(COOLDOWN)
    one.failed("it died again", COOLDOWN + 1)
    assert one.state(COOLDOWN + 2) == "open"
    one.begin(2 * COOLDOWN + 1)
    one.over()
    one.check(2 * COOLDOWN + 2)  # it is there again, but has answered nothing yet
    assert one.state(2 * COOLDOWN + 2) == "half-open"
    one.worked()
    assert one.state(2 * COOLDOWN + 2) == "closed"


def test_one_try_that_nobody_wanted_any_more_leaves_the_next_one_to_others() -> None:
    one = breaker(most=1)
    one.failed("it died", 0)
    one.begin(COOLDOWN)
    one.over()
    assert one.begin(COOLDOWN) == 0


def test_an_answer_while_all_is_well_changes_nothing() -> None:
    one = breaker(most=100)
    one.failed("it died", 0)
    one.failed("it died", 0)
    one.worked()
    assert one.begin(0) == 0.5


def test_forgiven_is_forgotten() -> None:
    one = breaker(most=2)
    one.failed("it died", 0)
    one.failed("it died", 0)
    one.forgive()
    assert (one.state(0), one.begin(0)) == ("closed", 0)
    one.failed("it died", 0)
    assert one.state(0) == "closed"


class Model:
    """The table in the module's words, worked out from the whole history each time."""

    def __init__(self, most: int, period: float) -> None:
        self.most, self.period = most, period
        self.failures: list[float] = []
        self.opened: float | None = None  # since when it is left alone; None: it is well
        self.tried = False  # the one start is there; `trying`: it is on its way
        self.trying = False

    def refused(self, now: float) -> bool:
        if self.opened is None:
            return False
        return self.trying or (not self.tried and now < self.opened + COOLDOWN)

    def wait(self, now: float) -> float:
        if self.opened is not None or not self.failures:
            return 0.0
        last = self.failures[-1]
        recent = sum(at >= last - self.period for at in self.failures)
        return 0.0 if recent < 2 else max(0.0, last + min(30.0, 0.5 * 2.0 ** (recent - 2)) - now)

    def start(self, now: float) -> None:
        self.tried = self.trying = self.opened is not None

    def fail(self, now: float) -> None:
        self.failures.append(now)
        recent = sum(at >= now - self.period for at in self.failures)
        if self.opened is not None or recent >= self.most:
            self.opened, self.tried, self.trying = now, False, False

    def answer(self) -> None:
        if self.tried:
            self.failures, self.opened, self.tried, self.trying = [], None, False, False


STEPS = st.lists(
    st.tuples(st.sampled_from(["start", "fail", "answer", "up"]), st.integers(0, 80).map(lambda half: half / 2)),
    max_size=40,
)


@given(steps=STEPS, most=st.integers(1, 6), period=st.sampled_from([1.0, 20.0, 60.0]))
def test_they_do_what_the_table_says(steps: list[tuple[str, float]], most: int, period: float) -> None:
    real, model = breaker(most, period), Model(most, period)
    now = 0.0
    for what, passes in steps:
        now += passes
        if what == "start":
            if model.refused(now):
                with pytest.raises(TooManyRestarts):
                    real.begin(now)
            else:
                assert real.begin(now) == pytest.approx(model.wait(now))
                model.start(now)
        elif what == "fail":
            real.failed("it died", now)
            model.fail(now)
        elif what == "answer" and not model.trying:
            real.worked()
            model.answer()
        elif what == "up":
            real.over()
            model.trying = False
