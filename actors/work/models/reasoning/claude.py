"""How Claude is asked to think, wherever it is reached: Anthropic's own interface, Bedrock, Vertex AI.

    up to 4.5   `thinking: {type: enabled, budget_tokens}`, if it is asked to
    4.6         `thinking: {type: adaptive}` with `output_config: {effort}`, or a budget
    4.7, 4.8    adaptive alone
    5           thinks by itself, unless told `{type: disabled}`; fable, mythos and opus from 5.5 on always

While it thinks, no `temperature` or `top_p` is taken, and no tool can be forced: a schema is left to the prompt. A tool
that has to be called wins over thinking, where the model can do without. From 4.7 on it takes no sampling at all.

A reply's `max_tokens` hold its thinking, too. A budget that is not below them becomes three quarters of them, and less
than 1,024 tokens are none. A reply without a bound of its own gets what thinking may take on top.

Where a budget is given, the calls that are open have to come with what was thought before them; if that is not there
(another model called, or it did not think), this reply does without. The newest models refuse what was thought if
anything before it has changed (a summary, another tool), unless they are told to drop it, as they are.

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


class Plan(msgspec.Struct, frozen=True):
    """What goes into a request.

    Attributes:
        thinking: key of that name; None for none.
        effort: of `output_config`.
        on: it will think.
        forces: a tool can be forced; else the model chooses.
        samples: `temperature` and `top_p` are taken.
        room: tokens that thinking may take of a reply that has no bound of its own.
    """

    thinking: Json = None
    effort: str | None = None
    on: bool = False
    forces: bool = True
    samples: bool = True
    room: int = 0


def plan(request: chat.ChatRequest, name: str, *, forced: bool) -> Plan:
    """For the model that the provider calls `name`. `forced`: a tool has to be called."""
    model = claude(name) or Claude("", (4, 5))  # an alias: budgets are what most understand
    level = effort.level(request)
    asked = level is not None and level != "none"
    always, samples = model.thinks_always, model.takes_budgets
    if forced and not always:
        return Plan({"type": "disabled"} if model.thinks_unasked else None, samples=samples)
    if not asked and not always and (level == "none" or not model.thinks_unasked):
        return Plan({"type": "disabled"} if level and model.thinks_unasked else None, samples=samples)
    if asked and (not model.adapts or (model.takes_budgets and request.thinking_budget)):
        return _with_budget(request, effort.budget(request) or 0, samples=samples)
    thinking: dict[str, Json] = {"type": "adaptive"}
    if asked and not model.takes_budgets:
        thinking["display"] = "summarized"
    if model.binds:
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    chosen = ("high" if level is None else _level(model, level)) if asked else None
    return Plan(
        thinking if asked or model.binds else None,
        effort=chosen,
        on=True,
        forces=not always,
        samples=False,
        room=effort.BUDGETS[level if asked and level else "high"],
    )


def _with_budget(request: chat.ChatRequest, budget: int, *, samples: bool) -> Plan:
    most = request.max_tokens
    budget = max(budget, LEAST_BUDGET)
    if most is not None and budget >= most:
        budget = most * 3 // 4
    if budget < LEAST_BUDGET or _is_open_without(request):
        return Plan(samples=samples)
    return Plan({"type": "enabled", "budget_tokens": budget}, on=True, samples=False, room=budget)


def _is_open_without(request: chat.ChatRequest) -> bool:
    """Whether the request ends with results of calls before which this model has not thought."""
    if not request.messages or not isinstance(request.messages[-1], chat.ToolTurn):
        return False
    called = next((turn for turn in reversed(request.messages) if isinstance(turn, chat.AssistantTurn)), None)
    return called is not None and (called.thought is None or called.thought.by != request.model)


def _level(model: Claude, level: chat.ReasoningEffort) -> str:
    if level == "minimal":
        return "low"
    return "max" if level == "xhigh" and model.takes_budgets else level
