"""What of a run is seen while it works."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pytest
from support.messages import has_message

from callboard.cli.chat.display import ChatStory, Display, ScreenOutput
from callboard.cli.render.answer import AnswerStyle
from callboard.protocol import events as ev
from callboard.protocol.control import chat


def told(number: int, data: ev.EventData, actor: str, id: str = "") -> ev.Event:
    now = datetime(2026, 11, 3, tzinfo=UTC)
    return ev.Event(seq=number, ts=now, run="run-1", actor=f"/run-1{actor}", kind=data.kind, id=id, data=data)


def at_a_call() -> ChatStory:
    """A run that has begun to call a tool."""
    story = ChatStory(Display(AnswerStyle(), coloured=False), lambda: 80, clock=lambda: 0.0)
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


def test_a_call_waits_while_the_sandbox_asks_for_its_processes() -> None:
    story = at_a_call()
    asked = {"text": "Let shout reach example.com?", "permission": "shout"}
    story.see(told(4, ev.QuestionAsked(question=asked), "/network", "q"))
    story.see(told(5, ev.ActorWaiting(on="question"), "/network", "q"))
    (row,) = story.rows(80, 10)
    assert row.endswith("waits for question")
    story.see(told(6, ev.QuestionAnswered(value="no", by="terminal"), "/network", "q"))
    (row,) = story.rows(80, 10)
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
    story = ChatStory(Display(AnswerStyle(), coloured=False), lambda: columns, clock=lambda: 0.0)
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
    assert has_message(story.settled()[-1], "cli.chat.display.ChatStory._diff_of", left=163)


def test_a_graph_that_ended_with_an_error_shows_its_output_and_the_error() -> None:
    story = ChatStory(Display(AnswerStyle(), coloured=False), lambda: 80, clock=lambda: 0.0)
    story.see(told(1, ev.RunStarted(target="coder", name="coder", dialect="graph", prompt="?"), ""))
    error = {"code": "failed_end", "message": "2 tests fail", "node": "e"}
    story.see(told(2, ev.RunFailed(outcome={"status": "failed", "output": "CODER_FAILED", "error": error}), ""))
    assert [line for line in story.settled() if line.strip()] == ["CODER_FAILED", "▸ failed: node 'e': 2 tests fail"]


class Screen:
    """The part of the chat's screen that `ScreenOutput` uses."""

    left = "> "
    output = SimpleNamespace(size=(80, 24))

    def wake(self) -> None:
        """Nothing is drawn."""


def test_what_is_said_after_a_run_is_shown_below_the_last_of_its_answer() -> None:
    seen = ScreenOutput(Screen(), Display(AnswerStyle(), coloured=False))  # type: ignore[arg-type]  # less than a whole screen
    seen.begin("run-1")
    seen.show_output(chat.Said(chat="c", kind="note", text="said meanwhile"))
    seen.show_output(chat.Said(chat="c", kind="note", text="said after it", after="run-1"))
    assert seen.settled() == ["said meanwhile"]
    seen.show(["the end of its answer"])
    seen.stories["run-1"].over = True
    seen.ended.append("run-1")
    assert seen.settled() == ["the end of its answer", "", "said after it"]
    seen.show_output(chat.Said(chat="c", kind="note", text="said later", after="run-1"))
    assert seen.settled() == ["said later"]


def todo(story: ChatStory, tool: str, result: object, agent: str = "/lead", **arguments: object) -> list[str]:
    """Have an agent call a todo tool; what that settles."""
    number, call = story.seq + 1, f"t{story.seq}"
    started = ev.ToolStarted(tool=tool, arguments=json.dumps(arguments), origin="family")
    finished = ev.ToolFinished(tool=tool, result=json.dumps(result), seconds=0)
    for at, data in enumerate((started, finished), number):
        event = told(at, data, f"{agent}/{tool}", call)
        story.see(msgspec.structs.replace(event, parent=f"/run-1{agent}"))
    story.seq = number + 1
    return story.settled()


def test_the_todo_list_of_the_agent_is_drawn_while_something_on_it_is_open() -> None:
    story = at_a_call()
    story.seq = 3
    assert todo(story, "todo__init", {"status": "ok"}, goal="mend it") == ["▸ todo list: mend it"]
    for number, task in enumerate(["look", "edit", "test", "commit"], 1):
        assert todo(story, "todo__add", {"status": "ok", "id": number}, task=task) == [f"▸ todo {number}: {task}"]
    assert story.rows(80, 20)[:4] == ["  ○ look", "  ○ edit", "  ○ test", "  ○ commit"]
    assert todo(story, "todo__done", {"status": "ok"}, id=1) == ["▸ done 1: look (1 of 4)"]
    assert todo(story, "todo__done", {"status": "ok"}, id="2") == ["▸ done 2: edit (2 of 4)"]
    *shown, call = story.rows(80, 5)
    assert shown == ["  ✓ edit", "  ○ test (and 1 more)"]
    assert "shout" in call
    assert "FAILED" not in todo(story, "todo__done", {"error": "Todo 9 not found"}, id=9)[0]
    for number in (3, 4):
        todo(story, "todo__done", {"status": "ok"}, id=number)
    assert len(story.rows(80, 20)) == 1
    items = [{"id": 1, "desc": "one", "done": True}, {"id": 2, "desc": "two\x1b[2J", "done": False}]
    todo(story, "todo__list", {"goal": "g", "todos": items})
    assert story.rows(80, 20)[:2] == ["  ✓ one", r"  ○ two\x1b[2J"]


def test_the_todo_list_of_a_child_is_no_list_of_the_agent_that_answers() -> None:
    story = at_a_call()
    story.see(told(4, ev.AgentStarted(agent="child", child=True), "/lead/child"))
    story.seq = 4
    todo(story, "todo__add", {"status": "ok", "id": 1}, agent="/lead/child", task="mine")
    assert story.todos.items == {}
