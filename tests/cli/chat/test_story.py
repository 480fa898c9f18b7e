"""What of a run is seen while it works."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from support.messages import has_message

from callboard.cli.chat.story import Display, Story
from callboard.cli.render.answer import Look
from callboard.protocol import events as ev


def told(number: int, data: ev.EventData, actor: str, id: str = "") -> ev.Event:
    now = datetime(2026, 11, 3, tzinfo=UTC)
    return ev.Event(seq=number, ts=now, run="run-1", actor=f"/run-1{actor}", kind=data.kind, id=id, data=data)


def at_a_call() -> Story:
    """A run that has begun to call a tool."""
    story = Story(Display(Look(), coloured=False), lambda: 80, clock=lambda: 0.0)
    story.see(told(1, ev.RunStarted(target="lead", name="lead", dialect="agent", prompt="?"), ""))
    story.see(told(2, ev.AgentStarted(agent="lead"), "/lead"))
    story.see(told(3, ev.ToolStarted(tool="shout", arguments="{}"), "/lead/shout", "c1"))
    return story


def test_a_call_waits_for_an_answer_no_longer_than_until_there_is_one() -> None:
    story = at_a_call()
    story.see(told(4, ev.QuestionAsked(question={"text": "May I?"}), "/lead/shout", "q"))
    story.see(told(5, ev.ActorWaiting(on="question"), "/lead/shout", "q"))
    assert "waits for question" in story.rows(80, 10)[-1]
    story.see(told(6, ev.QuestionAnswered(value="yes", by="terminal"), "/lead/shout", "q"))
    (row,) = story.rows(80, 10)
    assert "shout" in row
    assert "waits" not in row


def test_what_a_call_of_the_run_before_came_to_can_be_shown_until_there_is_another() -> None:
    story = at_a_call()
    story.see(told(4, ev.ToolFinished(tool="shout", result="HELLO", seconds=1), "/lead/shout", "c1"))
    story.see(told(5, ev.LlmReasoning(text="as I thought"), "/lead", "l1"))
    next = at_a_call()
    next.follow(story)
    assert [call.result for call in next.calls] == ["HELLO"]
    assert next.thoughts == story.thoughts
    next.see(told(4, ev.ToolFinished(tool="shout", result="AGAIN", seconds=1), "/lead/shout", "c1"))
    assert [call.result for call in next.calls] == ["HELLO", "AGAIN"]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_call_with_long_arguments_still_says_what_it_waits_for(columns: int) -> None:
    story = Story(Display(Look(), coloured=False), lambda: columns, clock=lambda: 0.0)
    row = story._row(0.0, 0, "fs_patch contents=" + "x" * 300, 12.0, "waits for coder", columns)
    assert row.endswith("…  12s  waits for coder")
    assert len(row) == columns


DIFF = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+two\n"


def test_what_a_call_changed_without_asking_is_shown() -> None:
    story = at_a_call()
    changed = ev.FileChanged(tool="fs_write", path="/p/x", how="changed", added=1, removed=1, diff=DIFF)
    story.see(told(4, changed, "/lead/shout"))
    shown = ["▸ changed /p/x +1 -1", "  --- a/x", "  +++ b/x", "  @@ -1 +1 @@", "  -one", "  +two"]
    assert story.settled()[-6:] == shown


def test_what_the_person_has_read_in_a_question_is_not_shown_again() -> None:
    story = at_a_call()
    story.see(told(4, ev.QuestionAsked(question={"text": "May I?", "diff": DIFF}), "/lead/shout", "q"))
    story.see(told(5, ev.QuestionAnswered(value="yes", by="terminal"), "/lead/shout", "q"))
    story.see(told(6, ev.FileChanged(tool="fs_write", path="/p/x", how="changed", diff=DIFF), "/lead/shout"))
    assert not any("+two" in line for line in story.settled())


def test_of_a_long_change_the_beginning_is_shown() -> None:
    story = at_a_call()
    diff = "--- a/x\n+++ b/x\n@@ -0,0 +1,200 @@\n" + "".join(f"+{number}\n" for number in range(200))
    story.see(told(4, ev.FileChanged(tool="fs_write", path="/p/x", how="created", diff=diff), "/lead/shout"))
    assert has_message(story.settled()[-1], "cli.chat.story.Story._diff_of", left=163)


def test_a_graph_that_ended_with_an_error_shows_its_output_and_the_error() -> None:
    story = Story(Display(Look(), coloured=False), lambda: 80, clock=lambda: 0.0)
    story.see(told(1, ev.RunStarted(target="coder", name="coder", dialect="graph", prompt="?"), ""))
    error = {"code": "failed_end", "message": "2 tests fail", "node": "e"}
    story.see(told(2, ev.RunFailed(outcome={"status": "failed", "output": "CODER_FAILED", "error": error}), ""))
    assert [line for line in story.settled() if line.strip()] == ["CODER_FAILED", "▸ failed: node 'e': 2 tests fail"]
