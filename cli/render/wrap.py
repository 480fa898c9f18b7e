"""Question texts and diffs in rows that fit the terminal.

The text of a permission question lists a tool's arguments, and the tool's caller chose them: a wrapped row must not
pass for a separate line. So no row is left to the terminal to wrap, because the terminal would continue in the first
column. Rows are measured in terminal columns, not characters, and continuation rows are indented deeper than any line
begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .text import paint, safe

_BEGINNING = re.compile(r" *(?:\| )?")
_INDENT = "  "
_DEEPER = "    "


def rows(text: str, width: int, *, arguments: bool = False) -> list[str]:
    """Return the rows of a text, indented by two.

    Args:
        width: columns of the terminal.
        arguments: True if the text lists arguments from its second line on.
    """
    found: list[str] = []
    for number, raw in enumerate(text.split("\n")):
        # Only a newline ends a line, unlike the other separators that `safe` and some terminals treat as one.
        line = safe(raw.removesuffix("\r")).replace("\n", "\\u2028").expandtabs(8)
        beginning = _BEGINNING.match(line)
        hanging = " " * beginning.end() if beginning and number else ""
        if arguments and "|" not in line[: len(hanging)]:
            hanging += _DEEPER
        found += _broken(line, max(width - 1, 20), hanging, whole_words=not arguments)
    return found


_COLUMNS = re.compile(r" *\S.*? {2,}(?=\S)")


def wrapped(line: str, width: int, *, deeper: int = 0) -> list[str]:
    """Wrap a line at blanks into rows of at most `width` columns.

    A row of a table continues below its second column, another line below its beginning. A longer word is left to the
    terminal, so that it can be copied. A line with a tab is returned unchanged.

    Args:
        deeper: additional indentation of continuation rows, except in a table.
    """
    from prompt_toolkit.utils import get_cwidth  # imported late: it takes a while, and not every diff is wrapped

    if get_cwidth(line) <= width or "\t" in line:
        return [line]
    column = _COLUMNS.match(line)
    hanging = column.end() if column and column.end() <= width // 2 else len(line) - len(line.lstrip(" ")) + deeper
    found: list[str] = []
    indent, rest = "", line
    while rest:
        room = max(width - len(indent), 1)
        end = _fitting(rest, room)
        if end < len(rest):
            blank = rest.rfind(" ", len(rest) - len(rest.lstrip(" ")), end + 1) + 1
            first = column.end() if column and not found else 0
            end = blank if blank > first else rest.find(" ", end) + 1 or len(rest)
        found.append((indent + rest[:end]).rstrip())
        indent, rest = " " * hanging, rest[end:].lstrip(" ")
    return found


def _broken(line: str, width: int, hanging: str, *, whole_words: bool) -> list[str]:
    """Wrap a line into rows of at most `width` columns; `whole_words` leaves longer words intact, so they can be
    copied.
    """
    hanging = hanging[: width // 2]
    found: list[str] = []
    indent, rest = _INDENT, line
    while rest:
        room = width - len(indent)
        end = _fitting(rest, room)
        if end < len(rest):
            blank = rest.rfind(" ", 0, end + 1) + 1
            if blank and rest[:blank].strip(" |"):
                end = blank
            elif whole_words:
                end = rest.find(" ", end) + 1 or len(rest)
        found.append((indent + rest[:end]).rstrip())
        indent, rest = _INDENT + hanging, rest[end:]
    return found or [""]


def _fitting(text: str, room: int) -> int:
    from prompt_toolkit.utils import get_cwidth

    taken = 0
    for at, character in enumerate(text):
        taken += get_cwidth(character)
        if taken > room:
            return max(at, 1)
    return len(text)


_HEADS = ("--- ", "+++ ", "Binary files ")
_STYLES = {"+": "added", "-": "removed", "@": "hunk", "\\": "dim"}


def diff_lines(diff: str, *, coloured: bool) -> list[str]:
    """Return the lines of one file's diff, each escaped and coloured by its kind."""
    return [paint(line, style) if coloured and line else line for line, style in _styled(diff)]


def diff_rows(diff: str, width: int, *, coloured: bool) -> list[str]:
    """Return the diff in rows of at most `width` columns, indented by two; continuation rows are indented further."""
    found = []
    for line, style in _styled(diff):
        parts = rows(line, width, arguments=True)
        found += [paint(part, style) if coloured and part else part for part in parts]
    return found


def _styled(diff: str) -> Iterator[tuple[str, str]]:
    """Yield each line, escaped, with its style."""
    body = False
    for raw in diff.removesuffix("\n").split("\n"):
        body = body or raw.startswith("@@")
        # Only a newline ends a line of a diff. Another line separator could forge a line.
        line = safe(raw.removesuffix("\r")).replace("\n", "\\u2028")
        yield line, _STYLES.get(raw[:1], "text") if body or not raw.startswith(_HEADS) else "title"
