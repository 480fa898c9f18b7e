"""What commands show and complete, for who lacks the scope to read it."""

from __future__ import annotations

import msgspec
import pytest
from support.chat_person import Scripted
from support.fake_models import FakeModels
from support.messages import has_message

from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.completion import completions
from callboard.actors.front.chat.execution import execute_line
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.errors import Denied
from callboard.protocol.settings import ClientSettings, ModelSettings

FEW = frozenset({"run:agents", "read:runs", "write:runs"})


def make(chat: Chat) -> None:
    root = chat.hub.root
    clients = (ClientSettings(type="openai", name="openai", api_key="sk", models=(ModelSettings(name="big"),)),)
    root.settings = msgspec.structs.replace(root.settings, clients=clients)
    root.gateway.catalog = type(root.gateway.catalog)(root.settings, {})
    base = chat.hub.root.config_dir
    for file, text in {
        "roles/secret.md": "The role's text",
        "macros/secret.yaml": "steps: [.help]\n",
        "knowledge/secret.yaml": "documents: [secret.md]\n",
        "agents/secret/config.yaml": "name: secret\n",
    }.items():
        (base / file).parent.mkdir(parents=True, exist_ok=True)
        (base / file).write_text(text)


@pytest.mark.parametrize(
    ("kind", "scope", "typed"),
    [
        ("roles", "read:roles", ".role sec"),
        ("agents", "read:agents", ".agent sec"),
        ("macros", "read:agents", ".macro sec"),
        ("rags", "read:agents", ".rag sec"),
        ("models", "read:models", ".model "),
        ("models", "read:models", ".set model "),
    ],
)
async def test_names_are_for_who_may_read_them(chat: Chat, kind: str, scope: str, typed: str) -> None:
    make(chat)
    few, more = (Scripted(caller=Caller("bob", scopes)) for scopes in (FEW, FEW | {scope}))
    with pytest.raises(Denied, match=scope):
        await execute_line(chat, f".list {kind}", few)
    assert completions(chat, few.caller, typed) == []
    await execute_line(chat, f".list {kind}", more)
    assert more.text
    offered = completions(chat, more.caller, typed)
    assert offered
    assert offered == completions(chat, LOCAL, typed)


async def test_a_roles_text_is_for_who_may_read_roles(chat: Chat) -> None:
    make(chat)
    few, more = (Scripted(caller=Caller("bob", scopes)) for scopes in (FEW, FEW | {"read:roles"}))
    await execute_line(chat, ".role secret", few)
    with pytest.raises(Denied, match="read:roles"):
        await execute_line(chat, ".info role", few)
    await execute_line(chat, ".info role", more)
    assert "The role's text" in more.text
    await execute_line(chat, ".prompt my own words", few)
    await execute_line(chat, ".info role", few)
    assert "my own words" in few.text


@pytest.mark.parametrize("wish", [True, None])
async def test_who_may_keep_no_session_can_leave_one(chat: Chat, fake_model: FakeModels, wish: bool | None) -> None:
    chat.hub.root.settings.other["save_session"] = wish
    few = Scripted(caller=Caller("bob", FEW))
    for line in (".session", "hello", ".exit session"):
        await execute_line(chat, line, few)
    assert chat.session is None
    assert has_message(few.text, "front.chat.commands.session.leave")
    assert await chat.hub.root.sessions.list(LOCAL) == []


@pytest.mark.parametrize(
    ("lines", "scope"),
    [
        ([".role secret", ".info role"], "read:roles"),
        ([".list roles"], "read:roles"),
        ([".list models"], "read:models"),
        ([".agent secret", ".info agent"], "run:files"),
    ],
)
async def test_who_watches_sees_what_a_command_says_only_with_what_it_takes_to_be_told_that(
    chat: Chat, lines: list[str], scope: str
) -> None:
    make(chat)
    person = Scripted()
    seen: dict[frozenset[str], list[bytes]] = {}
    for scopes in (FEW, FEW | {scope}):
        watcher = Scripted(caller=Caller("local", scopes))
        chat.watchers[watcher] = seen.setdefault(scopes, []).append
    for line in lines:
        await execute_line(chat, line, person)
    assert person.told
    assert not [frame for frame in seen[FEW] if b"_chat/said" in frame]
    assert [frame for frame in seen[FEW | {scope}] if b"_chat/said" in frame]
    assert chat.backlog.after(0, FEW.__contains__) == []
