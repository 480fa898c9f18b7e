"""Interrupts at every moment: the prompt is back, no process is left, and a strict provider takes what comes next."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.interrupt_moments import KINDS, MOMENTS, SOME
from support.interrupted_chat import Moment, scene_of

STRICT = [pytest.param(*each, id=f"{each[0]}, {each[1]}") for each in SOME]
REST = [pytest.param(*each, id=f"{each[0]}, {each[1]}", marks=pytest.mark.soak) for each in MOMENTS if each not in SOME]


@pytest.mark.sample(6)
@pytest.mark.parametrize(("moment", "wire"), [*STRICT, *REST])
async def test_at_this_moment(tmp_path: Path, moment: Moment, wire: str) -> None:
    async with scene_of(tmp_path, wire, moment) as scene:
        await scene.play(moment)  # the seconds that it takes are figures of benchmarks/chat.py


def test_there_are_a_hundred_and_a_tenth_of_each_kind_is_played_always() -> None:
    assert len(MOMENTS) >= 100
    assert {moment.kind for moment, _ in SOME} == set(KINDS)
