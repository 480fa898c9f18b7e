"""Steps are played in order, in a state of the caller's, until one fails."""

from __future__ import annotations

import pytest
from support.messages import says

from callboard.actors.work.macros import lines_of, play_macro
from callboard.protocol.errors import UsageError
from callboard.protocol.macro import Macro, MacroVariable


def macro(*steps: str) -> Macro:
    return Macro(called="m", variables=(MacroVariable(name="a"),), steps=steps)


async def test_each_step_is_told_and_then_played() -> None:
    told: list[str] = []

    async def play(line: str) -> None:
        told.append(line)

    await play_macro(macro(".role {{a}}", " ", "hi {{a}}"), ["x"], play=play, echo=told.append)
    assert told == [">> .role x", ".role x", ">> hi x", "hi x"]


async def test_a_step_that_fails_is_the_last() -> None:
    played: list[str] = []

    async def play(line: str) -> None:
        played.append(line)
        raise UsageError("no")

    with pytest.raises(UsageError, match="no"):
        await play_macro(macro("one", "two"), ["x"], play=play, echo=lambda _: None)
    assert played == ["one"]


@pytest.mark.parametrize("step", [".edit config", ".update", ".vault add X", ".install x", " .macro other"])
async def test_nothing_is_played_of_a_macro_with_a_command_that_none_may_use(step: str) -> None:
    played: list[str] = []

    async def play(line: str) -> None:
        played.append(line)

    with pytest.raises(UsageError, match=says("work.macros.lines_of")):
        await play_macro(macro("one", step), ["x"], play=play, echo=played.append)
    assert played == []


def test_a_value_is_wanted_before_anything_is_played() -> None:
    with pytest.raises(UsageError, match=says("protocol.macro.Macro.bound", name="a")):
        lines_of(macro("x"), [])
