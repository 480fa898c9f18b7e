"""`callboard demo` at a terminal of 80 x 24: the person who answers, says no, interrupts, or goes step by step."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from qa.terminal import CTRL_C, ENTER, Terminal
from support.demo_model import answer
from support.fake_models import FakeModels

COLUMNS, ROWS = 80, 24
FIXED = "(ordered[middle - 1] + ordered[middle]) / 2"


class Person:
    """Somebody who looks at a demo.

    Attributes:
        demos: the directory of its repository is here.
    """

    def __init__(self, home: Path) -> None:
        self.demos = home / "demos"
        self.demos.mkdir(parents=True)
        self._home = home

    def looks_at(self, *arguments: str) -> Terminal:
        """A demo with an empty HOME, which fetches nothing."""
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._home),
            "TMPDIR": str(self.demos),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "PIP_INDEX_URL": "http://127.0.0.1:9",
            "PIP_RETRIES": "0",
        }
        return Terminal(["demo", *arguments], environ, self._home, columns=COLUMNS, rows=ROWS)

    def is_asked(self, terminal: Terminal) -> None:
        """Wait for the question of the process that has resumed the run."""
        terminal.shows("The run continues")
        terminal.mark()
        terminal.shows(r"(?i)\b1\W+yes")

    def program(self) -> str:
        """The program that the demo was about."""
        (file,) = self.demos.glob("*/repository/stats.py")
        return file.read_text()


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path / "home")


async def at_terminal(play: Callable[[], None]) -> None:
    """A terminal blocks, so it has a thread, beside the model that is asked."""
    await trio.to_thread.run_sync(play)


@pytest.mark.full
async def test_a_yes_at_the_same_question_makes_the_tests_of_a_live_demo_pass(
    person: Person, fake_model: FakeModels, tmp_path: Path
) -> None:
    fake_model.answer_with(answer)
    fake_model.config_dir(tmp_path / "home/.config/callboard")

    def play() -> None:
        with person.looks_at("--fast", "--model", "fake:model") as terminal:
            person.is_asked(terminal)
            assert terminal.is_raw
            terminal.choose("1" + ENTER)
            terminal.shows("all 4 passed")
            assert terminal.ended() == 0
            assert not terminal.is_raw
            shown = terminal.rows()
        for wanted in ("the model of the coding agents is fake:model", "kill -9 ", "Try next:"):
            assert any(wanted in row for row in shown), shown

    await at_terminal(play)
    assert FIXED in person.program()
    assert len(fake_model.requests) == 10


@pytest.mark.full
async def test_after_a_no_the_tests_fail_and_the_demo_says_so(person: Person) -> None:
    def play() -> None:
        with person.looks_at("--fast") as terminal:
            person.is_asked(terminal)
            terminal.choose("no" + ENTER)
            terminal.shows("The tests do not pass")
            assert terminal.ended() == 1

    await at_terminal(play)
    assert FIXED not in person.program()


@pytest.mark.full
async def test_ctrl_c_at_the_question_leaves_a_demo_that_can_be_continued(person: Person) -> None:
    def play() -> None:
        with person.looks_at("--fast") as terminal:
            person.is_asked(terminal)
            terminal.press(CTRL_C)
            terminal.shows("continues it")
            assert terminal.ended() == 130
            assert not terminal.is_raw
        with person.looks_at("--fast") as terminal:
            terminal.shows("An earlier demo was interrupted")
            terminal.shows(r"kill -9 ")
            person.is_asked(terminal)
            terminal.choose("1" + ENTER)
            assert terminal.ended() == 0

    await at_terminal(play)
    assert FIXED in person.program()


@pytest.mark.full
async def test_each_scene_waits_for_enter_if_that_is_wanted(person: Person) -> None:
    def play() -> None:
        with person.looks_at("--step") as terminal:
            terminal.shows("Enter continues")
            terminal.shows_not("tests_before")
            terminal.press(ENTER)
            terminal.shows("kill -9 ")
            terminal.mark()
            terminal.shows("Enter continues")
            terminal.press(ENTER)
            terminal.shows(r"(?i)\b1\W+yes")
            terminal.choose("1" + ENTER)
            assert terminal.ended() == 0

    await at_terminal(play)
    assert FIXED in person.program()
