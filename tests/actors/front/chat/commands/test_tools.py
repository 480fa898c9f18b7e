"""`.tools`, `.mcp`, `.update`, `.install`."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from support.chat_person import Scripted
from support.fake_models import FakeModels
from support.messages import has_message, says

from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.actors.work.tools.permissions import StoredAnswers
from callboard.protocol.control.caller import Caller
from callboard.protocol.errors import Conflict, Denied, NotFound
from callboard.protocol.permissions import PermissionRule


async def test_the_tools_of_the_next_prompt_are_shown(chat: Chat, person: Scripted) -> None:
    await execute_line(chat, ".set enabled_tools fs_cat,fs_ls", person)
    await execute_line(chat, ".tools", person)
    assert "fs_cat, fs_ls" in person.told[-1].text


async def test_the_tools_of_an_agent_are_those_of_its_file_too(chat: Chat, person: Scripted) -> None:
    home = chat.hub.root.config_dir / "agents" / "clerk"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("name: clerk\ninstructions: x\nglobal_tools: [fs_cat]\n")
    (home / "tools.sh").write_text("# @cmd Says hello\nhello() { echo hello; }\n")
    await execute_line(chat, ".agent clerk", person)
    await execute_line(chat, ".tools", person)
    assert person.told[-1].text == "tools  hello, fs_cat"


async def test_the_tools_and_servers_of_a_role_are_shown(chat: Chat, person: Scripted) -> None:
    roles = chat.hub.root.config_dir / "roles"
    roles.mkdir()
    (roles / "reader.md").write_text("---\nenabled_tools: fs_ls\nenabled_mcp_servers: github\n---\nYou read.\n")
    await execute_line(chat, ".role reader", person)
    await execute_line(chat, ".tools", person)
    assert person.told[-1].text.splitlines()[:2] == ["tools       fs_ls", "servers     github"]
    await execute_line(chat, ".set enabled_tools fs_cat", person)
    await execute_line(chat, ".tools", person)
    assert person.told[-1].text.startswith("tools       fs_cat\nalso there")


async def test_tools_that_visible_tools_leaves_out_are_not_there(chat: Chat, person: Scripted) -> None:
    root = chat.hub.root
    root.registry.settings = msgspec.structs.replace(root.registry.settings, visible_tools=("fs_cat.sh", "fs_ls.sh"))
    await execute_line(chat, ".set enabled_tools fs_cat", person)
    await execute_line(chat, ".tools", person)
    shown = person.told[-1].text
    assert shown == "tools       fs_cat\nalso there  fs_ls; let the model use them with `.set enabled_tools NAME,NAME`"


async def test_servers_are_shown_and_started_anew(chat: Chat, person: Scripted) -> None:
    await execute_line(chat, ".mcp", person)
    assert has_message(person.told[-1].text, "front.chat.commands.tools._mcp.2")
    await execute_line(chat, ".mcp reload", person)
    assert has_message(person.told[-1].text, "front.chat.commands.tools._mcp")


async def test_an_update_is_told_and_not_done(chat: Chat, person: Scripted) -> None:
    await execute_line(chat, ".update", person)
    assert "callboard" in person.told[-1].text


async def test_a_bundle_is_installed_when_the_person_has_read_what_it_can_do(chat: Chat, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle" / "roles"
    bundle.mkdir(parents=True)
    (bundle / "pirate.md").write_text("Talk like a pirate.")
    there = chat.hub.root.config_dir / "roles" / "pirate.md"
    person = Scripted("no")
    await execute_line(chat, f".install {bundle.parent}", person)
    assert "pirate" in person.text
    assert not there.exists()
    await execute_line(chat, f".install {bundle.parent}", Scripted("yes"))
    assert there.exists()


async def test_what_the_model_saw_last_is_shown(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    chat.hub.root.settings = msgspec.structs.replace(chat.hub.root.settings, keep_requests=True)
    with pytest.raises(Conflict, match=says("front.chat.commands.reports._prompt_last")):
        await execute_line(chat, ".prompt last", person)
    fake_model.script("hello yourself", "bye")
    for line in ("hello", "and now?", ".prompt last"):
        await execute_line(chat, line, person)
    shown = person.told[-1].text
    assert shown.startswith("call 1, /run-")
    for part in ("user ---\nhello", "assistant ---\nhello yourself", "user ---\nand now?", "reply (end) ---\nbye"):
        assert f"--- {part}" in shown


async def test_a_chat_that_keeps_nothing_says_how_to_keep_it(chat: Chat, person: Scripted) -> None:
    await execute_line(chat, "hello", person)
    with pytest.raises(NotFound, match=says("front.control.run_records")):
        await execute_line(chat, ".prompt last", person)


async def test_what_may_be_done_without_asking_is_shown(
    chat: Chat, person: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rule = PermissionRule(allow=("git status*", "ls*"), deny=("rm *",))
    chat.hub.root.settings = msgspec.structs.replace(
        chat.hub.root.settings, sandbox="read-only", permissions={"fs_write": "allow", "execute_command": rule}
    )
    StoredAnswers(tmp_path, os.environ).add("execute_command", "sum", "reach example.com")
    await execute_line(chat, "/permissions", person)
    rows = dict(row.split("  ", 1) for row in person.told[-1].text.splitlines() if "  " in row)
    assert {name: value.strip() for name, value in rows.items()} == {
        "sandbox": "read-only",
        "config.yaml: fs_write": "allow",
        "config.yaml: execute_command": "allow git status*, ls*; deny rm *",
        "permanently allowed in this directory: execute_command": "may reach example.com",
        "all others": "tools that write, execute or send need approval; other tools run without asking",
    }


async def test_who_may_not_see_this_machine_is_not_shown_what_is_allowed_on_it(chat: Chat) -> None:
    with pytest.raises(Denied):
        await execute_line(chat, ".permissions", Scripted(caller=Caller("local", frozenset({"read:runs"}))))
