"""Arguments that a model wrote as JSON texts, converted where the schema wants another type than text."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.work.tools.checking import converted

TAGS = {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize(
    ("schema", "given", "taken"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": "number"}, " 5 ", 5),
        ({"type": "number"}, "5.5", 5.5),
        ({"type": "boolean"}, "true", True),
        (TAGS, "[1]", [1]),
        (TAGS, ["1", 2], [1, 2]),
        (TAGS, '["1"]', [1]),
        ({"type": "object"}, '{"k": 1}', {"k": 1}),
        ({"type": "object", "properties": {"k": {"type": "integer"}}}, '{"k": "1"}', {"k": 1}),
        ({"type": ["integer", "null"]}, "null", None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "5", 5),
        ({"$ref": "#/$defs/n"}, "5", 5),
    ],
)
def test_a_json_text_of_the_type_that_is_wanted_is_read(schema: dict[str, Any], given: Any, taken: Any) -> None:
    root = {"type": "object", "properties": {"x": schema}, "$defs": {"n": {"type": "integer"}}}
    found = converted({"x": given}, root)["x"]
    assert (found, type(found)) == (taken, type(taken))


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ({"type": "string"}, "[1]"),
        ({"type": ["string", "integer"]}, "5"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "5"),
        ({"anyOf": [{"enum": ["5"]}, {"type": "integer"}]}, "5"),
        ({}, "5"),
        (True, "5"),
        ({"type": "integer"}, "5.5"),
        ({"type": "integer"}, "true"),
        ({"type": "boolean"}, "1"),
        ({"type": "array"}, "{}"),
        ({"type": "integer"}, "five"),
        ({"$ref": "#/$defs/loop"}, "5"),
    ],
)
def test_what_may_be_a_text_or_is_of_another_type_stays(schema: Any, given: str) -> None:
    root = {"type": "object", "properties": {"x": schema}, "$defs": {"loop": {"$ref": "#/$defs/loop"}}}
    assert converted({"x": given, "y": "5"}, root) == {"x": given, "y": "5"}
