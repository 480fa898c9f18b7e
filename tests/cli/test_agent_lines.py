"""What agents do is told in lines: no more than is wanted, and each call by whom."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import msgspec
import pytest

from callboard.cli.render.narration import Narrator
from callboard.cli.render.progress import PlainLines
from callboard.protocol import events as ev

MakeEvent = Callable[..., ev.Event]

BOSS = "/run-1/boss"
KID = f"{BOSS}/children/agent_kid_1/kid"


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


def called(
    event: MakeEvent, actor: str, tool: str, arguments: str = "{}", *, error: str | None = None
) -> list[ev.Event]:
    return [
        event(ev.ToolStarted(tool=tool, arguments=arguments), f"{actor}/{tool}", id="call_0"),
        event(ev.ToolDelta(tool=tool, text="\x1b[31mred\x1b[0m"), f"{actor}/{tool}"),
        event(ev.ToolFinished(tool=tool, seconds=0.04, error=error), f"{actor}/{tool}", id="call_0"),
    ]


def test_an_agent_with_a_child_reads_like_a_story(event: MakeEvent) -> None:
    story = told(
        [
            event(ev.AgentStarted(agent="boss", tools=["fs_read", "agent__spawn"]), BOSS),
            event(ev.LlmRequest(model="m", messages=1), BOSS),
            *called(event, BOSS, "agent__spawn", '{"agent":"kid","prompt":"look around"}'),
            event(ev.AgentStarted(agent="kid", depth=1, tools=["fs_ls"], child="agent_kid_1"), KID),
            *called(event, KID, "fs_ls", '{"path":"."}'),
            event(ev.AgentFinished(agent="kid", seconds=2.1, turns=2, tool_calls=1, depth=1, child="agent_kid_1"), KID),
            event(ev.UsageUpdate(model="m", input_tokens=10, output_tokens=2, cost=0.0), BOSS),
            event(ev.AgentFinished(agent="boss", seconds=3, turns=1, tool_calls=2), BOSS),
        ]
    )
    assert story == [
        "▸ agent: boss (2 tools)",
        '▸ 12:00:00 agent__spawn agent=kid prompt="look around" done in 40ms',
        "▸ 12:00:00 agent_kid_1 start",
        "▸ 12:00:00 agent_kid_1: fs_ls path=. done in 40ms",
        "▸ 12:00:00 agent_kid_1 done in 2.10s, 2 turns, 1 tool call",
        "▸ agent done in 3.00s, 1 turn, 2 tool calls, 10 tokens in, 2 out",
    ]


def test_what_fails_says_why_and_what_was_interrupted_did_not_fail(event: MakeEvent) -> None:
    ended = {"seconds": 1.0, "turns": 1, "tool_calls": 0}
    story = told(
        [
            *called(event, BOSS, "fs_rm", error="it is\na root"),
            *called(event, BOSS, "fs_rm", error='{"tool_call_error":"Unknown tool \'fs_rm\'"}'),
            *called(event, BOSS, "fs_rm", error="interrupted"),
            event(ev.AgentFinished(agent="kid", error="no key", depth=1, child="agent_kid_1", **ended), KID),
            event(ev.AgentFinished(agent="kid", error="interrupted", depth=1, child="agent_kid_1", **ended), KID),
            event(ev.AgentFinished(agent="boss", error="no key", **ended), BOSS),
        ]
    )
    assert story == [
        "▸ 12:00:00 fs_rm FAILED in 40ms -- it is a root",
        "▸ 12:00:00 fs_rm FAILED in 40ms -- Unknown tool 'fs_rm'",
        "▸ 12:00:00 fs_rm stopped after 40ms",
        "▸ 12:00:00 agent_kid_1 FAILED in 1.00s, 1 turn, 0 tool calls -- no key",
        "▸ 12:00:00 agent_kid_1 stopped after 1.00s, 1 turn, 0 tool calls",
        "▸ agent stopped after 1.00s, 1 turn, 0 tool calls",
    ]


def test_going_on_and_summing_up_are_told(event: MakeEvent) -> None:
    story = told(
        [
            event(ev.AgentContinued(agent="boss", count=1, most=10, open=2), BOSS),
            event(ev.HistoryCompacting(agent="kid", turns=12, tokens=90_000), KID),
            event(ev.HistoryCompacted(agent="kid", turns=12, tokens=90_000, summary_tokens=800, tokens_now=7_000), KID),
            event(ev.HistoryCompacted(agent="kid", turns=0, tokens=90, summary_tokens=0, results=2, tokens_now=7), KID),
            event(ev.AgentFinished(agent="boss", seconds=1, turns=9, tool_calls=1, stop="todo_limit"), BOSS),
        ]
    )
    assert story[:4] == [
        "▸ 12:00:00 boss goes on: 2 open todos (time 1 of at most 10)",
        "▸ 12:00:00 agent_kid_1 summarises its first 12 messages, since the next request has 90000 tokens",
        "▸ 12:00:00 agent_kid_1 has summarised its first 12 messages (90000 tokens, now 7000)",
        "▸ 12:00:00 agent_kid_1 keeps beginning and end of 2 results of tools (90 tokens, now 7)",
    ]
    assert story[4].startswith("▸ agent stopped after 1.00s, 9 turns, 1 tool call -- todos are still open")


def test_verbose_tells_how_calls_begin_and_what_tools_print(event: MakeEvent) -> None:
    story = told(
        [
            event(ev.AgentStarted(agent="boss", tools=["fs_ls", "fs_rm"]), BOSS),
            event(ev.LlmRequest(model="m", messages=2, tools=["t"] * 9), BOSS),
            event(ev.LlmResponse(model="m", seconds=1.0, input_tokens=3, output_tokens=4, stop="tools"), BOSS),
            *called(event, BOSS, "fs_ls"),
        ],
        verbose=True,
    )
    assert story == [
        "▸ agent: boss (2 tools)",
        "    tools: fs_ls, fs_rm",
        "▸ 12:00:00   llm call: model=m messages=2 tools=9 try=1",
        "▸ 12:00:00   llm answer: model=m in=3 out=4 1.00s (tools)",
        "▸ 12:00:00   fs_ls start",
        "    fs_ls: red",
        "▸ 12:00:00   fs_ls done in 40ms",
    ]


def test_the_process_of_a_script_node_is_told_with_verbose_only(event: MakeEvent) -> None:
    events = [
        event(ev.ToolStarted(tool="read.sh"), "/run-1/g/read"),
        event(ev.ToolFinished(tool="read.sh", seconds=0.04, status=3), "/run-1/g/read"),
    ]
    assert told(events) == []
    assert told(events, verbose=True)[-1] == "▸ 12:00:00   tool read.sh done (exit 3) in 40ms"


def test_agents_of_nodes_of_inner_graphs_and_of_map_items_are_quiet(event: MakeEvent) -> None:
    inner, item = "/run-1/g/call/inner", "/run-1/g/map/m#3"
    quiet = [
        event(ev.AgentStarted(agent="writer", depth=1), "/run-1/g/write/writer"),
        event(ev.AgentFinished(agent="writer", seconds=1, turns=1, tool_calls=0, depth=1), "/run-1/g/write/writer"),
        event(ev.GraphStarted(graph="inner", start="a", depth=1), inner),
        *called(event, f"{inner}/a", "fs_ls"),
        event(ev.NodeEntered(node="m", type="llm", item=3), item),
        *called(event, item, "fs_ls"),
        event(ev.NodeExited(node="m", seconds=1, item=3), item),
    ]
    assert told(quiet) == []
    assert len(told(quiet, verbose=True)) > 8
    assert told(called(event, "/run-1/g/plan", "fs_ls")) == ["▸ 12:00:00 plan: fs_ls done in 40ms"]


def test_a_child_that_is_a_graph_is_told_as_a_child(event: MakeEvent) -> None:
    actor = f"{BOSS}/children/agent_coder_1/coder"
    story = told(
        [
            event(ev.GraphStarted(graph="coder", start="plan", depth=1), actor),
            event(ev.NodeEntered(node="plan", type="llm"), f"{actor}/plan"),
            *called(event, f"{actor}/plan", "fs_ls"),
            event(ev.GraphFinished(graph="coder", seconds=2.0, depth=1), actor),
        ]
    )
    assert story == ["▸ 12:00:00 agent_coder_1 (coder, a graph) start", "▸ 12:00:00 agent_coder_1 done in 2.00s"]


def test_a_question_says_who_asks_and_a_secret_is_not_told(event: MakeEvent) -> None:
    question = {"text": "Password?", "actor": f"{KID}/children/agent_sub_2/sub/user__input", "secret": True}
    story = told(
        [
            event(ev.QuestionAsked(question=question), id="q1"),
            event(ev.QuestionAnswered(value="hunter2", by=BOSS), id="q1"),
            event(ev.QuestionAnswered(value="yes", by=BOSS), id="q2"),
            event(ev.QuestionAnswered(value="yes", by="always"), id="q3"),
        ]
    )
    assert story == [
        "▸ 12:00:00 agent_kid_1 > agent_sub_2 asks: Password?",
        "▸ 12:00:00 answered by boss (a secret)",
        "▸ 12:00:00 answered by boss: yes",
        "▸ 12:00:00 answered by a stored approval: yes",
    ]


@pytest.mark.parametrize("last", ["child", "run"])
def test_the_first_agent_ends_last_in_the_story_whoever_was_interrupted_first(event: MakeEvent, last: str) -> None:
    ended = {"seconds": 1.0, "turns": 1, "tool_calls": 0, "error": "interrupted"}
    story = told(
        [
            event(ev.AgentStarted(agent="boss"), BOSS),
            event(ev.AgentStarted(agent="kid", depth=1, child="agent_kid_1"), KID),
            event(ev.AgentFinished(agent="boss", **ended), BOSS),
            event(ev.AgentFinished(agent="kid", depth=1, child="agent_kid_1", **ended), KID)
            if last == "child"
            else event(ev.RunCancelled(outcome={})),
        ]
    )
    assert story[-1] == "▸ agent stopped after 1.00s, 1 turn, 0 tool calls"
    assert len(story) == (4 if last == "child" else 3)


def thoughtful(event: MakeEvent, actor: str, *ends: ev.EventData) -> list[ev.Event]:
    """A request whose model thinks for three seconds and a half, in pieces, before the others come."""
    begins = [ev.LlmRequest(model="m", messages=1), *[ev.LlmReasoning(text="a secret thought")] * 3, *ends]
    made = [event(data, actor, id="llm-1") for data in begins]
    late = {number: timedelta(seconds=3.5) for number in range(3, len(made))} | {2: timedelta(seconds=1)}
    return [
        msgspec.structs.replace(each, ts=each.ts + late.get(number, timedelta())) for number, each in enumerate(made)
    ]


ANSWERS = [ev.LlmDelta(text="It "), ev.LlmDelta(text="is."), ev.LlmResponse(model="m", seconds=4)]


@pytest.mark.parametrize("ends", [ANSWERS, ANSWERS[-1:]], ids=["an answer", "calls alone"])
def test_how_long_a_model_thinks_is_told_once_at_a_terminal(
    ends: list[ev.EventData], event: MakeEvent, terminal: io.StringIO
) -> None:
    for stream, lines in ((terminal, ["> thought for 3.50s"]), (io.StringIO(), [])):
        shown = PlainLines(stream)
        for each in thoughtful(event, BOSS, *ends):
            shown.on_event(each)
        assert [line.replace("▸", ">") for line in stream.getvalue().splitlines()] == lines


def test_thinking_below_a_second_is_not_told(event: MakeEvent) -> None:
    for verbose in (False, True):
        narrator = Narrator(verbose=verbose, thoughts=True)
        made = [event(data, BOSS, id="llm-1") for data in (ev.LlmReasoning(text="hm"), *ANSWERS)]
        late = [made[0], *(msgspec.structs.replace(each, ts=each.ts + timedelta(seconds=0.9)) for each in made[1:])]
        assert not any("thought" in line.text for each in late for line in narrator.lines(each))


def test_the_thinking_of_children_is_told_only_in_detail(event: MakeEvent) -> None:
    for verbose, lines in ((False, []), (True, ["▸ 12:00:03 agent_kid_1: thought for 3.50s"])):
        narrator = Narrator(verbose=verbose, thoughts=True)
        seen = [line.text for each in thoughtful(event, KID, *ANSWERS) for line in narrator.lines(each)]
        assert [line for line in seen if "thought" in line] == lines


@pytest.mark.parametrize(
    "end", [ev.LlmRetry(model="m", attempt=1, wait=1, error="x"), ev.LlmFailed(model="m", error="x", code="upstream")]
)
def test_what_was_thought_in_vain_is_not_told(end: ev.EventData, event: MakeEvent) -> None:
    narrator = Narrator(thoughts=True)
    seen = [line.text for each in thoughtful(event, BOSS, end, *ANSWERS) for line in narrator.lines(each)]
    assert not any("thought" in line for line in seen)
