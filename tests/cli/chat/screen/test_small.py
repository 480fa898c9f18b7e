"""A terminal with next to no room: what is typed is seen, whatever else there is to show."""

from __future__ import annotations

import pytest
from support.chat_screen import ScriptedScreen


@pytest.mark.parametrize(("columns", "rows"), [(20, 6), (12, 3)])
def test_the_input_line_is_seen_beside_questions_live_rows_and_completions(columns: int, rows: int) -> None:
    scripted_screen = ScriptedScreen(columns, rows)

    async def body() -> None:
        for number in range(7):
            await scripted_screen.ask(
                f"q{number}", kind="choice", options=("red", "green", "blue"), text="Which colour is it?"
            )
        scripted_screen.person.busy = True
        scripted_screen.person.live = [f"row {number} of what is at work" for number in range(30)]
        scripted_screen.person.lines = ["a line that is longer than this terminal is wide"]
        scripted_screen.screen.draw()
        await scripted_screen.press("a", lambda: "> a" in scripted_screen.display)
        scripted_screen.person.offered = [f".a{number}" for number in range(30)]
        await scripted_screen.press("\x7f.a", lambda: "> .a" in scripted_screen.display)
        await scripted_screen.press(
            "\t", lambda: "> .a0" in scripted_screen.display or scripted_screen.screen.field.buffer.complete_state
        )
        assert "> .a" in scripted_screen.display
        scripted_screen.screen.field.buffer.reset()
        await scripted_screen.press(
            "\x1b7", lambda: scripted_screen.screen.questions.focused is scripted_screen.screen.questions.open[-1]
        )
        await scripted_screen.until(lambda: scripted_screen.display.rstrip().endswith(">"))

    scripted_screen.play(body)


def test_the_question_that_has_the_keys_is_seen_among_more_than_have_room() -> None:
    scripted_screen = ScriptedScreen(40, 6)

    async def body() -> None:
        for number in range(7):
            await scripted_screen.ask(f"q{number}", text=f"Which is number {number}?")
        await scripted_screen.press("\x1b7", lambda: "> [7] agent asks: Which is number 6?" in scripted_screen.display)
        await scripted_screen.press("\x1b1", lambda: "> [1] agent asks: Which is number 0?" in scripted_screen.display)

    scripted_screen.play(body)
