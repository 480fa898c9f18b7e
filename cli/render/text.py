"""Terminal text: escaping, colours, character widths, and columns.

A terminal interprets its input: an escape sequence in a model's answer could retitle the window, hide a line, or write
to the clipboard. So control characters are printed escaped (`\\x1b`), never sent. The same applies to the Unicode marks
that reorder a line, which can make a dangerous question look harmless.

`NO_COLOR` (any value) overrides `CLICOLOR_FORCE` (any value but 0), which overrides the kind of the stream. `TERM=dumb`
means lines only. rich itself reads `COLUMNS`.

Terminals disagree about the width of emoji. The wider result is used: a line that is narrower than computed does no
harm, but the terminal would break a wider one. `fitting` never separates a character from its combining marks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TextIO

_KEPT = {ord("\t"), ord("\n")}
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_REORDERING = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: f"\\x{code:02x}" for code in _CONTROLS if code not in _KEPT}
_ESCAPES |= {code: f"\\u{code:04x}" for code in _REORDERING}
_ESCAPES |= {0x2028: "\n", 0x2029: "\n"}
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


def safe(text: str) -> str:
    """Escape control characters but tab and newline, and Unicode marks that reorder a line.

    CRLF and the Unicode line separators become a newline.
    """
    return text.replace("\r\n", "\n").translate(_ESCAPES)


def one_line(text: str, width: int = 120) -> str:
    """Return the text escaped and on one line of at most `width` characters, with `…` for a cut."""
    line = " ".join(safe(text[: 4 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def uncoloured(text: str) -> str:
    """Remove colour sequences from a text. The result is not escaped."""
    return _COLOURS.sub("", text)


def counted(number: int, word: str) -> str:
    """Format a count: `1 error`, `2 errors`, `1,200 chunks`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def json_object(**fields: Any) -> str:
    """Return the output of a command with `-o json`: one object with its schema version."""
    return json.dumps({"schema_version": 1, **fields}, indent=2, ensure_ascii=False) + "\n"


def with_node(message: str, node: str | None) -> str:
    """Return an error message prefixed with its node, unless the message names it."""
    message = message.strip()
    return message if node is None or f"'{node}'" in message else f"node '{node}': {message}"


END = "\x1b[0m"
"""SGR sequence that resets all colours."""

_SGR = {
    "dim": "2",
    "warning": "33",
    "error": "31",
    "question": "1",
    "title": "1",
    "text": "",
    "added": "32",
    "removed": "31",
    "hunk": "36",
}


def colours(stream: TextIO) -> bool:
    """Return True if output to the stream may be coloured."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "") not in ("", "0"):
        return True
    return redrawable(stream)


def redrawable(stream: TextIO) -> bool:
    """Return True if the stream is a terminal that supports cursor movements."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def paint(text: str, style: str) -> str:
    """Colour a text in one of the styles dim, warning, error, question, title, text, added, removed, hunk."""
    code = _SGR[style]
    return f"\x1b[{code}m{text}{END}" if code else text


_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"
_SKINS = range(0x1F3FB, 0x1F400)
_HANGUL_FOLLOWING = range(0x1160, 0x1200)


def width_of(text: str) -> int:
    """Return the columns of a text without control characters."""
    if text.isascii():
        return len(text)
    taken = sum(map(char_width, text))
    if _EMOJI_STYLE in text:
        taken += sum(char_width(text[at - 1]) == 1 for at, char in enumerate(text) if at and char == _EMOJI_STYLE)
    return taken


@lru_cache(4096)
def char_width(char: str) -> int:
    """Return the columns of a character: 0 for a combining mark, 2 for a wide one, else 1."""
    code = ord(char)
    if code in _SKINS or code in _HANGUL_FOLLOWING:
        return 0
    if unicodedata.category(char) in ("Mn", "Me", "Cf") and code != 0xAD:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clusters(text: str) -> Iterator[str]:
    """Yield the text in clusters that must not be cut: a character with its combining and joined ones."""
    begin = 0
    for at in range(1, len(text)):
        char = text[at]
        if (char_width(char) and text[at - 1] != _JOINER) or char == "\t":
            yield text[begin:at]
            begin = at
    if text:
        yield text[begin:]


def fitting(text: str, room: int) -> int:
    """Return how many characters fit into `room` columns: at least one cluster, so that callers always progress."""
    if text.isascii():
        return max(1, min(len(text), room))
    taken = end = 0
    for cluster in clusters(text):
        taken += width_of(cluster)
        if taken > room and end:
            return end
        end += len(cluster)
    return end


ASKS = {"allow": "", "ask": "asks first", "deny": "denied"}
"""Text of each permission in lists of tools."""

_WIDEST = 40
_ROOM_FOR_NAME = 20


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return one indented line per row. All columns but the last are as wide as their widest cell, up to a limit.

    A cell that is wider than the limit is not cut: it shifts the rest of its row.
    """
    if not rows:
        return []
    widths = [min(max(width_of(row[column]) for row in rows), _WIDEST) for column in range(len(rows[0]) - 1)]
    return [
        (
            "  " + "  ".join([*(_padded(cell, width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        ).rstrip()
        for row in rows
    ]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows in columns without indentation, cut to the terminal (see `fitted`)."""
    return fitted(line.removeprefix("  ") for line in columns(rows))


def table_of_figures(names: Sequence[Sequence[str]], *figures: Sequence[Sequence[str]]) -> str:
    """Return a table of names and right-aligned figures; header rows come first.

    On a terminal names are cut before figures.

    Args:
        figures: figures of all rows in several notations, the longest first. A terminal gets the first one that leaves
            room for the names.
    """
    widths, room = _widths(names), sys.maxsize
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for shown in figures:
        beside = _widths(shown)
        room = wide - sum(beside) - 2 * (len(widths) + len(beside) - 1)
        if room >= sum(min(width, _ROOM_FOR_NAME) for width in widths):
            break
    while sum(widths) > max(room, len(widths)):
        widths[widths.index(max(widths))] -= 1
    return fitted(
        "  ".join(
            [
                *(_padded(_cut(cell, width), width) for cell, width in zip(row, widths, strict=True)),
                *(" " * (width - width_of(cell)) + cell for cell, width in zip(row_of_figures, beside, strict=True)),
            ]
        ).rstrip()
        for row, row_of_figures in zip(names, shown, strict=True)
    )


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(width_of, column)) for column in zip(*rows, strict=True)]


def fitted(lines: Iterable[str]) -> str:
    """Join lines to a text; on a terminal they are cut to its width."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        lines = [_cut(line, width) for line in lines]
    return "".join(line + "\n" for line in lines)


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - width_of(cell))


def _cut(line: str, width: int) -> str:
    if width_of(line) <= width:
        return line
    end = len(line)
    while width_of(line[:end]) > width - 1:
        end -= 1
    return line[:end] + "…"
