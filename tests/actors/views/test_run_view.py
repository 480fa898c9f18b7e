"""A `RunView` is one reduction of a run's events: whatever the prefix, however they come, and of bounded size."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.views.run_view import RunView
from callboard.protocol import events as ev
from callboard.protocol.events import decode

RECORDED = {path.stem: path for path in sorted(Path(__file__).with_name("recorded").glob("*.jsonl"))}
NOW = datetime(2026, 11, 3, tzinfo=UTC)


def recorded(name: str) -> list[ev.Event]:
    read = [decode(line) for line in RECORDED[name].read_bytes().splitlines()]
    assert None not in read
    return [event for event in read if event is not None]


STREAMS = {name: recorded(name) for name in RECORDED}


def seen(events: list[ev.Event], view: RunView | None = None) -> RunView:
    view = view or RunView(text=100)
    for event in events:
        view.see(event)
    return view


def facts(view: RunView) -> dict[str, Any]:
    """All that a view says, as plain values."""

    def tree(activities: Any) -> list[Any]:
        return [
            (each.key, each.name, each.at, each.requests, each.tokens, each.text, each.waits, tree(each.below.values()))
            for each in activities
        ]

    actors = {
        path: (each.kind, each.turns, each.events, each.last_event, each.cost, [open.key for open in each.open])
        for path, each in view.actors.items()
    }
    return {
        "status": view.status,
        "prompt": view.started and view.started.prompt,
        "outcome": view.outcome,
        "nodes": {id: msgspec.to_builtins(node) for id, node in view.nodes.items()},
        "usage": (dict(view.usage), view.input_tokens, view.output_tokens, view.cost),
        "questions": list(view.questions),
        "warned": (view.warned, list(view.warnings)),
        "calls": (view.calls, view.failed_calls),
        "actors": actors,
        "tree": tree(view.roots.values()),
    }


def open_ones(view: RunView) -> Iterator[Any]:
    for actor in view.actors.values():
        yield from actor.open


@pytest.mark.parametrize("name", STREAMS)
def test_a_run_that_is_over_has_its_outcome_and_nothing_under_way(name: str) -> None:
    view = seen(STREAMS[name])
    assert view.outcome is not None
    assert view.status == view.outcome["status"]
    assert (view.actors, view.roots, view.questions) == ({}, {}, {})
    usage = view.outcome["usage"].values()
    assert view.input_tokens == sum(used["input_tokens"] for used in usage)
    assert view.output_tokens == sum(used["output_tokens"] for used in usage)
    assert view.calls >= view.outcome["tool_calls"] or view.status == "cancelled"
    for id, node in view.outcome["nodes"].items():  # which has the items of a map in their map
        assert id not in view.nodes or view.nodes[id].visits == node["visits"]
    assert all(node.running == 0 for node in view.nodes.values())


@pytest.mark.parametrize("name", STREAMS)
def test_every_prefix_is_a_state_whose_parts_agree(name: str) -> None:
    view = RunView()
    for event in STREAMS[name]:
        change = view.see(event)
        assert all(each.over for each in change.ended)
        assert not change.began or change.about in list(open_ones(view))
        for each in open_ones(view):
            assert not each.over
            siblings = view.roots if each.above is None or each.above.over else each.above.below
            assert siblings.get(each.key) is each or (each.above is not None and each.above.over)
        assert sum(node.running for node in view.nodes.values()) <= len(view.under_way("node"))


@given(st.sampled_from(sorted(STREAMS)), st.data())
def test_a_stream_that_comes_in_chunks_is_the_same_as_one_that_comes_at_once(name: str, data: st.DataObject) -> None:
    events = STREAMS[name]
    end = data.draw(st.integers(0, len(events)))
    cut = data.draw(st.integers(0, end))
    view = seen(events[cut:end], seen(events[:cut]))
    assert facts(view) == facts(seen(events[:end]))


@given(st.sampled_from(sorted(STREAMS)), st.randoms(use_true_random=False))
def test_no_order_of_events_is_an_error_and_nothing_is_left_of_a_run_that_is_over(name: str, random: Any) -> None:
    events = list(STREAMS[name][:-1])
    random.shuffle(events)
    view = seen(events[: random.randint(0, len(events))])
    view.see(STREAMS[name][-1])
    for event in events:  # what is told after the end makes nothing begin
        assert not view.see(event).began
    assert (view.actors, view.roots, view.questions) == ({}, {}, {})


def told(number: int, data: ev.EventData, actor: str, id: str = "") -> ev.Event:
    return ev.Event(seq=number, ts=NOW, run="run-1", actor=f"/run-1{actor}", kind=data.kind, id=id, data=data)


PLAIN: dict[str, Any] = {"str": "x", "int": 1, "float": 1.0, "bool": True, "list[str]": ["x"], "Json": {"text": "x"}}


def _of_type(kind: type[ev.EventData], field: Any) -> Any:
    return get_args(field.type)[0] if get_origin(field.type) is Literal else PLAIN[kind.__annotations__[field.name]]


def made(kind: type[ev.EventData]) -> ev.EventData:
    """Data of a kind, with something in all that must be there."""
    fields = [field for field in msgspec.structs.fields(kind) if field.required]
    given = {field.name: _of_type(kind, field) for field in fields if "tuple" not in str(field.type)}
    return kind(**given, **{field.name: ("x",) for field in fields if field.name not in given})


ACTORS = ("", "/g", "/g/a", "/g/a/tool", "/g/b")


@given(st.lists(st.tuples(st.sampled_from(list(ev.KINDS.values())), st.sampled_from(ACTORS), st.sampled_from("pq"))))
def test_events_of_any_kind_come_in_any_order(events: list[tuple[type[ev.EventData], str, str]]) -> None:
    view = RunView(text=10)
    for number, (kind, actor, id) in enumerate(events):
        change = view.see(told(number, made(kind), actor, id))
        assert all(each.over for each in change.ended)
        assert not any(each.over for each in open_ones(view))
    view.see(told(0, ev.RunFinished(outcome={}), ""))
    assert (view.actors, view.roots, view.questions) == ({}, {}, {})


def size(of: object, known: set[int]) -> int:
    """Bytes that an object and all below it take."""
    if id(of) in known or isinstance(of, type) or callable(of):
        return 0
    known.add(id(of))
    inside: list[object] = []
    if isinstance(of, dict):
        inside = [*of.keys(), *of.values()]
    elif isinstance(of, list | tuple | set) or type(of).__name__ == "deque":
        inside = list(of)  # type: ignore[call-overload]  # one of these
    elif hasattr(of, "__dict__"):
        inside = list(vars(of).values())
    names = getattr(type(of), "__slots__", ()) or getattr(type(of), "__struct_fields__", ())
    inside += [getattr(of, name) for name in names if hasattr(of, name)]
    return sys.getsizeof(of) + sum(size(each, known) for each in inside)


def test_a_view_does_not_grow_with_the_events_that_it_has_seen() -> None:
    view = RunView(text=1000)
    sizes = []
    view.see(told(1, ev.RunStarted(target="g", name="g", dialect="graph"), ""))
    view.see(told(2, ev.GraphStarted(graph="g", start="n0"), "/g"))
    for round in range(3):
        for number in range(2000):
            actor = f"/g/n{number % 50}#{round}{number}"
            view.see(told(3, ev.ActorSpawned(), actor))
            view.see(told(3, ev.NodeEntered(node=f"n{number % 50}", type="llm"), actor))
            view.see(told(3, ev.LlmRequest(model="m", messages=1), actor, "c"))
            for _ in range(20):
                view.see(told(3, ev.LlmDelta(text="some words"), actor, "c"))
            view.see(told(3, ev.Warned(code="w", message="careful"), actor))
            view.see(told(3, ev.QuestionAsked(question={"text": "?"}), actor, f"q{number}"))
            view.see(told(3, ev.QuestionAnswered(value="yes", by="x"), actor, f"q{number}"))
            view.see(told(3, ev.ActorStopped(), actor))
            view.see(told(3, ev.DeadLetter(to=actor, message="m", reason="ended"), actor))
        sizes.append(size(view, set()))
    assert max(sizes) < sizes[0] * 1.1
    assert view.nodes["n7"].visits == 120
    assert view.warned == 6000


def test_of_a_text_that_never_ends_only_its_end_is_kept() -> None:
    view = RunView(text=50)
    view.see(told(1, ev.LlmRequest(model="m", messages=1), "/a", "c"))
    for number in range(100_000):
        chat = view.see(told(2, ev.LlmDelta(text=f"{number} "), "/a", "c")).about
    assert chat is not None
    assert chat.pieces == 100_000
    assert chat.text.endswith("99998 99999 ")
    assert 50 <= len(chat.text) <= 110


def test_what_fails_within_something_that_ends_ends_with_it() -> None:
    view = RunView()
    view.see(told(1, ev.NodeEntered(node="a", type="llm"), "/g/a"))
    view.see(told(2, ev.LlmRequest(model="m", messages=1), "/g/a", "c"))
    change = view.see(told(3, ev.NodeExited(node="a", seconds=1, error="it broke", code="broken"), "/g/a"))
    assert [(each.kind, each.code, each.error) for each in change.ended] == [
        ("chat", "broken", "it broke"),
        ("node", "broken", "it broke"),
    ]
    assert view.nodes["a"].state == "failed"


# --- what a view says --------------------------------------------------------------------------------------------


def test_the_agent_that_was_started_speaks_and_its_children_do_not() -> None:
    view, spoken = RunView(), set()
    for event in STREAMS["team"]:
        view.see(event)
        if view.speaks(event):
            spoken.add(event.actor)
    assert spoken == {"/run-00000001/boss"}
    calls = [event for event in STREAMS["team"] if event.kind == "tool.call.started" and view.calls_itself(event)]
    assert [event.data.tool for event in calls if isinstance(event.data, ev.ToolStarted)] == [
        "agent__spawn",
        "add",
        "bad",
        "agent__collect",
    ]


def test_no_event_of_a_graph_is_its_own_speech_and_only_its_own_nodes_are_counted() -> None:
    view = RunView()
    assert not [event for event in STREAMS["graph"] if view.see(event) and view.speaks(event)]
    assert view.home is not None
    assert view.home.name == "g"
    assert "s" not in view.nodes  # of the child graph
    assert (view.nodes["one"].visits, view.nodes["again"].visits) == (3, 3)
    assert {id for id, node in view.nodes.items() if node.state == "failed"} == {"broken"}


def test_a_request_that_is_tried_again_is_one_activity_and_what_was_heard_does_not_count() -> None:
    view = RunView(text=100)
    first = view.see(told(1, ev.LlmRequest(model="m", messages=1), "/a", "c"))
    view.see(told(2, ev.LlmDelta(text="half"), "/a", "c"))
    chat = view.see(told(3, ev.LlmRetry(model="m", attempt=1, wait=1.0, error="429"), "/a", "c")).about
    assert chat is first.about
    assert chat is not None
    assert (chat.waits, chat.text, chat.pieces) == (True, "", 0)
    again = view.see(told(4, ev.LlmRequest(model="m", messages=1, attempt=2), "/a", "c"))
    assert (again.about, again.began, chat.waits) == (chat, False, False)
    answer = ev.LlmResponse(model="m", seconds=1, input_tokens=3, output_tokens=2)
    assert view.see(told(5, answer, "/a", "c")).ended == (chat,)
    assert chat.tokens == (3, 2, 0)


def test_a_request_that_goes_to_another_model_is_one_activity_with_the_name_of_that() -> None:
    view = RunView(text=100)
    chat = view.see(told(1, ev.LlmRequest(model="a:x", messages=1), "/a", "c")).about
    view.see(told(2, ev.LlmDelta(text="half"), "/a", "c"))
    view.see(told(3, ev.LlmFallback(model="a:x", next="b:y", error="503"), "/a", "c"))
    assert chat is not None
    assert (chat.waits, chat.text, chat.name) == (True, "", "a:x")
    again = view.see(told(4, ev.LlmRequest(model="b:y", messages=1), "/a", "c"))
    assert (again.about, again.began, chat.waits, chat.name) == (chat, False, False, "b:y")


def test_requests_for_vectors_and_for_an_order_count_in_what_they_are_for_and_are_no_turns() -> None:
    view = RunView()
    node = view.see(told(1, ev.NodeEntered(node="look", type="rag"), "/g/look")).about
    for number, kind in enumerate((ev.LlmEmbedding, ev.LlmRerank)):
        about = view.see(told(2 + number, kind(model="m", texts=3, seconds=1, input_tokens=7), "/g/look")).about
        assert about is node
    actor = view.actors["/run-1/g/look"]
    assert node is not None
    assert (node.tokens, actor.input_tokens, actor.turns) == ((14, 0, 0), 14, 0)


def test_an_actor_does_what_it_began_last_and_has_not_ended() -> None:
    view, seen = RunView(), []
    for data, id in (
        (ev.NodeEntered(node="plan", type="llm"), ""),
        (ev.LlmRequest(model="fake:model", messages=1), "c"),
        (ev.LlmResponse(model="fake:model", seconds=1), "c"),
        (ev.ToolStarted(tool="grep"), "t"),
        (ev.ToolFinished(tool="grep", seconds=1), "t"),
        (ev.NodeExited(node="plan", seconds=1), ""),
    ):
        view.see(told(1, data, "/g/plan", id))
        doing = view.actors["/run-1/g/plan"].doing
        seen.append(doing and doing.name)
    assert seen == ["plan", "fake:model", "plan", "grep", "plan", None]


def test_a_run_waits_while_a_question_is_open() -> None:
    view = RunView()
    asked = view.see(told(1, ev.QuestionAsked(question={"text": "?", "secret": True}), "/a", "q")).question
    assert view.status == "waiting"
    closed = view.see(told(2, ev.QuestionAnswered(value="x", by="terminal"), "/a", "q")).question
    assert (view.status, closed) == ("running", asked)
    assert view.see(told(3, ev.QuestionExpired(reason="timeout"), "/a", "q")).question is None


def test_the_floor_knows_only_protocol() -> None:
    for path in (Path(__file__).parents[3] / "actors" / "views").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level > 1:
                assert (node.module or "").split(".")[0] == "protocol", path


@pytest.mark.parametrize("name", STREAMS)
def test_a_run_that_goes_on_in_another_process_has_nothing_under_way_of_the_one_that_was_killed(name: str) -> None:
    events = STREAMS[name]
    again = [msgspec.structs.replace(event, seq=events[-1].seq + event.seq) for event in events]
    resumed = msgspec.structs.replace(again[0], data=ev.RunResumed(life=2, rows=10))
    for length in {1, len(events) // 3, len(events) // 2, len(events)}:
        view = seen(events[:length])
        seen([again[0], resumed], view)
        assert (list(view.actors), view.roots, view.questions) == ([events[0].actor], {}, {})
        assert (view.status, view.outcome) == ("running", None)
        seen(again[1:], view)
        alone = seen(events)
        assert (view.status, view.outcome, view.actors, view.roots) == (alone.status, alone.outcome, {}, {})
        assert (view.home and view.home.name) == (alone.home and alone.home.name)
        assert all(node.running == 0 for node in view.nodes.values())
