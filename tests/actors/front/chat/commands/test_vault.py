"""`.vault`: secrets are typed hidden, shown to who asks alone, and for the person at this machine."""

from __future__ import annotations

import sys

import msgspec
import pytest
from support.chat_person import Scripted
from support.fake_models import FakeModels
from support.messages import has_message, says

from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.actors.io.vault.vault import Vault
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.errors import ConfigError, Denied, NotFound, UsageError
from callboard.protocol.settings.vault import VaultSettings

SECRET = "sk-of-the-chat-12345"


async def test_a_secret_is_kept_shown_changed_and_deleted(chat: Chat) -> None:
    person = Scripted(SECRET, f"{SECRET}-new", "yes")
    await execute_line(chat, ".vault add MY_KEY", person)
    assert person.asked[0].secret
    assert SECRET not in person.text
    await execute_line(chat, ".vault list", person)
    assert person.told[-1].text == "MY_KEY"
    await execute_line(chat, ".vault get MY_KEY", person)
    assert person.told[-1].text == SECRET
    await execute_line(chat, ".vault update MY_KEY", person)
    await execute_line(chat, ".vault get MY_KEY", person)
    assert person.told[-1].text == f"{SECRET}-new"
    await execute_line(chat, ".vault delete MY_KEY", person)
    await execute_line(chat, ".vault list", person)
    assert has_message(person.told[-1].text, "front.chat.commands.credentials._vault.5")


async def test_who_watches_sees_neither_values_nor_names(chat: Chat) -> None:
    watched: list[object] = []
    chat.watchers[Scripted()] = watched.append
    person = Scripted(SECRET)
    await execute_line(chat, ".vault add MY_KEY", person)
    await execute_line(chat, ".vault get MY_KEY", person)
    await execute_line(chat, ".vault list", person)
    assert watched
    assert SECRET in person.text
    assert SECRET not in repr(watched)
    assert "MY_KEY" not in repr(watched)  # nor its name
    assert chat.backlog.after(0, lambda _: True) == []


async def test_the_vault_is_for_the_person_at_this_machine(chat: Chat) -> None:
    person = Scripted(caller=Caller(subject="alice", scopes=LOCAL.scopes))
    with pytest.raises(Denied, match=says("front.chat.commands.credentials._vault")):
        await execute_line(chat, ".vault list", person)


@pytest.mark.parametrize("line", [".vault", ".vault add", ".vault list X", ".vault show X"])
async def test_words_that_make_no_sense_tell_the_usage(chat: Chat, person: Scripted, line: str) -> None:
    with pytest.raises(UsageError, match=r"Usage: \.vault"):
        await execute_line(chat, line, person)


async def test_a_name_that_is_not_there_is_told_with_the_nearest(chat: Chat) -> None:
    person = Scripted(SECRET)
    await execute_line(chat, ".vault add MY_KEY", person)
    with pytest.raises(NotFound, match=says("protocol.problems.suggestion", name="MY_KEY")):
        await execute_line(chat, ".vault get MY_KY", person)
    with pytest.raises(UsageError, match=says("front.chat.commands.credentials._vault.6")):
        await execute_line(chat, ".vault add MY_KEY", person)
    with pytest.raises(UsageError, match=says("front.chat.commands.credentials._vault.3")):
        await execute_line(chat, ".vault add 1-2", person)


async def test_what_was_kept_just_now_is_in_no_event_when_it_is_said(chat: Chat, fake_model: FakeModels) -> None:
    person, events = Scripted(SECRET), []
    await execute_line(chat, ".vault add MY_KEY", person)
    fake_model.script(f"you said {SECRET}")
    with chat.hub.root.bus.listen(events.append):
        await execute_line(chat, f"it is {SECRET}", person)
    assert len(events) > 3
    assert SECRET not in repr(events)
    assert chat.reply == "you said [redacted]"


async def test_without_what_encrypts_no_secret_is_asked_for(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyrage", None)
    person = Scripted(SECRET)
    with pytest.raises(ConfigError, match=says("io.vault.age._pyrage")):
        await execute_line(chat, ".vault add MY_KEY", person)
    assert not person.asked


async def test_a_secret_of_another_program_is_shown(chat: Chat, person: Scripted) -> None:
    root = chat.hub.root
    settings = msgspec.structs.replace(root.settings, vault=VaultSettings(command="echo value-of-{name}"))
    root.vault = Vault(settings, root.config_dir, {}, root.kernel)
    await execute_line(chat, ".vault get MY_KEY", person)
    assert person.told[-1].text == "value-of-MY_KEY"
    with pytest.raises(UsageError, match=says("front.chat.commands.credentials._vault.4")):
        await execute_line(chat, ".vault add MY_KEY", person)
