"""Values against schemas that were not written to be kind."""

from __future__ import annotations

from typing import Any

import pytest
from support.messages import has_message

from callboard.actors.io.json_schema import schema_errors

PANICS = {
    "unevaluatedProperties": True,
    "additionalProperties": False,
    "not": {
        "unevaluatedProperties": False,
        "not": {"type": "integer"},
        "properties": {"a": {}, "b": {"enum": ["a", 1]}},
        "patternProperties": {"a": {"$ref": "#"}},
        "anyOf": [{"$ref": "#"}, {"type": "string"}],
        "maxItems": 2,
        "required": ["a"],
        "type": "object",
    },
}
"""One in which the end of the stack is met below Rust, from some depths."""

DEEP: Any = []
for _ in range(2_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "#"}, 1),
        ({"anyOf": [{"$ref": "#"}, {"type": "string"}]}, 1),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, 1),
        ({"items": {"$ref": "#"}}, DEEP),
        (PANICS, False),
    ],
)
def test_a_check_that_would_not_end_is_an_error_of_the_value(schema: dict[str, Any], value: Any) -> None:
    """Wherever the stack is full: in Python, or below the library's Rust, which panics."""

    def deeper(left: int) -> list[str]:
        return deeper(left - 1) if left else schema_errors(value, schema)

    for depth in range(40):
        assert has_message(deeper(depth)[0], "io.json_schema")


def test_a_schema_that_refers_to_itself_and_gets_somewhere_is_fine() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}}, "additionalProperties": False}
    assert schema_errors({"left": {"left": {}}}, tree) == []
    assert schema_errors({"left": {"right": {}}}, tree)[0].startswith("$.left: ")
