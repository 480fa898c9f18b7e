"""Colours of a theme, and their SGR sequences by colour depth of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

END = "\x1b[0m"
"""SGR sequence that resets all colours."""


@dataclass(frozen=True)
class Colour:
    """Text style: colour as `rrggbb` (empty for the terminal's own) and attributes."""

    rgb: str = ""
    bold: bool = False
    italic: bool = False
    underline: bool = False


Tokens: TypeAlias = Callable[[Any], Colour]


def foreground(rgb: str, depth: int) -> str:
    """Return the SGR parameters of a colour (`rrggbb`) on a terminal with `depth` colours."""
    red, green, blue = (int(rgb[at : at + 2], 16) for at in (0, 2, 4))
    if depth > 256:
        return f"38;2;{red};{green};{blue}"
    if depth == 256:
        return f"38;5;{_of_256(red, green, blue)}"
    return str(_of_16(red, green, blue))


_STEPS = (0, 95, 135, 175, 215, 255)


def _step(part: int) -> int:
    return min(range(6), key=lambda at: abs(_STEPS[at] - part))


def _of_256(red: int, green: int, blue: int) -> int:
    cube = [_step(part) for part in (red, green, blue)]
    grey = max(0, min(23, round((sum((red, green, blue)) / 3 - 8) / 10)))
    colours = {
        16 + 36 * cube[0] + 6 * cube[1] + cube[2]: tuple(_STEPS[at] for at in cube),
        232 + grey: (8 + 10 * grey,) * 3,
    }
    return _nearest(colours, (red, green, blue))


_SIXTEEN = {
    31: (205, 0, 0), 32: (0, 205, 0), 33: (205, 205, 0), 34: (60, 60, 238), 35: (205, 0, 205), 36: (0, 205, 205),
    37: (229, 229, 229), 90: (127, 127, 127), 91: (255, 80, 80), 92: (80, 255, 80), 93: (255, 255, 80),
    94: (92, 92, 255), 95: (255, 80, 255), 96: (80, 255, 255),
}  # fmt: skip


def _of_16(red: int, green: int, blue: int) -> int:
    return _nearest(_SIXTEEN, (red, green, blue))


def _nearest(colours: Mapping[int, tuple[int, ...]], wanted: tuple[int, int, int]) -> int:
    def distance(number: int) -> int:
        return sum((one - other) ** 2 for one, other in zip(colours[number], wanted, strict=True))

    return min(colours, key=distance)
