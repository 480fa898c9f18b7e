"""The commands, each as a person would see it; the numbers are rows of the seeds' test plan."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.chat_person import Scripted
from support.fake_models import FakeModels, Reply
from support.messages import has_message, says

import callboard
from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.command_line import COMMANDS
from callboard.actors.front.chat.commands.history import CONTINUE
from callboard.actors.front.chat.completion import completions
from callboard.actors.front.chat.execution import execute_line
from callboard.actors.front.chat.options import KEYS
from callboard.actors.front.control.hub import Hub
from callboard.actors.work.spending.book import BookFile, SpendingBook
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.errors import CallboardError, Conflict, Denied, NotFound, UsageError
from callboard.protocol.settings import ClientSettings, ModelSettings


def said(model: FakeModels, number: int = -1) -> list[tuple[str, Any]]:
    return [(each["role"], each["content"]) for each in model.requests[number].json["messages"]]


def role(root: callboard.Root, name: str, text: str) -> Path:
    file = root.config_dir / "roles" / f"{name}.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


async def play(chat: Chat, person: Scripted, *lines: str) -> None:
    for line in lines:
        await execute_line(chat, line, person)


# --- looking ------------------------------------------------------------------------------------------------


async def test_10_7_help_names_every_command(chat: Chat, person: Scripted) -> None:
    await execute_line(chat, ".help", person)
    assert all(name in person.text for name in COMMANDS)


async def test_10_8_info_shows_how_the_chat_stands(chat: Chat, person: Scripted) -> None:
    await execute_line(chat, ".info", person)
    assert "model" in person.text
    assert str(chat.hub.root.config_dir) in person.text


# --- history ------------------------------------------------------------------------------------------------


async def test_10_2_continue_makes_one_answer_of_two(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    fake_model.script("The quick brown", " fox jumps.", "ok")
    await play(chat, person, "say it", ".continue")
    assert said(fake_model)[-1] == ("user", CONTINUE)
    assert chat.reply == "The quick brown fox jumps."
    await execute_line(chat, "thanks", person)
    assert said(fake_model) == [("user", "say it"), ("assistant", "The quick brown fox jumps."), ("user", "thanks")]


async def test_10_3_regenerate_puts_a_new_answer_in_the_place_of_the_last(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script("one", "two")
    await play(chat, person, "a number", ".regenerate")
    assert said(fake_model) == [("user", "a number")]
    assert (chat.reply, chat.place.turns) == ("two", 1)


async def test_an_answer_stays_if_no_other_comes(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    fake_model.script("one", *[Reply(status=400, error="no")] * 3)
    await play(chat, person, "a number", ".regenerate")
    assert chat.place.last_reply == "one"


async def test_retry_asks_again_what_has_failed(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    fake_model.script(Reply(status=400, error="no"), "fine")
    await execute_line(chat, "hello", person)
    assert chat.place.is_empty
    await execute_line(chat, ".retry", person)
    assert chat.reply == "fine"


@pytest.mark.parametrize("line", [".continue", ".regenerate", ".copy", ".undo", ".fork", ".retry"])
async def test_without_an_answer_there_is_nothing_to_go_on_with(chat: Chat, person: Scripted, line: str) -> None:
    with pytest.raises(Conflict):
        await execute_line(chat, line, person)


async def test_10_4_copy_gives_the_last_answer_to_the_clipboard(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script("the answer")
    await play(chat, person, "ask", ".copy")
    assert person.copied == ["the answer"]


@pytest.mark.parametrize("session", ["", ".session", ".session kept"])
async def test_undo_takes_the_last_exchange_back(
    chat: Chat, person: Scripted, fake_model: FakeModels, session: str
) -> None:
    fake_model.script("one", "two", "three")
    await play(chat, person, *([session] if session else []), "first", "second", ".undo", "third")
    assert said(fake_model) == [("user", "first"), ("assistant", "one"), ("user", "third")]


# --- sessions -----------------------------------------------------------------------------------------------


async def test_12_1_a_temporary_session_asks_at_its_end(chat: Chat, fake_model: FakeModels) -> None:
    person = Scripted("yes", "kept")
    await play(chat, person, ".session", "hello")
    assert chat.info().session == "temp"
    await execute_line(chat, ".exit session", person)
    assert chat.session is None
    assert person.asked[0].text == "Save session?"
    assert (await chat.hub.root.sessions.get(None, "kept")).session.messages


async def test_an_unnamed_session_is_named_by_a_model(chat: Chat, fake_model: FakeModels) -> None:
    fake_model.script("hi", "bridges of paris")
    await play(chat, Scripted("yes", ""), ".session", "hello", ".exit session")
    (found,) = await chat.hub.root.sessions.list(None)
    assert (found.alias or "").endswith("-bridges-of-paris")


@pytest.mark.parametrize("wish", ["true", "false"])
async def test_17_8_save_session_answers_that_question(chat: Chat, person: Scripted, wish: str) -> None:
    await play(chat, person, f".set save_session {wish}", ".session", "hello", ".exit session")
    assert not person.asked
    assert len(await chat.hub.root.sessions.list(None)) == (wish == "true")


async def test_12_2_a_named_session_is_gone_on_with(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    fake_model.script("one", "two")
    await play(chat, person, ".session mytest", "first", ".exit session", ".session mytest", "second")
    assert said(fake_model) == [("user", "first"), ("assistant", "one"), ("user", "second")]
    await execute_line(chat, ".info session", person)
    assert "mytest" in person.text


async def test_12_6_empty_session_forgets(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    await play(chat, person, ".session mytest", "first", ".empty session", "second")
    assert said(fake_model) == [("user", "second")]


async def test_12_7_compress_session(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    fake_model.script("one", "we spoke of one")
    await play(chat, person, ".session", "first", ".compress session", "second")
    assert "Compressing the session." in person.text
    assert "we spoke of one" in str(said(fake_model))


async def test_a_chat_without_a_session_is_shortened_at_will(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script("one", "we spoke of one")
    await play(chat, person, ".compact", "first", "/compact", "second")
    assert "Compressing the session." in person.text
    assert "we spoke of one" in str(said(fake_model))


@pytest.mark.parametrize("name", ["", " kept"])
async def test_23_1_a_long_session_is_compressed_by_itself(
    chat: Chat, person: Scripted, fake_model: FakeModels, name: str
) -> None:
    fake_model.script("word " * 200, "a summary")
    await play(chat, person, ".set compression_threshold 100", f".session{name}", "first")
    assert "Compressing the session." in person.text
    assert has_message(str(chat.place.session.messages), "runs.sessions.summary")


async def test_who_speaks_pays_for_the_compression_of_a_temporary_session(
    hub: Hub, fake_model: FakeModels, tmp_path: Path
) -> None:
    """By itself after a turn, and when asked for."""
    hub.root.book = book = SpendingBook(hub.root.kernel, BookFile(tmp_path / "usage.db"), now=time.time)
    alice = Scripted(caller=Caller("alice", LOCAL.scopes))
    fake_model.script("word " * 200, "a summary", "fine", "another summary")
    chat = Chat(hub, "alice")
    await play(chat, alice, ".session", ".set compression_threshold 100", "first")
    await play(chat, alice, ".set compression_threshold null", "second", ".compress session")
    assert len(fake_model.requests) == 4
    assert {entry: spent.requests for entry, spent in (await book.read(by=("key",))).items()} == {("alice",): 4}
    hub.root.book = None
    await book.aclose()


@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_12_9_what_was_said_last_comes_along_if_the_person_wants_it(
    chat: Chat, fake_model: FakeModels, answer: str
) -> None:
    person = Scripted(answer)
    fake_model.script("one", "two", "three")
    await play(chat, person, "first", "second", ".session test", "third")
    assert has_message(person.asked[0].text, "front.chat.commands.session")
    along = [("user", "second"), ("assistant", "two")] if answer == "yes" else []
    assert said(fake_model) == [*along, ("user", "third")]


async def test_12_11_no_session_in_a_session(chat: Chat, person: Scripted) -> None:
    await execute_line(chat, ".session", person)
    with pytest.raises(Conflict, match=says("front.chat.command_line.6")):
        await execute_line(chat, ".session", person)


async def test_12_4_a_session_is_edited_until_it_is_one(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    await play(chat, person, ".session mytest", "first")
    person.edits = ["messages: 3", "messages:\n- role: user\n  content: changed\n"]
    await execute_line(chat, ".edit session", person)
    assert person.edited[1].problem is not None
    assert chat.place.session.messages == [{"role": "user", "content": "changed"}]


async def test_fork_goes_on_in_a_copy(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    await play(chat, person, ".session mytest", "first", ".fork other", "second")
    assert chat.info().session == "other"
    assert len((await chat.hub.root.sessions.get(None, "mytest")).session.messages) == 2


# --- roles --------------------------------------------------------------------------------------------------


async def test_11_1_a_role_answers_until_it_is_left(
    chat: Chat, person: Scripted, fake_model: FakeModels, root: callboard.Root
) -> None:
    role(root, "pirate", "---\ntemperature: 0.3\n---\nTalk like a pirate.\n")
    await play(chat, person, ".role pirate", "hello")
    assert said(fake_model)[0] == ("system", "Talk like a pirate.")
    assert fake_model.requests[-1].json["temperature"] == 0.3
    assert chat.info().role == "pirate"
    await play(chat, person, ".exit role", "hello")
    assert said(fake_model) == [("user", "hello")]


async def test_11_2_a_role_for_one_prompt(
    chat: Chat, person: Scripted, fake_model: FakeModels, root: callboard.Root
) -> None:
    role(root, "pirate", "Talk like a pirate.\n")
    await play(chat, person, ".role pirate hello there", "and now?")
    assert said(fake_model, 0) == [("system", "Talk like a pirate."), ("user", "hello there")]
    assert said(fake_model, 1) == [("user", "and now?")]


async def test_11_5_what_was_set_in_a_role_is_saved_with_it(chat: Chat, person: Scripted, root: callboard.Root) -> None:
    role(root, "pirate", "Talk like a pirate.\n")
    await play(chat, person, ".role pirate", ".set temperature 0.5", ".save role captain", ".info role")
    assert chat.role == "captain"
    assert "temperature: 0.5" in (root.config_dir / "roles" / "captain.md").read_text()
    assert "Talk like a pirate." in person.text


async def test_11_7_a_role_that_is_not_there_is_made_in_the_editor(
    chat: Chat, person: Scripted, root: callboard.Root
) -> None:
    person.edits = ["---\ntemperature: hot\n---\nx", "Be brief.\n"]
    await execute_line(chat, ".role newname", person)
    assert person.edited[1].problem is not None
    assert (root.config_dir / "roles" / "newname.md").read_text() == "Be brief.\n"
    assert chat.role == "newname"


async def test_24_1_a_role_that_is_not_there_and_is_not_made_is_an_error(chat: Chat, person: Scripted) -> None:
    person.edits = [None]
    with pytest.raises(NotFound, match=says("front.chat.commands.role._role")):
        await execute_line(chat, ".role nonexistent_role_xxxxxxx", person)
    assert chat.role is None


async def test_11_4_edit_role(chat: Chat, person: Scripted, root: callboard.Root, fake_model: FakeModels) -> None:
    role(root, "pirate", "Talk like a pirate.\n")
    person.edits = ["Talk like a captain.\n"]
    await play(chat, person, ".role pirate", ".edit role", "hello")
    assert said(fake_model)[0] == ("system", "Talk like a captain.")


async def test_11_10_a_role_within_an_empty_session_only(
    chat: Chat, person: Scripted, root: callboard.Root, fake_model: FakeModels
) -> None:
    role(root, "pirate", "Talk like a pirate.\n")
    await play(chat, person, ".session test", ".role pirate", "hello")
    assert said(fake_model)[0] == ("system", "Talk like a pirate.")
    with pytest.raises(Conflict, match=says("front.chat.command_line.8")):
        await execute_line(chat, ".prompt be brief", person)


async def test_a_prompt_is_a_role_without_a_name(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    await play(chat, person, ".prompt Talk like a pirate.", "hello")
    assert said(fake_model)[0] == ("system", "Talk like a pirate.")
    assert chat.info().role_prompt


# --- agents -------------------------------------------------------------------------------------------------

AGENT = """
name: clerk
description: Files things.
instructions: You are {{who}}.
variables: [{name: who, description: x, default: a clerk}]
conversation_starters: [What is on my desk?, File this.]
"""


async def test_13_an_agent_with_variables_starters_and_a_session(
    chat: Chat, person: Scripted, fake_model: FakeModels, root: callboard.Root
) -> None:
    home = root.config_dir / "agents" / "clerk"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(AGENT)
    await play(chat, person, ".agent clerk who=Ada", ".info agent", ".starter", ".starter 2")
    assert "Files things." in person.text
    assert "1: What is on my desk?" in person.text
    assert "You are Ada." in str(said(fake_model)[0])
    assert fake_model.requests[-1].prompt == "File this."
    await play(chat, Scripted("no"), ".session desk", "one", ".exit agent")
    assert (chat.agent, chat.session) == (None, None)
    await play(chat, person, ".agent clerk desk", "two")
    assert [text for who, text in said(fake_model) if who == "user"] == ["one", "two"]
    person.edits = [AGENT.replace("Files things.", "Sorts things.")]
    await play(chat, person, ".edit agent-config", "three", ".info agent")
    assert "Sorts things." in person.text


async def test_13_10_mcp_disabled_blocks_an_agent_that_wants_servers(
    chat: Chat, person: Scripted, root: callboard.Root
) -> None:
    home = root.config_dir / "agents" / "clerk"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("name: clerk\nmcp_servers: [git]\n")
    await execute_line(chat, ".set mcp_server_support false", person)
    with pytest.raises(CallboardError, match="MCP"):
        await execute_line(chat, ".agent clerk", person)
    assert chat.agent is None


async def test_13_3_a_variable_without_a_value_is_asked_for(
    chat: Chat, fake_model: FakeModels, root: callboard.Root
) -> None:
    home = root.config_dir / "agents" / "clerk"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(AGENT.replace(", default: a clerk", ""))
    with pytest.raises(UsageError, match=says("front.chat.commands.agent._with_missing", wanted="\n  - who: x…")):
        await execute_line(chat, ".agent clerk", Scripted(None))
    assert chat.agent is None
    await play(chat, Scripted("Ada"), ".agent clerk", "hello")
    assert "You are Ada." in str(said(fake_model)[0])


async def test_a_graph_answers_in_a_chat(
    chat: Chat, person: Scripted, fake_model: FakeModels, root: callboard.Root
) -> None:
    home = root.config_dir / "agents" / "flow"
    home.mkdir(parents=True)
    (home / "graph.yaml").write_text(
        "name: flow\nstart: a\nnodes:\n  a: {type: llm, prompt: 'about {{initial_prompt}}', next: z}\n"
        "  z: {type: end, output: 'said {{a}}'}\n"
    )
    await play(chat, person, ".agent flow", "bridges", ".info agent")
    assert fake_model.requests[0].prompt == "about bridges"
    for key, value in (("auto_continue", "true"), ("max_auto_continues", "3"), ("temperature", "0.5")):
        with pytest.raises(UsageError, match=f"`{key}` does not apply to 'flow', a graph"):
            await execute_line(chat, f".set {key} {value}", person)
    await play(chat, person, ".set max_output_tokens 77", "rivers")
    assert fake_model.requests[-1].json["max_tokens"] == 77
    await play(chat, person, ".undo", ".exit agent", ".set temperature 0.5")
    assert chat.agent is None


async def test_a_role_with_servers_answers_without_them_where_mcp_is_off_and_it_is_told(
    chat: Chat, person: Scripted, fake_model: FakeModels, root: callboard.Root
) -> None:
    roles = root.config_dir / "roles"
    roles.mkdir(exist_ok=True)
    (roles / "reader.md").write_text("---\nenabled_mcp_servers: books\n---\nYou read.\n")
    (roles / "plain.md").write_text("You do not.\n")
    await play(chat, person, ".set mcp_server_support false", ".role plain", ".exit role")
    assert person.told == []
    await play(chat, person, ".role reader", "hello")
    assert [each.kind for each in person.told] == ["warning"]
    assert has_message(person.text, "runs.role_run.without_servers", called="reader")
    assert fake_model.requests[-1].system == "You read."
    assert all(name.startswith("user__") for name in fake_model.requests[-1].offered)


async def test_a_session_that_is_not_to_be_kept_is_remembered_all_the_same(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script("one", "two", "three")
    await play(chat, person, ".session work", "first", ".set save_session false", "second", "third")
    assert [text for who, text in said(fake_model) if who == "user"] == ["first", "second", "third"]
    await execute_line(chat, ".exit session", person)
    kept = (await chat.hub.root.sessions.get(None, "work")).session
    assert [each["content"] for each in kept.messages if each["role"] == "user"] == ["first"]


async def test_what_was_asked_elsewhere_is_not_asked_again_in_a_session(chat: Chat, fake_model: FakeModels) -> None:
    fake_model.script("one", "two", "three")
    await play(chat, Scripted("no"), ".session old", "in the session", ".exit session", "outside", ".session old")
    await execute_line(chat, ".regenerate", Scripted())
    assert said(fake_model) == [("user", "in the session")]


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (".set temperature 0.5", "temperature", 0.5),
        (".set top_p 0.9", "top_p", 0.9),
        (".set max_output_tokens 77", "max_tokens", 77),
        (".set stream false", "stream", None),
    ],
)
@pytest.mark.parametrize("scope", ["", ".session", ".session kept", ".prompt be brief"])
@pytest.mark.sample(5)
async def test_17_what_is_set_counts_in_the_next_request_until_it_is_unset(
    chat: Chat, person: Scripted, fake_model: FakeModels, line: str, key: str, value: Any, scope: str
) -> None:
    await play(chat, person, *([scope] if scope else []), line, "hello")
    body = fake_model.requests[-1].json
    assert body.get(key) in ((value,) if value is not None else (None, False))
    await play(chat, person, f"{line.rpartition(' ')[0]} null", "hello")
    assert fake_model.requests[-1].json.get(key) in (None, True)


async def test_17_4_a_dry_run_sends_nothing(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    await play(chat, person, ".set dry_run true", "hello")
    assert not fake_model.requests
    assert "hello" in (chat.reply or "")
    await play(chat, person, ".set dry_run false", "hello")
    assert len(fake_model.requests) == 1


async def test_17_12_and_13_tools_are_offered_as_set(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    def offered() -> set[str]:
        return {each["function"]["name"] for each in fake_model.requests[-1].json.get("tools", [])}

    await play(chat, person, ".set enabled_tools fs_cat,fs_ls", "hello")
    assert {"fs_cat", "fs_ls", "user__ask"} <= offered()
    await play(chat, person, ".set function_calling_support false", "hello")
    assert not offered()
    await play(chat, person, ".set function_calling_support true", ".set enabled_tools null", "hello")
    assert "fs_cat" not in offered()
    await play(chat, Scripted("no"), ".session", ".set enabled_tools fs_cat", "hello")
    assert "fs_cat" in offered()


@pytest.mark.parametrize("tools", ["enabled_tools: fs_cat", "use_tools: fs_cat,fs_ls"])
async def test_a_role_with_tools_of_its_own_may_ask_the_person(
    chat: Chat, person: Scripted, fake_model: FakeModels, root: callboard.Root, tools: str
) -> None:
    roles = root.config_dir / "roles"
    roles.mkdir(exist_ok=True)
    (roles / "analyzer.md").write_text(f"---\n{tools}\n---\nYou look into files.\n")
    await play(chat, person, ".role analyzer", "hello")
    assert {"fs_cat", "user__ask", "user__confirm", "user__input", "user__checkbox"} <= set(
        fake_model.requests[-1].offered
    )
    await play(chat, person, ".exit role", "hello")
    assert fake_model.requests[-1].offered == []


@pytest.mark.parametrize("scope", ["", ".session"])
async def test_auto_continue_as_set(chat: Chat, person: Scripted, fake_model: FakeModels, scope: str) -> None:
    if scope:
        await play(chat, Scripted(), scope)
    fake_model.script(
        Reply(calls=[("todo__init", {"goal": "g"}), ("todo__add", {"task": "t"})]),
        Reply("stopping"),
        Reply(calls=[("todo__done", {"id": 1})]),
        Reply("done"),
    )
    await play(chat, person, ".set continuation_prompt go on then", ".set auto_continue true", "work")
    assert (chat.reply or "").endswith("done")
    assert "go on then" in str(fake_model.requests[2].json)
    await execute_line(chat, ".todo", person)
    assert "1. t" in person.text
    await execute_line(chat, ".clear todo", person)
    assert chat.place.session.todo is None


async def test_17_6_save_keeps_a_file_of_messages(
    chat: Chat, person: Scripted, fake_model: FakeModels, root: callboard.Root
) -> None:
    fake_model.script("an answer")
    await play(chat, person, ".set save true", "a question", ".set save false", "another")
    file = root.config_dir / "messages.md"
    assert "a question" in file.read_text()
    assert "an answer" in file.read_text()
    assert "another" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (".set", "Usage: .set <key> <value>. If value is null, unset key."),
        (".set temperature", "Usage: .set <key> <value>. If value is null, unset key."),
        (".set bogus 1", "Unknown key 'bogus'"),
        (".set temperature hot", "must be a number from 0 to 2"),
        (".set stream maybe", "must be true or false"),
        (".edit", "Usage: .edit <"),
        (".exit nowhere", "Usage: .exit"),
    ],
)
async def test_wrong_usage_says_what_is_right(chat: Chat, person: Scripted, line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        await execute_line(chat, line, person)
    assert message in str(caught.value)


async def test_24_2_a_model_that_is_not_there(chat: Chat, person: Scripted) -> None:
    for line in (".model nonexistent:model", ".set model nonexistent:model"):
        with pytest.raises(CallboardError):
            await execute_line(chat, line, person)


@pytest.mark.parametrize(
    "name", [name for name in COMMANDS if name.split(" ")[-1] in ("role", "session", "agent", "rag")]
)
async def test_24_3_a_command_that_needs_something_says_what(chat: Chat, person: Scripted, name: str) -> None:
    if COMMANDS[name].needs and not {"no session", "no agent"} & set(COMMANDS[name].needs):
        with pytest.raises(Conflict, match="No "):
            await execute_line(chat, name, person)


# --- watching -----------------------------------------------------------------------------------------------


async def test_what_goes_on_and_has_gone_on_is_shown(chat: Chat, person: Scripted) -> None:
    await play(
        chat, person, "hello", ".cost", ".context", ".diff", ".list roles", ".list models", ".reasoning", ".todo"
    )
    assert "last run" in person.text
    assert "your prompts" in person.text
    assert has_message(person.text, "front.chat.commands.reports._diff.2")


async def test_what_the_model_saw_last_is_shown_where_it_is_kept(
    chat: Chat, person: Scripted, root: callboard.Root
) -> None:
    with pytest.raises(Conflict):
        await execute_line(chat, ".prompt last", person)
    root.settings = msgspec.structs.replace(root.settings, keep_requests=True)
    await play(chat, person, "what is a bridge?", ".prompt last")
    assert "what is a bridge?" in person.text
    await execute_line(chat, ".prompt last words", person)
    assert chat.role_prompt == "last words"


@pytest.mark.parametrize(("answer", "contents"), [("", "before\n"), ("no", "after\n"), (None, "after\n")])
async def test_what_a_tool_has_written_is_shown_and_taken_back_unless_the_person_says_no_or_nothing(
    chat: Chat,
    fake_model: FakeModels,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str | None,
    contents: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("before\n")
    config = chat.hub.root.settings
    chat.hub.root.settings = msgspec.structs.replace(config, permissions={"fs_write": "allow"})
    fake_model.script(Reply(calls=[("fs_write", {"path": "notes.txt", "contents": "after\n"})]), "written")
    person = Scripted(answer)
    await play(chat, person, ".set enabled_tools fs_write", "change it", ".diff")
    assert (tmp_path / "notes.txt").read_text() == "after\n"
    assert "-before\n+after" in person.text
    await execute_line(chat, ".undo", person)
    assert [(each.text, each.default) for each in person.asked] == [
        ("Restore 1 file that the answer has changed (notes.txt)?", "yes")
    ]
    assert (tmp_path / "notes.txt").read_text() == contents
    assert ("restored notes.txt" in person.text) == (contents == "before\n")
    assert chat.place.is_empty


# --- scopes -------------------------------------------------------------------------------------------------


async def test_who_may_not_touch_files_can_neither_edit_nor_run(chat: Chat) -> None:
    may = Caller("bob", frozenset({"run:agents", "read:runs", "write:runs"}))
    for line in ("!id", ".edit config", ".edit mcp-config"):
        with pytest.raises(Denied):
            await execute_line(chat, line, Scripted(caller=may))


async def test_the_model_that_was_chosen_last_answers(chat: Chat, fake_model: FakeModels) -> None:
    person = Scripted()
    for name in ("other", "model", "other"):
        await execute_line(chat, f".model fake:{name}", person)
        await execute_line(chat, "hello", person)
        assert fake_model.requests[-1].json["model"] == name


# --- completion ---------------------------------------------------------------------------------------------


def offered(chat: Chat, typed: str) -> list[str]:
    return [each.text for each in completions(chat, LOCAL, typed)]


async def test_18_completion(chat: Chat, root: callboard.Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    role(root, "pirate", "x")
    await root.sessions.create(None, alias="bridges")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.py").write_text("")
    assert ".info role" in offered(chat, ".info")
    assert offered(chat, "/mod") == ["/model"]
    assert " pirate" in offered(chat, ".role")
    assert "pirate" in offered(chat, ".role pi")
    assert "bridges" in offered(chat, ".session ")
    assert set(KEYS) <= set(offered(chat, ".set "))
    assert {"true", "false"} <= set(offered(chat, ".set stream "))
    assert "fs_cat" in offered(chat, ".set enabled_tools ")
    assert "fs_cat,fs_ls" in offered(chat, ".set enabled_tools fs_cat,fs_l")
    assert not [name for name in offered(chat, ".set enabled_tools ") if name.startswith(("user__", "mcp_", "todo__"))]
    assert "main.py" in offered(chat, "what is in @ma")


async def test_models_are_offered_with_window_and_price(
    chat: Chat, root: callboard.Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ModelSettings(
        name="big", max_input_tokens=128000, supports_vision=False, input_price=5.0, output_price=15.0
    )
    clients = (ClientSettings(type="openai", name="openai", api_key="sk", models=(model,)),)
    root.settings = msgspec.structs.replace(root.settings, clients=clients)
    root.gateway.catalog = type(root.gateway.catalog)(root.settings, {})
    (found,) = [each for each in completions(chat, LOCAL, ".model op") if each.text == "openai:big"]
    assert found.about == "window 128k; $5.00 in, $15.00 out; no images"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk")
    root.settings = msgspec.structs.replace(root.settings, clients=())
    assert [each for each in offered(chat, ".model ") if each.startswith("claude:")]


async def test_models_are_those_of_the_settings_that_count_now(chat: Chat, root: callboard.Root) -> None:
    for number in range(50):  # each may come to lie where one before it lay
        model = ModelSettings(name=f"m{number}")
        clients = (ClientSettings(type="openai", name="own", api_key="sk", models=(model,)),)
        root.settings = msgspec.structs.replace(root.settings, clients=clients)
        root.gateway.catalog = type(root.gateway.catalog)(root.settings, {})
        assert [each for each in offered(chat, ".model ") if each.startswith("own:")] == [f"own:m{number}"]


async def test_models_that_are_not_for_chats_are_not_offered(
    chat: Chat, root: callboard.Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    root.settings = msgspec.structs.replace(root.settings, clients=())
    found = [name for name in offered(chat, ".model ") if name.startswith("openai:")]
    assert "openai:gpt-4o" in found
    assert not [name for name in found if any(word in name for word in ("tts", "image", "realtime", ":ada", ":ft"))]


async def test_completion_is_quick_when_it_is_warm(chat: Chat, root: callboard.Root) -> None:
    for number in range(200):
        await root.sessions.create(None, alias=f"session-{number}")
        role(root, f"role{number}", "x")
    for typed in (".", ".role ", ".session ", ".model ", ".agent ", ".set ", ".set enabled_tools ", "@"):
        completions(chat, LOCAL, typed)
        times = []
        for _ in range(5):
            began = time.thread_time()
            completions(chat, LOCAL, typed)
            times.append(time.thread_time() - began)
        assert min(times) < 0.2, (typed, times)


async def test_a_mentioned_image_is_seen(
    chat: Chat, person: Scripted, fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dot.png").write_bytes(b"\x89PNG\r\n")
    await execute_line(chat, "what is on @dot.png ?", person)
    content = fake_model.requests[-1].json["messages"][-1]["content"]
    assert [part["type"] for part in content] == ["text", "image_url"]


async def test_a_mentioned_file_comes_along(
    chat: Chat, person: Scripted, fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("the sky is green")
    await execute_line(chat, "what colour, says @notes.txt? ask ada@example.com", person)
    assert "the sky is green" in fake_model.requests[-1].prompt
