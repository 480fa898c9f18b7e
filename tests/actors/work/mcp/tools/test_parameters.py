"""Names of parameters that providers refuse: offered as others, and the server's own in its calls."""

from __future__ import annotations

import re
from typing import Any

import pytest

from callboard.actors.work.mcp.tools.direct import fitting, restored

SCHEMAS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "signs": ({"properties": {"$filter": {}, "first name": {}, "a/b": {}}}, {"$filter": 1, "first name": 2, "a/b": 3}),
    "alike": ({"properties": {"a b": {}, "a/b": {}, "a_b": {}}}, {"a b": 1, "a/b": 2, "a_b": 3}),
    "long": ({"properties": {"x" * 80: {}, "x" * 81: {}}}, {"x" * 80: 1, "x" * 81: 2}),
    "no letters": ({"properties": {"": {}, "名": {}, "$": {}}}, {"": 1, "名": 2, "$": 3}),
    "inside": (
        {"properties": {"o": {"properties": {"@type": {}}}, "l": {"items": {"properties": {"#": {}}}}}},
        {"o": {"@type": 1}, "l": [{"#": 1}, {"#": 2}]},
    ),
    "by reference": (
        {"properties": {"o": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"properties": {"@id": {}}}}},
        {"o": {"@id": 1}},
    ),
    "in branches": ({"anyOf": [{"properties": {"@a": {}}}, {"properties": {"@b": {}}}]}, {"@a": 1, "@b": 2}),
}


def names_in(value: Any) -> list[str]:
    """Every name of a property, at any depth."""
    if isinstance(value, list):
        return [name for each in value for name in names_in(each)]
    if not isinstance(value, dict):
        return []
    own = list(value["properties"]) if isinstance(value.get("properties"), dict) else []
    return own + [name for each in value.values() for name in names_in(each)]


@pytest.mark.parametrize(("schema", "arguments"), SCHEMAS.values(), ids=SCHEMAS)
def test_names_fit_and_come_back(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    offered = fitting(schema)
    names = names_in(offered)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in names)
    assert len(names) == len(names_in(schema))

    def as_offered(value: Any) -> Any:
        """The arguments as a model writes them: in the order of the names, which is the same."""
        taken = iter(names)
        known = {own: next(taken) for own in names_in(schema)}

        def walk(each: Any) -> Any:
            if isinstance(each, list):
                return [walk(one) for one in each]
            return {known[name]: walk(one) for name, one in each.items()} if isinstance(each, dict) else each

        return walk(value)

    assert restored(as_offered(arguments), schema) == arguments


def test_required_names_follow_and_fitting_schemas_stay() -> None:
    assert fitting({"properties": {"$a": {}, "b": {}}, "required": ["$a", "b"]})["required"] == ["a", "b"]
    plain = {"type": "object", "properties": {"a": {"items": {"type": "string"}}}, "required": ["a"]}
    assert fitting(plain) is plain
