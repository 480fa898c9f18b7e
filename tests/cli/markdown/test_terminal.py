"""What stands on the terminal, and in its scrollback, is the text: nothing twice, nothing torn."""

from __future__ import annotations

import random
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.terminal_model import SmallTerminal

from callboard.cli.render.markdown.rows import rows_of
from callboard.cli.render.markdown.stream import MarkdownStream
from callboard.cli.render.markdown.terminal import (
    CALM,
    LiveText,
    Region,
    StderrAboveAnswer,
    stderr_above,
)
from callboard.cli.render.markdown.theme import Theme, of_pygments

HERE = Path(__file__).parents[3]
ANSI = re.compile(r"\x1b\[[0-9;]*m")
SAMPLE = (HERE / "tests/cli/markdown/sample.md").read_text(encoding="utf-8")
LINES = st.lists(
    st.sampled_from(["", "a", "ab", "abc", "wide 日本", "x" * 12, "\x1b[1mbold\x1b[0m", "y" * 30]), max_size=7
)


class Sheet:
    """A stream that is a small terminal."""

    encoding = "utf-8"

    def __init__(self, columns: int, rows: int) -> None:
        self.terminal = SmallTerminal(columns, rows)

    def write(self, text: str) -> int:
        self.terminal.write(text.replace("\n", "\r\n"))  # as a terminal's driver does
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def live(sheet: Sheet, *, colour: bool = True, **how: object) -> LiveText:
    theme = Theme(of_pygments("monokai"))
    return LiveText(
        sheet,
        lambda columns: MarkdownStream(columns, theme, colour=colour),
        {},
        size=lambda: sheet.terminal.size,
        **how,
    )


def rendered(text: str, columns: int) -> list[str]:
    stream = MarkdownStream(columns, Theme(of_pygments("monokai")))
    return [ANSI.sub("", line) for line in stream.feed(text).settled + stream.end().settled]


def on_screen(lines: list[str], columns: int) -> list[str]:
    """The lines as a terminal breaks them."""
    sheet = SmallTerminal(columns, 10_000)
    sheet.write("".join(line + "\r\n" for line in lines))
    return sheet.lines()


def draw(text: str, columns: int, rows: int, pieces: random.Random, most: int = 9) -> SmallTerminal:
    sheet, at = Sheet(columns, rows), 0
    shown = live(sheet)
    while at < len(text):
        size = pieces.randint(1, most)
        shown.add(text[at : at + size])
        shown.draw()
        at += size
        assert sheet.terminal.breaks
        assert not sheet.terminal.coloured
    shown.end()
    return sheet.terminal


@pytest.mark.parametrize(("columns", "rows"), [(20, 6), (40, 12), (80, 24), (200, 50)])
def test_screen_and_scrollback_are_the_text(columns: int, rows: int) -> None:
    terminal = draw(SAMPLE, columns, rows, random.Random(3))
    assert terminal.lines() == on_screen(rendered(SAMPLE, columns), columns)
    assert terminal.column == 0


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(LINES, LINES), max_size=8), st.integers(5, 14), st.integers(2, 8))
def test_any_pictures_leave_the_settled_lines_alone(
    pictures: list[tuple[list[str], list[str]]], columns: int, rows: int
) -> None:
    terminal = SmallTerminal(columns, rows)
    region = Region(terminal.write, lambda: terminal.size)
    settled: list[str] = []
    for final, open_lines in pictures:
        region.draw(final, open_lines)
        settled += final
        shown = [row for line in open_lines for row in rows_of(line, columns)][-max(rows // 3, 1) :]
        assert terminal.lines() == on_screen(settled + shown, columns)
    region.draw([], [])
    assert terminal.lines() == on_screen(settled, columns)


def test_letters_that_come_cost_few_bytes() -> None:
    sheet = Sheet(80, 24)
    shown = live(sheet)
    shown.add("Hello")
    shown.draw()
    before = sheet.terminal.written
    shown.add(" you")
    shown.draw()
    assert sheet.terminal.written - before < 20


def test_nothing_new_costs_nothing() -> None:
    sheet = Sheet(80, 24)
    shown = live(sheet)
    shown.add("Hello **you**")
    shown.draw()
    before = sheet.terminal.written
    shown.draw()
    shown.draw()
    assert sheet.terminal.written == before
    assert not shown.wants_drawing


def test_nothing_is_drawn_while_the_size_changes() -> None:
    """What is drawn for one width on a screen that has the next one already would not be found again."""
    sheet, now = Sheet(40, 20), [0.0]
    shown = live(sheet, clock=lambda: now[0])
    shown.add("one")
    shown.draw()
    for columns in (30, 20):
        sheet.terminal.size = (columns, 20)
        shown.add(" more")
        shown.draw()
        now[0] += CALM - 0.1
        shown.draw()
        assert sheet.terminal.lines() == ["one"]
        assert shown.wants_drawing
    now[0] += 0.2
    shown.draw()
    assert sheet.terminal.lines() == ["one more more"]


def test_a_terminal_that_gets_wider_goes_on_wider() -> None:
    sheet = Sheet(20, 20)
    shown = live(sheet)
    shown.add("one two three four five six ")
    shown.draw()
    sheet.terminal.size = (60, 20)
    shown.draw()
    shown.add("seven")
    shown.end()
    assert sheet.terminal.lines() == ["one two three four five six seven"]


def test_the_open_block_gives_way_to_a_question() -> None:
    sheet = Sheet(40, 10)
    shown = live(sheet)
    shown.add("# Title\n\nThis is the **beg")
    shown.draw()
    with shown.aside():
        assert sheet.terminal.lines() == ["# Title"]
        sheet.write("? Go on\r\n")
        shown.add("inning** of")
        shown.draw()
        assert not shown.wants_drawing
    assert shown.wants_drawing
    shown.draw()
    assert sheet.terminal.lines() == ["# Title", "? Go on", "", "This is the beginning of"]
    shown.end()


def test_an_answer_that_ends_during_a_question_is_shown_after_it() -> None:
    sheet = Sheet(40, 10)
    shown = live(sheet)
    shown.add("The *answ")
    shown.draw()
    with shown.aside():
        shown.add("er*.")
        shown.end()
        sheet.write("? Go on\r\n")
    assert sheet.terminal.lines() == ["? Go on", "The answer."]


def test_other_lines_appear_above_the_open_block() -> None:
    sheet = Sheet(40, 10)
    shown = live(sheet)
    shown.add("Some text")
    shown.draw()
    above = StderrAboveAnswer(sheet, shown)
    above.write("callboard: a war")
    above.write("ning\n")
    shown.add(" more")
    shown.end()
    assert sheet.terminal.lines() == ["callboard: a warning", "Some text more"]


def test_stderr_that_is_no_terminal_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with stderr_above(live(Sheet(40, 10))):
        sys.stderr.write("beside")
    assert capsys.readouterr().err == "beside"


def test_a_terminal_without_cursor_gets_complete_lines_only() -> None:
    sheet = Sheet(40, 10)
    shown = live(sheet, redraws=False, colour=False)
    for piece in ("# Ti", "tle\n\nso", "me *text*"):
        shown.add(piece)
        shown.draw()
    assert sheet.terminal.lines() == ["# Title"]
    shown.end()
    assert sheet.terminal.lines() == ["# Title", "", "some *text*"]


def test_a_terminal_that_has_gone_ends_no_run() -> None:
    class Gone(Sheet):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    shown = live(Gone(40, 10))
    shown.add("text")
    shown.draw()
    shown.end()


def test_log_lines_of_other_threads_tear_nothing() -> None:
    sheet = Sheet(60, 30)
    shown = live(sheet)
    above = StderrAboveAnswer(sheet, shown)
    text = "word " * 400

    def log() -> None:
        for number in range(100):
            above.write(f"line {number}\n")

    shown.add(text[:10])
    thread = threading.Thread(target=log)
    thread.start()
    for at in range(10, len(text), 5):
        shown.add(text[at : at + 5])
        shown.draw()
    thread.join()
    shown.end()
    lines = sheet.terminal.lines()
    assert [line for line in lines if line.startswith("line")] == [f"line {number}" for number in range(100)]
    assert [line for line in lines if not line.startswith("line")] == rendered(text, 60)


def test_no_piece_gets_lost_between_two_threads() -> None:
    """One adds, another draws and gives way after each instruction."""
    sheet = Sheet(60, 3_000)
    shown = live(sheet, colour=False, redraws=False)
    over = threading.Event()

    def give_way(frame: FrameType, _what: str, _about: object) -> Callable[..., object] | None:
        if frame.f_code.co_name not in ("draw", "_arrived"):
            return None
        frame.f_trace_opcodes = True
        time.sleep(0.0001)
        return give_way

    def draw_always() -> None:
        sys.settrace(give_way)
        while not over.is_set():
            shown.draw()

    thread = threading.Thread(target=draw_always)
    thread.start()
    for number in range(2_000):
        shown.add(f"{number}\n")
        time.sleep(0.0001)
    over.set()
    thread.join()
    shown.end()
    assert sheet.terminal.lines() == [str(number) for number in range(2_000)]


def test_the_rest_of_a_line_for_stderr_is_written_when_the_block_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = Sheet(60, 10)
    monkeypatch.setattr(sys, "stderr", sheet)

    def fail() -> None:
        with stderr_above(live(sheet)):
            sys.stderr.write("half a line")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert sheet.terminal.lines() == ["half a line"]
