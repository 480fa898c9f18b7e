"""Chunks that touch each other become one passage, which says what the source says."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.work.knowledge.base.catalogue import ChunkRow
from callboard.actors.work.knowledge.base.passages import retrieved
from callboard.protocol.knowledge import Chunk


def _row(
    ordinal: int,
    text: str,
    lines: tuple[int, int],
    *,
    document: int = 1,
    source: str = "a.md",
    heading: Sequence[str] = (),
) -> ChunkRow:
    chunk = Chunk(id=f"{document}-{ordinal}", source=source, text=text, heading=tuple(heading), lines=lines)
    return ChunkRow(number=100 * document + ordinal, document=document, ordinal=ordinal, chunk=chunk)


def test_nothing_found_is_nothing_said() -> None:
    found = retrieved([])
    assert (found.context, found.sources, found.chunks) == ("", (), ())


def test_the_context_names_each_source_and_sources_come_once_in_order() -> None:
    rows = [
        _row(0, "beta", (1, 1), document=2, source="b.md"),
        _row(0, "alpha", (1, 1)),
        _row(5, "gamma", (9, 9), document=2, source="b.md"),
    ]
    found = retrieved([(row, 1.0 - place / 10) for place, row in enumerate(rows)])
    assert found.context == "[Source: b.md]\nbeta\n\n[Source: a.md]\nalpha\n\n[Source: b.md]\ngamma"
    assert found.sources == ("b.md", "a.md")


def test_neighbours_are_joined_in_their_order_with_the_best_score_and_the_headings_they_share() -> None:
    rows = [
        (_row(2, "third", (5, 6), heading=("A", "B", "D")), 0.9),
        (_row(7, "far", (30, 30)), 0.8),
        (_row(1, "second", (3, 4), heading=("A", "B", "C")), 0.5),
        (_row(3, "other", (7, 7), document=2, source="b.md"), 0.4),
    ]
    first, second, third = retrieved(rows).chunks
    assert (first.text, first.lines, first.score, first.heading) == ("second\nthird", (3, 6), 0.9, ("A", "B"))
    assert (second.text, third.text) == ("far", "other")


def test_an_overlap_is_said_once() -> None:
    text = "The warranty is two years. It begins with the day of delivery.\nIt ends without notice."
    one, two = text[:50], text[27:]
    [hit] = retrieved([(_row(0, one, (1, 1)), 0.5), (_row(1, two, (1, 2)), 0.4)]).chunks
    assert (hit.text, hit.lines) == (text, (1, 2))


def test_a_cut_within_a_line_is_closed_and_empty_lines_between_are_put_back() -> None:
    [hit] = retrieved([(_row(0, "one two", (1, 1)), 0.5), (_row(1, "three", (1, 1)), 0.4)]).chunks
    assert hit.text == "one two three"
    [hit] = retrieved([(_row(0, "one", (1, 1)), 0.5), (_row(1, "two", (3, 3)), 0.4)]).chunks
    assert hit.text == "one\n\ntwo"


@settings(deadline=None)
@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_whatever_is_found_is_said_once_and_best_first(order: list[int], found: set[int]) -> None:
    ranked = [number for number in order if number in found]
    rows = [
        (_row(number, f"<{number}>", (number + 1, number + 1)), 1 / (place + 1)) for place, number in enumerate(ranked)
    ]
    hits = retrieved(rows).chunks
    said = [line for hit in hits for line in hit.text.split("\n")]
    assert sorted(said) == sorted(f"<{number}>" for number in found)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        assert hit.text.split("\n") == [f"<{line - 1}>" for line in range(hit.lines[0], hit.lines[1] + 1)]
