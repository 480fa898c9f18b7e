"""Which of the questions and the input line has the keys."""

from __future__ import annotations

import pytest
from support.chat_screen import ScriptedScreen

ESC = "\x1b"


@pytest.fixture
def scripted_screen() -> ScriptedScreen:
    return ScriptedScreen()


@pytest.mark.parametrize("key", [ESC, "\t", "\x03", "\x04"], ids=["Esc", "Tab", "^C", "^D"])
def test_a_question_that_was_left_takes_the_keys_by_itself_no_more(scripted_screen: ScriptedScreen, key: str) -> None:
    async def body() -> None:
        await scripted_screen.ask("one", kind="confirm")
        await scripted_screen.waits()
        assert scripted_screen.focused == "one"
        await scripted_screen.press(key, lambda: scripted_screen.focused is None)
        await scripted_screen.waits()
        assert scripted_screen.focused is None
        await scripted_screen.press("y", lambda: scripted_screen.line == "y")
        await scripted_screen.press("\x7f", lambda: not scripted_screen.line)
        await scripted_screen.waits()
        assert scripted_screen.focused is None
        await scripted_screen.press("\t", lambda: scripted_screen.focused == "one")
        await scripted_screen.press("1\r", lambda: scripted_screen.answers == {"one": "yes"})

    scripted_screen.play(body)


def test_a_new_question_takes_the_keys_and_the_one_that_was_left_does_not_after_it(
    scripted_screen: ScriptedScreen,
) -> None:
    async def body() -> None:
        await scripted_screen.ask("one", kind="confirm")
        await scripted_screen.waits()
        await scripted_screen.press(ESC, lambda: scripted_screen.focused is None)
        await scripted_screen.ask("two", kind="confirm")
        await scripted_screen.waits()
        assert scripted_screen.focused == "two"
        await scripted_screen.press("2\r", lambda: scripted_screen.answers == {"two": "no"})
        await scripted_screen.waits()
        assert scripted_screen.focused is None
        await scripted_screen.press(f"{ESC}1", lambda: scripted_screen.focused == "one")

    scripted_screen.play(body)


def test_one_question_after_the_other_takes_the_keys_as_long_as_none_was_left(scripted_screen: ScriptedScreen) -> None:
    async def body() -> None:
        for id in ("one", "two"):
            await scripted_screen.ask(id, kind="confirm")
        await scripted_screen.waits()
        await scripted_screen.press(
            "1\r", lambda: scripted_screen.answers == {"one": "yes"} and scripted_screen.focused is None
        )
        await scripted_screen.waits()
        assert scripted_screen.focused == "two"

    scripted_screen.play(body)


def test_an_answer_in_ones_own_words_that_was_left_goes_on_where_it_was(scripted_screen: ScriptedScreen) -> None:
    async def body() -> None:
        await scripted_screen.ask("one", kind="choice", options=("a", "b"), free=True)
        await scripted_screen.waits()
        await scripted_screen.press("neither", lambda: "> neither" in scripted_screen.display)
        await scripted_screen.press(ESC, lambda: scripted_screen.focused is None)
        await scripted_screen.press("meanwhile\r", lambda: scripted_screen.person.sent == [("meanwhile", "meanwhile")])
        await scripted_screen.press("\t", lambda: scripted_screen.focused == "one")
        await scripted_screen.press(" of them", lambda: "> neither of them" in scripted_screen.display)
        await scripted_screen.press(
            "\x1b[A", lambda: "or a number, then enter" in scripted_screen.display
        )  # back to the list
        await scripted_screen.press(ESC, lambda: scripted_screen.focused is None)
        await scripted_screen.press("\t", lambda: scripted_screen.focused == "one")
        await scripted_screen.press(
            "\x1b[B\r", lambda: "> neither of them" in scripted_screen.display and "sends it" in scripted_screen.display
        )
        await scripted_screen.press("\r", lambda: scripted_screen.answers == {"one": "neither of them"})

    scripted_screen.play(body)


def test_keys_that_come_at_once_behind_the_one_that_goes_to_a_question_are_an_answer(
    scripted_screen: ScriptedScreen,
) -> None:
    """They were dropped, and the question took none at all from then on."""

    async def body() -> None:
        await scripted_screen.ask("one", kind="confirm")
        await scripted_screen.ask("two", kind="confirm")
        await scripted_screen.press(f"{ESC}21\r", lambda: scripted_screen.answers == {"two": "yes"})
        await scripted_screen.press("\t2\r", lambda: scripted_screen.answers == {"two": "yes", "one": "no"})

    scripted_screen.play(body)


def test_how_to_go_to_a_question_is_said_by_the_keys_that_do_it(scripted_screen: ScriptedScreen) -> None:
    async def body() -> None:
        await scripted_screen.press("half a line", lambda: "half a line" in scripted_screen.display)
        await scripted_screen.ask("one", kind="confirm")
        await scripted_screen.until(lambda: "Alt-a goes to it" in scripted_screen.display)
        await scripted_screen.press("\x15", lambda: "Tab goes to it" in scripted_screen.display)
        await scripted_screen.ask("two", kind="confirm")
        await scripted_screen.until(lambda: "Tab or Alt and its number goes to one" in scripted_screen.display)

    scripted_screen.play(body)
