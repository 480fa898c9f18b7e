"""Parameter names that providers accept, in place of those in a server's schema.

Anthropic and Bedrock refuse every request with a tool that has a property `$filter`, `first name`, or one with more
than 64 characters. The model gets accepted names, at every level of the schema. Before a call the arguments get the
server's own names back.
"""

from __future__ import annotations

import re
from typing import Any

Json = Any

_FITS = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_OTHERS = re.compile(r"[^A-Za-z0-9_.-]+")
_DEEPEST = 30
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("$defs", "definitions")
_ONES = ("items", "additionalProperties", "not")


def fitting(schema: Json, depth: int = 0) -> Json:
    """Return the schema with accepted names; the same object if nothing changes."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return schema
    changed: dict[str, Json] = {}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        names = renamed(properties)
        found = {names.get(name, name): fitting(each, depth + 1) for name, each in properties.items()}
        if names or any(found[names.get(name, name)] is not each for name, each in properties.items()):
            changed["properties"] = found
        required = schema.get("required")
        if names and isinstance(required, list):
            changed["required"] = [names.get(name, name) if isinstance(name, str) else name for name in required]
    for key in _ONES:
        if (part := fitting(schema.get(key), depth + 1)) is not schema.get(key):
            changed[key] = part
    for key in _LISTS:
        if isinstance(several := schema.get(key), list):
            parts = [fitting(each, depth + 1) for each in several]
            if any(part is not each for part, each in zip(parts, several, strict=True)):
                changed[key] = parts
    for key in _MAPS:
        if isinstance(named := schema.get(key), dict):
            parts_by_name = {name: fitting(each, depth + 1) for name, each in named.items()}
            if any(parts_by_name[name] is not each for name, each in named.items()):
                changed[key] = parts_by_name
    return {**schema, **changed} if changed else schema


def restored(value: Json, schema: Json, root: Json = None, depth: int = 0) -> Json:
    """Return arguments with the names of the server's own schema."""
    root = schema if root is None else root
    schema = _resolved(schema, root)
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [restored(each, schema.get("items"), root, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    # Without knowing which branch applies, all are tried: a branch only renames properties of its own.
    for key in _LISTS:
        for branch in schema[key] if isinstance(schema.get(key), list) else ():
            value = restored(value, branch, root, depth + 1)
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return value
    own = {new: name for name, new in renamed(properties).items()}
    named = {own.get(name, name): each for name, each in value.items()}
    return {name: restored(each, properties.get(name), root, depth + 1) for name, each in named.items()}


def renamed(properties: dict[str, Json]) -> dict[str, str]:
    """Return a distinct accepted name for each name that is not accepted."""
    found: dict[str, str] = {}
    for name in properties:
        if _FITS.fullmatch(name):
            continue
        stem = _OTHERS.sub("_", name).strip("_")[:60] or "value"
        new, number = stem, 1
        while new in properties or new in found.values():
            number += 1
            new = f"{stem}_{number}"
        found[name] = new
    return found


def _resolved(schema: Json, root: Json) -> Json:
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found = root
    for key in reference[2:].split("/"):
        found = found.get(key) if isinstance(found, dict) else None
    return found
