"""The agent of a chat for which nobody has named one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.chat_person import Scripted
from support.control_hub import hub_of
from support.fake_models import FakeModels, Reply

import callboard
from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.commands.agent import ASSISTANT, LEAST_WINDOW, WIDTH
from callboard.actors.front.chat.execution import execute_line
from callboard.actors.front.chat.methods import opened
from callboard.protocol.control.caller import Caller
from callboard.protocol.control.chat import OpenChat
from callboard.protocol.errors import Conflict

FILES = {"fs_read", "fs_grep", "fs_glob", "fs_ls", "fs_write", "fs_patch", "execute_command"}


def tools(fake_model: FakeModels) -> set[str]:
    """What the last request offers."""
    return {each["function"]["name"] for each in fake_model.requests[-1].json.get("tools", [])}


def configured(config_dir: Path, **more: object) -> Path:
    file = config_dir / "config.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}))
    return config_dir


async def begun(config_dir: Path, tmp_path: Path, fake_model: FakeModels, **wanted: object) -> tuple[Chat, list[str]]:
    """A chat as the terminal opens it, and its first prompt."""
    person = Scripted()
    async with callboard.Root(config_dir=config_dir) as root, hub_of(root, tmp_path / "state") as hub:
        chat = Chat(hub, "local")
        notes = await opened(chat, person, OpenChat(default_agent=True, **wanted))  # type: ignore[arg-type]  # by name
        await execute_line(chat, "hello", person)
        return chat, notes


async def test_an_assistant_with_tools_answers_where_nobody_is_named(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    notes = await opened(chat, person, OpenChat(default_agent=True))
    await execute_line(chat, "hello", person)
    assert chat.agent == ASSISTANT
    assert tools(fake_model) >= {*FILES, "todo__init", "agent__spawn"}
    about, others = notes[:2]
    assert about.startswith(f"{ASSISTANT}: ")
    assert "coder" in others
    assert "sisyphus" in others
    assert len(about) <= WIDTH
    assert len(others) <= WIDTH


async def test_a_client_that_does_not_want_it_has_a_model_alone(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    await opened(chat, person, OpenChat())
    await execute_line(chat, "hello", person)
    assert chat.agent is None
    assert tools(fake_model) == set()


@pytest.mark.parametrize(
    "settings",
    [
        {"chat_agent": "none"},
        {"compat": "loki"},
        {"enabled_tools": "get_current_time"},
        {"function_calling_support": False},
    ],
    ids=lambda settings: next(iter(settings)),
)
async def test_settings_turn_it_off(tmp_path: Path, fake_model: FakeModels, settings: dict[str, object]) -> None:
    config_dir = configured(fake_model.config_dir(tmp_path / "config"), **settings)
    chat, notes = await begun(config_dir, tmp_path, fake_model)
    assert chat.agent is None
    assert tools(fake_model).isdisjoint(FILES)
    assert bool(notes) is ("function_calling_support" in settings)  # what the user has said is not said back


@pytest.mark.parametrize("model", [{"supports_function_calling": False}, {"max_input_tokens": LEAST_WINDOW - 1}])
async def test_a_model_that_is_not_up_to_tools_answers_alone_and_the_chat_says_why(
    tmp_path: Path, fake_model: FakeModels, model: dict[str, object]
) -> None:
    config_dir = fake_model.config_dir(tmp_path / "config")
    clients = json.loads((config_dir / "config.yaml").read_text())["clients"]
    clients[0]["models"] = [{"name": "model", **model}]
    configured(config_dir, clients=clients)
    chat, notes = await begun(config_dir, tmp_path, fake_model)
    assert chat.agent is None
    assert "fake:model" in notes[0]


async def test_a_model_that_runs_here_is_too_small_for_tools(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    notes = await opened(chat, person, OpenChat(default_agent=True, model="local:smollm2"))
    assert chat.agent is None
    assert "local:smollm2" in notes[0]


async def test_chat_agent_names_another_and_one_that_can_not_be_begun_keeps_no_chat_from_beginning(
    tmp_path: Path, fake_model: FakeModels
) -> None:
    config_dir = configured(fake_model.config_dir(tmp_path / "config"), chat_agent="clerk")
    chat, notes = await begun(config_dir, tmp_path, fake_model)
    assert chat.agent is None
    assert "clerk" in notes[0]
    (config_dir / "agents" / "clerk").mkdir(parents=True)
    (config_dir / "agents" / "clerk" / "config.yaml").write_text("name: clerk\ndescription: Counts.\n")
    chat, notes = await begun(config_dir, tmp_path, fake_model)
    assert chat.agent == "clerk"
    assert notes[0] == "clerk: Counts."


async def test_who_names_a_role_or_a_session_without_an_agent_has_none(
    tmp_path: Path, fake_model: FakeModels, chat: Chat, person: Scripted
) -> None:
    await execute_line(chat, ".session bare", person)
    await execute_line(chat, "hello", person)
    other = Chat(chat.hub, "local")
    await opened(other, person, OpenChat(default_agent=True, session="bare"))
    assert (other.agent, other.place.turns) == (None, 1)
    role = Chat(chat.hub, "local")
    await opened(role, person, OpenChat(default_agent=True, role="explain-shell"))
    assert (role.agent, role.role) == (None, "explain-shell")
    fresh = Chat(chat.hub, "local")
    await opened(fresh, person, OpenChat(default_agent=True, session="new"))
    assert fresh.agent == ASSISTANT
    assert fresh.session is not None
    assert fresh.session.stored.agent == ASSISTANT


async def test_a_caller_who_may_not_run_agents_has_a_model_alone(chat: Chat, fake_model: FakeModels) -> None:
    person = Scripted(caller=Caller(subject="guest", scopes=frozenset({"write:runs", "read:runs"})))
    guests = Chat(chat.hub, "guest")
    await opened(guests, person, OpenChat(default_agent=True))
    assert guests.closed is False


async def test_a_role_takes_the_place_of_the_assistant_and_is_asked_once_beside_it(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    await opened(chat, person, OpenChat(default_agent=True))
    await execute_line(chat, ".role explain-shell ls", person)
    assert chat.agent == ASSISTANT
    assert tools(fake_model).isdisjoint(FILES)
    await execute_line(chat, ".role explain-shell", person)
    assert (chat.agent, chat.role) == (None, "explain-shell")
    await execute_line(chat, "ls", person)
    assert tools(fake_model).isdisjoint(FILES)


async def test_another_agent_reads_what_was_said_without_the_calls_of_the_first(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    await opened(chat, person, OpenChat(default_agent=True))
    fake_model.script(Reply("Let me look.", calls=[("fs_ls", {})]), "Two files.")
    await execute_line(chat, "what is here?", person)
    await execute_line(chat, ".agent explore", person)
    await execute_line(chat, "and where?", person)
    said = [(each["role"], each["content"]) for each in fake_model.requests[-1].json["messages"]]
    assert said[1:] == [
        ("user", "what is here?"),
        ("assistant", "Let me look.\n\nTwo files."),
        ("user", "and where?"),
    ]
    await execute_line(chat, ".agent oracle", person)  # also from an agent that was named
    assert (chat.agent, chat.in_default_agent, chat.place.turns) == ("oracle", False, 2)


async def test_an_agent_that_can_not_be_begun_leaves_the_chat_as_it_was(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    await opened(chat, person, OpenChat(default_agent=True))
    await execute_line(chat, "hello", person)
    with pytest.raises(callboard.CallboardError):
        await execute_line(chat, ".agent nosuch", person)
    assert (chat.agent, chat.in_default_agent, chat.place.turns) == (ASSISTANT, True, 1)


async def test_with_compat_loki_a_second_agent_is_refused(tmp_path: Path, fake_model: FakeModels) -> None:
    config_dir = configured(fake_model.config_dir(tmp_path / "config"), compat="loki")
    person = Scripted()
    async with callboard.Root(config_dir=config_dir) as root, hub_of(root, tmp_path / "state") as hub:
        chat = Chat(hub, "local")
        await execute_line(chat, ".agent explore", person)
        with pytest.raises(Conflict):
            await execute_line(chat, ".agent oracle", person)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/init", "Write AGENTS.md"),
        ("/review", "git diff"),
        ("/review the last three commits", "the last three commits"),
    ],
)
async def test_commands_of_other_programs_are_prompts_to_the_agent(
    chat: Chat, person: Scripted, fake_model: FakeModels, command: str, words: str
) -> None:
    await opened(chat, person, OpenChat(default_agent=True))
    await execute_line(chat, command, person)
    assert words in fake_model.requests[-1].json["messages"][-1]["content"]
    assert tools(fake_model) >= FILES
    await execute_line(chat, "thanks", person)
    assert len(fake_model.requests[-1].json["messages"]) == 4  # instructions, the prompt, its answer, the next one


@pytest.mark.parametrize("command", ["/init", "/review"])
async def test_a_model_without_tools_is_not_sent_to_the_files(
    chat: Chat, person: Scripted, fake_model: FakeModels, command: str
) -> None:
    with pytest.raises(Conflict):
        await execute_line(chat, command, person)
    assert fake_model.requests == []
