"""Rows that are drawn again and again are found again, whatever the terminal does when its size changes."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.breaking_terminal import BreakingTerminal, Wire
from support.tmux import Tmux

from callboard.cli.render.markdown.rows import (
    bounded,
    narrower,
    redrawn,
    room_for,
    rows_of,
    visible_width,
)
from callboard.cli.render.markdown.terminal import Region

ANSI = re.compile(r"\x1b\[[0-9;]*m")
TEXTS = st.sampled_from(["", "a", "a short one", "日本 " * 4, "x" * 19, "\x1b[1mbold\x1b[0m " * 7, "y" * 40, "z" * 90])
SIZES = st.tuples(st.integers(20, 40), st.integers(9, 12))
PICTURES = st.tuples(st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=6))
SETTLED = st.tuples(st.lists(TEXTS, min_size=1, max_size=3), st.lists(TEXTS, max_size=6))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(PICTURES, st.none() | SIZES, st.floats(0, 1), st.booleans()), max_size=12))
@example([(([], ["y" * 40]), None, 1.0, True), (([], ["a"]), (20, 12), 1.0, True)])  # blanks behind it are broken, too
@example([(([], ["y" * 40, "a"]), None, 1.0, True), (([], ["y" * 40, "ab"]), (20, 12), 0.0, True)])
def test_nothing_of_the_open_rows_stays_whenever_the_terminal_gets_another_size(
    steps: list[tuple[tuple[list[str], list[str]], tuple[int, int] | None, float, bool]],
) -> None:
    """Not only between two pictures: also when one is written already, or is half read."""
    wire, settled = Wire(40, 12), [f"line {number}" for number in range(12)]
    region = Region(wire.write, lambda: wire.size)
    region.draw(settled, [])
    for (final, open_lines), size, share, told in steps:
        region.draw(final, open_lines)
        settled += final
        if size is not None:
            wire.resize(size, share)
        if told:
            wire.size = wire.terminal.size
    region.draw(["the end"], [])
    wire.read()
    settled = [ANSI.sub("", line).rstrip() for line in [*settled, "the end"]]
    assert [line for line in wire.terminal.lines() if line] == [line for line in settled if line]
    assert wire.terminal.cursor_shown


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is the terminal")
async def test_tmux_breaks_rows_as_the_terminal_of_these_tests_does(tmp_path: Path) -> None:
    texts = ["", "a short one", "日本 " * 4, "y" * 40, "z" * 90, "a"]
    tmux, wire, pipe = Tmux(40, 12, tmp_path), Wire(40, 12), tmp_path / "pipe"
    os.mkfifo(pipe)
    try:
        tmux.start(["sh", "-c", f"stty raw -echo; cat {pipe}"], {})
        with pipe.open("w", buffering=1, newline="") as writer:
            region = Region(
                lambda text: (wire.terminal.write(text), writer.write(text), writer.flush()), lambda: wire.size
            )
            for number, size in enumerate([(40, 12), (21, 10), (40, 12), (33, 11), (20, 12), (36, 9)]):
                region.draw([f"line {number}", *texts[: number % 3]], texts[number % 4 :])
                await tmux.until(lambda lines: lines == wire.terminal.lines())
                wire.terminal.resize(*size)
                tmux.resize(*size)
                await tmux.until(lambda lines: lines == wire.terminal.lines())
    finally:
        tmux.close()


@given(st.lists(st.integers(0, 220), max_size=60), st.integers(10, 220), st.integers(3, 60))
def test_open_rows_have_room_also_where_the_terminal_gets_narrower(widths: list[int], columns: int, high: int) -> None:
    rows = ["x" * min(width, columns) for width in widths]
    kept = bounded(rows, (columns, high), room_for((columns, high), None))
    assert rows[len(rows) - len(kept) :] == kept
    assert len(kept) >= min(len(rows), 1)
    assert len(kept) == min(len(rows), 1) or sum(len(rows_of(row, narrower(columns))) for row in kept) <= high * 2 // 3


@given(st.lists(st.integers(1, 40), min_size=1, max_size=9), st.integers(1, 20), st.integers(0, 9))
def test_none_is_pushed_off_a_screen_that_is_not_full(widths: list[int], above: int, below: int) -> None:
    """tmux breaks the empty rows at the bottom, too, and pushes as many off the top as there are too many."""
    high = above + len(widths) + below
    rows = bounded(["x" * width for width in widths], (40, high), room_for((40, high), above))
    terminal = BreakingTerminal(40, high)
    region = Region(terminal.write, lambda: terminal.size, pushes=True)
    region.draw(["a line"] * above, rows)
    terminal.resize(20, high)
    region.draw([], [])
    if len(rows) > 1 or above:
        assert terminal.lines() == ["a line"] * above


@given(st.text(st.sampled_from("ab 日é\u0301👩"), max_size=30), st.integers(2, 12))
def test_rows_of_a_line_are_the_line(text: str, columns: int) -> None:
    rows = rows_of(f"\x1b[1m{text}\x1b[0m", columns)
    assert "".join(ANSI.sub("", row) for row in rows) == text
    assert all(visible_width(row) <= columns for row in rows)


def test_a_row_with_letters_that_terminals_draw_differently_is_written_as_a_whole() -> None:
    assert redrawn(["👩 says"], ["👩 says so"], 0) == "\x1b[K👩 says so\r"
    assert redrawn(["日 says"], ["日 says so"], 0) == "\x1b[7C so\r"
