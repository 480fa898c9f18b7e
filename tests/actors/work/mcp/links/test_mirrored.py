"""Arguments that go out as headers."""

from __future__ import annotations

import pytest

from callboard.actors.work.mcp.links.mirrored import header_paths, param_headers

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
