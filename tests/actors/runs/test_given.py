"""What a caller gives a run and neither a script nor a model could be told is refused before the run starts."""

from __future__ import annotations

from typing import Any

import pytest
from stage import Stage

from callboard.protocol.errors import UsageError


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"state": {"x": "\udcff"}}, "`state` holds a text that is not Unicode"),
        ({"variables": {"where": "\udcff"}}, "the value of variable 'where' is not Unicode text: its character 1 is a"),
        ({"answers": ["yes", "n\udcff"]}, "answer 2 is not Unicode text: its character 2 is a byte that is not UTF-8"),
        ({"answers": {"ask": "\ud800"}}, "the answer for 'ask' is not Unicode text"),
    ],
)
async def test_what_is_not_unicode_is_refused_before_the_run(stage: Stage, given: dict[str, Any], words: str) -> None:
    stage.agent(
        """
        variables: [{name: where, description: a place, default: here}]
        start: e
        nodes:
          e: {type: end}
        """
    )
    with pytest.raises(UsageError, match=words):
        await stage.run(**given)
    with pytest.raises(UsageError, match="the prompt is not Unicode text: its character 2 is a byte that is not UTF-8"):
        await stage.run("h\udcffi")


async def test_state_that_is_nested_without_end_is_refused_before_the_run(stage: Stage) -> None:
    stage.agent("start: e\nnodes:\n  e: {type: end}")
    itself: list[Any] = []
    itself.append(itself)
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    for value in (itself, deep):
        with pytest.raises(UsageError, match="`state` is nested too deep"):
            await stage.run(state={"x": value})
