"""What the live tree shows of the activities under way in a run: which have a line, and what stands on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...actors.views.activity import Activity
from ...protocol import events as ev
from . import paths
from .brief import building_in_short, call_in_short, progress_in_short
from .text import counted, one_line, uncoloured

TAIL = 200
"""Characters of a model's answer that are needed for its newest line."""


def lanes(activities: Iterable[Activity]) -> Iterator[Activity]:
    """Those with a line: a request shows in the line of what makes it, and the run's own graph is the whole tree."""
    for each in activities:
        if each.kind == "graph" and not each.data.depth:
            yield from lanes(each.below.values())
        elif each.kind != "chat":
            yield each


def title(activity: Activity) -> str:
    """What it is, as people know it; with the turns of an agent."""
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


def detail(activity: Activity) -> str:
    """What it is at."""
    return one_line(_detail(activity), 80)


def _detail(activity: Activity) -> str:
    match activity.news:
        case ev.LlmRequest(model=model):
            return model
        case ev.LlmRetry(wait=wait, error=error):
            return f"tries again in {wait:.1f}s -- {error}"
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
