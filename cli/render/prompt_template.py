"""Templates of chat prompts: `left_prompt` and `right_prompt` of config.yaml.

    '{color.green}{?session {session} }{!session {model_name} }{color.reset}> '

`{name}` is the value of a variable. `{?name text}` is the text, itself a template, if the variable has a value other
than `false` and 0; `{!name text}` if it has not. Other text is printed as it is written. An unknown variable has no
value. Pure: names and values in, ANSI text out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .text import one_line

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
