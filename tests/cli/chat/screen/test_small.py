"""A terminal with next to no room: what is typed is seen, whatever else there is to show."""

from __future__ import annotations

import pytest
from support.chat_screen import ChatStage


@pytest.mark.parametrize(("columns", "rows"), [(20, 6), (12, 3)])
def test_the_input_line_is_seen_beside_questions_live_rows_and_completions(columns: int, rows: int) -> None:
    stage = ChatStage(columns, rows)

    async def body() -> None:
        for number in range(7):
            await stage.ask(f"q{number}", kind="choice", options=("red", "green", "blue"), text="Which colour is it?")
        stage.person.busy = True
        stage.person.live = [f"row {number} of what is at work" for number in range(30)]
        stage.person.lines = ["a line that is longer than this terminal is wide"]
        stage.screen.draw()
        await stage.press("a", lambda: "> a" in stage.display)
        stage.person.offered = [f".a{number}" for number in range(30)]
        await stage.press("\x7f.a", lambda: "> .a" in stage.display)
        await stage.press("\t", lambda: "> .a0" in stage.display or stage.screen.field.buffer.complete_state)
        assert "> .a" in stage.display
        stage.screen.field.buffer.reset()
        await stage.press("\x1b7", lambda: stage.screen.questions.focused is stage.screen.questions.open[-1])
        await stage.until(lambda: stage.display.rstrip().endswith(">"))

    stage.play(body)


def test_the_question_that_has_the_keys_is_seen_among_more_than_have_room() -> None:
    stage = ChatStage(40, 6)

    async def body() -> None:
        for number in range(7):
            await stage.ask(f"q{number}", text=f"Which is number {number}?")
        await stage.press("\x1b7", lambda: "> [7] agent asks: Which is number 6?" in stage.display)
        await stage.press("\x1b1", lambda: "> [1] agent asks: Which is number 0?" in stage.display)

    stage.play(body)
