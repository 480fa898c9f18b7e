"""Arguments that are also sent as HTTP headers, so that a proxy in front of a server can route by them.

A property of a tool's schema declares it: `{"type": "string", "x-mcp-header": "Region"}` makes `Mcp-Param-Region`. The
property may be inside of objects, but not below any other keyword (`items`, `anyOf`, ...). Part of the modern era;
servers refuse calls without these headers.

SEP-2243 requires clients over HTTP to reject a tool whose annotations break a rule. The rules: the name is an HTTP
token; the property is a string, integer, or boolean; no name is used twice in any letter case; and only `properties`
lead to the property. `header_fault` names the first broken rule; such a tool is left out of the list.
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
_VALUES = ("const", "default", "enum", "examples")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def header_paths(schema: Json) -> Paths:
    """Return the paths in a call's arguments whose values are also sent as headers, with the headers' names.

    Properties with an invalid annotation are skipped.
    """
    return dict(_found(schema, ()))


def header_fault(schema: Json) -> str:
    """Return the first annotation that breaks a rule, and that rule; "" if all are valid."""
    seen: set[str] = set()
    for where, token, type in _annotations(schema, "", reachable=False):
        if type is None:
            return f"{where}: x-mcp-header is only allowed on properties that are reached through `properties` alone"
        if not isinstance(token, str) or not _TOKEN(token):
            return f"{where}: x-mcp-header is {token!r:.60}, which is not a valid name of an HTTP header"
        if type not in _SCALARS:
            return f"{where}: x-mcp-header is only allowed on a string, an integer, or a boolean, not on {type!r:.60}"
        if token.lower() in seen:
            return f"{where}: x-mcp-header {token!r:.60} is used twice"
        seen.add(token.lower())
    return ""


def param_headers(paths: Paths, arguments: Mapping[str, Json]) -> dict[str, str]:
    """Return the headers that repeat arguments of a call.

    Arguments that are missing, or neither texts, integers nor booleans, have no header.
    """
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
    """Return a text as a header value, in base64 form if it could not be sent literally."""
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


def _annotations(schema: Json, where: str, *, reachable: bool) -> Iterator[tuple[str, Json, Json]]:
    """Yield each annotation: its place, its value, and the type of its property, or None if it is unreachable."""
    if isinstance(schema, list):
        for number, below in enumerate(schema):
            yield from _annotations(below, f"{where}/{number}", reachable=False)
    if not isinstance(schema, dict) or where.count("/") > 2 * _DEEPEST:
        return
    if "x-mcp-header" in schema:
        yield where or "/", schema["x-mcp-header"], schema.get("type", "no type") if reachable else None
    for key, below in schema.items():
        if key in _VALUES or key == "x-mcp-header":
            continue
        if key in _NAMED and isinstance(below, dict):  # its keys are names, not keywords
            through = key == "properties" and (reachable or not where)
            for name, inner in below.items():
                yield from _annotations(inner, f"{where}/{key}/{name}", reachable=through)
        else:
            yield from _annotations(below, f"{where}/{key}", reachable=False)
