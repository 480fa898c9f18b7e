"""Which of the questions and the input line has the keys."""

from __future__ import annotations

import pytest
from support.chat_screen import ChatStage

ESC = "\x1b"


@pytest.fixture
def stage() -> ChatStage:
    return ChatStage()


@pytest.mark.parametrize("key", [ESC, "\t", "\x03", "\x04"], ids=["Esc", "Tab", "^C", "^D"])
def test_a_question_that_was_left_takes_the_keys_by_itself_no_more(stage: ChatStage, key: str) -> None:
    async def body() -> None:
        await stage.ask("one", kind="confirm")
        await stage.waits()
        assert stage.focused == "one"
        await stage.press(key, lambda: stage.focused is None)
        await stage.waits()
        assert stage.focused is None
        await stage.press("y", lambda: stage.line == "y")
        await stage.press("\x7f", lambda: not stage.line)
        await stage.waits()
        assert stage.focused is None
        await stage.press("\t", lambda: stage.focused == "one")
        await stage.press("1\r", lambda: stage.answers == {"one": "yes"})

    stage.play(body)


def test_a_new_question_takes_the_keys_and_the_one_that_was_left_does_not_after_it(stage: ChatStage) -> None:
    async def body() -> None:
        await stage.ask("one", kind="confirm")
        await stage.waits()
        await stage.press(ESC, lambda: stage.focused is None)
        await stage.ask("two", kind="confirm")
        await stage.waits()
        assert stage.focused == "two"
        await stage.press("2\r", lambda: stage.answers == {"two": "no"})
        await stage.waits()
        assert stage.focused is None
        await stage.press(f"{ESC}1", lambda: stage.focused == "one")

    stage.play(body)


def test_one_question_after_the_other_takes_the_keys_as_long_as_none_was_left(stage: ChatStage) -> None:
    async def body() -> None:
        for id in ("one", "two"):
            await stage.ask(id, kind="confirm")
        await stage.waits()
        await stage.press("1\r", lambda: stage.answers == {"one": "yes"} and stage.focused is None)
        await stage.waits()
        assert stage.focused == "two"

    stage.play(body)


def test_an_answer_in_ones_own_words_that_was_left_goes_on_where_it_was(stage: ChatStage) -> None:
    async def body() -> None:
        await stage.ask("one", kind="choice", options=("a", "b"), free=True)
        await stage.waits()
        await stage.press("neither", lambda: "> neither" in stage.display)
        await stage.press(ESC, lambda: stage.focused is None)
        await stage.press("meanwhile\r", lambda: stage.person.sent == [("meanwhile", "meanwhile")])
        await stage.press("\t", lambda: stage.focused == "one")
        await stage.press(" of them", lambda: "> neither of them" in stage.display)
        await stage.press("\x1b[A", lambda: "or a number, then enter" in stage.display)  # back to the list
        await stage.press(ESC, lambda: stage.focused is None)
        await stage.press("\t", lambda: stage.focused == "one")
        await stage.press("\x1b[B\r", lambda: "> neither of them" in stage.display and "sends it" in stage.display)
        await stage.press("\r", lambda: stage.answers == {"one": "neither of them"})

    stage.play(body)


def test_keys_that_come_at_once_behind_the_one_that_goes_to_a_question_are_an_answer(stage: ChatStage) -> None:
    """They were dropped, and the question took none at all from then on."""

    async def body() -> None:
        await stage.ask("one", kind="confirm")
        await stage.ask("two", kind="confirm")
        await stage.press(f"{ESC}21\r", lambda: stage.answers == {"two": "yes"})
        await stage.press("\t2\r", lambda: stage.answers == {"two": "yes", "one": "no"})

    stage.play(body)


def test_how_to_go_to_a_question_is_said_by_the_keys_that_do_it(stage: ChatStage) -> None:
    async def body() -> None:
        await stage.press("half a line", lambda: "half a line" in stage.display)
        await stage.ask("one", kind="confirm")
        await stage.until(lambda: "Alt-a goes to it" in stage.display)
        await stage.press("\x15", lambda: "Tab goes to it" in stage.display)
        await stage.ask("two", kind="confirm")
        await stage.until(lambda: "Tab or Alt and its number goes to one" in stage.display)

    stage.play(body)
