"""No row of Loki's checks is lost: each has a test, or a reason why it has none; and the page says so."""

from __future__ import annotations

from qa.rows import by_row, rows
from qa.table import PAGE, page


def test_every_row_has_a_test_or_a_reason_and_never_both() -> None:
    assert len(rows()) == 319
    assert {*by_row()} == {row.number for row in rows() if not row.reason}


def test_the_page_is_made_of_the_rows() -> None:
    assert PAGE.read_text("utf-8") == page(), "docs/loki-qa.md is behind tests/qa: run `make docs`"
