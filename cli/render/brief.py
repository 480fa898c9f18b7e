"""Short texts for events and activities: tool calls, knowledge bases, and the labels of the live tree.

fs_read path=src/a.py offset=10
30% reading
embedding, 1,200 of 4,000 chunks, about 12 s left
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from ...actors.views.run_view import Activity
from ...protocol import events as ev
from ...protocol.events import KnowledgeBuilding, KnowledgeBuilt, KnowledgeRetrieved, ToolProgress
from . import paths
from .text import counted, one_line, uncoloured

_VALUE = 40
_ALL = 80

PATIENCE = timedelta(seconds=5)
"""Interval of progress lines for a build that no live display shows."""

_SOURCES = 3
_MEGABYTE = 1_000_000


def building_in_short(data: KnowledgeBuilding) -> str:
    """Format the progress of a build: `embedding, 1,200 of 4,000 chunks, about 12 s left`."""
    left = f", about {max(1, round(data.seconds_left))} s left" if data.seconds_left else ""
    match data.phase:
        case "pull":
            of = f" {data.done * 100 // data.total}% of {data.total // _MEGABYTE} MB" if data.total else ""
            return f"fetching the model's weights{of}{left}"
        case "read":
            return f"reading, {counted(data.done, 'source')} so far"
        case "embed":
            return f"embedding, {data.done:,} of {counted(data.total or data.done, 'chunk')}{left}"
    far = f", {data.done * 100 // data.total}%" if data.total else ""
    return f"indexing{far}{left}"


def built_in_short(data: KnowledgeBuilt) -> str:
    """Format the result of a build."""
    lost = f", {counted(data.unreadable, 'source')} can't be read" if data.unreadable else ""
    if not data.chunks:
        return f"is empty{lost}"
    return f"is ready: {counted(data.chunks, 'chunk')}, {data.embedded:,} embedded{lost}"


def found_in_short(data: KnowledgeRetrieved) -> str:
    """Format the result of a lookup."""
    if not data.chunks:
        return "found nothing"
    names = ", ".join(one_line(source, 60) for source in data.sources[:_SOURCES])
    rest = len(data.sources) - _SOURCES
    return f"found {counted(data.chunks, 'passage')} of {names}{f' and {rest} more' if rest > 0 else ''}"


def call_in_short(tool: str, arguments: str, *, whole: bool = False) -> str:
    """Format a call on one line. `whole` lifts the length limit.

    `arguments` is JSON text; its middle may have been omitted.
    """
    value, line = (sys.maxsize, sys.maxsize) if whole else (_VALUE, _ALL)
    return f"{one_line(tool, 60)} {_arguments(arguments, value, line)}".rstrip()


def progress_in_short(data: ToolProgress) -> str:
    """Format the call's progress in percent, where known, and its message."""
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


TAIL = 200
"""Characters of a model's text that suffice to find its newest line."""


def lanes(activities: Iterable[Activity]) -> Iterator[Activity]:
    """Yield the activities that have a line in the tree.

    A model request appears in the line of its owner, and the root graph is the tree itself.
    """
    for each in activities:
        if each.kind == "graph" and not each.data.depth:
            yield from lanes(each.below.values())
        elif each.kind != "chat":
            yield each


def title(activity: Activity) -> str:
    """Return the activity's display name, and the number of its model requests as turns, if it made any."""
    name, data, kind = activity.name, activity.data, activity.kind
    if kind == "node":
        name = f"{name} ({data.type})" if data.item is None else f"{name}[{data.item}] ({data.type})"
    elif kind == "graph":
        name = f"{paths.child(activity.actor) or name} (graph)"
    elif kind == "agent":
        name = f"{data.child or name} (agent)"
    elif kind == "tool":
        name = call_in_short(name, data.arguments)
    elif kind == "mcp":
        name = f"MCP server {name} starts"
    turns = f", {counted(activity.requests, 'turn')}" if activity.requests else ""
    return one_line(name, 90) + turns


def waiting_in_short(waiting: ev.LlmWaiting) -> str:
    """Return the client whose limit a request waits for, and the minimum wait in seconds, if known."""
    seconds = f": {waiting.wait:.1f} s" if waiting.wait else ""
    return f"waiting for {waiting.model.partition(':')[0]}{seconds}"


def detail(activity: Activity) -> str:
    """Return the activity's current state from its newest event, on one line of at most 80 characters; often ""."""
    return one_line(_detail(activity), 80)


def _detail(activity: Activity) -> str:
    match activity.news:
        case ev.LlmRequest(model=model):
            return model
        case ev.LlmRetry(wait=wait, error=error):
            return f"retries in {wait:.1f}s -- {error}"
        case ev.LlmWaiting() as waiting:
            return waiting_in_short(waiting)
        case ev.LlmFallback() as fallback:
            return f"asks {fallback.next} -- {fallback.error}"
        case ev.LlmReasoning():
            return "thinking"
        case ev.LlmDelta():
            said = next((each.text[-TAIL:] for each in activity.below.values() if each.kind == "chat"), "")
            return said.rpartition("\n")[2] or said
        case ev.ToolDelta(text=text):
            return uncoloured(text)
        case ev.ToolProgress() as progress:
            return progress_in_short(progress)
        case ev.KnowledgeBuilding() as building:
            return building_in_short(building)
        case ev.ActorWaiting(on=on):
            return f"waits for {on}"
    return ""
