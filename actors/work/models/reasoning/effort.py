"""How much a request wants a model to think: `reasoning_effort`, a level, or `thinking_budget`, in tokens.

The most particular one is taken, and both come from the same place: request (a node's, an agent's), model,
`config.yaml`. Half of the providers know levels, the others budgets, so each is made of the other where it is missing.
What `config.yaml` says of all models is not asked of one that can't do it; anybody else who asks for that is refused.
"""

from __future__ import annotations

from typing import Any

from .....protocol.chat import ChatRequest, ReasoningEffort
from .....protocol.errors import Unsupported
from .....protocol.settings import ModelSettings, Settings
from .families import refusal

BUDGETS: dict[ReasoningEffort, int] = {
    "none": 0,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": 32768,
}
"""Tokens, by level."""

_UP_TO: tuple[tuple[int, ReasoningEffort], ...] = (
    (0, "none"),
    (1024, "minimal"),
    (4096, "low"),
    (12288, "medium"),
    (24576, "high"),
)


def level(request: ChatRequest) -> ReasoningEffort | None:
    """The level that is wanted; None if nothing is said."""
    if request.reasoning_effort is not None or request.thinking_budget is None:
        return request.reasoning_effort
    budget = request.thinking_budget
    return next((name for most, name in _UP_TO if budget <= most), "xhigh")


def budget(request: ChatRequest) -> int | None:
    """The tokens that are wanted; None if nothing is said."""
    if request.thinking_budget is not None or request.reasoning_effort is None:
        return request.thinking_budget
    return BUDGETS[request.reasoning_effort]


def wanted(request: ChatRequest, id: str, name: str, model: ModelSettings, settings: Settings) -> dict[str, Any]:
    """The fields of `request` that model and settings fill; most often none.

    Args:
        id: the model as users call it.
        name: as the provider calls it.

    Raises:
        Unsupported: it can't think as much or as little as it is asked to.
    """
    for asks in (request, model, settings):
        effort, tokens = asks.reasoning_effort, asks.thinking_budget
        if effort is None and tokens is None:
            continue
        if why := refusal(name, off=effort == "none" or (effort is None and tokens == 0)):
            if asks is settings:
                return {}
            raise Unsupported(f"'{id}' {why}")
        return {} if asks is request else {"reasoning_effort": effort, "thinking_budget": tokens}
    return {}
