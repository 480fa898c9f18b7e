"""Reasoning options of Claude on Anthropic's own API, Bedrock and Vertex AI.

    up to 4.5   `thinking: {type: enabled, budget_tokens}`, only on request
    4.6         `thinking: {type: adaptive}` with `output_config: {effort}`, or a budget
    4.7, 4.8    adaptive only
    5           reasons by default, unless `{type: disabled}`; fable, mythos and opus above 5.0 always do

While the model reasons, it accepts no `temperature` or `top_p`, and no forced tool: only the prompt contains a response
schema. If the request forces a tool, reasoning is turned off where the model allows that. From 4.7 on, the models
accept no sampling options at all.

The `max_tokens` of a reply include its reasoning. A budget that is not below them becomes three quarters of them, and
below 1,024 tokens there is no reasoning. A reply without a limit of its own gets additional tokens for reasoning.

With a budget, open tool calls must be preceded by the reasoning that led to them. If it is missing (another model made
the calls, or reasoning was off), this reply has no reasoning. The newest models refuse stored reasoning if anything
before it has changed (a summary, another tool), unless the request asks them to drop it. It does so.

Sources: https://platform.claude.com/docs/en/build-with-claude/thinking, .../preserved-thinking,
https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-adaptive-thinking.html.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .....protocol import chat
from . import effort
from .families import Claude, claude

Json = Any

LEAST_BUDGET = 1024


class ThinkingPlan(msgspec.Struct, frozen=True):
    """Reasoning options of a request, with their consequences for its other options.

    Attributes:
        thinking: value of the key `thinking`; None to omit it.
        effort: `effort` of `output_config`; None to omit it.
        on: True if the model will reason.
        forces: True if a tool can be forced; else the model chooses.
        samples: True if `temperature` and `top_p` are accepted.
        room: tokens for reasoning to add to the limit of a reply that has no limit of its own.
    """

    thinking: Json = None
    effort: str | None = None
    on: bool = False
    forces: bool = True
    samples: bool = True
    room: int = 0


def plan(request: chat.ChatRequest, name: str, *, forced: bool) -> ThinkingPlan:
    """Return the reasoning options for a request.

    Args:
        name: the provider's name of the model.
        forced: True if the request forces a tool.
    """
    model = claude(name) or Claude("", (4, 5))  # an alias of an unknown model: most accept budgets
    level = effort.level(request)
    asked = level is not None and level != "none"
    always, samples = model.thinks_always, model.takes_budgets
    # Checked first: a forced tool call and reasoning in one request make the API refuse it.
    if forced and not always:
        return ThinkingPlan({"type": "disabled"} if model.thinks_unasked else None, samples=samples)
    if not asked and not always and (level == "none" or not model.thinks_unasked):
        return ThinkingPlan({"type": "disabled"} if level and model.thinks_unasked else None, samples=samples)
    if asked and (not model.adapts or (model.takes_budgets and request.thinking_budget)):
        return _with_budget(request, effort.budget(request) or 0, samples=samples)
    thinking: dict[str, Json] = {"type": "adaptive"}
    if asked and not model.takes_budgets:
        thinking["display"] = "summarized"
    if model.binds:
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    chosen = ("high" if level is None else _level(model, level)) if asked else None
    return ThinkingPlan(
        thinking if asked or model.binds else None,
        effort=chosen,
        on=True,
        forces=not always,
        samples=False,
        room=effort.BUDGETS[level if asked and level else "high"],
    )


def _with_budget(request: chat.ChatRequest, budget: int, *, samples: bool) -> ThinkingPlan:
    most = request.max_tokens
    budget = max(budget, LEAST_BUDGET)
    if most is not None and budget >= most:
        budget = most * 3 // 4
    if budget < LEAST_BUDGET or _is_open_without(request):
        return ThinkingPlan(samples=samples)
    return ThinkingPlan({"type": "enabled", "budget_tokens": budget}, on=True, samples=False, room=budget)


def _is_open_without(request: chat.ChatRequest) -> bool:
    """Return True if the request ends with results of tool calls without reasoning of this model before them."""
    if not request.messages or not isinstance(request.messages[-1], chat.ToolTurn):
        return False
    called = next((turn for turn in reversed(request.messages) if isinstance(turn, chat.AssistantTurn)), None)
    return called is not None and (called.thought is None or called.thought.by != request.model)


def _level(model: Claude, level: chat.ReasoningEffort) -> str:
    if level == "minimal":
        return "low"
    return "max" if level == "xhigh" and model.takes_budgets else level
