"""Loki's command line: one prompt (sections 3 and 4 of the plan, 2 and 3 of the checklist)."""

from __future__ import annotations

from pathlib import Path

from qa.home import House
from support.fake_models import Reply


def said(house: House, *arguments: str) -> str:
    """What a line shows, and it ends well."""
    ended = house.loki(*arguments)
    assert ended.code == 0, ended.shown
    return ended.shown


def test_p3_1_c2_1_a_prompt_is_answered_and_the_program_ends(house: House) -> None:
    with house.terminal("loki", "What is 2+2?", anew=True) as terminal:
        assert terminal.ended() == 0
        assert "You said: What is 2+2?" in terminal.shown()


def test_p3_2_c2_2_a_role_answers(house: House) -> None:
    assert "You said: hello" in said(house, "--role", "pirate", "hello")
    assert house.last().system == "You are a pirate."
    assert house.last().json["temperature"] == 0.25


def test_p3_3_c2_5_a_text_is_a_role_for_this_once(house: House) -> None:
    said(house, "--prompt", "you are a pirate", "hello")
    assert house.last().system == "you are a pirate"


def test_p3_4_c2_4_a_model_is_chosen(house: House) -> None:
    said(house, "--model", "fake:other", "hello")
    assert house.last().json["model"] == "other"


def test_p3_5_p3_6_c2_3_a_session_begins_and_goes_on(house: House) -> None:
    said(house, "-s", "bridges", "What holds it up?")
    said(house, "--session", "bridges", "what did I say?")
    assert [message["content"] for message in house.last().json["messages"]] == [
        "What holds it up?",
        "You said: What holds it up?",
        "what did I say?",
    ]


def test_p3_7_c2_11_a_dry_run_shows_the_prompt_and_asks_no_model(house: House) -> None:
    before = len(house.requests())
    assert "hello there" in said(house, "--dry-run", "hello there")
    assert len(house.requests()) == before


def test_p3_8_c2_12_without_streaming_the_answer_comes_whole(house: House) -> None:
    assert "You said: hello" in said(house, "--no-stream", "hello")
    assert "You said: hello" in said(house, "-S", "hello")


def test_p3_9_a_session_is_emptied_first(house: House) -> None:
    said(house, "-s", "emptied", "one")
    said(house, "-s", "emptied", "--empty-session", "two")
    assert [message["content"] for message in house.last().json["messages"]] == ["two"]


def test_p3_10_a_session_is_kept_whatever_the_settings_say(house: House) -> None:
    house.settings(save_session=False)
    said(house, "-s", "forgotten", "one")
    said(house, "-s", "kept", "--save-session", "one")
    listed = house.loki("--list-sessions").shown.split()
    assert "kept" in listed
    assert "forgotten" not in listed


def test_p3_11_only_code_comes_out(house: House) -> None:
    house.says("Here it is:\n\n```python\nprint('fib')\n```\n\nEnjoy!")
    shown = said(house, "-c", "fibonacci in python")
    assert "print('fib')" in shown
    assert "Enjoy" not in shown
    assert "```" not in shown


def test_p4_1_c3_1_a_file_goes_with_the_prompt(house: House) -> None:
    notes = _file(house, "notes.md", "flour and eggs")
    said(house, "-f", str(notes), "summarize")
    assert "flour and eggs" in house.last().prompt
    assert house.last().prompt.endswith("summarize")


def test_p4_2_c3_2_a_file_alone_is_the_prompt(house: House) -> None:
    said(house, "--file", str(_file(house, "notes.md", "flour and eggs")))
    assert "flour and eggs" in house.last().prompt


def test_p4_3_several_files_go_with_the_prompt(house: House) -> None:
    one, two = _file(house, "one.md", "first things"), _file(house, "two.md", "second things")
    said(house, "-f", str(one), "-f", str(two), "compare")
    assert "first things" in house.last().prompt
    assert "second things" in house.last().prompt


def test_p4_4_what_is_piped_in_goes_with_the_prompt(house: House) -> None:
    house.says(Reply("a summary"))
    assert house.piped("hello\n", "summarize").shown == "a summary\n"
    assert house.last().prompt == "summarize\nhello"


def _file(house: House, name: str, text: str) -> Path:
    file = house.work / name
    file.write_text(text)
    return file
