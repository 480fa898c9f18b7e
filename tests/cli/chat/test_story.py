"""What of a run is seen while it works."""

from __future__ import annotations

import pytest

from callboard.cli.chat.story import Display, Story
from callboard.cli.render.answer import Look


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_call_with_long_arguments_still_says_what_it_waits_for(columns: int) -> None:
    story = Story(Display(Look(), coloured=False), lambda: columns, clock=lambda: 0.0)
    row = story._row(0.0, 0, "fs_patch contents=" + "x" * 300, 12.0, "waits for coder", columns)
    assert row.endswith("…  12s  waits for coder")
    assert len(row) == columns
