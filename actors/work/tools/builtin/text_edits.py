"""Edits of texts by models: replacement of exact text, and unified diffs. Pure: bytes or texts in, the new ones out.

An edit (`fs_edit`) names a text that must occur once in the file, or sets `replace_all`. Edits apply in order, each to
the result of the previous one; if one cannot apply, none does. Only line ends are matched loosely, because models write
a line feed for every kind of line end. Other bytes stay unchanged: line ends, byte order mark and encoding.

In diffs (`fs_patch`), models write correct lines and wrong line numbers. Therefore a hunk's numbers only say where to
look first, and its lines must occur in the file exactly. If they occur at the stated line, they are replaced there. If
they occur at exactly one other place, they are replaced at that place. If they occur at several places or nowhere, the
whole patch is refused, with an excerpt of the file. No line is matched approximately, except for line ends: a file with
CRLF keeps CRLF.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ....io.encodings import lossless

__all__ = [
    "Applied",
    "DiffError",
    "Edit",
    "EditResult",
    "Hunk",
    "apply",
    "apply_edits",
    "excerpt",
    "parse",
    "parse_edits",
]

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
        DiffError: there are no edits, or an edit has no text to find or changes nothing.
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
    places = tuple(len(re.findall(_LINE_END, text[: match.start()])) + 1 for match in found)
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
            return f"{reason}. Compare the white space and the lines around it. {excerpt(lines, at)}"
    return f"{reason}, and neither is any single line of it. Read the file again"


# --- unified diffs


_HEADER = re.compile(r"^@@(?: -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@)?")
_NO_NEWLINE = "\\"
_SHOWN = 12


class DiffError(ValueError):
    """A malformed or inapplicable diff or list of edits. The text is for its author."""


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """A hunk of a unified diff.

    Attributes:
        number: its position in the diff, from 1.
        start: the stated first line in the file; None if none is stated.
        old, new: the lines before and after, without their ends.
        old_ends, new_ends: True if the last of them has a newline.
        added, removed: numbers of lines.
    """

    number: int
    start: int | None
    old: tuple[str, ...]
    new: tuple[str, ...]
    old_ends: bool = True
    new_ends: bool = True
    added: int = 0
    removed: int = 0


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """Result of applying a diff: the new text, and what was changed.

    Attributes:
        text: the new text.
        added, removed: numbers of lines.
        moved: number and actual line of each hunk that was found at another line than stated.
    """

    text: str
    added: int
    removed: int
    moved: tuple[tuple[int, int], ...] = ()


def parse(text: str) -> list[Hunk]:
    """Return the hunks of a diff of one file.

    Raises:
        DiffError: the text is no valid diff, is about several files, or has a hunk that changes nothing or that only
            adds lines and states no position.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    lines = [line.removesuffix("\r") for line in lines]
    starts = [index for index, line in enumerate(lines) if line.startswith("@@")]
    if not starts:
        raise DiffError("the text is not a unified diff: no line begins with '@@'")
    hunks = []
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(lines)], strict=True), 1):
        if end < len(lines) and lines[end - 2].startswith("--- ") and lines[end - 1].startswith("+++ "):
            raise DiffError("the diff changes several files; patch each file with a separate call")
        hunks.append(_hunk(number, lines[start], lines[start + 1 : end]))
    return hunks


def apply(text: str, hunks: Sequence[Hunk]) -> Applied:
    """Apply all hunks of a diff to a text, in order.

    Raises:
        DiffError: a hunk does not fit. The text names it, with an excerpt of the file.
    """
    lines = text.split("\n")
    ends = lines[-1] == ""
    if ends:
        lines.pop()
    # Added lines get the line end of the majority of the file.
    carriage = bool(lines) and sum(line.endswith("\r") for line in lines) * 2 > len(lines)
    bare = [line.removesuffix("\r") for line in lines]
    result: list[str] = []
    done = shift = 0
    moved: list[tuple[int, int]] = []
    for hunk in hunks:
        at = _position(bare, hunk, done, shift)
        if hunk.start is not None and hunk.old and at != hunk.start - 1:
            moved.append((hunk.number, at + 1))
            # The line numbers of later hunks are probably wrong by the same amount.
            shift = at - (hunk.start - 1)
        end = at + len(hunk.old)
        result += lines[done:at]
        result += _merged(lines[at:end], hunk, "\r" if carriage else "")
        if end == len(lines):
            ends = hunk.new_ends if not hunk.old_ends or not hunk.new_ends or end == 0 else ends
        done = end
    result += lines[done:]
    whole = "\n".join(result) + ("\n" if ends and result else "")
    return Applied(
        text=whole,
        added=sum(hunk.added for hunk in hunks),
        removed=sum(hunk.removed for hunk in hunks),
        moved=tuple(moved),
    )


def _hunk(number: int, header: str, body: list[str]) -> Hunk:
    match = _HEADER.match(header)
    assert match is not None, "it begins with @@"
    start = None if match[1] is None else int(match[1])
    if match[1] is not None:
        body = _without_padding(body, int(match[2] or 1), int(match[4] or 1))
    old: list[str] = []
    new: list[str] = []
    old_ends = new_ends = True
    mark = ""
    marks = {" ": 0, "+": 0, "-": 0}
    for line in body:
        if line.startswith(_NO_NEWLINE):
            # The marker refers to the previous line, which is in the old text, in the new text, or in both.
            old_ends = old_ends and mark == "+"
            new_ends = new_ends and mark == "-"
            continue
        # Models strip the blank that marks an empty line of context.
        mark, rest = line[:1] or " ", line[1:]
        if mark not in marks:
            raise DiffError(
                f"hunk {number}: the line {_quoted(line)} begins with neither ' ' (stays), '-' (goes) nor '+' (comes)"
            )
        marks[mark] += 1
        if mark != "+":
            old.append(rest)
        if mark != "-":
            new.append(rest)
    if old == new and old_ends == new_ends:
        raise DiffError(f"hunk {number} changes nothing: it has no line that begins with '-' or '+'")
    if not old and start is None:
        raise DiffError(f"hunk {number} only adds lines and has no position: add lines of context, or '@@ -N,0 ...'")
    return Hunk(
        number=number,
        start=start,
        old=tuple(old),
        new=tuple(new),
        old_ends=old_ends,
        new_ends=new_ends,
        added=marks["+"],
        removed=marks["-"],
    )


def _without_padding(body: list[str], old: int, new: int) -> list[str]:
    """Remove empty lines after a hunk's end, which are not context. The hunk's counts identify them."""
    body = list(body)
    while body and body[-1] == "":
        befores = sum(line[:1] in ("", " ", "-") for line in body)
        afters = sum(line[:1] in ("", " ", "+") for line in body)
        if befores <= old and afters <= new:
            break
        body.pop()
    return body


def _position(lines: list[str], hunk: Hunk, done: int, shift: int) -> int:
    if not hunk.old:
        assert hunk.start is not None
        if not done <= hunk.start <= len(lines):
            raise DiffError(
                f"hunk {hunk.number} adds lines after line {hunk.start}, but the file has {len(lines)} lines"
            )
        return hunk.start
    size = len(hunk.old)
    stated = -1 if hunk.start is None else hunk.start - 1
    for guess in (stated + shift, stated):
        if stated >= 0 and guess >= done and tuple(lines[guess : guess + size]) == hunk.old:
            return guess
    first, places = hunk.old[0], range(done, len(lines) - size + 1)
    found = [at for at in places if lines[at] == first and tuple(lines[at : at + size]) == hunk.old]
    if len(found) == 1:
        return found[0]
    if found:
        where = ", ".join(str(at + 1) for at in found[:8])
        raise DiffError(
            f"hunk {hunk.number} fits at several places (lines {where}), but not at the line it names; give "
            "it more context"
        )
    raise DiffError(_does_not_fit(lines, hunk, done, stated))


def _does_not_fit(lines: list[str], hunk: Hunk, done: int, stated: int) -> str:
    """Return the message for a hunk that does not fit: its first wrong line at the place with most matches."""
    best, fits = _best(lines, hunk, done)
    if fits == 0:
        at = min(max(stated, 0), max(len(lines) - 1, 0))
        begins = next((line for line in hunk.old if line.strip()), hunk.old[0])
        intro = f"hunk {hunk.number} does not fit: the file has none of the lines it expects, such as {_quoted(begins)}"
        return f"{intro}. {excerpt(lines, at)}"
    wrong = next(index for index, line in enumerate(hunk.old) if lines[best + index : best + index + 1] != [line])
    at = best + wrong
    stands = _quoted(lines[at]) if at < len(lines) else "the end of the file"
    return (
        f"hunk {hunk.number} does not fit: it expects {_quoted(hunk.old[wrong])} at line {at + 1}, and the "
        f"file has {stands} there. {excerpt(lines, at)}"
    )


def _best(lines: list[str], hunk: Hunk, done: int) -> tuple[int, int]:
    """Return the place where most lines of a hunk match, and their number.

    Considers at most 200 occurrences per line.
    """
    rows: dict[str, list[int]] = {line: [] for line in hunk.old if line.strip()}
    for index in range(done, len(lines)):
        if lines[index] in rows:
            rows[lines[index]].append(index)
    votes: dict[int, int] = {}
    for offset, line in enumerate(hunk.old):
        # A line such as `}` occurs everywhere, so the votes per line are bounded.
        for index in rows.get(line, [])[:200]:
            if index - offset >= 0:
                votes[index - offset] = votes.get(index - offset, 0) + 1
    if not votes:
        return 0, 0
    at = min(votes, key=lambda start: (-votes[start], start))
    return at, votes[at]


def excerpt(lines: Sequence[str], at: int) -> str:
    """Return the numbered lines around index `at`, for the author of a change that does not apply."""
    if not lines:
        return "The file is empty"
    first = max(at - _SHOWN // 2, 0)
    shown = [f"{number:>6}\t{line[:200]}" for number, line in enumerate(lines[first : first + _SHOWN], first + 1)]
    return "The file has there:\n" + "\n".join(shown)


def _merged(stands: list[str], hunk: Hunk, carriage: str) -> list[str]:
    """Return the new lines; unchanged lines keep their line ends."""
    # A file may mix line ends: unchanged lines are copied from the file, not from the diff.
    kept = {line.removesuffix("\r"): line for line in stands}
    return [kept.get(line, line + carriage) if line in hunk.old else line + carriage for line in hunk.new]


def _quoted(line: str) -> str:
    return repr(line if len(line) <= 120 else line[:117] + "...")
