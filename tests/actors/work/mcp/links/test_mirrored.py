"""Arguments that go out as headers."""

from __future__ import annotations

import pytest

from callboard.actors.work.mcp.links.mirrored import header_fault, header_paths, param_headers

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "fast": {"type": "boolean", "x-mcp-header": "Fast"},
        "where": {"type": "object", "properties": {"zone": {"type": "integer", "x-mcp-header": "Zone"}}},
        "ratio": {"type": "number", "x-mcp-header": "Ratio"},
        "odd": {"type": "string", "x-mcp-header": "two words"},
        "many": {"type": "array", "items": {"type": "string", "x-mcp-header": "Many"}},
        "plain": {"type": "string"},
    },
}


def test_only_scalars_that_are_reached_through_objects_have_headers() -> None:
    assert header_paths(SCHEMA) == {
        ("region",): "mcp-param-region",
        ("fast",): "mcp-param-fast",
        ("where", "zone"): "mcp-param-zone",
    }


@pytest.mark.parametrize("schema", [None, [], {"properties": []}, {"properties": {"a": None}}, {"x-mcp-header": "A"}])
def test_a_schema_that_is_none_has_no_headers(schema: object) -> None:
    assert header_paths(schema) == {}


def test_values_are_written_as_json_would_and_missing_ones_left_out() -> None:
    paths = header_paths(SCHEMA)
    given = {"region": "eu", "fast": True, "where": {"zone": 3}, "plain": "x"}
    assert param_headers(paths, given) == {
        "mcp-param-region": "eu",
        "mcp-param-fast": "true",
        "mcp-param-zone": "3",
    }
    assert param_headers(paths, {"region": None, "where": "nowhere"}) == {}


def of(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


ANNOTATED = {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.parametrize(
    "schema",
    [
        of(a=ANNOTATED),
        of(a=ANNOTATED, b={"type": "integer", "x-mcp-header": "Zone"}, c={"type": "boolean", "x-mcp-header": "!#$"}),
        of(a=of(b=of(c=ANNOTATED))),
        of(**{"x-mcp-header": {"type": "array"}}),  # a property of that name
        of(a={"type": "string", "default": {"x-mcp-header": 3}, "enum": [{"x-mcp-header": ""}]}),
        of(),
        {"type": "object"},
        True,
        None,
    ],
)
def test_valid_annotations_have_no_fault(schema: object) -> None:
    assert header_fault(schema) == ""


BAD_NAMES = ("", "a b", "a:b", "a\tb", "Régión", "a\r\nb", 3, None)


@pytest.mark.parametrize(
    "schema",
    [
        *(of(a={"type": "string", "x-mcp-header": name}) for name in BAD_NAMES),
        *(of(a={"type": kind, "x-mcp-header": "A"}) for kind in ("object", "array", "null", "number", ["string"])),
        of(a={"x-mcp-header": "A"}),
        of(a=ANNOTATED, b=ANNOTATED),
        of(a=ANNOTATED, b=of(c={"type": "string", "x-mcp-header": "rEGION"})),
        of(a={"type": "array", "items": ANNOTATED}),
        of(a={"anyOf": [ANNOTATED, {"type": "null"}]}),
        of(a={"type": "object", "additionalProperties": ANNOTATED}),
        of(a={"type": "object", "patternProperties": {"x": ANNOTATED}}),
        {"$defs": {"region": ANNOTATED}, **of(a={"$ref": "#/$defs/region"})},
        {"oneOf": [of(a=ANNOTATED)]},
        {"x-mcp-header": "A", "type": "object"},
    ],
)  # fmt: skip
def test_an_annotation_that_breaks_a_rule_is_a_fault(schema: object) -> None:
    assert header_fault(schema)
