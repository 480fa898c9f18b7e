"""Gates: counters and timers, by visit and by clock."""

from __future__ import annotations

import pytest

from callboard.actors.engine.workflow.machine.perform import counted, timed
from callboard.actors.engine.workflow.messages import Message
from callboard.actors.engine.workflow.rules import DEVALL, STANDARD, WorkflowRules
from callboard.protocol.workflow.model import LoopCounterConfig, LoopTimerConfig
from callboard.protocol.workflow_messages import Gate

IN = (Message(role="user", content="in"),)


def counts(config: LoopCounterConfig, visits: int) -> str:
    gate, found = Gate(), ""
    for _ in range(visits):
        said, gate = counted(config, gate)
        found += str(len(said))
    return found


def test_a_counter_speaks_at_its_limit_and_counts_again() -> None:
    assert counts(LoopCounterConfig(max_iterations=3), 7) == "0010010"


def test_l20_a_counter_without_reset_speaks_at_every_visit_from_then_on() -> None:
    assert counts(LoopCounterConfig(max_iterations=2, reset_on_emit=False), 5) == "01111"


@pytest.mark.parametrize(("message", "said"), [(None, "Loop limit reached (1)"), ("enough", "enough")])
def test_a_counter_says_its_message(message: str | None, said: str) -> None:
    (found,), _ = counted(LoopCounterConfig(max_iterations=1, message=message), Gate())
    assert (found.role, found.text) == ("assistant", said)


def times(config: LoopTimerConfig, at: list[float], rules: WorkflowRules = STANDARD) -> list[str]:
    gate = Gate()
    found = []
    for second in at:
        said, gate = timed(config, gate, IN, second, rules)
        found.append(said[0].text if said else "-")
    return found


EVERY_SECOND = [float(second) for second in range(9)]


@pytest.mark.parametrize(
    ("rules", "reset", "spoken"),
    [(STANDARD, True, "--x-x-x-x"), (DEVALL, True, "--x-xxxxx"), (STANDARD, False, "--xxxxxxx")],
)
def test_b6_a_timer_speaks_when_its_time_is_over_and_in_devall_starts_anew_only_once(
    rules: WorkflowRules, reset: bool, spoken: str
) -> None:
    config = LoopTimerConfig(max_duration=2.0, reset_on_emit=reset, message="x")
    assert "".join(times(config, EVERY_SECOND, rules)) == spoken


def test_q14_a_passthrough_timer_says_its_message_once_and_is_transparent_then() -> None:
    config = LoopTimerConfig(max_duration=2.0, passthrough=True, message="over")
    assert times(config, EVERY_SECOND[:6]) == ["in", "in", "over", "in", "in", "in"]


@pytest.mark.parametrize(("unit", "seconds"), [("seconds", 2.0), ("minutes", 120.0), ("hours", 7200.0)])
def test_a_timer_knows_its_units(unit: str, seconds: float) -> None:
    config = LoopTimerConfig(max_duration=2.0, duration_unit=unit)
    assert times(config, [50.0, 50.0 + seconds - 0.1]) == ["-", "-"]
    assert times(config, [50.0, 50.0 + seconds]) == ["-", f"Time limit reached (2.0 {unit})"]
