r"""Replacement of exact text. Pure: a file's bytes and a list of edits in, the new bytes out.

An edit names a text that must occur once in the file, or sets `replace_all`. Edits apply in order, each to the result
of the previous one; if one cannot apply, none does. Only line ends are matched loosely, because models write `\n` for
every kind of line end. Other bytes stay unchanged: line ends, byte order mark and encoding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ....io.encodings import lossless
from .diff import DiffError, excerpt

__all__ = ["Edit", "EditResult", "apply_edits", "parse_edits"]

# Exactly one line end of any kind, never half of a CRLF.
_LINE_END = r"(?:\r\n|(?<!\r)\n|\r(?!\n))"
_NUMBERED = re.compile(r"\s*\d+\t")
_MOST_PLACES = 8


class Edit(msgspec.Struct, frozen=True):
    r"""A replacement of text.

    Attributes:
        old: the text to find, with `\n` as its line ends.
        new: the replacement.
        everywhere: replace all occurrences; otherwise there must be exactly one.
    """

    old: str
    new: str
    everywhere: bool = False


class EditResult(msgspec.Struct, frozen=True):
    """The new content, and for each edit the lines at which its replacements begin."""

    data: bytes
    lines: tuple[tuple[int, ...], ...]


def parse_edits(values: Sequence[Mapping[str, Any]]) -> list[Edit]:
    """Parse the argument `edits` of a call.

    Raises:
        DiffError: an edit has no text to find, or changes nothing.
    """
    if not values:
        raise DiffError("`edits` is empty")
    edits = []
    for number, value in enumerate(values, 1):
        old, new = str(value["old_string"]).replace("\r\n", "\n"), str(value["new_string"]).replace("\r\n", "\n")
        if not old:
            raise DiffError(f"edit {number}: `old_string` is empty; fs_write creates files")
        if old == new:
            raise DiffError(f"edit {number} changes nothing: `old_string` and `new_string` are the same")
        edits.append(Edit(old, new, bool(value.get("replace_all", False))))
    return edits


def apply_edits(data: bytes, edits: Sequence[Edit]) -> EditResult:
    """Apply all edits, in order.

    Raises:
        DiffError: an edit does not apply; the text names it and the reason.
    """
    mark, encoding, errors = lossless(data)
    text = data[len(mark) :].decode(encoding, errors)
    lines = []
    for number, edit in enumerate(edits, 1):
        text, places = _replaced(text, edit, number)
        lines.append(places)
    try:
        return EditResult(mark + text.encode(encoding, errors), tuple(lines))
    except UnicodeEncodeError as error:
        raise DiffError(
            f"the file is in the encoding {encoding}, which has no {error.object[error.start : error.end][:20]!r}"
        ) from error


def _replaced(text: str, edit: Edit, number: int) -> tuple[str, tuple[int, ...]]:
    """Return the text after one edit, and the lines at which its replacements begin."""
    expression = _LINE_END.join(map(re.escape, edit.old.split("\n")))
    found = list(re.finditer(expression, text))
    if not found:
        raise DiffError(_not_found(text, edit, number))
    places = tuple(_line_of(text, match.start()) for match in found)
    if len(found) > 1 and not edit.everywhere:
        more = ", ..." if len(places) > _MOST_PLACES else ""
        raise DiffError(
            f"edit {number}: `old_string` occurs {len(found)} times (at lines "
            f"{', '.join(map(str, places[:_MOST_PLACES]))}{more}). Add lines around it until it is unique, or set "
            f"`replace_all`"
        )
    usual = _usual_line_end(text)
    pieces, done = [], 0
    for match in found:
        pieces += [text[done : match.start()], _in_place_of(match[0], edit, usual)]
        done = match.end()
    return "".join([*pieces, text[done:]]), places


def _in_place_of(stands: str, edit: Edit, usual: str) -> str:
    """Return the new text with the line ends of the replaced text.

    Lines at both ends that are unchanged keep their own.
    """
    old, new = edit.old.split("\n"), edit.new.split("\n")
    parts = re.split(f"({_LINE_END})", stands)
    ends = parts[1::2]
    same = 0
    while same < min(len(ends), len(new) - 1) and old[same] == new[same]:
        same += 1
    tail = 0
    while tail < min(len(ends), len(new) - 1) - same and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    # Added lines follow the replaced text if its line ends agree, else the majority of the file.
    between = set(ends)
    fresh = ends[0] if len(between) == 1 else usual
    middle = [fresh] * (len(new) - 1 - same - tail)
    all_ends = [*ends[:same], *middle, *(ends[len(ends) - tail :] if tail else [])]
    return "".join(line + end for line, end in zip(new, [*all_ends, ""], strict=True))


def _usual_line_end(text: str) -> str:
    carriage, alone = text.count("\r\n"), text.count("\n")
    if carriage * 2 > alone:
        return "\r\n"
    return "\n" if alone or "\r" not in text else "\r"


def _line_of(text: str, at: int) -> int:
    return len(re.findall(_LINE_END, text[:at])) + 1


def _not_found(text: str, edit: Edit, number: int) -> str:
    after = "" if number == 1 else " (after the edits before it)"
    reason = f"edit {number}: `old_string` is not in the file{after}"
    old = edit.old.split("\n")
    # A frequent mistake of models: they copy the numbered lines of fs_read.
    if all(_NUMBERED.match(line) for line in old if line.strip()):
        return f"{reason}. It begins with line numbers, as fs_read shows them; leave them out"
    lines = re.split(_LINE_END, text)
    wanted = [line.strip() for line in old if line.strip()]
    stripped = [line.strip() for line in lines]
    for line in wanted:
        # The first line that occurs apart from its blanks locates the place that the model probably had in mind.
        if line in stripped:
            at = stripped.index(line)
            return f"{reason}. Compare blanks and the lines around it. {excerpt(lines, at)}"
    return f"{reason}, and neither is any line of it. Read the file again"
