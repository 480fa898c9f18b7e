"""Values against schemas that were not written to be kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import has_message

from callboard.actors.io import json_schema
from callboard.actors.io.json_schema import quick, schema_errors, schema_problem, surely_fits

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
@pytest.mark.sample(2)
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


# --- schemas that are none, or of another draft -----------------------------------------------------------

KEYWORDS = [
    *("$ref", "$dynamicRef", "$schema", "$id", "$anchor", "$defs", "definitions", "type", "enum"),
    *(
        "const",
        "multipleOf",
        "maximum",
        "minimum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
    ),
    *(
        "items",
        "prefixItems",
        "additionalItems",
        "contains",
        "maxItems",
        "minItems",
        "uniqueItems",
        "properties",
        "patternProperties",
    ),
    *(
        "additionalProperties",
        "propertyNames",
        "required",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "maxProperties",
        "minProperties",
        "allOf",
    ),
    *("anyOf", "oneOf", "not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties", "format"),
    *("contentEncoding", "title", "default"),
]
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 10**400, "", "text", "objekt", "[a-z", "#/nowhere", "http://nowhere/x", [], [1]),
    *(["a"], [{}], [None], {}, {"a": 1}, {"a": "text"}, {"a": None}, {"type": 1}, {"[a-z": {}}, [[{}]]),
)
VALUES: tuple[Any, ...] = (3, "text", [1, "a"], {"a": 1, "b": [1]}, {"a": {"a": "x"}})


@pytest.mark.sample(4)
@pytest.mark.parametrize("keyword", KEYWORDS)
def test_no_schema_makes_a_check_raise(keyword: str) -> None:
    for odd in ODD:
        for schema in (
            {keyword: odd},
            {"type": "object", "properties": {"a": {keyword: odd}}},
            {"items": {keyword: odd}},
        ):
            schema_problem(schema)
            for value in VALUES:
                assert all(isinstance(error, str) for error in schema_errors(value, schema))
                if not schema_errors(value, schema):
                    assert schema_errors(value, quick(schema)) == [], (schema, value)


WRONG: dict[str, tuple[dict[str, Any], tuple[str | int, ...]]] = {
    "a property that is a text": ({"properties": {"topic": "text"}}, ("properties", "topic")),
    "no type": ({"type": "objekt"}, ("type",)),
    "properties as a list": ({"properties": ["topic"]}, ("properties",)),
    "a name where names are due": ({"type": "object", "required": "topic"}, ("required",)),
    "a choice where choices are due": ({"properties": {"a": {"enum": "a"}}}, ("properties", "a", "enum")),
    "no pattern": ({"properties": {"a": {"pattern": "[a-z"}}}, ("properties", "a", "pattern")),
    "no pattern of names": ({"patternProperties": {"(": {}}}, ("patternProperties", "(")),
    "a reference to nothing": ({"properties": {"a": {"$ref": "#/$defs/b"}}}, ("properties", "a", "$ref")),
    "a bound that is a text": ({"items": {"minimum": "1"}}, ("items", "minimum")),
}


@pytest.mark.parametrize(("schema", "place"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_schema_is_found_with_its_place(
    schema: dict[str, Any], place: tuple[str | int, ...]
) -> None:
    problem = schema_problem(schema)
    assert problem is not None
    assert problem[0] == place


@pytest.mark.parametrize(
    ("schema", "fits", "misfits"),
    [
        ({"pattern": r"^\p{L}+$"}, ["Ünäl"], ["a1", "a\n"]),
        ({"pattern": r"(?<year>\d{4})-\k<year>"}, ["2024-2024"], ["2024-2025", "٢٠٢٤-٢٠٢٤"]),
        ({"pattern": r"^\cC$"}, ["\x03"], ["C"]),
        ({"pattern": r"^[^]$"}, ["\n"], [""]),
        ({"pattern": r"^\u{1F600}\uD83D\uDE00$"}, ["😀😀"], ["😀"]),
        ({"pattern": r"^[\w\-./]+$"}, ["a-b_c/d"], ["é"]),
        ({"pattern": r"^\Z$"}, ["Z"], [""]),
        ({"patternProperties": {r"^\p{Lu}": {"type": "integer"}}}, [{"Ä": 1, "a": "x"}], [{"Ä": "x"}]),
        ({"patternProperties": {r"^\p{Lu}": True}, "additionalProperties": False}, [{"Ä": 1}], [{"a": 1}]),
        ({"items": [{"type": "number"}, {"type": "string"}]}, [[1, "a"], [1]], [["a", 1]]),
        ({"items": [{"type": "number"}], "additionalItems": False}, [[1]], [[1, 2]]),
        ({"minimum": 0, "exclusiveMinimum": True}, [0.5], [0]),
        ({"properties": {"a": {"maximum": 3, "exclusiveMaximum": True}}}, [{"a": 2}], [{"a": 3}]),
        ({"dependencies": {"a": ["b"]}}, [{"a": 1, "b": 1}, {"b": 1}], [{"a": 1}]),
        ({"properties": {"x": {"dependencies": {"a": {"required": ["b"]}}}}}, [{"x": {}}], [{"x": {"a": 1}}]),
        (
            {"properties": {"dependencies": {"type": "object"}}, "prefixItems": [True]},
            [{"dependencies": {}}],
            [{"dependencies": 1}],
        ),
        ({"dependencies": {"a": ["b"]}, "dependentRequired": {"b": ["c"]}}, [{"a": 1}], [{"b": 1}]),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}, [1], ["a"]),
        ({"$schema": "https://example.com/own", "type": "integer"}, [1], ["a"]),
    ],
)
def test_patterns_and_older_drafts_mean_what_their_specification_says(
    schema: dict[str, Any], fits: list[Any], misfits: list[Any]
) -> None:
    assert schema_problem(schema) is None
    for value in fits:
        assert schema_errors(value, schema) == []
        assert schema_errors(value, quick(schema)) == []
    for value in misfits:
        assert schema_errors(value, schema) != []


def test_a_pattern_that_backtracks_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "_SEARCH_SECONDS", 0.05)
    assert schema_errors("a" * 60 + "!", {"pattern": r"^(a|a|aa)+$"})


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from(["", "a", "b", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=6,
)
_TYPES = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string", ["string", "null"]])
_SCHEMAS = st.recursive(
    st.booleans()
    | st.fixed_dictionaries({}, optional={"type": _TYPES, "enum": st.just(["a", 1]), "title": st.just("t")}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": _TYPES,
            "properties": st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
            "required": st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True),
            "additionalProperties": inner,
            "items": inner,
            "minimum": st.integers(-2, 2),
            "pattern": st.just("^a"),
        },
    ),
    max_leaves=6,
)


@given(_SCHEMAS, _VALUES)
def test_what_surely_fits_has_no_errors(schema: Any, value: Any) -> None:
    if surely_fits(value, schema):
        assert schema_errors(value, schema) == []


def test_the_arguments_of_a_usual_tool_surely_fit() -> None:
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file."},
            "lines": {"type": "array", "items": {"type": "integer"}},
            "how": {"type": "string", "enum": ["fast", "slow"]},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    assert surely_fits({"path": "x", "lines": [1, 2], "how": "fast"}, schema)
    assert not surely_fits({"path": "x", "how": "other"}, schema)
    assert not surely_fits({"path": "x", "more": 1}, schema)
    assert not surely_fits({"lines": []}, schema)
