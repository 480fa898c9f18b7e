"""The chat: sessions (sections 12, 22-24 of the plan; 10, 21 of the checklist)."""

from __future__ import annotations

from qa.chat import Chat
from qa.terminal import ENTER


def said(chat: Chat) -> list[str]:
    """What the model was told last, without the system's part."""
    return [message["content"] for message in chat.qa_home.last().json["messages"] if message["role"] != "system"]


def test_p12_1_c10_1_a_session_without_a_name_is_temporary(chat: Chat) -> None:
    chat.into(".session", "s:temp")


def test_p12_2_c10_2_a_named_session_begins_and_goes_on(chat: Chat) -> None:
    chat.begin(save_session=True)
    chat.into(".session mytest", "s:mytest")
    chat.say("first", "You said: first")
    chat.out(".exit session", "s:")
    chat.into(".session mytest", "s:mytest")
    chat.say("second", "You said: second")
    assert said(chat) == ["first", "You said: first", "second"]


def test_p12_3_c10_3_a_session_is_shown(chat: Chat) -> None:
    chat.into(".session shown", "s:shown")
    chat.say(".info session", r"session +shown")


def test_p12_4_p22_3_c10_4_a_session_opens_in_the_editor(chat: Chat) -> None:
    chat.begin(save_session=True)
    chat.into(".session edited", "s:edited")
    chat.say("something said", "You said: something said")
    chat.edits(".edit session")
    chat.say("and on", "You said: and on")
    assert "something said" in chat.qa_home.opened()


def test_p12_5_c10_5_a_session_is_kept_under_a_name(chat: Chat) -> None:
    chat.into(".session", "s:temp")
    chat.say("keep this", "You said: keep this")
    chat.into(".save session kept-one", "s:kept-one")
    chat.say(".list sessions", "kept-one")


def test_p12_6_c10_6_what_was_said_is_forgotten(chat: Chat) -> None:
    chat.into(".session", "s:temp")
    chat.say("to be forgotten", "You said: to be forgotten")
    chat.terminal.line(".empty session")
    chat.say("anew", "You said: anew")
    assert said(chat) == ["anew"]


def test_p12_7_p23_2_c10_7_a_session_is_compressed(chat: Chat) -> None:
    chat.into(".session", "s:temp")
    for text in ("one", "two", "three"):
        chat.say(text, f"You said: {text}")
    chat.qa_home.says("A short summary.", "Fine.")
    chat.say(".compress session", "(?i)compress.*\n(.*\n)*.*(compressed|messages|tokens)")
    chat.say("go on", "Fine.")
    assert "A short summary." in str(chat.qa_home.last().json["messages"])
    assert "one" not in said(chat)


def test_p12_8_c10_8_a_session_is_left(chat: Chat) -> None:
    chat.into(".session", "s:temp")
    chat.out(".exit session", "s:")


def test_p12_9_c10_10_the_last_exchange_may_come_along(chat: Chat) -> None:
    chat.say("carry me", "You said: carry me")
    chat.terminal.line(".session carrying")
    chat.terminal.shows(r"(?i)last question and answer|incorporate|come along")
    chat.answer("1" + ENTER)
    chat.terminal.asks("s:carrying .*> *$")
    chat.say("and now", "You said: and now")
    assert said(chat)[-3:] == ["carry me", "You said: carry me", "and now"]
    chat.close()


def test_p12_11_p24_5_a_second_session_is_refused(chat: Chat) -> None:
    chat.into(".session", "s:temp")
    chat.say(".session", "Already in a session")


def test_p24_3_without_a_session_it_says_so(chat: Chat) -> None:
    chat.say(".info session", "No session")


def test_p23_1_c21_1_c21_2_a_session_that_has_grown_is_compressed_by_itself(chat: Chat) -> None:
    chat.begin(compression_threshold=40)
    chat.into(".session", "s:temp")
    chat.say("one", "You said: one")
    chat.terminal.line("a long line, " * 12)
    chat.terminal.shows("Compressing the session")
    chat.idle()


def test_p23_3_c21_3_a_session_without_a_name_gets_one(chat: Chat) -> None:
    chat.begin(save_session=True)
    chat.into(".session", "s:temp")
    chat.say("bridges of Rome", "You said: bridges of Rome")
    chat.qa_home.says("Bridges of Rome")
    chat.terminal.line(".exit session")
    chat.idle()
    chat.say(".list sessions", "(?i)bridges-of-rome")


def test_p12_10_c10_9_p25_5_a_session_has_the_servers_that_it_names(chat: Chat) -> None:
    chat.into(".session", "s:temp")
    chat.terminal.line(".set enabled_mcp_servers books")
    chat.say("what is there?", "You said: what is there?")
    assert any(name.startswith("books__") for name in chat.qa_home.last().offered)
    chat.out(".exit session", "s:")
    chat.say("and now?", "You said: and now?")
    assert not any(name.startswith("books__") for name in chat.qa_home.last().offered)
