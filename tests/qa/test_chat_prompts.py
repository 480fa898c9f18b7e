"""The chat: its beginning and end, prompts (sections 9, 10, 24 of the plan; 7, 8, 19, 20, 22 of the checklist)."""

from __future__ import annotations

from qa.chat import IDLE, Chat
from qa.home import QaHome
from qa.terminal import CTRL_C, CTRL_D, CTRL_O, ENTER
from support.fake_models import Reply


def test_p9_1_c7_1_it_begins_with_a_welcome(qa_home: QaHome) -> None:
    with qa_home.terminal(anew=True) as terminal:
        terminal.shows(r"^callboard .*\.help")
        terminal.asks("> *$")


def test_p10_1_c8_1_a_prompt_is_answered(chat: Chat) -> None:
    chat.say("hello", "You said: hello")


def test_p10_2_c8_2_an_answer_is_gone_on_with(chat: Chat) -> None:
    chat.say("a story", "You said: a story")
    before = len(chat.qa_home.requests())
    chat.say(".continue", "You said: ")
    assert len(chat.qa_home.requests()) == before + 1
    assert any("You said: a story" in str(message["content"]) for message in chat.qa_home.last().json["messages"])


def test_p10_3_c8_3_a_prompt_is_answered_anew(chat: Chat) -> None:
    chat.say("a poem", "You said: a poem")
    chat.qa_home.says("Another poem.")
    chat.say(".regenerate", "Another poem.")
    assert chat.qa_home.last().prompt == "a poem"
    assert "You said: a poem" not in str(chat.qa_home.last().json["messages"])


def test_p10_5_c20_7_several_lines_are_one_prompt(chat: Chat) -> None:
    chat.terminal.line(":::")
    for line in ("one", "two", ":::"):
        chat.terminal.press(line + ENTER)
    chat.terminal.shows("You said: one")
    chat.idle()
    assert chat.qa_home.last().prompt == "one\ntwo"


def test_p10_6_an_empty_line_does_nothing(chat: Chat) -> None:
    before = len(chat.qa_home.requests())
    chat.terminal.line("")
    chat.terminal.line("")
    chat.say("after that", "You said: after that")
    assert len(chat.qa_home.requests()) == before + 1


def test_p10_7_c20_1_help_lists_the_commands(chat: Chat) -> None:
    shown = chat.say(".help", r"\.regenerate")
    assert ".role" in shown
    assert ".session" in shown


def test_p10_8_c20_2_info_shows_how_things_stand(chat: Chat) -> None:
    shown = chat.say(".info", "working_directory")
    assert "fake:model" in shown
    assert str(chat.qa_home.config) in shown


def test_p24_7_c20_6_a_command_that_is_none_is_told(chat: Chat) -> None:
    chat.say(".nonexistent", r"\.help")
    chat.say("and on", "You said: and on")


def test_c20_3_signing_in_is_refused_where_a_client_has_no_such_way(chat: Chat) -> None:
    chat.say(".authenticate fake", "(?i)oauth|sign")


def test_c20_8_the_line_opens_in_the_editor(chat: Chat) -> None:
    chat.qa_home.editor_writes("from the editor")
    chat.terminal.mark()
    chat.terminal.press("as typed" + CTRL_O)
    chat.terminal.asks("from the editor$")
    assert "as typed" in chat.qa_home.opened()
    chat.terminal.press(ENTER)
    chat.terminal.shows("You said: from the editor")
    chat.idle()


def test_c22_3_when_the_network_fails_it_says_so_and_goes_on(chat: Chat) -> None:
    chat.qa_home.says(*[Reply(status=400, error="the line is down")] * 4)
    chat.say("hello?", "the line is down")
    chat.qa_home.says("All is well.")
    chat.say("again", "All is well.")


def test_p24_8_c22_5_the_model_gets_the_error_of_a_tool(chat: Chat) -> None:
    chat.into(".agent clerk", "a:clerk")
    chat.qa_home.says(Reply(calls=[("broken", {})]), "It is broken.")
    chat.say("break it", "It is broken.")
    assert "it fell down" in chat.qa_home.last().results[0]
    assert "7" in chat.qa_home.last().results[0]


def test_p9_4_c7_4_ctrl_c_says_how_to_leave_and_stays(chat: Chat) -> None:
    chat.terminal.mark()
    chat.terminal.press(CTRL_C)
    chat.terminal.shows(r"(?i)ctrl-d|\.exit|again")
    assert chat.terminal.alive
    chat.say("still here", "You said: still here")


def test_p9_2_c7_2_exit_ends_it(chat: Chat) -> None:
    chat.terminal.line(".exit")
    assert chat.terminal.ended() == 0


def test_p9_3_c7_3_ctrl_d_ends_it(chat: Chat) -> None:
    chat.terminal.press(CTRL_D)
    assert chat.terminal.ended() == 0


def test_p9_5_c19_1_it_begins_in_the_role_of_the_prelude(qa_home: QaHome) -> None:
    begins_in(qa_home, "role:pirate", "r:pirate ")


def test_c19_2_it_begins_in_the_session_of_the_prelude(qa_home: QaHome) -> None:
    begins_in(qa_home, "session:mine", "s:mine ")


def test_p9_6_c19_3_it_begins_in_the_session_and_the_role_of_the_prelude(qa_home: QaHome) -> None:
    begins_in(qa_home, "other:pirate", "r:pirate s:other ")


def begins_in(qa_home: QaHome, prelude: str, prompt: str) -> None:
    chat = Chat(qa_home)
    try:
        chat.begin(repl_prelude=prelude)
        chat.terminal.asks(rf"^{prompt}{IDLE[1:]}")
    finally:
        chat.close()
