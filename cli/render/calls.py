"""A tool call in a few words: `fs_read path=src/a.py offset=10`."""

from __future__ import annotations

import json
from typing import Any

from .text import one_line

_VALUE = 40
_ALL = 80


def call_in_short(tool: str, arguments: str) -> str:
    """The call on one line; `arguments` is their JSON text, perhaps with its middle left out."""
    return f"{one_line(tool, 60)} {_arguments(arguments)}".rstrip()


def _arguments(text: str) -> str:
    try:
        values = json.loads(text) if text else {}
    except ValueError:
        return one_line(text, _ALL)
    if not isinstance(values, dict):
        return one_line(text, _ALL)
    return one_line(" ".join(f"{name}={_value(value)}" for name, value in values.items()), _ALL)


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return one_line(json.dumps(value, ensure_ascii=False), _VALUE)
    line = one_line(value, _VALUE)
    return f'"{line}"' if " " in line or not line else line
