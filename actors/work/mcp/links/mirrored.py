"""Arguments that go out as HTTP headers as well, so that what stands before a server can route by them.

A property of a tool's schema says so itself: `{"type": "string", "x-mcp-header": "Region"}` makes `Mcp-Param-Region`.
It may stand inside of objects, but not below anything else. Of the modern era; servers refuse calls that leave them
out.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Json: TypeAlias = Any
Paths: TypeAlias = Mapping[tuple[str, ...], str]

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_SCALARS = ("string", "integer", "boolean")
_PLAIN = re.compile(r"(?! )[\x20-\x7e]*(?<! )").fullmatch
_WRAPPED = re.compile(r"=\?base64\?.*\?=").fullmatch
_DEEPEST = 32


def header_paths(schema: Json) -> Paths:
    """Where in a call's arguments such values stand, and the names of their headers."""
    return dict(_found(schema, ()))


def param_headers(paths: Paths, arguments: Mapping[str, Json]) -> dict[str, str]:
    """The headers of a call; a value that is not there has none."""
    headers: dict[str, str] = {}
    for path, name in paths.items():
        value: Json = arguments
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            headers[name] = "true" if value else "false"
        elif isinstance(value, str | int):
            headers[name] = header_value(str(value))
    return headers


def header_value(text: str) -> str:
    """A text as the value of a header, wrapped where it would not arrive as it is."""
    if _PLAIN(text) and not _WRAPPED(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="


def _found(schema: Json, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(path) > _DEEPEST:
        return
    for key, below in properties.items():
        token = below.get("x-mcp-header") if isinstance(below, dict) else None
        if isinstance(token, str) and _TOKEN(token) and below.get("type") in _SCALARS:
            yield (*path, key), f"mcp-param-{token.lower()}"
        yield from _found(below, (*path, key))
