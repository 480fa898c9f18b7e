"""A tool call in a few words, `fs_read path=src/a.py offset=10`, and how far it has come, `30% reading`."""

from __future__ import annotations

import json
import sys
from typing import Any

from ...protocol.events import ToolProgress
from .text import one_line

_VALUE = 40
_ALL = 80


def call_in_short(tool: str, arguments: str, *, whole: bool = False) -> str:
    """The call on one line, which is as long as it has to be if it is to be `whole`.

    `arguments` is their JSON text, perhaps with its middle left out.
    """
    value, line = (sys.maxsize, sys.maxsize) if whole else (_VALUE, _ALL)
    return f"{one_line(tool, 60)} {_arguments(arguments, value, line)}".rstrip()


def progress_in_short(data: ToolProgress) -> str:
    """The call's progress in percent, where known, and its message."""
    far = f"{data.progress / data.total:.0%}" if data.total and data.total > 0 else ""
    said = one_line(data.message or "", _ALL)
    return f"{far} {said}".strip() or f"{data.progress:g}"


def _arguments(text: str, most: int, width: int) -> str:
    try:
        values = json.loads(text) if text else {}
    except ValueError:
        return one_line(text, width)
    if not isinstance(values, dict):
        return one_line(text, width)
    return one_line(" ".join(f"{name}={_value(value, most)}" for name, value in values.items()), width)


def _value(value: Any, most: int) -> str:
    if not isinstance(value, str):
        return one_line(json.dumps(value, ensure_ascii=False), most)
    line = one_line(value, most)
    return f'"{line}"' if " " in line or not line else line
