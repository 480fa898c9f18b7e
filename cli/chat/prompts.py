"""Chat prompts: templates of the settings, rendered with the chat's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...protocol.control.chat import ChatInfo
from ..render.prompt_template import PromptTemplate, Value

LEFT = (
    "{color.cyan}{?agent {agent}}{!agent {?role {role}}{!role {model_name}}}{color.reset}"
    "{?session {color.dark_gray}/{color.green}{session}{color.reset}}{?rag {color.dark_gray}@{rag}{color.reset}}> "
)
RIGHT = (
    "{color.dark_gray}{?consume_tokens {consumed}{?consume_percent  ({consume_percent}%)}}{?cost  ${cost}}{color.reset}"
)
"""Default templates. They leave room for typing in 40 columns."""


class Prompts:
    """Left and right prompt templates.

    Args:
        settings: values of `left_prompt`, `right_prompt` and the variables named after settings.
        colour: True colours the prompts.
    """

    def __init__(self, settings: Mapping[str, Any], *, colour: bool) -> None:
        left, right = settings.get("left_prompt"), settings.get("right_prompt")
        self._left = PromptTemplate(LEFT if left in (None, "") else str(left))
        self._right = PromptTemplate(RIGHT if right is None else str(right))
        self._settings = settings
        self._colour = colour

    def of(self, info: ChatInfo) -> tuple[str, str]:
        """Return the left and the right prompt as ANSI text."""
        values = variables(info, self._settings)
        left, right = (each.render(values, colour=self._colour) for each in (self._left, self._right))
        return left, right


def variables(info: ChatInfo, settings: Mapping[str, Any]) -> dict[str, Value]:
    """Return the variables of templates."""
    client, _, model = info.model.partition(":")
    settings = {**settings, **info.settings}
    plain = ("temperature", "top_p", "dry_run", "stream", "save", "wrap", "max_output_tokens", "highlight")
    return {
        **{name: value for name in plain if isinstance(value := settings.get(name), str | int | float | bool)},
        "model": info.model,
        "client_name": client if model else "",
        "model_name": model or info.model,
        "max_input_tokens": info.window,
        "role": "%%" if info.role_prompt and not info.role else info.role,
        "session": info.session,
        "dirty": info.session is not None and info.session_id is None and info.turns > 0,
        "agent": info.agent,
        "rag": info.rag,
        "title": info.title,
        "consume_tokens": info.tokens,
        "consumed": f"{info.tokens} {'token' if info.tokens == 1 else 'tokens'}" if info.tokens else None,
        "consume_percent": info.percent,
        "user_messages_len": info.turns,
        "cost": f"{info.cost:.4f}{'' if info.priced else '+'}" if info.cost >= 0.00005 else None,
        "running": info.run is not None,
    }
