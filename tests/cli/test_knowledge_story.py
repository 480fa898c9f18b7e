"""How knowledge is told: a lane while a base is built, a line when it is, and what was looked up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from callboard.actors.views.run_view import RunView
from callboard.cli.render.brief import building_in_short, detail, title
from callboard.cli.render.narration import Narrator
from callboard.protocol import events as ev

MakeEvent = Callable[..., ev.Event]

BASE = "knowledge base 'fruit'"


def building(phase: str, done: int, total: int | None = None, left: float | None = None) -> ev.KnowledgeBuilding:
    return ev.KnowledgeBuilding(what=BASE, phase=phase, done=done, total=total, seconds_left=left)


def built(**counts: int) -> ev.KnowledgeBuilt:
    fields = dict.fromkeys(("added", "changed", "removed", "unchanged", "unreadable", "embedded", "chunks"), 0)
    return ev.KnowledgeBuilt(what=BASE, seconds=2.5, **{**fields, **counts})


def retrieved(*sources: str) -> ev.KnowledgeRetrieved:
    return ev.KnowledgeRetrieved(what=BASE, query=9, chunks=len(sources), sources=sources, seconds=0.012)


def told(*events: ev.Event, live: bool = False, by_hand: bool = False) -> list[str]:
    narrator = Narrator(live=live, by_hand=by_hand)
    return [line.text for event in events for line in narrator.lines(event)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (building("pull", 9_600_000, 19_200_000), "fetching the model's weights 50% of 19 MB"),
        (building("pull", 0), "fetching the model's weights"),
        (building("read", 1), "reading, 1 source so far"),
        (building("read", 1200), "reading, 1,200 sources so far"),
        (building("embed", 0, 4000), "embedding, 0 of 4,000 chunks"),
        (building("embed", 1200, 4000, 12.4), "embedding, 1,200 of 4,000 chunks, about 12 s left"),
        (building("index", 30, 120), "indexing, 25%"),
    ],
)
def test_how_far_a_build_is_comes_in_counts_and_an_estimate(data: ev.KnowledgeBuilding, words: str) -> None:
    assert building_in_short(data) == words


def test_a_build_that_takes_long_is_told_now_and_then(event: MakeEvent) -> None:
    begins = event(building("read", 1))

    def after(seconds: float, data: ev.EventData) -> ev.Event:
        return msgspec.structs.replace(event(data), ts=begins.ts + timedelta(seconds=seconds))

    events = [
        begins,
        after(4, building("read", 9)),
        after(6, building("embed", 5, 20)),
        after(8, building("index", 1, 2)),
    ]
    assert told(*events) == ["▸ 12:00:06 knowledge base 'fruit': embedding, 5 of 20 chunks"]
    assert told(*events, live=True) == []


def test_what_was_built_and_found_is_told_in_a_line_each(event: MakeEvent) -> None:
    assert told(
        event(built(chunks=4000, embedded=1200, unreadable=1)),
        event(retrieved("a.md", "b.md", "c.md", "d.md")),
        event(retrieved()),
    ) == [
        "▸ 12:00:00 knowledge base 'fruit' is ready: 4,000 chunks, 1,200 embedded, 1 source can't be read, in 2.50s",
        "▸ 12:00:00 knowledge base 'fruit': found 4 passages of a.md, b.md, c.md and 1 more in 12ms",
        "▸ 12:00:00 knowledge base 'fruit': found nothing in 12ms",
    ]


def test_a_base_of_nothing_is_not_called_ready(event: MakeEvent) -> None:
    assert told(event(built(unreadable=2))) == [
        "▸ 12:00:00 knowledge base 'fruit' is empty, 2 sources can't be read, in 2.50s"
    ]


def test_who_builds_or_searches_by_hand_is_not_told_twice(event: MakeEvent) -> None:
    lost = ev.Warned(code="knowledge_unreadable", message="a.md")
    assert told(event(built(chunks=1)), event(retrieved("a.md")), event(lost), by_hand=True) == []


def test_the_knowledge_of_graphs_inside_graphs_is_quiet(event: MakeEvent) -> None:
    inner = "/run-1/call/inner"
    events = [event(ev.GraphStarted(graph="inner", start="a", depth=1), inner), event(retrieved("a.md"), f"{inner}/a")]
    assert told(*events) == []


def test_a_base_that_is_being_built_has_a_lane(event: MakeEvent) -> None:
    view = RunView()
    view.see(event(ev.NodeEntered(node="look", type="rag"), "/run-1/look"))
    view.see(event(building("read", 3), "/run-1/look"))
    view.see(event(building("embed", 5, 20), "/run-1/look"))
    [node] = view.roots.values()
    [lane] = node.below.values()
    assert (title(node), title(lane), detail(lane)) == ("look (rag)", BASE, "embedding, 5 of 20 chunks")
    view.see(event(built(chunks=20), "/run-1/look"))
    assert (list(view.roots.values()), node.below) == ([node], {})
