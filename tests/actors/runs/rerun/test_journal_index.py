"""Index of a replayed run's rows."""

from __future__ import annotations

from callboard.actors.runs.rerun.replaying.journal_index import JournalIndex
from callboard.protocol.journal import AnyRow, MessageRow
from callboard.protocol.messages import PersonSays


def says(text: str) -> AnyRow:
    return MessageRow(at=0, message=PersonSays(text=text))


def test_rows_are_given_once_and_in_their_order() -> None:
    rows = [("/a", says("1")), ("/b", says("1")), ("/a", says("1"))]
    index = JournalIndex(rows)
    assert [index.give("/a", lambda row: row == says("1")) for _ in range(3)] == [0, 2, None]
    assert [index.path(place) for place in range(3)] == ["/a", "/b", "/a"]
    assert [index.row(place) for place in range(3)] == [row for _, row in rows]
