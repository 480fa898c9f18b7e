"""Validation of the model in a request."""

from __future__ import annotations

from .....protocol.agent import Agent
from .....protocol.errors import ConfigError, UsageError
from ...control.requests import check_model as check_file
from ..call import HttpCall


def check_model(call: HttpCall, model: str | None) -> None:
    """Check a model.

    Raises:
        UsageError: there is no such model.
        Denied: it is a file that the caller may not load.
    """
    if model:
        check_file(call.caller, model, call.api.root)
        try:
            call.api.root.gateway.check(model)
        except ConfigError as error:
            raise UsageError(f"model: {error}") from None


def plain(model: str | None, instructions: str = "") -> Agent:
    """Return an agent that is a model by itself: no tools, no questions."""
    return Agent(name="model", model=model, instructions=instructions, can_ask_user=False)
