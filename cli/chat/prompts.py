"""Chat prompts: templates of the settings (`left_prompt`, `right_prompt`), rendered with the chat's state.

    '{color.green}{?session {session} }{!session {model_name} }{color.reset}> '

`{name}` is the value of a variable. `{?name text}` is the text, itself a template, if the variable has a value other
than `false` and 0; `{!name text}` if it has not. Other text is printed as it is written. An unknown variable has no
value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...protocol.control.chat import ChatInfo
from ..render.text import one_line

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


DEPTH = 50
"""Maximum nesting of forms; deeper ones are plain text."""

COLOURS = {
    "reset": "0",
    "black": "30",
    "dark_gray": "90",
    "red": "31",
    "light_red": "91",
    "green": "32",
    "light_green": "92",
    "yellow": "33",
    "light_yellow": "93",
    "blue": "34",
    "light_blue": "94",
    "purple": "35",
    "light_purple": "95",
    "magenta": "35",
    "light_magenta": "95",
    "cyan": "36",
    "light_cyan": "96",
    "white": "97",
    "light_gray": "37",
}
"""SGR parameter of each `{color.NAME}`."""

Value: TypeAlias = "str | int | float | bool | None"


@dataclass(frozen=True)
class _Form:
    """Variable `{name}`, or a condition (`mark` is `?` or `!`) with its content."""

    name: str
    mark: str = ""
    inside: tuple[_Form | str, ...] = ()


class PromptTemplate:
    """Parsed template."""

    def __init__(self, text: str) -> None:
        self._parts = _read(text)

    def render(self, values: Mapping[str, Value], *, colour: bool = True) -> str:
        """Return the prompt as ANSI text; without `colour`, colours are omitted."""
        return "".join(_rendered(self._parts, values, colour=colour))


def _rendered(parts: tuple[_Form | str, ...], values: Mapping[str, Value], *, colour: bool) -> list[str]:
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, str):
            pieces.append(part)
        elif part.mark:
            if (_text(values.get(part.name)) not in ("", "0", "false")) == (part.mark == "?"):
                pieces += _rendered(part.inside, values, colour=colour)
        elif part.name.startswith("color."):
            code = COLOURS.get(part.name.removeprefix("color."))
            pieces.append(f"\x1b[{code}m" if code is not None and colour else "")
        else:
            pieces.append(_text(values.get(part.name)))
    return pieces


def _text(value: Value) -> str:
    """Format a value, escaped and on one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.4g}" if value < 1000 else f"{value:.0f}"
    return one_line(str(value), 200)


_BEGINS = re.compile(r"\{([?!]?)([\w.]+)(?:(\})|( ))")
"""Matches `{name}` or the start of a condition."""


def _read(text: str) -> tuple[_Form | str, ...]:
    """Parse a template in one pass. A condition without an end becomes plain text again."""
    levels: list[tuple[str, str, str, list[_Form | str]]] = [("", "", "", [])]
    at = 0
    while at < len(text):
        found = _BEGINS.match(text, at) if text[at] == "{" and len(levels) <= DEPTH else None
        if found is not None and bool(found[1]) == bool(found[4]):
            if found[1]:
                levels.append((found[0], found[1], found[2], []))
            else:
                levels[-1][3].append(_Form(found[2]))
            at = found.end()
        elif text[at] == "}" and len(levels) > 1:
            _, mark, name, inside = levels.pop()
            levels[-1][3].append(_Form(name, mark, tuple(inside)))
            at += 1
        else:
            levels[-1][3].append(text[at])
            at += 1
    while len(levels) > 1:
        head, _, _, inside = levels.pop()
        levels[-1][3].extend([head, *inside])
    return tuple(levels[0][3])
