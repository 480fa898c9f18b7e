r"""Unified diffs. Pure, bounded in time and in length.

The algorithm is patience diff. Lines that occur exactly once on both sides are anchors. The longest sequence of anchors
in the same order on both sides splits the texts into small parts, which difflib compares. A part that is still large
counts as replaced as a whole, since comparing it might take minutes. A diff is therefore always correct, and nearly
always short.

A file with NUL bytes is reported as binary. Bytes that are invalid in UTF-8 appear as `\xe9`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

import msgspec

MOST_CHARACTERS = 64 * 1024
MOST_LINES = 2_000
LONGEST_LINE = 1_000
"""Limits of one diff. Text beyond them is left out, with a note."""

MOST_COUNTED = 1024 * 1024
"""Maximum bytes of both sides for which lines are counted while a tool waits."""

CONTEXT = 3
_COMPARED = 40_000
"""Maximum product of both sides' line counts up to which a part is compared line by line."""

Block: TypeAlias = "tuple[int, int, int, int]"
"""Lines i1 to i2 become lines j1 to j2."""


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """A unified diff.

    Attributes:
        text: with its header, each line with its end; empty for no difference.
        added, removed: numbers of lines; None for a binary file.
        note: a remark for the reader: the file is binary, or lines are left out.
    """

    text: str = ""
    added: int | None = 0
    removed: int | None = 0
    note: str = ""


def unified(
    before: bytes | None,
    after: bytes | None,
    name: str,
    *,
    characters: int = MOST_CHARACTERS,
    lines: int = MOST_LINES,
    clean: Callable[[str], str] = str,
) -> Diff:
    """Return the diff of two contents of a file; None for a missing file.

    Args:
        before, after: the contents.
        name: of the file, for the header.
        characters, lines: maximum length.
        clean: removes secrets from a long line before it is cut, because half a secret would not be found. The caller
            redacts the other lines.
    """
    if before == after:
        return Diff()
    name = name.replace("\n", "\\n").replace("\r", "\\r")
    head = [
        "--- /dev/null" if before is None else f"--- a/{name.lstrip('/')}",
        "+++ /dev/null" if after is None else f"+++ b/{name.lstrip('/')}",
    ]
    if b"\0" in (before or b"") or b"\0" in (after or b""):
        sizes = " and ".join(f"{len(each or b'')} bytes" for each in (before, after))
        text = f"Binary files {head[0][4:]} and {head[1][4:]} differ ({sizes})\n"
        return Diff(text=text, added=None, removed=None, note="the file is binary")
    old, new = _lines_of(before), _lines_of(after)
    blocks = [block for block in _blocks(old, new) if block[0] < block[1] or block[2] < block[3]]
    body = (line for hunk in _hunks(blocks) for line in _hunk(old, new, hunk, clean))
    text, left = _bounded(head, body, characters, lines)
    return Diff(
        text=text,
        added=sum(j2 - j1 for _, _, j1, j2 in blocks),
        removed=sum(i2 - i1 for i1, i2, _, _ in blocks),
        note=f"{left} more lines are left out" if left else "",
    )


def _lines_of(data: bytes | None) -> list[bytes]:
    """Return the lines with their ends."""
    if not data:
        return []
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _blocks(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[Block]:
    """Yield the changed parts, in order."""
    parts = [(0, len(old), 0, len(new))]
    while parts:
        i1, i2, j1, j2 = parts.pop()
        # Most edits leave little between the common beginning and the common end.
        while i1 < i2 and j1 < j2 and old[i1] == new[j1]:
            i1, j1 = i1 + 1, j1 + 1
        while i1 < i2 and j1 < j2 and old[i2 - 1] == new[j2 - 1]:
            i2, j2 = i2 - 1, j2 - 1
        if i1 == i2 or j1 == j2:
            yield i1, i2, j1, j2
        # difflib needs quadratic time, so it compares small parts only.
        elif (i2 - i1) * (j2 - j1) <= _COMPARED:
            matcher = SequenceMatcher(None, old[i1:i2], new[j1:j2], autojunk=False)
            for tag, a1, a2, b1, b2 in matcher.get_opcodes():
                if tag != "equal":
                    yield i1 + a1, i1 + a2, j1 + b1, j1 + b2
        elif anchors := _anchors(old, new, (i1, i2, j1, j2)):
            ends = [*anchors, (i2, j2)]
            starts = [(i1, j1), *((i + 1, j + 1) for i, j in anchors)]
            # Reversed, because the stack must yield the blocks in the order of the file.
            parts += [(a, c, b, d) for (a, b), (c, d) in zip(starts, ends, strict=True)][::-1]
        else:
            yield i1, i2, j1, j2


def _anchors(old: Sequence[bytes], new: Sequence[bytes], part: Block) -> list[tuple[int, int]]:
    """Return the longest sequence, in order on both sides, of lines that occur once on each side of a part."""
    i1, i2, j1, j2 = part
    once_old, once_new = Counter(old[i1:i2]), Counter(new[j1:j2])
    where = {new[j]: j for j in range(j1, j2)}
    pairs = [(i, where[old[i]]) for i in range(i1, i2) if once_old[old[i]] == once_new[old[i]] == 1]
    tops: list[int] = []
    rows: list[int] = []
    before: list[int] = []
    for at, (_, j) in enumerate(pairs):
        # Longest increasing subsequence by patience sorting: `tops` are the ends of the best rows by length, `rows`
        # their last pairs, `before` the links back.
        height = bisect_left(tops, j)
        tops[height : height + 1] = [j]
        rows[height : height + 1] = [at]
        before.append(rows[height - 1] if height else -1)
    found = []
    at = rows[-1] if rows else -1
    while at >= 0:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]


def _hunks(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Group blocks whose contexts touch."""
    hunk: list[Block] = []
    for block in blocks:
        if hunk and block[0] - hunk[-1][1] > 2 * CONTEXT:
            yield hunk
            hunk = []
        hunk.append(block)
    if hunk:
        yield hunk


def _hunk(
    old: Sequence[bytes], new: Sequence[bytes], blocks: Sequence[Block], clean: Callable[[str], str]
) -> Iterator[str]:
    first, last = blocks[0], blocks[-1]
    i1, j1 = max(first[0] - CONTEXT, 0), max(first[2] - CONTEXT, 0)
    i2, j2 = min(last[1] + CONTEXT, len(old)), min(last[3] + CONTEXT, len(new))
    yield f"@@ -{_range(i1, i2)} +{_range(j1, j2)} @@"
    for a1, a2, b1, b2 in blocks:
        yield from _marked(" ", old[i1:a1], clean)
        yield from _marked("-", old[a1:a2], clean)
        yield from _marked("+", new[b1:b2], clean)
        i1 = a2
    yield from _marked(" ", old[i1:i2], clean)


def _range(start: int, end: int) -> str:
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"


def _marked(mark: str, lines: Sequence[bytes], clean: Callable[[str], str]) -> Iterator[str]:
    for line in lines:
        text = line.removesuffix(b"\n").decode(errors="backslashreplace")
        if len(text) > LONGEST_LINE and len(text := clean(text)) > LONGEST_LINE:
            text = f"{text[:LONGEST_LINE]}[... {len(text) - LONGEST_LINE} characters left out ...]"
        yield mark + text
        if not line.endswith(b"\n"):
            yield "\\ No newline at end of file"


def _bounded(head: Sequence[str], body: Iterator[str], characters: int, most: int) -> tuple[str, int]:
    """Return the text, and the number of lines left out."""
    lines = list(head)
    left = 0
    for line in body:
        characters -= len(line) + 1
        if characters < 0 or len(lines) - len(head) >= most:
            characters, left = -1, left + 1
        else:
            lines.append(line)
    if left:
        lines.append(f"\\ {left} more lines are left out")
    return "".join(f"{line}\n" for line in lines), left
