"""Reasoning effort of a request: `reasoning_effort` (a level) or `thinking_budget` (tokens).

Both come from the most specific of three sources: the request (of a node or agent), the model, `config.yaml`. Half of
the providers accept levels and the others budgets, so a missing one is derived from the other. A setting of
`config.yaml` for all models is ignored for a model that does not support it. From the other two sources, an unsupported
effort raises Unsupported.
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
"""Token budget of each level."""

_UP_TO: tuple[tuple[int, ReasoningEffort], ...] = (
    (0, "none"),
    (1024, "minimal"),
    (4096, "low"),
    (12288, "medium"),
    (24576, "high"),
)


def level(request: ChatRequest) -> ReasoningEffort | None:
    """Return the requested level, or the one nearest to the requested budget; None if neither is set."""
    if request.reasoning_effort is not None or request.thinking_budget is None:
        return request.reasoning_effort
    budget = request.thinking_budget
    return next((name for most, name in _UP_TO if budget <= most), "xhigh")


def budget(request: ChatRequest) -> int | None:
    """Return the requested token budget, or that of the requested level; None if neither is set."""
    if request.thinking_budget is not None or request.reasoning_effort is None:
        return request.thinking_budget
    return BUDGETS[request.reasoning_effort]


def wanted(request: ChatRequest, id: str, name: str, model: ModelSettings, settings: Settings) -> dict[str, Any]:
    """Return the reasoning fields that the model's entry or the settings add to `request`; usually none.

    Args:
        id: id of the model, for the error.
        name: the provider's name of the model.

    Raises:
        Unsupported: the model does not support reasoning, or cannot turn it off.
    """
    for asks in (request, model, settings):
        effort, tokens = asks.reasoning_effort, asks.thinking_budget
        if effort is None and tokens is None:
            continue
        # Turning reasoning off is supported by a model without reasoning, so the two cases are checked separately.
        if why := refusal(name, off=effort == "none" or (effort is None and tokens == 0)):
            if asks is settings:
                return {}
            raise Unsupported(f"'{id}' {why}")
        # Both fields from one source: a level of the model with a budget of the settings would contradict each other.
        return {} if asks is request else {"reasoning_effort": effort, "thinking_budget": tokens}
    return {}
