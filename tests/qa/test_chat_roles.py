"""The chat: roles, macros, files, deleting (sections 11, 19, 21, 24 of the plan; 9, 17, 20, 22 of the checklist)."""

from __future__ import annotations

import re

import pytest
from qa.chat import Chat
from qa.pages import pages
from qa.terminal import DOWN, ENTER


def test_p11_1_c9_1_a_role_is_entered_and_shown_by_the_prompt(chat: Chat) -> None:
    chat.into(".role pirate", "r:pirate")
    chat.say("ahoy", "You said: ahoy")
    assert chat.qa_home.last().system == "You are a pirate."


def test_p11_2_c9_2_a_text_behind_a_role_is_answered_in_it_once(chat: Chat) -> None:
    chat.say(".role pirate where is it?", "You said: where is it?")
    assert chat.qa_home.last().system == "You are a pirate."
    assert "r:" not in chat.terminal.prompt()


def test_p11_3_c9_3_a_role_is_shown(chat: Chat) -> None:
    chat.into(".role pirate", "r:pirate")
    assert "You are a pirate." in chat.say(".info role", "0.25")


def test_p11_4_p22_2_c9_4_a_role_opens_in_the_editor(chat: Chat) -> None:
    chat.into(".role pirate", "r:pirate")
    chat.qa_home.editor_writes("---\ntemperature: 0.5\n---\nYou are a polite pirate.\n")
    chat.edits(".edit role")
    chat.say("ahoy then", "You said: ahoy then")
    assert "You are a pirate." in chat.qa_home.opened()
    assert chat.qa_home.last().system == "You are a polite pirate."
    (chat.qa_home.config / "roles" / "pirate.md").write_text("---\ntemperature: 0.25\n---\nYou are a pirate.\n")


def test_p11_5_c9_5_a_role_is_kept_under_a_name(chat: Chat) -> None:
    chat.into(".prompt You are a parrot.", "r:")
    chat.into(".save role parrot", "r:parrot")
    assert "You are a parrot." in (chat.qa_home.config / "roles" / "parrot.md").read_text()


def test_p11_6_c9_6_a_role_is_left(chat: Chat) -> None:
    chat.into(".role pirate", "r:pirate")
    chat.out(".exit role", "r:")
    chat.say("hello again", "You said: hello again")
    assert chat.qa_home.last().system == ""


def test_p11_7_the_editor_opens_for_a_new_role(chat: Chat) -> None:
    chat.qa_home.editor_writes("You are new here.\n")
    chat.into(".role newcomer", "r:newcomer")
    assert (chat.qa_home.config / "roles" / "newcomer.md").read_text().strip() == "You are new here."


def test_p11_10_a_role_is_that_of_the_session(chat: Chat) -> None:
    chat.into(".session", "s:temp")
    chat.into(".role pirate", "r:pirate s:temp")
    chat.say("ahoy", "You said: ahoy")
    assert chat.qa_home.last().system == "You are a pirate."


def test_p24_1_c22_1_a_role_that_is_none_is_told(chat: Chat) -> None:
    chat.say(".role nonexistent_role_xxxxxxx", "no such role|Unknown role")
    chat.say("and on", "You said: and on")


# --- macros and files


def test_p21_1_a_macro_is_played(chat: Chat) -> None:
    chat.say(".macro greet Grace Hopper", r"You said: Say hello to Grace Hopper\.")


def test_p21_2_the_editor_opens_for_a_new_macro(chat: Chat) -> None:
    chat.qa_home.editor_writes("steps: [What is new?]\n")
    chat.edits(".macro news")
    chat.say("go on", "You said: go on")
    assert (chat.qa_home.config / "macros" / "news.yaml").read_text() == "steps: [What is new?]\n"


def test_p21_3_c20_4_a_file_goes_with_a_text(chat: Chat) -> None:
    (chat.qa_home.work / "notes.md").write_text("flour and eggs")
    chat.say(".file notes.md -- summarize this", "You said: ")
    assert "flour and eggs" in chat.qa_home.last().prompt
    assert chat.qa_home.last().prompt.endswith("summarize this")


def test_p21_4_c20_5_a_page_goes_with_a_text(chat: Chat) -> None:
    chat.begin(rag_private_pages=True)
    with pages({"/plums": "<html><body><p>All about plums.</p></body></html>"}) as url:
        chat.say(f".file {url}/plums -- summarize the page", "You said: ")
    assert "All about plums." in chat.qa_home.last().prompt


# --- deleting


@pytest.mark.parametrize("named", [True, False])
def test_p19_1_c17_1_a_role_is_deleted(chat: Chat, named: bool) -> None:
    file = chat.qa_home.config / "roles" / "going.md"
    file.write_text("Soon gone.\n")
    deleted(chat, "role", "going", named=named)
    assert not file.exists()


@pytest.mark.parametrize("named", [True, False])
def test_p19_2_c17_2_a_session_is_deleted(chat: Chat, named: bool) -> None:
    chat.begin(save_session=True)
    chat.into(".session passing", "s:passing")
    chat.say("hello", "You said: hello")
    chat.out(".exit session", "s:")
    deleted(chat, "session", "passing", named=named)
    chat.say(".list sessions", ".")
    chat.terminal.shows_not("passing")


@pytest.mark.parametrize("named", [True, False])
def test_p19_3_c17_3_a_knowledge_base_is_deleted(chat: Chat, named: bool) -> None:
    (chat.qa_home.config / "knowledge").mkdir(exist_ok=True)
    file = chat.qa_home.config / "knowledge" / "passing.yaml"
    file.write_text(f"documents: [{chat.qa_home.config.parent / 'fruit'}]\n")
    deleted(chat, "rag", "passing", named=named)
    assert not file.exists()


@pytest.mark.parametrize("named", [True, False])
def test_p19_4_c17_4_a_macro_is_deleted(chat: Chat, named: bool) -> None:
    file = chat.qa_home.config / "macros" / "passing.yaml"
    file.write_text("steps: [hello]\n")
    deleted(chat, "macro", "passing", named=named)
    assert not file.exists()


@pytest.mark.parametrize("named", [True, False])
def test_p19_5_c17_5_what_an_agent_has_kept_is_deleted(chat: Chat, named: bool) -> None:
    chat.begin(save_session=True)
    chat.into(".agent clerk kept", "a:clerk")
    chat.say("hello", "You said: hello")
    chat.out(".exit agent", "a:")
    sessions = chat.qa_home.config / "agents" / "clerk" / "sessions"
    assert list(sessions.rglob("state.yaml"))
    deleted(chat, "agent-data", "clerk", named=named)
    assert not list(sessions.rglob("state.yaml"))


def deleted(chat: Chat, kind: str, name: str, *, named: bool) -> None:
    """Deletes a thing by its name, or by choosing it from the list."""
    chat.terminal.line(f".delete {kind} {name}" if named else f".delete {kind}")
    if not named:
        found = re.search(rf"(\d+)\. \[ \] {name}\b", chat.terminal.shows(rf"\d+\. \[ \] {name}\b"))
        assert found is not None
        chat.terminal.choose(DOWN * (int(found[1]) - 1) + " " + ENTER)
    chat.terminal.shows(rf"callboard asks: Delete .*{name}.* for good")
    chat.answer("1" + ENTER)
    chat.terminal.shows("(?i)deleted")
