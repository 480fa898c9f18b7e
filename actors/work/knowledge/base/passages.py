"""What was found, made ready for a prompt: chunks that touch each other in one source become one passage."""

from __future__ import annotations

from collections.abc import Sequence

from .....protocol.knowledge import Hit, Retrieved
from .catalogue import Row

LEAST_SHARED = 8
"""Characters at the end of one chunk and the start of the next that are taken for their overlap, not for chance."""


def retrieved(found: Sequence[tuple[Row, float]]) -> Retrieved:
    """The chunks with their scores, best first, as one result."""
    hits = [_passage(group) for group in _groups(found)]
    hits.sort(key=lambda hit: -hit.score)
    return told(hits)


def told(hits: Sequence[Hit]) -> Retrieved:
    """Passages as one result, in this order."""
    return Retrieved(
        context="\n\n".join(f"[Source: {hit.source}]\n{hit.text}" for hit in hits),
        sources=tuple(dict.fromkeys(hit.source for hit in hits)),
        chunks=tuple(hits),
    )


def _groups(found: Sequence[tuple[Row, float]]) -> list[list[tuple[Row, float]]]:
    """Neighbours together, in their order; groups in the order of their best."""
    at = {(row.document, row.ordinal): (row, score) for row, score in found}
    groups = []
    for row, _ in found:
        first = row.ordinal
        if (row.document, first) not in at:
            continue  # it is in a group already
        while (row.document, first - 1) in at:
            first -= 1
        group: list[tuple[Row, float]] = []
        while each := at.pop((row.document, first + len(group)), None):
            group.append(each)
        groups.append(group)
    return groups


def _passage(group: Sequence[tuple[Row, float]]) -> Hit:
    chunks = [row.chunk for row, _ in group]
    text, last = chunks[0].text, chunks[0].lines[1]
    heading = chunks[0].heading
    for chunk in chunks[1:]:
        text = _joined(text, chunk.text, chunk.lines[0] - last)
        last = max(last, chunk.lines[1])
        heading = _common(heading, chunk.heading)
    return Hit(
        text=text,
        source=chunks[0].source,
        score=max(score for _, score in group),
        lines=(chunks[0].lines[0], last),
        heading=heading,
    )


def _joined(text: str, following: str, lines_between: int) -> str:
    """Two pieces of one text, without what the second repeats of the first.

    Args:
        lines_between: from the last line of one to the first of the other; splitters leave out the empty ones.
    """
    if lines_between > 0:
        return text + "\n" * min(lines_between, 2) + following
    for shared in range(min(len(text), len(following)), LEAST_SHARED - 1, -1):
        if text.endswith(following[:shared]):
            return text + following[shared:]
    apart = text[-1:].isspace() or following[:1].isspace()
    return text + following if apart else f"{text} {following}"


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return one[:shared]
