"""The chat: settings, servers, completion (sections 16-18, 25 of the plan; 14-16 of the checklist)."""

from __future__ import annotations

import re

import pytest
from qa.chat import IDLE, IN, Chat
from qa.terminal import CTRL_C, CTRL_U, ENTER, TAB
from support.fake_models import Reply
from support.messages import fragment


def setting(chat: Chat, key: str, value: str) -> None:
    chat.terminal.line(f".set {key} {value}")
    chat.idle()
    chat.terminal.shows_not("(?i)unknown|usage|wrong")


def offered(chat: Chat) -> set[str]:
    """The servers whose tools a request offers."""
    chat.say("what is there?", "You said: what is there?")
    return {name.split("__")[0] for name in chat.qa_home.last().offered if "__" in name} & {"books", "numbers"}


@pytest.mark.parametrize(
    ("key", "value", "sent"),
    [("temperature", "0.5", ("temperature", 0.5)), ("top_p", "0.9", ("top_p", 0.9)), ("max_output_tokens", "4096", ())],
)
def test_p17_1_p17_2_p17_9_p17_11_c15_1_c15_2_numbers_go_with_requests(
    chat: Chat, key: str, value: str, sent: tuple[str, float]
) -> None:
    setting(chat, key, value)
    chat.say("hello", "You said: hello")
    body = chat.qa_home.last().json
    if sent:
        assert body[sent[0]] == sent[1]
    else:
        assert 4096 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    setting(chat, key, "null")
    chat.say("hello", "You said: hello")
    assert key not in chat.qa_home.last().json


@pytest.mark.parametrize("command", [".set model fake:other", ".model fake:other"])
def test_p17_3_c15_3_another_model_answers(chat: Chat, command: str) -> None:
    chat.terminal.line(command)
    chat.terminal.asks("other> *$")
    chat.say("hello", "You said: hello")
    assert chat.qa_home.last().json["model"] == "other"
    chat.terminal.line(".model fake:model")
    chat.terminal.asks("model> *$")


def test_p17_5_c15_5_answers_are_shown_while_they_grow_or_when_they_are_whole(chat: Chat) -> None:
    lines = "The first line.\n\nThe second line."
    chat.qa_home.says(Reply(lines, piece=17, stall=b"first line."), lines)
    chat.terminal.line("two lines")
    chat.terminal.shows("The first line.")
    chat.terminal.shows_not("The second line.")
    assert chat.qa_home.last().json["stream"] is True
    chat.terminal.press(CTRL_C)
    chat.terminal.shows("interrupted")
    chat.idle()
    setting(chat, "stream", "false")
    chat.say("two lines", "The second line.")
    assert not chat.qa_home.last().json.get("stream")  # so that it can't have come but whole
    setting(chat, "stream", "null")


CODE = "Say **this**:\n\n```python\nimport os\n```"


def test_p17_7_c15_7_answers_are_rendered_and_coloured_or_shown_as_they_were_written(chat: Chat) -> None:
    chat.qa_home.says(CODE)
    shown = chat.say("some code", "import os")
    assert "Say this:" in shown
    assert re.search(r"\x1b\[[0-9;]+mimport ", chat.terminal.sent())
    setting(chat, "highlight", "false")
    chat.qa_home.says(CODE)
    shown = chat.say("some code", "import os")
    assert CODE in shown
    assert not re.search(r"\x1b\[[0-9;]*mimport", chat.terminal.sent())
    setting(chat, "highlight", "true")
    chat.qa_home.says(CODE)
    assert "Say this:" in chat.say("some code", "import os")
    setting(chat, "highlight", "null")


def test_p17_6_c15_6_what_is_said_is_kept_in_a_file_of_messages(chat: Chat) -> None:
    setting(chat, "save", "true")
    chat.say("remember the bridge", "You said: remember the bridge")
    setting(chat, "save", "false")  # which waits until the line before is over
    assert "remember the bridge" in (chat.qa_home.config / "messages.md").read_text()


def test_p10_4_c8_4_the_last_answer_is_copied_by_the_terminal(chat: Chat) -> None:
    chat.say("hello", "You said: hello")
    chat.terminal.line(".copy")
    chat.terminal.has_sent(r"\x1b\]52;c;")


def test_p17_4_c15_4_a_dry_run_asks_no_model(chat: Chat) -> None:
    setting(chat, "dry_run", "true")
    before = len(chat.qa_home.requests())
    chat.say("hello there", "not sent")
    assert len(chat.qa_home.requests()) == before
    setting(chat, "dry_run", "false")


def test_p17_8_c15_8_sessions_are_kept_or_not_or_it_is_asked(chat: Chat) -> None:
    chat.into(".role pirate", "r:pirate")  # with which what was said is over, so that no session could take it along
    chat.out(".exit role", "r:")
    for value, name in (("true", "kept-one"), ("false", "gone-one")):
        setting(chat, "save_session", value)
        chat.into(f".session {name}", f"s:{name}")
        chat.say("remember", "You said: remember")
        chat.out(".exit session", "s:")
        chat.terminal.shows_not("asks")
    setting(chat, "save_session", "null")
    chat.into(".session", "s:temp")
    chat.say("remember", "You said: remember")
    chat.terminal.line(".exit session")
    chat.terminal.shows("callboard asks: Save session")
    chat.terminal.choose("1" + ENTER)
    chat.terminal.shows("callboard asks: Session name")
    chat.terminal.choose("asked-one" + ENTER)
    chat.terminal.asks(rf"^(?!.*s:){IDLE[1:]}")
    listed = chat.say(".list sessions", "kept-one")
    assert "asked-one" in listed
    assert "gone-one" not in listed
    setting(chat, "save_session", "false")


def test_p17_10_c15_9_the_threshold_of_compression_is_changed(chat: Chat) -> None:
    setting(chat, "compression_threshold", "2000")
    chat.say(".info", "compression_threshold +2000")
    setting(chat, "compression_threshold", "null")


def test_p17_12_p17_13_tools_are_offered_or_not(chat: Chat) -> None:
    setting(chat, "enabled_tools", "all")
    chat.say("hello", "You said: hello")
    assert {"fs_cat", "execute_command"} <= set(chat.qa_home.last().offered)
    setting(chat, "function_calling_support", "false")
    chat.say("hello", "You said: hello")
    assert chat.qa_home.last().offered == []
    setting(chat, "function_calling_support", "true")
    setting(chat, "enabled_tools", "null")


def test_p24_2_c22_2_a_model_that_is_none_is_told(chat: Chat) -> None:
    chat.say(".set model nonexistent_model", "nonexistent_model.*\n(.*\n)*.*(?i:unknown|no)")
    chat.say("and on", "You said: and on")


# --- servers


def test_p16_1_c14_1_servers_of_the_settings_are_there_from_the_beginning(chat: Chat) -> None:
    chat.begin(enabled_mcp_servers="books")
    assert offered(chat) == {"books"}


def test_p16_2_p16_3_p16_4_c14_4_c14_5_c14_6_a_server_is_searched_described_and_invoked(chat: Chat) -> None:
    chat.begin(enabled_mcp_servers="books", mcp_tools="meta")
    chat.qa_home.says(
        Reply(calls=[("mcp_search_books", {"query": "add numbers"}), ("mcp_describe_books", {"tool": "add"})]),
        Reply(calls=[("mcp_invoke_books", {"tool": "add", "arguments": {"a": 20, "b": 22}})]),
        "It is 42.",
    )
    chat.say("add them", "It is 42.")
    searched, described, invoked = chat.qa_home.last().results
    assert "add" in searched
    assert "arguments" in described
    assert "42" in invoked


def test_p16_5_p16_9_c14_2_servers_are_changed_and_taken_away(chat: Chat) -> None:
    setting(chat, "enabled_mcp_servers", "books")
    assert offered(chat) == {"books"}
    setting(chat, "enabled_mcp_servers", "numbers")
    assert offered(chat) == {"numbers"}
    setting(chat, "enabled_mcp_servers", "null")
    assert offered(chat) == set()


def test_p16_6_p16_7_c14_3_servers_are_switched_off_and_on(chat: Chat) -> None:
    setting(chat, "enabled_mcp_servers", "books")
    setting(chat, "mcp_server_support", "false")
    assert offered(chat) == set()
    setting(chat, "mcp_server_support", "true")
    assert offered(chat) == {"books"}
    setting(chat, "enabled_mcp_servers", "null")


def test_p16_8_p25_1_p25_3_p11_8_c9_7_c9_8_c9_9_each_role_has_its_own_servers(chat: Chat) -> None:
    assert offered(chat) == set()
    for role, server in (("reader", "books"), ("counter", "numbers")):
        chat.into(f".role {role}", f"r:{role}")
        assert offered(chat) == {server}
        chat.out(".exit role", "r:")
    assert offered(chat) == set()


def test_p11_9_p25_2_p25_6_global_servers_are_back_when_a_role_or_an_agent_is_left(chat: Chat) -> None:
    chat.begin(enabled_mcp_servers="numbers")
    assert offered(chat) == {"numbers"}
    for entered, kind in ((".role reader", "role"), (".agent librarian", "agent")):
        mark = IN[kind]
        chat.into(entered, mark)
        assert offered(chat) == {"books"}
        chat.out(f".exit {kind}", mark)
        assert offered(chat) == {"numbers"}
    chat.qa_home.says(Reply(calls=[("numbers__add", {"a": 20, "b": 22})]), "It is 42.")
    chat.say("add", "It is 42.")
    assert chat.qa_home.last().results == ["42"]


def test_i4_a_role_is_warned_of_where_mcp_is_off_only_if_it_has_servers(chat: Chat) -> None:
    setting(chat, "mcp_server_support", "false")
    chat.into(".role pirate", "r:pirate")
    assert "MCP" not in chat.say("ahoy", "You said: ahoy")
    chat.terminal.line(".exit role")
    chat.terminal.line(".role reader")
    chat.terminal.asks(rf"r:reader {IDLE[1:]}")
    chat.terminal.shows(fragment("runs.role_run.without_servers", called="reader"))
    assert offered(chat) == set()
    chat.out(".exit role", "r:")
    setting(chat, "mcp_server_support", "true")


def test_p25_7_an_alias_stands_for_its_servers(chat: Chat) -> None:
    chat.begin(mapping_mcp_servers={"shelf": "books,numbers"})
    chat.into(".role shelf-reader", "r:shelf-reader")
    assert offered(chat) == {"books", "numbers"}


def test_c22_4_a_server_that_crashes_is_told_and_the_chat_goes_on(chat: Chat) -> None:
    setting(chat, "enabled_mcp_servers", "books")
    chat.qa_home.says(Reply(calls=[("books__die", {"status": 3})]), "It has died.")
    chat.terminal.line("kill it")
    chat.terminal.shows("chat asks: Allow books__die")
    chat.terminal.choose("1" + ENTER)
    chat.terminal.shows("It has died.")
    chat.idle()
    assert "error" in chat.qa_home.last().results[0]
    chat.say("and on", "You said: and on")
    setting(chat, "enabled_mcp_servers", "null")


# --- completion


def completed(chat: Chat, line: str, *wanted: str, without: tuple[str, ...] = ()) -> None:
    """What stands behind the line when Tab is pressed has this, and not that."""
    chat.terminal.mark()
    chat.terminal.press(line + TAB)
    for each in wanted:
        chat.terminal.shows(rf"(?<![\w-]){each}")
    for each in without:
        chat.terminal.shows_not(each)
    chat.terminal.press(CTRL_U)
    chat.idle()


def test_p18_1_c16_1_roles_are_completed(chat: Chat) -> None:
    completed(chat, ".role pi", "pirate")
    completed(chat, ".role ", "atlassian", without=("hidden",))


def test_p18_2_c16_2_agents_are_completed(chat: Chat) -> None:
    completed(chat, ".agent ", "boss", without=("shared",))


def test_p18_3_c16_3_sessions_are_completed(chat: Chat) -> None:
    chat.qa_home.settings()  # those of a chat that has just begun save no session
    assert chat.qa_home.loki("-s", "bridges", "hello").code == 0
    completed(chat, ".session br", "bridges")


def test_p18_4_c16_4_knowledge_bases_are_completed(chat: Chat) -> None:
    (chat.qa_home.config / "knowledge").mkdir(exist_ok=True)
    (chat.qa_home.config / "knowledge" / "vegetables.yaml").write_text("documents: [x.md]\n")
    completed(chat, ".rag ve", "vegetables")


def test_p18_5_c16_5_macros_are_completed(chat: Chat) -> None:
    completed(chat, ".macro ", "greet", "generate-commit-message")


def test_p18_6_c16_6_models_are_completed(chat: Chat) -> None:
    completed(chat, ".model fake:", "fake:model", "fake:other")


def test_p18_7_c16_7_settings_are_completed(chat: Chat) -> None:
    completed(chat, ".set ", "compression_threshold")
    completed(chat, ".set te", "temperature")


def test_p18_8_c16_8_the_value_of_a_setting_is_completed(chat: Chat) -> None:
    setting(chat, "temperature", "0.75")
    completed(chat, ".set temperature ", "0.75")
    setting(chat, "temperature", "null")


def test_p18_9_c16_9_i5_tools_are_completed_without_those_that_are_always_there(chat: Chat) -> None:
    completed(chat, ".set enabled_tools fs", "fs_cat")
    completed(chat, ".set enabled_tools ", "all", without=("user__", "todo__", "agent__", "mcp_"))


def test_p18_10_c16_10_i6_servers_and_their_aliases_are_completed(chat: Chat) -> None:
    chat.begin(mapping_mcp_servers={"shelf": "books,numbers"})
    completed(chat, ".set enabled_mcp_servers ", "books", "numbers", "shelf")


def test_p18_11_what_can_be_deleted_is_completed(chat: Chat) -> None:
    completed(chat, ".delete ", "role", "session", "rag", "macro", "agent-data")


def test_p18_12_what_a_vault_can_do_is_completed(chat: Chat) -> None:
    completed(chat, ".vault ", "add", "get", "update", "delete", "list")
