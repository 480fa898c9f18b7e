"""Text for terminals: made harmless, in colours where they are wanted, in columns.

A terminal obeys what it reads: an escape sequence in a model's answer could retitle the window, hide a line,
or put text into the clipboard. So control characters are shown as what they are (`\\x1b`), never sent. The
same goes for the Unicode marks that reorder a line, with which a dangerous question can be made to look like
a harmless one.

`NO_COLOR` (any value) wins over `CLICOLOR_FORCE` (any value but 0), which wins over what the stream is.
`TERM=dumb` means lines only. rich reads `COLUMNS` by itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

_KEPT = {ord("\t"), ord("\n")}
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_REORDERING = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: f"\\x{code:02x}" for code in _CONTROLS if code not in _KEPT}
_ESCAPES |= {code: f"\\u{code:04x}" for code in _REORDERING}
_ESCAPES |= {0x2028: "\n", 0x2029: "\n"}
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


def safe(text: str) -> str:
    """The text with every control character but tab and newline spelled out; CRLF becomes a newline."""
    return text.replace("\r\n", "\n").translate(_ESCAPES)


def one_line(text: str, width: int = 120) -> str:
    """The text, safe, on one line of at most `width` characters, the cut shown as `…`."""
    line = " ".join(safe(text[: 4 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def uncoloured(text: str) -> str:
    """The text without the colours a program gave it; not yet harmless."""
    return _COLOURS.sub("", text)


def counted(number: int, word: str) -> str:
    """`1 error`, `2 errors`, `1,200 chunks`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def json_object(**fields: Any) -> str:
    """What `-o json` prints of a command: one object, with the version of its shape."""
    return json.dumps({"schema_version": 1, **fields}, indent=2, ensure_ascii=False) + "\n"


def with_node(message: str, node: str | None) -> str:
    """An error's text, with the node it happened at unless the text names it."""
    message = message.strip()
    return message if node is None or f"'{node}'" in message else f"node '{node}': {message}"


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
    """True if what is written to the stream may carry colours."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "") not in ("", "0"):
        return True
    return redrawable(stream)


def redrawable(stream: TextIO) -> bool:
    """True if the stream is a terminal that understands cursor movements."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def paint(text: str, style: str) -> str:
    """The text in one of the house's styles: dim, warning, error, question, title, text, added, removed, hunk."""
    code = _SGR[style]
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


ASKS = {"allow": "", "ask": "asks first", "deny": "denied"}
"""What lists of tools say of the permission of each."""

_WIDEST = 40
_ROOM_FOR_NAME = 20


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """One indented line per row, all columns but the last as wide as their widest cell, within reason."""
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
    """The rows in columns, from the first column of the terminal on; see `fitted`."""
    return fitted(line.removeprefix("  ") for line in columns(rows))


def table_of_figures(names: Sequence[Sequence[str]], *figures: Sequence[Sequence[str]]) -> str:
    """Names and, flush right, figures; the rows of the head come first. On a terminal names are cut before figures are.

    Args:
        figures: those of all rows, in several ways, the longest first: on a terminal the first counts that leaves room
            for the names.
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
    """The lines as a text; on a terminal none is wider than that."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        lines = [_cut(line, width) for line in lines]
    return "".join(line + "\n" for line in lines)


def width_of(text: str) -> int:
    """How many columns of a terminal the text takes: as many as it has characters, in most languages."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - width_of(cell))


def _cut(line: str, width: int) -> str:
    if width_of(line) <= width:
        return line
    end = len(line)
    while width_of(line[:end]) > width - 1:
        end -= 1
    return line[:end] + "…"
