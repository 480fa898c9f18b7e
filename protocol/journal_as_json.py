"""Rows of durable runs as JSON objects, for display. `journal` has their stored form."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from .journal import AnyRow, Noted, Told, decode_value

Json = Any

LONGEST = 4_000
"""Characters of a text; the middle of a longer one is removed."""


class RowAsJson(msgspec.Struct, frozen=True, kw_only=True):
    """Row for display: its kind, the name and value of its content, and the number of removed characters."""

    kind: str
    name: str
    value: Json
    cut: int


def row_as_json(row: AnyRow) -> RowAsJson:
    """Return a row for display: structs become objects with the names of their fields, without default values."""
    kind, name = type(row).__name__.lower(), ""
    told: Any = row
    if isinstance(row, Told):
        name, told = type(row.message).__name__, row.message
    elif isinstance(row, Noted):
        name, told = row.name, decode_value(row.value, Any)
    cutting = _Cutting()
    value = cutting.plain(told)
    if told is row:
        del value["at"]  # present in every row
    return RowAsJson(kind=kind, name=name, value=value, cut=cutting.cut)


class _Cutting:
    """Converts values to JSON, and counts the characters that it removes from long texts."""

    def __init__(self) -> None:
        self.cut = 0

    def plain(self, value: Any) -> Json:
        if isinstance(value, msgspec.Struct):
            found = {}
            for field in msgspec.structs.fields(value):
                each = getattr(value, field.name)
                if field.required or each != _default(field):
                    found[field.name] = self.plain(each)
            return found
        if isinstance(value, dict):
            return {str(key): self.plain(each) for key, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.plain(each) for each in value]
        if isinstance(value, msgspec.Raw):
            return self.plain(decode_value(value, Any))
        if isinstance(value, bytes | bytearray | memoryview):
            return self._text(base64.b64encode(bytes(value)).decode())
        if isinstance(value, str):
            return self._text(value)
        return value if isinstance(value, int | float | bool | None) else msgspec.to_builtins(value)

    def _text(self, text: str) -> str:
        if len(text) <= LONGEST:
            return text
        self.cut += len(text) - LONGEST
        return f"{text[: LONGEST // 2]}...{text[-LONGEST // 2 :]}"


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else msgspec.NODEFAULT
