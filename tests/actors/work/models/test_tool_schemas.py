"""Schemas of tools as they are declared to providers: none that makes a provider refuse the request."""

from __future__ import annotations

from typing import Any

import pytest
from support.provider_wires import WIRES, Wire

from callboard.actors.work.models.codec import declared
from callboard.protocol.chat import ChatRequest, Tool, UserTurn

PAGE = {"type": "string"}
SOURCES = [
    {"type": "object", "properties": {"content": PAGE, "page": PAGE}, "required": ["content", "page"]},
    {"type": "object", "properties": {"source_url": PAGE}, "required": ["source_url", "page"]},
]

SCHEMAS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "anyOf at the root": (
        {"type": "object", "properties": {"title": PAGE}, "required": ["title"], "anyOf": SOURCES},
        {
            "type": "object",
            "properties": {"title": PAGE, "content": PAGE, "page": PAGE, "source_url": PAGE},
            "required": ["title", "page"],
        },
    ),
    "oneOf at the root, and nothing else": (
        {"oneOf": [{"properties": {"a": PAGE}}, {"properties": {"b": PAGE}}]},
        {"type": "object", "properties": {"a": PAGE, "b": PAGE}},
    ),
    "allOf at the root, with references": (
        {"allOf": [{"$ref": "#/$defs/a"}, {"required": ["b"]}], "$defs": {"a": {"properties": {"a": PAGE}}}},
        {
            "type": "object",
            "properties": {"a": PAGE},
            "required": ["b"],
            "$defs": {"a": {"properties": {"a": PAGE}}},
        },
    ),
    "a reference at the root": (
        {"type": "object", "properties": {}, "$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": PAGE}}}},
        {"type": "object", "properties": {"a": PAGE}, "$defs": {"a": {"properties": {"a": PAGE}}}},
    ),
    "arrays without items": (
        {"type": "object", "properties": {"a": {"type": "array"}, "b": {"anyOf": [{"type": ["array", "null"]}]}}},
        {
            "type": "object",
            "properties": {
                "a": {"type": "array", "items": {}},
                "b": {"anyOf": [{"type": ["array", "null"], "items": {}}]},
            },
        },
    ),
    "tuples of draft 7": (
        {"type": "object", "properties": {"a": {"type": "array", "items": [PAGE], "additionalItems": False}}},
        {"type": "object", "properties": {"a": {"type": "array", "prefixItems": [PAGE], "items": False}}},
    ),
    "bounds of draft 4": (
        {"type": "object", "properties": {"n": {"minimum": 1, "exclusiveMinimum": True, "exclusiveMaximum": False}}},
        {"type": "object", "properties": {"n": {"exclusiveMinimum": 1}}},
    ),
    "nulls and unknown types": (
        {"type": "object", "required": None, "properties": {"a": {"type": "any"}, "b": True, "c": {"required": True}}},
        {"type": "object", "properties": {"a": {}, "b": True, "c": {}}},
    ),
    "a property that is called like a keyword": (
        {"type": "object", "properties": {"items": {"type": "array"}, "anyOf": PAGE, "default": {"default": None}}},
        {
            "type": "object",
            "properties": {"items": {"type": "array", "items": {}}, "anyOf": PAGE, "default": {"default": None}},
        },
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_declared_as_providers_take_it(name: str) -> None:
    given, wanted = SCHEMAS[name]
    assert declared(given) == wanted
    assert declared(given) is declared(given)


def test_a_schema_that_refers_to_itself_has_an_end() -> None:
    assert declared({"$ref": "#", "type": "object"})["type"] == "object"
    assert declared({"anyOf": [{"$ref": "#"}, {"properties": {"a": PAGE}}]})["properties"] == {"a": PAGE}


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_no_provider_gets_a_combinator_at_the_root_or_an_array_without_items(wire: Wire) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array"}}, "anyOf": SOURCES}
    body = wire.sent(ChatRequest(messages=(UserTurn("hi"),), tools=(Tool(name="attach", parameters=schema),)))
    (sent,) = _schemas_in(body["toolConfig"] if "toolConfig" in body else body["tools"])
    assert "anyOf" not in sent
    assert sent["properties"].keys() == {"a", "content", "page", "source_url"}
    assert sent["properties"]["a"] == {"type": "array", "items": {}}


def _schemas_in(value: Any) -> list[dict[str, Any]]:
    """The declared schemas, wherever a provider has them."""
    if isinstance(value, list):
        return [found for each in value for found in _schemas_in(each)]
    if not isinstance(value, dict):
        return []
    return [value] if "properties" in value else [found for each in value.values() for found in _schemas_in(each)]
