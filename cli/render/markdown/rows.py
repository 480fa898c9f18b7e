"""Redrawn rows at the bottom of a terminal: the sequences that replace them, and the position of the cursor.

A terminal may be resized at any moment, and the process learns of it later. A narrower terminal rewraps its rows, so
the distance between two rows can only be guessed: rows written for one width may be displayed with another. But every
terminal moves the cursor together with the character under it. So between two pictures the cursor waits in the first
column of the first row. Clearing from there on removes all rows, whatever happened to them.

- While rows are written, automatic wrapping is off (`NO_BREAKS`): each takes one row, whatever the width is.
- Rows are drawn from the last one up; above them are only empty rows. A resize in between breaks no row that the cursor
  still has to cross.
- `DOWN` (index) moves down, because it scrolls at the bottom of the screen. A movement that stops there would leave the
  way back one row short.
- A row that gets shorter is cleared as a whole. tmux keeps cleared cells behind the cursor as blanks, which take rows
  of their own when it rewraps them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..text import END, fitting, width_of

ESCAPE = re.compile(r"(\x1b\[[0-9;]*m|\x1b\]8;;[!-~]*\x1b\\)")
CLEAR_ROW = "\x1b[K"
CLEAR_BELOW = f"{CLEAR_ROW}\x1b[1C\x1b[J\r"
"""Clears from the first column of this row.

In two steps: tmux moves to its scrollback what a single clear removes from the top of the screen.
"""
BEGIN, DONE = "\x1b[?2026h", "\x1b[?2026l"
NO_BREAKS, BREAKS = "\x1b[?7l", "\x1b[?7h"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
DOWN = "\x1bD"
NEWLINE = "\n\r"
"""Newline before carriage return: the cursor leaves from the end of the line, and so from the last row of a line that
has just been rewrapped.
"""
RESTORE = "\x18" + BREAKS + DONE + END + SHOW
"""Terminates an incomplete sequence and restores the terminal's state from before a picture."""

_UNSURE = re.compile("[\u0300-\u036f\u0590-\u109f\u1780-\u17ff\u200b-\u200f\ufe00-\ufe0f\U0001f000-\U000e01ef]")
"""Characters with widths that terminals disagree about: marks, joining scripts, emoji.

The column behind them is unknown.
"""

_NARROW = 40
"""Columns to which a terminal may shrink (or to half of its columns) while all open rows still fit."""

Size = tuple[int, int]


def up(rows: int) -> str:
    """Return the sequence that moves the cursor up."""
    return f"\x1b[{rows}A" if rows > 0 else ""


def right(columns: int) -> str:
    """Return the sequence that moves the cursor to the right."""
    return f"\x1b[{columns}C" if columns > 0 else ""


def redrawn(old: list[str], new: list[str], below: int) -> str:
    """Return the sequence that turns old rows into as many new ones; an empty old row may be unwritten.

    Args:
        below: rows between the last of them and the cursor, which is in the first column. It ends in the first column
            of the first row.
    """
    written, rise = [], below
    for before, after in zip(reversed(old), reversed(new), strict=True):
        if before != after:
            written.append(up(rise) + _rewritten(before, after) + "\r")
            rise = 0
        rise += 1
    return "".join(written) + up(rise - 1)


def _rewritten(old: str, new: str) -> str:
    if visible_width(new) < visible_width(old) or _UNSURE.search(old) or _UNSURE.search(new):
        return CLEAR_ROW + new
    column, text = _rest(old, new)
    return right(column) + text


def _rest(old: str, new: str) -> tuple[int, str]:
    """Return the part of a row that differs from the old one: its first column and its text."""
    differ = (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other)
    alike = next(differ, min(len(old), len(new)))
    escape = new.rfind("\x1b", 0, alike)
    if escape >= 0 and ESCAPE.match(new[:alike], escape) is None:
        alike = escape
    head = new[:alike]
    following = old[alike : alike + 1] + new[alike : alike + 1]
    if "\x1b]" in head or any(not width_of(char) for char in following if char != "\x1b"):
        return 0, new
    codes = [part for part in ESCAPE.findall(head) if part.startswith("\x1b[")]
    code = codes[-1] if codes and codes[-1] != END else ""
    return visible_width(head), code + new[alike:]


def narrower(columns: int) -> int:
    """Return the number of columns to which a terminal may shrink without breaking the layout of the open rows."""
    return min(_NARROW, -(-columns // 2))


def broken(width: int, columns: int) -> int:
    """Return how many rows the terminal makes of a row of that width."""
    return max(1, -(-width // columns))


def room_for(size: Size, above: int | None, area: Sequence[int] = ()) -> int:
    """Return how many open rows fit once the terminal is `narrower`, without any scrolling off its top.

    Args:
        above: rows that are certainly above the open ones, for terminals like tmux that scroll rows off the top though
            there are empty ones at the bottom; None for other terminals.
        area: columns that each of the rows below takes.
    """
    columns, high = size
    narrow = narrower(columns)
    below = sum(broken(width, narrow) for width in area)
    room, grows = min(high - below, high * 2 // 3), broken(columns, narrow)
    if above is not None and above < high and grows > 1:
        room = min(room, (above + len(area) - below) * grows // (grows - 1))
    return room


def bounded(rows: list[str], size: Size, room: int) -> list[str]:
    """Return the last open rows: a third of the terminal at most, and at least one.

    Args:
        room: rows that they may take once the terminal is `narrower`.
    """
    columns, high = size
    narrow = narrower(columns)
    kept = 0
    for row in reversed(rows[-max(high // 3, 1) :]):
        room -= len(rows_of(row, narrow))
        if room < 0 and kept:
            break
        kept += 1
    return rows[len(rows) - kept :]


def visible_width(line: str) -> int:
    """Return the columns that a line of ANSI text takes."""
    return width_of(ESCAPE.sub("", line))


def rows_of(line: str, columns: int) -> list[str]:
    """Split a line of ANSI text into rows of at most that many columns, each with its own colours."""
    if visible_width(line) <= columns:
        return [line]
    rows: list[str] = []
    row, left, code = "", columns, ""
    for part in ESCAPE.split(line):
        if part.startswith("\x1b["):
            code = "" if part == END else part
            row += part
            continue
        if part.startswith("\x1b]"):
            continue  # a hyperlink over several rows is dropped
        while width_of(part) > left:
            end = fitting(part, left)
            if width_of(part[:end]) > left and left < columns:
                end = 0
            rows.append(row + part[:end] + (END if code else ""))
            part, row, left = part[end:], code, columns
        row += part
        left -= width_of(part)
    return [*rows, row]
