"""What was seen of a chat, and which lines are under way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from support.messages import says

from callboard.actors.front.control.runs.summary import rfc3339
from callboard.cli.chat.reconnect import Presence, opening_again
from callboard.protocol.control.chat import ChatInfo
from callboard.protocol.errors import NotFound, UsageError


def test_what_is_told_counts_once_and_what_has_no_number_each_time() -> None:
    presence = Presence("http://there")
    assert [presence.is_new(seq) for seq in (1, 2, 2, 1, 5, 3, 0, 0)] == [
        True,
        True,
        False,
        False,
        True,
        True,
        True,
        True,
    ]
    assert presence.last == 5
    presence.forget()
    assert (presence.last, presence.is_new(1)) == (0, True)


def test_a_line_without_answer_is_left_over_unless_a_run_has_begun_for_it() -> None:
    presence = Presence("http://there")
    for text in ("before", "seen later", "lost\n"):
        line = presence.sends(text)
        if text == "before":
            assert presence.is_ours("before")
        presence.unanswered(line)
        presence.answered(line)
    assert presence.is_ours("seen later")
    assert not presence.is_ours("of another")
    assert presence.take_unanswered() == ["lost"]
    assert presence.take_unanswered() == []


def test_a_run_that_begins_while_a_command_of_ours_is_played_is_ours() -> None:
    presence = Presence()
    presence.sends(".retry")
    assert presence.is_ours("what was asked before")


def test_a_chat_is_meant_by_the_beginning_of_its_id() -> None:
    hours = datetime.now(UTC) - timedelta(hours=2, minutes=5, seconds=30)
    chats = [
        ChatInfo(chat="chat-3f01", model="m", started=rfc3339(hours), title="Bridges of Venice"),
        ChatInfo(chat="chat-3e02", model="m", agent="coder", session="work", started=rfc3339(datetime.now(UTC))),
    ]
    listed = (
        "CHAT       SINCE  WITH   SESSION  TITLE\n"
        r"chat-3e02  \ds     coder  work\n"
        "chat-3f01  2h05m  m               Bridges of Venice"
    )
    assert Presence("http://there", "3f").chat_to_attach(chats) == "chat-3f01"
    with pytest.raises(UsageError, match=rf"'3' begins the ids of several chats:\n{listed}$"):
        Presence("http://there", "3").chat_to_attach(chats)
    with pytest.raises(NotFound, match=rf"there is no chat '9'; open at http://there are\n{listed}$"):
        Presence("http://there", "9").chat_to_attach(chats)
    with pytest.raises(NotFound, match=says("cli.chat.reconnect.Presence.chat_to_attach.2", place="http://there")):
        Presence("http://there", "9").chat_to_attach([])


def test_without_an_id_the_only_chat_is_meant() -> None:
    chats = [ChatInfo(chat=f"chat-{number}", model="m", started=rfc3339(datetime.now(UTC))) for number in range(2)]
    assert Presence("http://there", "").chat_to_attach(chats[:1]) == "chat-0"
    with pytest.raises(
        UsageError, match=says("cli.chat.reconnect.Presence.chat_to_attach.4", place="http://there", known="CHAT…")
    ):
        Presence("http://there", "").chat_to_attach(chats)
    with pytest.raises(NotFound, match=says("cli.chat.reconnect.Presence.chat_to_attach")):
        Presence("http://there", "").chat_to_attach([])


@pytest.mark.parametrize(
    ("info", "session"),
    [
        (ChatInfo(chat="c", model="m", session="work", session_id="s1"), "work"),
        (ChatInfo(chat="c", model="m", session="temp"), ""),
        (ChatInfo(chat="c", model="m"), None),
    ],
)
def test_a_chat_that_is_no_more_is_opened_again_as_it_was(info: ChatInfo, session: str | None) -> None:
    again = opening_again(info)
    assert (again["session"], again["model"], again["keep"], again["preludes"]) == (session, "m", True, False)
