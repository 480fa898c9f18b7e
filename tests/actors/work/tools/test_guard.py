"""The guard against circles."""

from __future__ import annotations

import pytest
from support.messages import has_message

from callboard.actors.work.tools.checking import AS_CHILD, AT_ROOT, RepeatGuard
from callboard.protocol.chat import ToolCall


def alerts(guard: RepeatGuard, names: str) -> str:
    """Which of these calls, one letter each, are stopped: their letters in capitals."""
    return "".join(name.upper() if guard.alert(ToolCall(id="1", name=name)) else name for name in names)


@pytest.mark.parametrize(
    ("calls", "stopped"),
    [
        ("aaa", "aaA"),
        ("aab", "aab"),
        ("aabaa", "aabaa"),
        ("abab" + "a", "ababA"),
        ("abcabc" + "a", "abcabcA"),
        ("abcdabcd" + "a", "abcdabcda"),
        ("abababcab", "ababABcab"),
    ],
)
def test_a_chain_of_up_to_three_calls_may_come_twice_at_the_root(calls: str, stopped: str) -> None:
    assert alerts(RepeatGuard(*AT_ROOT), calls) == stopped


def test_a_child_may_repeat_a_call_four_times() -> None:
    assert alerts(RepeatGuard(*AS_CHILD), "aaaaa") == "aaaaA"


def test_other_arguments_make_another_call() -> None:
    guard = RepeatGuard(*AT_ROOT)
    calls = [ToolCall(id="1", name="a", arguments={"page": page}) for page in range(5)]
    assert [guard.alert(call) for call in calls] == [None] * 5


def test_the_alert_names_the_call_and_says_what_to_do() -> None:
    guard = RepeatGuard(*AT_ROOT)
    for _ in range(2):
        assert guard.alert(ToolCall(id="1", name="look")) is None
    alert = guard.alert(ToolCall(id="1", name="look"))
    assert alert is not None
    assert alert["tool_call_loop_alert"]["call"] == "look"
    assert has_message(alert["tool_call_loop_alert"]["message"], "work.tools.checking.RepeatGuard.alert.2", _repeats=2)
