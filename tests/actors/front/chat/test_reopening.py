"""Chats are stored, and reopened another day with their agent, their last exchange and their counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.chat_person import Scripted
from support.control_hub import hub_of
from support.fake_models import FakeModels, Reply
from support.messages import has_message

import callboard
from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.actors.front.chat.methods import opened, seen_again
from callboard.actors.front.control.hub import Hub
from callboard.actors.views.money import usd
from callboard.cli.chat.prompts import variables
from callboard.protocol.control.chat import OpenChat
from callboard.protocol.errors import Conflict, NotFound, UsageError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which chats are opened."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


async def open_chat(hub: Hub, person: Scripted, **wanted: Any) -> Chat:
    """A chat as the terminal opens it."""
    chat = Chat(hub, "local")
    await opened(chat, person, OpenChat(**{"default_agent": True, "store": True, **wanted}))
    return chat


async def stored(hub: Hub) -> list[tuple[str | None, str | None]]:
    """Title and directory of all sessions."""
    return [(meta.title, meta.cwd) for meta in await hub.root.sessions.list(None)]


def said(fake_model: FakeModels) -> list[str]:
    """The texts of the last request, without its instructions."""
    return [each["content"] for each in fake_model.requests[-1].json["messages"] if each["role"] != "system"]


async def test_a_chat_is_stored_from_its_first_prompt_on(
    hub: Hub, person: Scripted, fake_model: FakeModels, here: Path
) -> None:
    chat = await open_chat(hub, person)
    assert await stored(hub) == []
    await execute_line(chat, "fix the bug", person)
    await execute_line(chat, "and test it", person)
    assert await stored(hub) == [("fix the bug", str(here))]
    assert chat.session is None  # for commands it is a chat without a session
    assert chat.info().session is None
    assert chat.info().session_id is not None


@pytest.mark.parametrize("settings", [{"save_session": False}, {"compat": "loki"}], ids=lambda each: next(iter(each)))
async def test_settings_keep_chats_from_being_stored(
    tmp_path: Path, person: Scripted, fake_model: FakeModels, settings: dict[str, object]
) -> None:
    config_dir = fake_model.config_dir(tmp_path / "config")
    file = config_dir / "config.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    async with callboard.Root(config_dir=config_dir) as root, hub_of(root, tmp_path / "state") as hub:
        chat = await open_chat(hub, person)
        await execute_line(chat, "hello", person)
        assert await stored(hub) == []


async def test_a_client_that_does_not_want_it_stores_nothing(
    hub: Hub, person: Scripted, fake_model: FakeModels
) -> None:
    chat = await open_chat(hub, person, store=False)
    await execute_line(chat, "hello", person)
    assert await stored(hub) == []
    with pytest.raises(Conflict):
        await execute_line(chat, ".resume", person)


async def test_a_first_prompt_that_fails_leaves_nothing_behind(
    hub: Hub, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script(Reply(status=400, error="no"), "fine")
    chat = await open_chat(hub, person)
    assert (await execute_line(chat, "hello", person)).status == "failed"
    assert await stored(hub) == []
    await execute_line(chat, ".retry", person)
    assert [title for title, _ in await stored(hub)] == ["hello"]


async def test_the_newest_chat_of_the_directory_is_continued_with_its_agent_and_what_was_said(
    hub: Hub, person: Scripted, fake_model: FakeModels, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_model.script("I see.", "Elsewhere.", "Line 2.")
    first = await open_chat(hub, person)
    await execute_line(first, "look at stats.py", person)
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    await execute_line(await open_chat(hub, person), "another", person)
    monkeypatch.chdir(here)
    again = await open_chat(hub, person, reopen="last")
    assert (again.agent, again.in_default_agent, again.session) == ("assistant", True, None)
    kinds = [kind for kind, _ in seen_again(again)]
    texts = "\n".join(text for _, text in seen_again(again))
    assert kinds == ["note", "echo", "markdown"]
    assert "look at stats.py" in texts
    assert "I see." in texts
    assert "1 answer" in texts
    await execute_line(again, "which line?", person)
    assert said(fake_model) == ["look at stats.py", "I see.", "which line?"]
    assert len(await stored(hub)) == 2


async def test_where_no_chat_of_the_directory_is_stored_it_says_so(hub: Hub, person: Scripted) -> None:
    for which in ("last", "choose"):
        with pytest.raises(NotFound):
            await open_chat(hub, person, reopen=which)


async def test_the_person_chooses_by_title_date_and_directory(hub: Hub, fake_model: FakeModels, here: Path) -> None:
    nobody = Scripted()
    for prompt in ("one thing", "another thing", "another thing"):
        await execute_line(await open_chat(hub, nobody), prompt, nobody)
    person = Scripted("another thing (2)")
    again = await open_chat(hub, person, reopen="choose")
    assert person.asked[0].options == ["another thing", "another thing (2)", "one thing"]
    assert all(str(here) in about and "ago" in about and "$" not in about for about in person.asked[0].about)
    assert again.place.turns == 1
    none = await open_chat(hub, Scripted(None), reopen="choose")
    assert none.place.is_empty
    assert none.agent == "assistant"


async def test_resume_within_a_chat_goes_over_to_an_earlier_one_and_clear_begins_anew(
    hub: Hub, fake_model: FakeModels
) -> None:
    person = Scripted("first words")
    fake_model.script("first answer", "second answer", "third answer")
    chat = await open_chat(hub, person)
    await execute_line(chat, "first words", person)
    await execute_line(chat, ".model fake:other", person)
    with pytest.raises(UsageError):
        await execute_line(chat, ".clear toodo", person)
    assert not chat.place.is_empty
    await execute_line(chat, ".clear", person)
    await execute_line(chat, "second words", person)
    assert said(fake_model) == ["second words"]
    assert fake_model.requests[-1].json["model"] == "other"  # what was set stays
    await execute_line(chat, ".resume", person)
    assert "first answer" in person.text
    await execute_line(chat, "third words", person)
    assert said(fake_model) == ["first words", "first answer", "third words"]
    assert sorted(str(title) for title, _ in await stored(hub)) == ["first words", "second words"]


async def test_a_stored_chat_gets_a_name_and_is_a_session_then(
    hub: Hub, person: Scripted, fake_model: FakeModels
) -> None:
    chat = await open_chat(hub, person)
    await execute_line(chat, "hello", person)
    await execute_line(chat, ".save session greetings", person)
    assert chat.session is not None
    assert chat.session.name == "greetings"
    again = await open_chat(hub, person, reopen="last")
    assert again.session is not None
    assert again.place.turns == 1
    assert len(await stored(hub)) == 1


async def test_an_agent_and_its_values_come_back_with_the_chat(
    hub: Hub, person: Scripted, fake_model: FakeModels, root: callboard.Root
) -> None:
    home = root.config_dir / "agents" / "clerk"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(
        "name: clerk\ninstructions: You are {{who}}.\nvariables: [{name: who, description: who you are}]\n"
    )
    chat = await open_chat(hub, person, agent="clerk", variables={"who": "Ada"})
    await execute_line(chat, "hello", person)
    again = await open_chat(hub, person, reopen="last")
    await execute_line(again, "who are you?", person)
    assert again.agent == "clerk"
    assert fake_model.requests[-1].system.startswith("You are Ada.")


async def test_what_a_chat_has_cost_is_in_its_session(tmp_path: Path, person: Scripted, fake_model: FakeModels) -> None:
    config_dir = fake_model.config_dir(tmp_path / "config")
    file = config_dir / "config.yaml"
    keys = json.loads(file.read_text())
    keys["clients"][0]["models"] = [{"name": "model", "input_price": 1000.0, "output_price": 1000.0}]
    file.write_text(json.dumps(keys))
    async with callboard.Root(config_dir=config_dir) as root, hub_of(root, tmp_path / "state") as hub:
        chat = await open_chat(hub, person)
        await execute_line(chat, "one", person)
        await execute_line(chat, "two", person)
        (meta,) = await root.sessions.list(None)
        assert chat.cost is not None
        assert meta.cost == pytest.approx(chat.cost)
        assert meta.cost > 0
        choosing = Scripted("one")
        await open_chat(hub, choosing, reopen="choose")
        assert choosing.asked[0].about[0].endswith(f", {usd(meta.cost)}")


async def test_what_is_known_of_the_cost_is_shown_beside_a_model_without_a_price(
    tmp_path: Path, person: Scripted, fake_model: FakeModels
) -> None:
    config_dir = fake_model.config_dir(tmp_path / "config")
    file = config_dir / "config.yaml"
    keys = json.loads(file.read_text())
    keys["clients"][0]["models"] = [
        {"name": "model", "input_price": 1000.0, "output_price": 1000.0},
        {"name": "other"},
    ]
    file.write_text(json.dumps(keys))
    async with callboard.Root(config_dir=config_dir) as root, hub_of(root, tmp_path / "state") as hub:
        chat = await open_chat(hub, person)
        await execute_line(chat, "one", person)
        cost = chat.cost
        assert cost > 0
        assert variables(chat.info(), {})["cost"] == f"{cost:.4f}"
        await execute_line(chat, ".model fake:other", person)
        await execute_line(chat, "two", person)
        person.told.clear()
        await execute_line(chat, ".cost", person)
        assert chat.cost == cost
        assert f"chat           {usd(cost)}+\n" in person.text
        assert has_message(person.text, "front.chat.commands.reports._cost")
        assert variables(chat.info(), {})["cost"] == f"{cost:.4f}+"
