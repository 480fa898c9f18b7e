"""How Claude is asked to think, by the name of the model."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.work.models.reasoning import Claude, ThinkingPlan, claude, plan
from callboard.protocol.chat import AssistantTurn, ChatRequest, Thought, ToolCall, ToolTurn, UserTurn

HI = (UserTurn("hi"),)
DROP = {"prefix_mismatch_behavior": "drop_block"}


@pytest.mark.parametrize(
    ("name", "family", "version"),
    [
        ("claude-opus-5", "opus", (5, 0)),
        ("claude-opus-5-5", "opus", (5, 5)),
        ("claude-haiku-4-5-20251001", "haiku", (4, 5)),
        ("claude-sonnet-4-20250514", "sonnet", (4, 0)),
        ("claude-opus-4@20250514", "opus", (4, 0)),
        ("claude-3-7-sonnet-20250219", "sonnet", (3, 7)),
        ("eu.anthropic.claude-haiku-4-5-20251001-v1:0", "haiku", (4, 5)),
        ("anthropic/claude-sonnet-4.6", "sonnet", (4, 6)),
        ("claude-mythos-preview", "mythos", (5, 0)),
    ],
)
def test_a_name_says_family_and_version(name: str, family: str, version: tuple[int, int]) -> None:
    assert claude(name) == Claude(family, version)


def test_other_names_say_nothing() -> None:
    assert claude("my-deployment") is None
    assert claude("gpt-5") is None


@pytest.mark.parametrize(
    ("name", "asked", "thinking", "effort"),
    [
        ("claude-haiku-4-5", {}, None, None),
        ("claude-haiku-4-5", {"reasoning_effort": "none"}, None, None),
        ("claude-haiku-4-5", {"reasoning_effort": "low"}, {"type": "enabled", "budget_tokens": 2048}, None),
        ("claude-haiku-4-5", {"thinking_budget": 3000}, {"type": "enabled", "budget_tokens": 3000}, None),
        ("claude-haiku-4-5", {"thinking_budget": 10}, {"type": "enabled", "budget_tokens": 1024}, None),
        ("claude-opus-4-6", {"reasoning_effort": "xhigh"}, {"type": "adaptive"}, "max"),
        ("claude-opus-4-6", {"thinking_budget": 3000}, {"type": "enabled", "budget_tokens": 3000}, None),
        ("claude-opus-4-8", {}, None, None),
        ("claude-opus-4-8", {"reasoning_effort": "none"}, None, None),
        ("claude-opus-4-8", {"thinking_budget": 3000}, {"type": "adaptive", "display": "summarized"}, "low"),
        ("claude-sonnet-5", {}, None, None),
        ("claude-sonnet-5", {"reasoning_effort": "none"}, {"type": "disabled"}, None),
        ("claude-sonnet-5", {"reasoning_effort": "xhigh"}, {"type": "adaptive", "display": "summarized"}, "xhigh"),
        ("claude-sonnet-5", {"reasoning_effort": "minimal"}, {"type": "adaptive", "display": "summarized"}, "low"),
        ("claude-opus-5-5", {}, {"type": "adaptive", "block_binding": DROP}, None),
        (
            "claude-opus-5-5",
            {"reasoning_effort": "high"},
            {"type": "adaptive", "display": "summarized", "block_binding": DROP},
            "high",
        ),
        ("an-alias", {"reasoning_effort": "low"}, {"type": "enabled", "budget_tokens": 2048}, None),
        ("an-alias", {}, None, None),
    ],
)
def test_each_generation_is_asked_in_its_own_words(
    name: str, asked: dict[str, Any], thinking: dict[str, Any] | None, effort: str | None
) -> None:
    found = plan(ChatRequest(messages=HI, **asked), name, forced=False)
    assert (found.thinking, found.effort) == (thinking, effort)


def test_nothing_is_sampled_while_it_thinks_and_by_the_newest_never() -> None:
    asked, quiet = ChatRequest(messages=HI, reasoning_effort="low"), ChatRequest(messages=HI)
    assert [plan(asked, name, forced=False).samples for name in ("claude-haiku-4-5", "claude-opus-4-6")] == [False] * 2
    assert plan(quiet, "claude-haiku-4-5", forced=False).samples
    assert not plan(quiet, "claude-opus-4-7", forced=False).samples
    assert not plan(quiet, "claude-sonnet-5", forced=False).samples


def test_a_tool_that_has_to_be_called_wins_over_thinking_where_that_can_be() -> None:
    asked = ChatRequest(messages=HI, reasoning_effort="high")
    assert plan(asked, "claude-haiku-4-5", forced=True) == ThinkingPlan()
    assert plan(asked, "claude-sonnet-5", forced=True) == ThinkingPlan({"type": "disabled"}, samples=False)
    always = plan(asked, "claude-fable-5-1", forced=True)
    assert (always.on, always.forces) == (True, False)


@pytest.mark.parametrize(
    ("most", "budget"), [(None, 8192), (9000, 8192), (8192, 6144), (1500, 1125), (1100, None), (300, None)]
)
def test_a_budget_is_below_the_bound_of_the_reply(most: int | None, budget: int | None) -> None:
    request = ChatRequest(messages=HI, reasoning_effort="medium", max_tokens=most)
    found = plan(request, "claude-haiku-4-5", forced=False)
    assert (found.thinking or {}).get("budget_tokens") == budget
    assert found.on == (budget is not None)


def test_calls_without_what_was_thought_before_them_go_on_without_thinking() -> None:
    thought = Thought(by="claude:m", form="anthropic", data=[{"type": "thinking"}])
    for kept, budget in ((None, None), (thought, 2048), (Thought(by="other:m", form="x", data=[]), None)):
        call = AssistantTurn(tool_calls=(ToolCall(id="1", name="look"),), thought=kept)
        talk = (*HI, call, ToolTurn(call="1", name="look", content="here"))
        request = ChatRequest(model="claude:m", messages=talk, reasoning_effort="low")
        found = plan(request, "claude-haiku-4-5", forced=False)
        assert (found.thinking or {}).get("budget_tokens") == budget
        after = ChatRequest(model="claude:m", messages=(*talk, UserTurn("and?")), reasoning_effort="low")
        assert plan(after, "claude-haiku-4-5", forced=False).on
