"""The bottom of the terminal is found again, whatever the terminal does when its size changes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.data_structures import Point
from prompt_toolkit.input import DummyInput
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.styles import Style
from support.breaking_terminal import Wire

from callboard.cli.chat.screen.surface import Surface, TerminalOutput, reflows

ANSI = re.compile(r"\x1b\[[0-9;]*m")
TEXTS = st.sampled_from(["", "a", "a short one", "日本 " * 4, "x" * 19, "\x1b[1mbold\x1b[0m " * 7, "y" * 40, "z" * 90])
SIZES = st.tuples(st.integers(20, 40), st.integers(10, 12))
TYPED = st.sampled_from(["", "t" * 5, "u" * 37, "v" * 60, "u" * 37 + "\nw", "t\nw"])
PICTURES = st.tuples(st.lists(TEXTS, max_size=3), st.lists(TEXTS, min_size=1, max_size=5))


class Stream(io.StringIO):
    """What is written to it goes over a wire."""

    encoding = "utf-8"

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def write(self, text: str) -> int:
        self._wire.write(text)
        return len(text)

    def fileno(self) -> int:
        raise OSError


class Output(TerminalOutput):
    """On a terminal whose size is what the wire tells."""

    wire: Wire

    @property
    def size(self) -> tuple[int, int]:
        return self.wire.size


class Bottom:
    """The surface with an input line, and what stands above it."""

    def __init__(self, columns: int, rows: int) -> None:
        Output.wire = self.wire = Wire(columns, rows)
        output = Output(Stream(self.wire), colours=False)
        self.typed = ""
        self.laid_out: Callable[[], None] = lambda: None
        self.now = 0.0
        self.surface = Surface(
            Style([]),
            output,
            reflows=True,
            pushes=True,
            typing=lambda: bool(self.typed),
            resized=lambda: self.surface.resized(),
            clock=lambda: self.now,
        )
        line = FormattedTextControl(
            lambda: f"> {self.typed} ",
            focusable=True,
            get_cursor_position=self._end,
        )
        layout = Layout(Window(line, wrap_lines=True))
        self.app: Application[None] = Application(layout, output=output, input=DummyInput())
        self.app.invalidate = self.render  # at once
        self.app.renderer = self.surface
        self.settled = [f"line {number}" for number in range(rows)]
        self.surface.append_final(self.settled)
        self.render()
        self.wire.read()

    def _end(self) -> Point:
        self.laid_out()
        *before, line = f"> {self.typed}".split("\n")
        return Point(len(line), len(before))

    def draw(self, final: list[str], live: list[str], typed: str = "") -> None:
        """One picture, a while after the one before."""
        self.now += 1
        self.settled = self.settled + final
        self.surface.append_final(final)
        self.surface.show(live)
        while not self.surface.calm:
            self.now += 1
        self.surface.draw(self.app)
        if typed != self.typed:
            self.typed = typed
            self.render()

    def render(self) -> None:
        self.app.render_counter += 1
        with set_app(self.app):
            self.surface.render(self.app, self.app.layout)

    def told(self) -> None:
        """The program hears what size the terminal has."""
        self.wire.read()
        self.wire.size = self.wire.terminal.size

    def stands(self, *below: str, settled: list[str] | None = None) -> None:
        """All that was settled stands on the terminal once, and these rows below it."""
        self.wire.read()
        expected = [ANSI.sub("", line).rstrip() for line in (self.settled if settled is None else settled)]
        assert [line for line in self.wire.terminal.lines() if line] == [line for line in expected if line] + [*below]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PICTURES, st.none() | SIZES, st.floats(0, 1), st.booleans()), max_size=10))
@example([(([], ["y" * 40, "y" * 40]), None, 1.0, True), ((["a"], ["b"]), (20, 12), 0.0, True)])
def test_nothing_of_the_live_rows_stays_whenever_the_terminal_gets_another_size(
    steps: list[tuple[tuple[list[str], list[str]], tuple[int, int] | None, float, bool]],
) -> None:
    """Not only between two pictures: also when one is written already, or is half read."""
    bottom = Bottom(40, 12)
    for (final, live), size, share, told in steps:
        bottom.draw(final, live)
        if size is not None:
            bottom.wire.resize(size, share)
        if told:
            bottom.told()
    bottom.told()
    bottom.draw(["the end"], [])
    bottom.stands(">")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(PICTURES, st.sampled_from(["", "t" * 5, "u" * 37, "v" * 60]), st.none() | SIZES), max_size=10)
)
@example([(([], ["y" * 40]), "u", None), (([], ["a"]), "u", (20, 12))])  # tmux breaks the blanks behind it, too
@example([(([], ["a"]), "u" * 37 + "\nw", None), (([], ["a"]), "t\nw", (20, 12))])
def test_while_something_is_typed_nothing_stays_of_what_stood_when_the_size_was_told(
    steps: list[tuple[tuple[list[str], list[str]], str, tuple[int, int] | None]],
) -> None:
    bottom = Bottom(40, 12)
    for (final, live), typed, size in steps:
        bottom.draw(final, live, typed)
        if size is not None:
            bottom.wire.resize(size, 1.0)
            bottom.told()
    bottom.draw(["the end"], [], "typed")
    bottom.stands("> typed")


def test_the_cursor_waits_above_until_something_is_typed() -> None:
    bottom = Bottom(40, 12)
    bottom.draw([], ["live"])
    bottom.stands("live", ">")
    assert not bottom.wire.terminal.cursor_shown
    bottom.draw([], ["live"], "t")
    bottom.stands("live", "> t")
    assert bottom.wire.terminal.cursor_shown
    assert bottom.wire.terminal.cursor == (3, 11)
    bottom.draw([], ["live"])
    bottom.stands("live", ">")
    assert not bottom.wire.terminal.cursor_shown
    bottom.draw(["live"], [])
    bottom.stands(">")
    assert bottom.wire.terminal.cursor_shown


def test_a_picture_is_given_up_when_the_size_changes_while_it_is_made() -> None:
    bottom = Bottom(40, 12)
    bottom.draw([], ["y" * 40], "typed")
    bottom.wire.read()

    def resize() -> None:
        bottom.laid_out = lambda: None
        bottom.wire.resize((20, 12), 1.0)
        bottom.told()

    bottom.laid_out = resize
    bottom.draw(["a line"], ["z"], "typed")
    bottom.stands("y" * 40, "> typed", settled=bottom.settled[:-1])
    bottom.draw([], ["z"], "typed")
    bottom.stands("z", "> typed")


@pytest.mark.parametrize(
    ("environ", "breaks"),
    [
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, True),
        ({"TERM": "tmux", "TMUX": "/tmp/x", "XTERM_VERSION": "XTerm(390)"}, True),
        ({"TERM": "xterm", "XTERM_VERSION": "XTerm(390)"}, False),
        ({"TERM": "linux"}, False),
    ],
)
def test_which_terminals_break_rows_anew(environ: dict[str, str], breaks: bool) -> None:
    assert reflows(environ) is breaks
