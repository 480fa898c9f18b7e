"""Knowledge in words: how far the building of a base is, what came of it, what was looked up.

▸ 12:00:09 knowledge base 'handbook': embedding, 1,200 of 4,000 chunks, about 12 s left
▸ 12:00:21 knowledge base 'handbook' is ready: 4,000 chunks, 4,000 embedded, in 17.20s
▸ 12:00:22 knowledge base 'handbook': found 5 passages of docs/a.md, docs/b.md in 12ms
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from ...protocol.events import Event, EventData, KnowledgeBuilding, KnowledgeBuilt, KnowledgeRetrieved
from .lines import Line, Pen, duration
from .text import counted, one_line

PATIENCE = timedelta(seconds=5)
"""How long a build may say nothing, where it is not shown on a screen."""

_SOURCES = 3
_MEGABYTE = 1_000_000


class KnowledgeTeller:
    """Turns the events of knowledge bases into lines. Keeps only when each build was told of last.

    Args:
        pen: writes the lines.
        live: how far builds are is shown elsewhere.
    """

    def __init__(self, pen: Pen, *, live: bool) -> None:
        self._pen = pen
        self._live = live
        self._told: dict[str, datetime] = {}

    def tell(self, data: EventData, event: Event) -> Iterator[Line]:
        """What to say about the event; nothing about other kinds."""
        match data:
            case KnowledgeBuilding(what=what):
                since = self._told.setdefault(what, event.ts)
                if not self._live and event.ts - since >= PATIENCE:
                    self._told[what] = event.ts
                    yield self._pen.timed(event, f"{what}: {building_in_short(data)}")
            case KnowledgeBuilt(what=what):
                self._told.pop(what, None)
                yield self._pen.timed(event, f"{what} {_built(data)}, in {duration(data.seconds)}")
            case KnowledgeRetrieved(what=what):
                yield self._pen.timed(event, f"{what}: {_found(data)} in {duration(data.seconds)}")


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


def _built(data: KnowledgeBuilt) -> str:
    lost = f", {counted(data.unreadable, 'source')} can't be read" if data.unreadable else ""
    if not data.chunks:
        return f"is empty{lost}"
    return f"is ready: {counted(data.chunks, 'chunk')}, {data.embedded:,} embedded{lost}"


def _found(data: KnowledgeRetrieved) -> str:
    if not data.chunks:
        return "found nothing"
    names = ", ".join(one_line(source, 60) for source in data.sources[:_SOURCES])
    rest = len(data.sources) - _SOURCES
    return f"found {counted(data.chunks, 'passage')} of {names}{f' and {rest} more' if rest > 0 else ''}"
