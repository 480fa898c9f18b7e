"""Loki's command line: one prompt (sections 3 and 4 of the plan, 2 and 3 of the checklist)."""

from __future__ import annotations

from pathlib import Path

from qa.home import QaHome
from support.fake_models import Reply


def said(qa_home: QaHome, *arguments: str) -> str:
    """What a line shows, and it ends well."""
    ended = qa_home.loki(*arguments)
    assert ended.code == 0, ended.shown
    return ended.shown


def test_p3_1_c2_1_a_prompt_is_answered_and_the_program_ends(qa_home: QaHome) -> None:
    with qa_home.terminal("loki", "What is 2+2?", anew=True) as terminal:
        assert terminal.ended() == 0
        assert "You said: What is 2+2?" in terminal.shown()


def test_p3_2_c2_2_a_role_answers(qa_home: QaHome) -> None:
    assert "You said: hello" in said(qa_home, "--role", "pirate", "hello")
    assert qa_home.last().system == "You are a pirate."
    assert qa_home.last().json["temperature"] == 0.25


def test_p3_3_c2_5_a_text_is_a_role_for_this_once(qa_home: QaHome) -> None:
    said(qa_home, "--prompt", "you are a pirate", "hello")
    assert qa_home.last().system == "you are a pirate"


def test_p3_4_c2_4_a_model_is_chosen(qa_home: QaHome) -> None:
    said(qa_home, "--model", "fake:other", "hello")
    assert qa_home.last().json["model"] == "other"


def test_p3_5_p3_6_c2_3_a_session_begins_and_goes_on(qa_home: QaHome) -> None:
    said(qa_home, "-s", "bridges", "What holds it up?")
    said(qa_home, "--session", "bridges", "what did I say?")
    assert [message["content"] for message in qa_home.last().json["messages"]] == [
        "What holds it up?",
        "You said: What holds it up?",
        "what did I say?",
    ]


def test_p3_7_c2_11_a_dry_run_shows_the_prompt_and_asks_no_model(qa_home: QaHome) -> None:
    before = len(qa_home.requests())
    assert "hello there" in said(qa_home, "--dry-run", "hello there")
    assert len(qa_home.requests()) == before


def test_p3_8_c2_12_without_streaming_the_answer_comes_whole(qa_home: QaHome) -> None:
    assert "You said: hello" in said(qa_home, "--no-stream", "hello")
    assert "You said: hello" in said(qa_home, "-S", "hello")


def test_p3_9_a_session_is_emptied_first(qa_home: QaHome) -> None:
    said(qa_home, "-s", "emptied", "one")
    said(qa_home, "-s", "emptied", "--empty-session", "two")
    assert [message["content"] for message in qa_home.last().json["messages"]] == ["two"]


def test_p3_10_a_session_is_kept_whatever_the_settings_say(qa_home: QaHome) -> None:
    qa_home.settings(save_session=False)
    said(qa_home, "-s", "forgotten", "one")
    said(qa_home, "-s", "kept", "--save-session", "one")
    listed = qa_home.loki("--list-sessions").shown.split()
    assert "kept" in listed
    assert "forgotten" not in listed


def test_p3_11_only_code_comes_out(qa_home: QaHome) -> None:
    qa_home.says("Here it is:\n\n```python\nprint('fib')\n```\n\nEnjoy!")
    shown = said(qa_home, "-c", "fibonacci in python")
    assert "print('fib')" in shown
    assert "Enjoy" not in shown
    assert "```" not in shown


def test_p4_1_c3_1_a_file_goes_with_the_prompt(qa_home: QaHome) -> None:
    notes = _file(qa_home, "notes.md", "flour and eggs")
    said(qa_home, "-f", str(notes), "summarize")
    assert "flour and eggs" in qa_home.last().prompt
    assert qa_home.last().prompt.endswith("summarize")


def test_p4_2_c3_2_a_file_alone_is_the_prompt(qa_home: QaHome) -> None:
    said(qa_home, "--file", str(_file(qa_home, "notes.md", "flour and eggs")))
    assert "flour and eggs" in qa_home.last().prompt


def test_p4_3_several_files_go_with_the_prompt(qa_home: QaHome) -> None:
    one, two = _file(qa_home, "one.md", "first things"), _file(qa_home, "two.md", "second things")
    said(qa_home, "-f", str(one), "-f", str(two), "compare")
    assert "first things" in qa_home.last().prompt
    assert "second things" in qa_home.last().prompt


def test_p4_4_what_is_piped_in_goes_with_the_prompt(qa_home: QaHome) -> None:
    qa_home.says(Reply("a summary"))
    assert qa_home.piped("hello\n", "summarize").shown == "a summary\n"
    assert qa_home.last().prompt == "summarize\nhello"


def _file(qa_home: QaHome, name: str, text: str) -> Path:
    file = qa_home.work / name
    file.write_text(text)
    return file
