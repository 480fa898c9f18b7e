"""Rows at the bottom of a terminal, which are drawn again and again: what is written, and where the cursor waits.

A terminal may get another size at any moment, and tells it later. One that gets narrower breaks its rows anew, so how
many rows up something begins can only be guessed: what was written for one width may be read with another. But all
terminals take the cursor along with the character it stands on. So between two pictures it waits in the first column
of the first row, and to wipe all rows is to wipe from there on, whatever became of them.

- While rows are written the terminal breaks none itself (`NO_BREAKS`): each takes one row, whatever the width is.
- Rows are drawn from the last one up, above them nothing but empty rows. A size that comes in the middle breaks then
  nothing that is still to be gone up over.
- Down goes `DOWN`, which pushes rows up at the bottom of the screen. A movement that stops there would be missing on
  the way back.
- A row that gets shorter is wiped as a whole. tmux keeps what is wiped behind the cursor as blanks, which take rows of
  their own once it breaks them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .cells import fitting, width
from .colours import END

ESCAPE = re.compile(r"(\x1b\[[0-9;]*m|\x1b\]8;;[!-~]*\x1b\\)")
CLEAR_ROW = "\x1b[K"
CLEAR_BELOW = f"{CLEAR_ROW}\x1b[1C\x1b[J\r"
"""From the first column on. Not in one go: what that wipes from the top of the screen, tmux keeps in its scrollback."""
BEGIN, DONE = "\x1b[?2026h", "\x1b[?2026l"
NO_BREAKS, BREAKS = "\x1b[?7l", "\x1b[?7h"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
DOWN = "\x1bD"
NEWLINE = "\n\r"
"""In this order: the cursor leaves from behind the line, and so from the last of the rows it may just have become."""
RESTORE = "\x18" + BREAKS + DONE + END + SHOW
"""Ends half a sequence, and has the terminal be as it was before a picture."""

_UNSURE = re.compile("[\u0300-\u036f\u0590-\u109f\u1780-\u17ff\u200b-\u200f\ufe00-\ufe0f\U0001f000-\U000e01ef]")
"""Letters that terminals do not agree about: marks, scripts that join, emoji. Where their row goes on is not known."""

_NARROW = 40
"""Columns to which a terminal may get narrower, or to half of what it has, and all open rows still have room."""

Size = tuple[int, int]


def up(rows: int) -> str:
    """Moves the cursor up."""
    return f"\x1b[{rows}A" if rows > 0 else ""


def right(columns: int) -> str:
    """Moves the cursor to the right."""
    return f"\x1b[{columns}C" if columns > 0 else ""


def redrawn(old: list[str], new: list[str], below: int) -> str:
    """Makes rows of other rows, as many as those are; an empty one may be a row that nothing was written to yet.

    Args:
        below: how many rows the cursor stands below the last of them, in the first column. It ends in the first
            column of the first one.
    """
    written, rise = [], below
    for before, after in zip(reversed(old), reversed(new), strict=True):
        if before != after:
            written.append(up(rise) + _rewritten(before, after) + "\r")
            rise = 0
        rise += 1
    return "".join(written) + up(rise - 1)


def _rewritten(old: str, new: str) -> str:
    if shown_width(new) < shown_width(old) or _UNSURE.search(old) or _UNSURE.search(new):
        return CLEAR_ROW + new
    column, text = _rest(old, new)
    return right(column) + text


def _rest(old: str, new: str) -> tuple[int, str]:
    """What of a row differs from the old one: the column where it begins, and the row from there on."""
    differ = (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other)
    alike = next(differ, min(len(old), len(new)))
    escape = new.rfind("\x1b", 0, alike)
    if escape >= 0 and ESCAPE.match(new[:alike], escape) is None:
        alike = escape
    head = new[:alike]
    following = old[alike : alike + 1] + new[alike : alike + 1]
    if "\x1b]" in head or any(not width(char) for char in following if char != "\x1b"):
        return 0, new
    codes = [part for part in ESCAPE.findall(head) if part.startswith("\x1b[")]
    code = codes[-1] if codes and codes[-1] != END else ""
    return shown_width(head), code + new[alike:]


def narrower(columns: int) -> int:
    """The columns that a terminal may come to have, which open rows are ready for."""
    return min(_NARROW, -(-columns // 2))


def broken(width: int, columns: int) -> int:
    """How many rows the terminal makes of one of that width."""
    return max(1, -(-width // columns))


def room_for(size: Size, above: int | None, area: Sequence[int] = ()) -> int:
    """How many rows the open ones may be once the terminal is `narrower`, so that none is pushed off its top.

    Args:
        above: how many rows stand above them for sure, where the terminal pushes rows off its top though there are
            empty ones at its bottom, as tmux does; None where it does not.
        area: the columns that each of the rows below them takes.
    """
    columns, high = size
    narrow = narrower(columns)
    below = sum(broken(width, narrow) for width in area)
    room, grows = min(high - below, high * 2 // 3), broken(columns, narrow)
    if above is not None and above < high and grows > 1:
        room = min(room, (above + len(area) - below) * grows // (grows - 1))
    return room


def bounded(rows: list[str], size: Size, room: int) -> list[str]:
    """The last of the open rows: a third of the terminal at most, and no more than have room; but one in any case.

    Args:
        room: how many they may be once the terminal is `narrower`.
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


def shown_width(line: str) -> int:
    """The columns that a line of ANSI text takes."""
    return width(ESCAPE.sub("", line))


def rows_of(line: str, columns: int) -> list[str]:
    """A line of ANSI text as rows of at most that many columns, each with its own colours."""
    if shown_width(line) <= columns:
        return [line]
    rows: list[str] = []
    row, left, code = "", columns, ""
    for part in ESCAPE.split(line):
        if part.startswith("\x1b["):
            code = "" if part == END else part
            row += part
            continue
        if part.startswith("\x1b]"):
            continue  # an address that goes over rows is left out
        while width(part) > left:
            end = fitting(part, left)
            if width(part[:end]) > left and left < columns:
                end = 0
            rows.append(row + part[:end] + (END if code else ""))
            part, row, left = part[end:], code, columns
        row += part
        left -= width(part)
    return [*rows, row]
