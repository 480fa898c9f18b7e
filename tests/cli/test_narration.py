"""The narration says what happened, no more than is wanted, and never what a terminal would obey."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Iterator
from typing import Literal, get_args, get_origin

import msgspec
import pytest

from callboard.cli.render.narration import Narrator
from callboard.cli.render.progress import PlainLines
from callboard.protocol import events as ev
from callboard.protocol.problems import Problem

MakeEvent = Callable[..., ev.Event]


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def told(events: list[ev.Event], *, verbose: bool = False) -> list[str]:
    narrator = Narrator(verbose=verbose)
    return [line.text for event in events for line in narrator.lines(event)]


def test_why_a_call_by_hand_failed_is_left_to_the_command(event: MakeEvent) -> None:
    call = [
        event(ev.ToolStarted(tool="t", arguments="{}"), id="c"),
        event(ev.ToolFinished(tool="t", seconds=1.0, error="it broke"), id="c"),
    ]
    narrator = Narrator(by_hand=True, verbose=True)
    assert not [line for each in call for line in narrator.lines(each) if "it broke" in line.text]
    assert "it broke" in "".join(told(call))


@pytest.mark.parametrize("severity", ["warning", "error"])
def test_a_problem_of_a_file_says_its_severity_once(event: MakeEvent, severity: str) -> None:
    problem = Problem(severity=severity, file="mcp.json", code="x", message="it is odd", line=3, column=1)
    assert told([event(ev.Warned(code="x", message=str(problem)))]) == [f"mcp.json:3:1: {severity}: it is odd"]


def test_a_small_run_reads_like_a_story(event: MakeEvent) -> None:
    story = told(
        [
            event(ev.RunStarted(target="x", name="triage", dialect="graph", model="openai:x")),
            event(ev.GraphStarted(graph="triage", start="read")),
            event(ev.StepStarted(step=1, nodes=["read"])),
            event(ev.NodeEntered(node="read", type="script")),
            event(ev.NodeExited(node="read", seconds=0.042, next=["mood", "topic"])),
            event(ev.StepFinished(step=1, next=["mood", "topic"])),
            event(ev.StepStarted(step=2, nodes=["mood", "topic"])),
            event(ev.NodeEntered(node="mood", type="llm")),
            event(ev.NodeEntered(node="topic", type="llm", visit=2)),
            event(ev.NodeExited(node="mood", seconds=0.31, next=["fix"], error="it did\nnot fit")),
            event(ev.NodeExited(node="topic", seconds=1.2, next=["done"])),
            event(ev.StepFinished(step=2, next=["done"])),
            event(ev.UsageUpdate(model="openai:x", input_tokens=10, output_tokens=2, cost=0.0)),
            event(ev.GraphFinished(graph="triage", seconds=1.3)),
        ]
    )
    assert story == [
        "▸ graph: triage (start: read)",
        "▸ 12:00:00 read (script) start",
        "▸ 12:00:00 read done in 42ms -> mood, topic",
        "▸ 12:00:00 super-step start: mood, topic",
        "▸ 12:00:00 mood (llm) start",
        "▸ 12:00:00 topic (llm, visit 2) start",
        "▸ 12:00:00 mood (llm) FAILED in 310ms -> fix -- it did not fit",
        "▸ 12:00:00 topic done in 1.20s -> done",
        "▸ 12:00:00 super-step end -> done",
        "▸ graph done in 1.30s, 10 tokens in, 2 out",
    ]


def test_a_warning_about_a_file_says_so_once(event: MakeEvent) -> None:
    problem = Problem(severity="warning", file="config.yaml", line=2, code="unknown_key", message="odd", node="end")
    story = told([event(ev.Warned(code=problem.code, message=str(problem), node="end"))])
    assert story == ["config.yaml:2: warning: [end] odd"]


def test_questions_warnings_and_retries_are_told(event: MakeEvent) -> None:
    story = told(
        [
            event(ev.QuestionAsked(question={"id": "q1", "text": "Go\non?", "node": "gate"}), id="q1"),
            event(ev.QuestionAnswered(value="yes", by="terminal"), id="q1"),
            event(ev.QuestionExpired(reason="timeout"), id="q2"),
            event(ev.Warned(code="dropped", message="lane b was dropped", node="end")),
            event(ev.LlmRetry(model="m", attempt=1, wait=0.5, error="429 slow down")),
            event(ev.LlmFallback(model="a:x", next="b:y", error="503 down")),
            event(ev.LlmFallback(model="a:x", next="b:y", error="failed 2 s ago", asked=False)),
            event(ev.LlmFallback(model="a:x", next="b:y", error="failed 3 s ago", asked=False)),
            event(ev.NodeSkipped(node="b", reason="an end was reached")),
        ]
    )
    assert story == [
        "▸ 12:00:00 gate asks: Go on?",
        "▸ 12:00:00 answered at the terminal: yes",
        "▸ 12:00:00 no answer in time",
        "warning: [end] lane b was dropped",
        "▸ 12:00:00 m: try 1 failed, next in 500ms -- 429 slow down",
        "▸ 12:00:00 a:x did not answer, b:y is asked -- 503 down",
        "▸ 12:00:00 a:x is skipped, b:y is asked -- failed 2 s ago",
        "▸ 12:00:00 b skipped: an end was reached",
    ]


def test_requests_for_vectors_and_for_an_order_are_told_in_detail(event: MakeEvent) -> None:
    ended = [
        event(ev.LlmEmbedding(model="a:e", texts=96, seconds=0.5, input_tokens=700)),
        event(ev.LlmRerank(model="a:r", texts=10, seconds=2, error="busy (HTTP 503)", code="upstream")),
    ]
    assert told(ended) == []
    assert told(ended, verbose=True) == [
        "▸ 12:00:00   embedding: model=a:e texts=96 500ms in=700",
        "▸ 12:00:00   rerank: model=a:r texts=10 2.00s FAILED -- busy (HTTP 503)",
    ]


def nested(event: MakeEvent) -> list[ev.Event]:
    inner = "/run-1/call/inner"
    return [
        event(ev.GraphStarted(graph="inner", start="a", depth=1), inner),
        event(ev.NodeEntered(node="a", type="llm"), f"{inner}/a"),
        event(ev.LlmRequest(model="m", messages=2, tools=["t"]), f"{inner}/a"),
        event(ev.NodeExited(node="a", seconds=1.0, next=[]), f"{inner}/a"),
        event(ev.GraphFinished(graph="inner", seconds=1.0, depth=1, timing={"a": (1, 1.0, 1.0)}), inner),
        event(ev.NodeEntered(node="m", type="llm", item=3), "/run-1/map/m"),
    ]


def test_a_model_call_of_a_node_is_one_line_and_those_of_agents_are_for_verbose(event: MakeEvent) -> None:
    call = ev.LlmRequest(model="m", messages=2, tools=[])
    graph = [event(ev.GraphStarted(graph="g", start="a"), "/run-1/g"), event(call, "/run-1/g/a")]
    again = event(ev.LlmRequest(model="m", messages=2, tools=[], attempt=2), "/run-1/g/a")
    assert told([*graph, again, event(call, "/run-1/g/a/child")])[1:] == ["▸   llm call: model=m tools=<none>"]
    assert told([event(call, "/run-1/boss")]) == []


def test_nested_graphs_and_map_items_are_quiet(event: MakeEvent) -> None:
    assert told(nested(event)) == []


def test_verbose_tells_nested_graphs_items_model_calls_and_times(event: MakeEvent) -> None:
    assert told(nested(event), verbose=True) == [
        "▸ graph: inner (start: a)",
        "▸ 12:00:00 a (llm) start",
        "▸ 12:00:00   llm call: model=m messages=2 tools=t try=1",
        "▸ 12:00:00 a done in 1.00s",
        "    a     1 x      1.00s in all      1.00s longest",
        "▸ graph inner done in 1.00s",
        "▸ 12:00:00 m[3] (llm) start",
    ]


def test_a_failing_item_is_told_even_when_items_are_quiet(event: MakeEvent) -> None:
    assert told([event(ev.NodeExited(node="m", seconds=0.1, item=3, error="broken"))]) == [
        "▸ 12:00:00 m[3] (node) FAILED in 100ms -- broken"
    ]


def test_a_graph_that_a_node_broke_is_not_called_done(event: MakeEvent) -> None:
    story = told(
        [
            event(ev.NodeExited(node="a", seconds=0.1, error="broken"), "/run-1/g/a"),
            event(ev.GraphFinished(graph="g", seconds=0.2, error="broken"), "/run-1/g"),
        ]
    )
    assert story[-1] == "▸ graph failed after 0.20s"


def test_where_the_prompt_shows_questions_only_those_that_others_answer_are_told(event: MakeEvent) -> None:
    narrator = Narrator(prompting=True)
    events = [
        event(ev.QuestionAsked(question={"id": "q1", "text": "One?", "node": "a"}), id="q1"),
        event(ev.QuestionAsked(question={"id": "q2", "text": "Two?", "node": "b"}), id="q2"),
        event(ev.QuestionAnswered(value="x", by="terminal"), id="q1"),
        event(ev.QuestionAnswered(value="y", by="answers"), id="q2"),
    ]
    assert [line.text for each in events for line in narrator.lines(each)] == [
        "▸ 12:00:00 b asks: Two?",
        "▸ 12:00:00 answered from the prepared answers: y",
    ]


def test_text_from_outside_is_harmless_wherever_it_appears(event: MakeEvent) -> None:
    bad = "\x1b[2Jevil\x9b\x07"
    for verbose in (False, True):
        for kind, data in ev.KINDS.items():
            made = event(data(**_filled(data, bad)), actor=f"/{bad}", id=bad)
            for line in told([made], verbose=verbose):
                assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", line), kind


def _filled(data: type[ev.EventData], text: str) -> dict[str, object]:
    """A value for every field, with the bad text wherever text can be."""
    by_annotation: dict[str, object] = {
        "str": text,
        "str | None": text,
        "list[str]": [text],
        "tuple[str, ...]": (text,),
        "int": 1,
        "int | None": None,
        "float": 1.0,
        "float | None": 2.0,
        "bool": True,
        "Json": {"text": text, "node": text},
        "dict[str, tuple[int, float, float]]": {text: (1, 1.0, 1.0)},
    }
    return {
        field.name: get_args(field.type)[0]
        if get_origin(field.type) is Literal
        else by_annotation[data.__annotations__[field.name]]
        for field in msgspec.structs.fields(data)
    }


def test_plain_lines_have_no_colours_in_a_pipe(event: MakeEvent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLICOLOR_FORCE", raising=False)
    stream = io.StringIO()
    with PlainLines(stream) as plain:
        plain.on_event(event(ev.GraphStarted(graph="g", start="a")))
    assert stream.getvalue() == "> graph: g (start: a)\n"


def test_plain_lines_can_be_made_to_carry_colours(event: MakeEvent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    stream = io.StringIO()
    with PlainLines(stream) as plain:
        plain.on_event(event(ev.GraphStarted(graph="g", start="a")))
    assert stream.getvalue() == "\x1b[1m> graph: g (start: a)\x1b[0m\n"


def test_a_reader_of_stderr_that_goes_away_ends_the_narration_only(event: MakeEvent) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with PlainLines(Gone()) as plain:
        plain.on_event(event(ev.GraphStarted(graph="g", start="a")))
        plain.on_event(event(ev.GraphFinished(graph="g", seconds=1.0)))


def test_servers_are_told_when_they_start_and_with_verbose_when_they_end(event: MakeEvent) -> None:
    story = [
        event(ev.McpServerStarting(server="time")),
        event(ev.McpServerStarting(server="old", wait=0.5)),
        event(ev.McpServerStarted(server="time", version="1.2", protocol="2025-11-25", seconds=0.34, tools=2)),
        event(ev.McpServerFailed(server="old", error="it\ndied")),
        event(ev.McpServerStopped(server="time")),
        event(ev.McpServerStopped(server="time", error="killed")),
    ]
    assert told(story) == ["▸ 12:00:00 MCP server time started in 340ms, 2 tools"]
    assert told(story, verbose=True) == [
        "▸ 12:00:00 MCP server time starts",
        "▸ 12:00:00 MCP server old starts in 500ms, since it failed before",
        "▸ 12:00:00 MCP server time started in 340ms, 2 tools (version 1.2, MCP 2025-11-25)",
        "▸ 12:00:00 MCP server old did not start -- it died",
        "▸ 12:00:00 MCP server time ended",
        "▸ 12:00:00 MCP server time was lost -- killed",
    ]


def test_how_far_a_call_has_come_is_told_with_verbose(event: MakeEvent) -> None:
    story = [
        event(ev.ToolProgress(tool="t__slow", progress=3, total=10, message="reading\nfiles")),
        event(ev.ToolProgress(tool="t__slow", progress=1.5, message="writing")),
        event(ev.ToolProgress(tool="t__slow", progress=2.0)),
        event(ev.ToolProgress(tool="t__slow", progress=2.0, total=0)),
    ]
    assert told(story) == []
    assert told(story, verbose=True) == [
        "    t__slow: 30% reading files",
        "    t__slow: writing",
        "    t__slow: 2",
        "    t__slow: 2",
    ]


def test_parts_that_others_play_are_told_with_their_run_and_items_of_maps_with_verbose(event: MakeEvent) -> None:
    story = [event(ev.RunPlaced(part=f"run-{name[0]}", agent=name)) for name in ("painter", "fan[3]")]
    assert told(story) == ["▸ 12:00:00 painter runs on another worker: run-p"]
    assert told(story, verbose=True)[1:] == ["▸ 12:00:00 fan[3] runs on another worker: run-f"]
