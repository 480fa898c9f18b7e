"""Splitting: which units a message comes to."""

from __future__ import annotations

import pytest

from callboard.actors.engine.workflow.edges import units_of
from callboard.actors.engine.workflow.messages import Message
from callboard.protocol.workflow.model import ByArray, ByDelimiter, ByLines, ByMatch, ByMessage, ByPath, Split

SPLITS: list[tuple[Split, list[str], list[str]]] = [
    (ByMessage(), ["a", "b"], ["a", "b"]),
    (ByMessage(), [], []),
    (ByMatch(pattern=r"\d+"), ["1 and 22", "none", "3"], ["1", "22", "none", "3"]),
    (ByMatch(pattern=r"(\w)=(\d)", group=2), ["a=1 b=2"], ["1", "2"]),
    (ByMatch(pattern=r"(?P<k>\w)=(\d)", group="k"), ["a=1"], ["a"]),
    (ByMatch(pattern=r"(\w)=(\d)", group=7), ["a=1"], ["a=1"]),
    (ByMatch(pattern=r"(x)?\d", group=1), ["1"], [""]),
    (ByMatch(pattern="no", on_no_match="empty"), ["text"], [""]),
    (ByMatch(pattern="^B.C", case_sensitive=False, multiline=True, dotall=True), ["a\nb\nc"], ["b\nc"]),
    (ByPath(json_path="a.1.b"), ['{"a": [0, {"b": ["x", {"y": 1}]}]}'], ["x", '{"y": 1}']),
    (ByPath(json_path="a"), ['{"a": {"k": "ä"}}'], ['{"k": "ä"}']),
    (ByPath(json_path=""), ["[true, null, 1.0]", "7"], ["True", "None", "1.0", "7"]),
    (ByPath(json_path="a.9"), ['{"a": [1]}'], ['{"a": [1]}']),
    (ByPath(json_path="a"), ['{"a": []}', '{"a": [1]}'], ["1"]),
    (ByPath(json_path="a"), ["no json", '{"a": []}'], ["no json"]),
    (ByArray(), ['[{"n": 1}, "s", true, null, [2]]'], ['{"n": 1}', "s", "true", "null", "[2]"]),
    (ByArray(), ["Here they are:\n```json\n[1, 2]\n```\n"], ["1", "2"]),
    (ByArray(), ["no array", '{"a": 1}'], ["no array", '{"a": 1}']),
    (ByArray(), ["[]"], []),
    (ByArray(), ["[" * 1000 + "]" * 1000], ["[" * 1000 + "]" * 1000]),
    (ByLines(), ["a\n\n  b \r\nc\n"], ["a", "b", "c"]),
    (ByLines(), ["\n \n"], []),
    (ByDelimiter(pattern=r"\s*;\s*"), ["a; b;;c", "d"], ["a", "b", "c", "d"]),
    (ByDelimiter(pattern=r"-{3,}"), ["---\n---"], ["---\n---"]),
    (ByDelimiter(pattern="x*"), ["ab"], ["a", "b"]),
]


@pytest.mark.parametrize(("split", "given", "units"), SPLITS)
async def test_splits(split: Split, given: list[str], units: list[str]) -> None:
    messages = [Message(role="user", content=text, source="A", keep=True) for text in given]
    found = await units_of(split, messages)
    assert [unit.text for unit in found] == units
    assert all(unit.source == "A" and unit.keep for unit in found)


async def test_numbers_of_any_length_are_items() -> None:
    (unit,) = await units_of(ByArray(), [Message(role="user", content="[" + "1" * 30 + "]")])
    assert unit.text == "1" * 30
