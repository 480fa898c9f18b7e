"""What events hold, in a few words: tool calls and their progress; knowledge bases that are built and looked up in.

fs_read path=src/a.py offset=10
30% reading
embedding, 1,200 of 4,000 chunks, about 12 s left
is ready: 4,000 chunks, 4,000 embedded
found 5 passages of docs/a.md, docs/b.md
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

from ...protocol.events import KnowledgeBuilding, KnowledgeBuilt, KnowledgeRetrieved, ToolProgress
from .text import counted, one_line

_VALUE = 40
_ALL = 80

PATIENCE = timedelta(seconds=5)
"""How long a build may say nothing, where it is not shown on a screen."""

_SOURCES = 3
_MEGABYTE = 1_000_000


def building_in_short(data: KnowledgeBuilding) -> str:
    """How far it is: `embedding, 1,200 of 4,000 chunks, about 12 s left`."""
    left = f", about {max(1, round(data.seconds_left))} s left" if data.seconds_left else ""
    match data.phase:
        case "pull":
            of = f" {data.done * 100 // data.total}% of {data.total // _MEGABYTE} MB" if data.total else ""
            return f"fetching the model's weights{of}{left}"
        case "read":
            return f"reading, {counted(data.done, 'source')} so far"
        case "embed":
            return f"embedding, {data.done:,} of {data.total or data.done:,} chunks{left}"
    far = f", {data.done * 100 // data.total}%" if data.total else ""
    return f"indexing{far}{left}"


def built_in_short(data: KnowledgeBuilt) -> str:
    """What came of a build."""
    lost = f", {counted(data.unreadable, 'source')} can't be read" if data.unreadable else ""
    if not data.chunks:
        return f"is empty{lost}"
    return f"is ready: {counted(data.chunks, 'chunk')}, {data.embedded:,} embedded{lost}"


def found_in_short(data: KnowledgeRetrieved) -> str:
    """What was looked up."""
    if not data.chunks:
        return "found nothing"
    names = ", ".join(one_line(source, 60) for source in data.sources[:_SOURCES])
    rest = len(data.sources) - _SOURCES
    return f"found {counted(data.chunks, 'passage')} of {names}{f' and {rest} more' if rest > 0 else ''}"


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
