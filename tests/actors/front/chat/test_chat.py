"""A chat: its lines, what it remembers, what interrupts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
import trio.testing
from support.chat_person import Scripted
from support.fake_models import FakeModels, Reply
from support.messages import has_message, says

from callboard.actors.front.chat.chat import Chat, LineTurn
from callboard.actors.front.chat.command_line import ChatLine
from callboard.actors.front.chat.completion import completions
from callboard.actors.front.chat.execution import execute_in_turn, execute_line, find_command
from callboard.actors.front.chat.methods import opened
from callboard.protocol.control.caller import Caller
from callboard.protocol.control.chat import AskPerson, OpenChat
from callboard.protocol.errors import Conflict, ToolFailed, UsageError


async def test_a_prompt_is_a_run_of_the_hub_whose_answer_is_the_last(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script(Reply("Hello you."))
    done = await execute_line(chat, "hello", person)
    assert done.status == "done"
    assert done.run is not None
    assert [each.run for each in person.runs] == [done.run]
    assert chat.hub.get(person.caller, done.run).output == "Hello you."
    assert chat.reply == "Hello you."
    assert done.chat.turns == 1


async def test_a_chat_remembers_what_was_said_without_a_session(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    await execute_line(chat, "my name is Ada", person)
    await execute_line(chat, "what is my name?", person)
    said = [message["content"] for message in fake_model.requests[1].json["messages"] if message["role"] == "user"]
    assert said == ["my name is Ada", "what is my name?"]


async def test_an_empty_line_does_nothing(chat: Chat, person: Scripted) -> None:
    done = await execute_line(chat, "  \n", person)
    assert done.run is None


@pytest.mark.parametrize("line", [".nonexistent", "/nonexistent"])
async def test_an_unknown_command_is_an_error_that_names_help(chat: Chat, person: Scripted, line: str) -> None:
    with pytest.raises(UsageError, match=says("front.chat.execution")):
        await execute_line(chat, line, person)


@pytest.mark.parametrize("line", ["./run.sh fails", "/etc/hosts is odd", "...and then?", ". so", "/zzz is a word"])
async def test_a_path_at_the_beginning_of_a_line_makes_no_command(chat: Chat, person: Scripted, line: str) -> None:
    done = await execute_line(chat, line, person)
    assert done.status == "done"


@pytest.mark.parametrize("line", [".info", "/info", ".help", "/help"])
async def test_a_slash_works_like_a_dot(chat: Chat, person: Scripted, line: str) -> None:
    await execute_line(chat, line, person)
    assert person.told


@pytest.mark.parametrize("line", ["exit", "quit", "Clear", " help ", "/quit", ".quit"])
async def test_a_word_that_people_type_to_leave_or_to_get_help_is_never_sent_to_a_model(
    chat: Chat, person: Scripted, fake_model: FakeModels, line: str
) -> None:
    done = await execute_line(chat, line, person)
    assert fake_model.requests == []
    assert done.leave is (line.strip("./") in ("exit", "quit"))
    await execute_line(chat, f"{line.strip(' ./')} is a word", person)
    assert len(fake_model.requests) == 1


@pytest.mark.parametrize(
    ("habit", "meant"),
    [
        *((name, name) for name in ("clear", "compact", "resume", "model", "agents", "permissions")),
        *((name, name) for name in ("cost", "diff", "undo")),
        ("quit", "exit"),
    ],
)
async def test_names_that_people_know_from_other_programs_are_commands(chat: Chat, habit: str, meant: str) -> None:
    found = find_command(f"/{habit}")
    assert found is not None
    assert (found[0].name, found[1]) == (f".{meant}", "")
    offered = completions(chat, Scripted().caller, f"/{habit[:3]}")
    assert f"/{habit}" in [each.text for each in offered]


async def test_the_agents_are_listed(chat: Chat, person: Scripted) -> None:
    await execute_line(chat, "/agents", person)
    assert "assistant" in person.text
    assert "coder" in person.text


async def test_a_prompt_while_a_run_answers_is_told_to_its_agent(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    hold = trio.Event()
    fake_model.script(Reply("one", hold=hold), Reply("two"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, chat, "begin", person)
        with trio.fail_after(60):
            while chat.run is None or len(fake_model.requests) < 1:
                await trio.sleep(0.01)
        done = await execute_line(chat, "in French, please", person)
        assert done.steered
        hold.set()
    said = [message["content"] for message in fake_model.requests[-1].json["messages"] if message["role"] == "user"]
    assert said[-1].endswith("in French, please")


async def test_a_command_that_changes_something_is_refused_while_a_run_answers(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    hold = trio.Event()
    fake_model.script(Reply("one", hold=hold))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, chat, "begin", person)
        with trio.fail_after(60):
            while chat.run is None:
                await trio.sleep(0.01)
        with pytest.raises(Conflict):
            await execute_line(chat, ".session", person)
        await execute_line(chat, ".info", person)
        hold.set()


async def test_an_interrupt_keeps_what_was_said_and_gives_the_prompt_back(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    fake_model.script(Reply("word " * 10_000, gap=0.02))
    heard = ""
    async with trio.open_nursery() as nursery:
        done = []

        async def play() -> None:
            done.append(await execute_line(chat, "tell me a story", person))

        nursery.start_soon(play)
        with trio.fail_after(60):
            while chat.run is None:
                await trio.sleep(0.01)
            with chat.hub.subscribe(person.caller, chat.run) as events:
                async for event in events:
                    if event.kind == "llm.delta":
                        heard += json.loads(event.data)["data"]["text"]
                    if "word word" in heard:
                        break
            assert chat.interrupt()
    assert done[0].status == "cancelled"
    assert not chat.busy
    assert (chat.place.last_reply or "").startswith("word word")
    await execute_line(chat, "go on", person)
    roles = [message["role"] for message in fake_model.requests[-1].json["messages"]]
    assert [role for role in roles if role != "system"] == ["user", "assistant", "user"]


async def test_what_an_interrupted_agent_has_not_read_is_said(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    hold = trio.Event()
    fake_model.script(Reply("first", hold=hold), Reply("word " * 10_000, gap=0.02))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, chat, "tell me a story", person)
        with trio.fail_after(60):
            while chat.answering is None:
                await trio.sleep(0.01)
            await execute_line(chat, "of a cat", person)
            hold.set()
            while len(fake_model.requests) < 2:
                await trio.sleep(0.01)
            await execute_line(chat, "or a dog", person)
            assert chat.interrupt()
    notes = [each.text for each in person.told if has_message(each.text, "front.chat.prompting._give_back")]
    assert notes == ["The agent ended without reading these messages; send them again if they still apply:\nor a dog"]


async def test_what_the_shell_has_written_goes_along_with_the_next_prompt(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    await execute_line(chat, "!echo from the shell", person)
    assert [(each.kind, each.text.strip()) for each in person.told] == [("shell", "from the shell")]
    await execute_line(chat, "what was that?", person)
    assert "from the shell" in fake_model.requests[0].prompt
    await execute_line(chat, "and now?", person)
    assert "from the shell" not in fake_model.requests[1].prompt


async def test_what_the_shell_writes_is_shown_as_it_comes_and_once(
    chat: Chat, person: Scripted, fake_model: FakeModels, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    code = f"echo first; echo; while [ ! -e {go} ]; do sleep 0.01; done; seq 20000; echo; echo last; exit 3"

    async def seen() -> None:
        with trio.fail_after(60):
            while not person.told:
                await trio.sleep(0.01)
        assert [each.text for each in person.told] == ["first\n"]
        go.touch()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(seen)
        await execute_line(chat, f"!{code}", person)
    assert {each.kind for each in person.told} == {"shell"}
    whole = "".join(each.text for each in person.told)
    numbers = "\n".join(map(str, range(1, 20001)))
    assert whole == f"first\n\n{numbers}\n\nlast\n[exit status 3]"
    with pytest.raises(ToolFailed, match="NUL"):
        await execute_line(chat, "!echo \0", person)
    await execute_line(chat, "what was that?", person)
    assert "last\n[exit status 3]" in fake_model.requests[0].prompt


async def test_a_line_of_the_shell_can_be_interrupted(chat: Chat, person: Scripted) -> None:
    async with trio.open_nursery() as nursery:
        done = []

        async def play() -> None:
            done.append(await execute_line(chat, "!echo begun; sleep 100", person))

        nursery.start_soon(play)
        with trio.fail_after(60):
            while not person.told:
                await trio.sleep(0.01)
            assert chat.interrupt()
            while not done:
                await trio.sleep(0.01)
    assert done[0].status == "cancelled"


async def test_for_who_may_have_no_files_a_mention_is_text_and_none_is_looked_for(
    chat: Chat, fake_model: FakeModels, tmp_path: Path
) -> None:
    (tmp_path / "there.txt").write_text("its contents")
    person = Scripted(caller=Caller(subject="local", scopes=frozenset({"run:agents", "write:sessions"})))
    for name in ("there.txt", "missing.txt"):
        await execute_line(chat, f"what does @{tmp_path / name} say?", person)
        assert "its contents" not in fake_model.requests[-1].prompt


async def test_a_macro_can_not_use_the_shell(chat: Chat, person: Scripted) -> None:
    with pytest.raises(UsageError, match="because you are in a macro"):
        await execute_line(chat, "!id", person, in_macro=True)


async def test_the_model_of_an_agents_file_goes_before_the_chats(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    file = chat.hub.root.config_dir / "agents" / "clerk" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("name: clerk\nmodel: fake:of-agent\ninstructions: Be brief.\n")
    for line in (".model fake:of-chat", ".agent clerk", "one", ".model fake:chosen", "two", ".exit agent", "three"):
        await execute_line(chat, line, person)
        if line == "one":
            assert chat.info().model == "fake:of-agent"
    assert [each.json["model"] for each in fake_model.requests] == ["of-agent", "chosen", "of-chat"]


async def test_words_behind_prompt_last_are_a_prompt(chat: Chat, person: Scripted, fake_model: FakeModels) -> None:
    hold = trio.Event()
    fake_model.script(Reply("the answer", hold=hold))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(execute_line, chat, "first", person)
        await fake_model.arrived(1)
        with pytest.raises(Conflict, match=says("front.chat.chat.Chat.taken")):
            await execute_line(chat, ".prompt last of the Mohicans", person)
        hold.set()
    await execute_line(chat, "second", person)
    assert [each["content"] for each in fake_model.requests[-1].json["messages"]] == ["first", "the answer", "second"]
    await execute_line(chat, ".prompt last of the Mohicans", person)
    assert chat.role_prompt == "last of the Mohicans"


@pytest.mark.parametrize("key", ["enabled_tools", "enabled_mcp_servers"])
async def test_an_agent_has_the_tools_of_its_file(chat: Chat, person: Scripted, key: str) -> None:
    file = chat.hub.root.config_dir / "agents" / "clerk" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("name: clerk\nmodel: fake:of-agent\ninstructions: Be brief.\n")
    await execute_line(chat, ".agent clerk", person)
    with pytest.raises(UsageError, match=says("front.chat.commands.settings._check_agent", agent="clerk")):
        await execute_line(chat, f".set {key} all", person)
    assert key not in chat.info().settings


async def test_a_line_waits_for_the_command_before_it(chat: Chat, fake_model: FakeModels) -> None:
    answered = trio.Event()

    class Slow(Scripted):
        async def ask(self, asked: AskPerson) -> str | list[str] | None:
            await answered.wait()
            return await super().ask(asked)

    person = Slow("yes")
    await execute_line(chat, "the first", person)
    lines, order = [".session kept", ".fork copy", "the second"], list[str]()

    async def play(line: str, turn: LineTurn) -> None:
        await execute_in_turn(chat, line, person, turn)
        order.append(line)

    async with trio.open_nursery() as nursery:
        for line in lines:
            nursery.start_soon(play, line, chat.order.join())
        await trio.testing.wait_all_tasks_blocked(0.1)
        await execute_line(chat, ".info", person)
        assert not order
        answered.set()
    assert order == lines
    asked = [each["content"] for each in fake_model.requests[-1].json["messages"] if each["role"] == "user"]
    assert asked == ["the first", "the second"]


async def test_a_prompt_behind_one_whose_run_is_about_to_begin_is_told_to_it(
    chat: Chat, person: Scripted, fake_model: FakeModels
) -> None:
    hold = trio.Event()
    fake_model.script(Reply("well", hold=hold), "so be it")
    done = []

    async def play(line: str, turn: LineTurn) -> None:
        done.append(await execute_in_turn(chat, line, person, turn))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, "begin", chat.order.join())
        nursery.start_soon(play, "in French, please", chat.order.join())
        await fake_model.arrived(1)
        with trio.fail_after(60):
            while not done:
                await trio.sleep(0.01)
        assert done[0].steered
        hold.set()
    assert fake_model.requests[-1].json["messages"][-1]["content"].endswith("in French, please")


@pytest.mark.parametrize(("answer", "meant"), [("", True), ("Y", True), (" no", False), ("0", False), (None, False)])
async def test_what_a_client_answers_a_command_is_understood_as_every_answer_is(
    chat: Chat, answer: str | None, meant: bool
) -> None:
    line = ChatLine(chat, Scripted(answer, answer), "")
    assert await line.confirm("Sure?", default=True) is meant
    assert await line.ask("What?", default="this") == (answer or ("this" if answer == "" else None))


async def test_clients_are_told_whether_answers_stream_and_how_much_of_the_window_is_used(
    chat: Chat, person: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat.hub.root.gateway, "window", lambda _: 1000)
    assert (chat.info().settings["stream"], chat.info().percent) == (True, None)
    await execute_line(chat, "word " * 100, person)
    await execute_line(chat, ".set stream false", person)
    info = chat.info()
    assert info.settings["stream"] is False
    assert info.tokens is not None
    assert info.percent == round(info.tokens / 10) > 0


async def test_the_window_of_a_model_that_no_settings_describe_is_that_of_the_price_table(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = chat.hub.root.gateway
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    assert gateway.known_window("openai:gpt-4o") is None  # nothing is read for it
    assert gateway.catalog.prices.finder.tables
    assert gateway.known_window("openai:gpt-4o") == 128_000
    assert gateway.window("openai:gpt-4o") is None


async def test_a_chat_without_a_model_says_so_when_it_begins(
    chat: Chat, person: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await opened(chat, person, OpenChat()) == []  # it has one
    monkeypatch.setattr(chat.hub.root.gateway, "lacks_model", lambda: "no model is configured")
    assert await opened(chat, person, OpenChat()) == ["no model is configured"]
    assert await opened(chat, person, OpenChat(default_agent=True)) == ["no model is configured"]
    assert chat.agent is None
    assert await opened(chat, person, OpenChat(model="fake:other")) == []


@pytest.mark.parametrize(
    ("line", "asked"),
    [(":::\none\ntwo\n:::", "one\ntwo"), (" ::: one ::: ", " one "), (":::one\ntwo", ":::one\ntwo"), (":::", ":::")],
)
async def test_what_stands_between_two_fences_is_the_line(
    chat: Chat, person: Scripted, fake_model: FakeModels, line: str, asked: str
) -> None:
    await execute_line(chat, line, person)
    assert fake_model.requests[0].json["messages"][-1]["content"] == asked


@pytest.mark.parametrize("line", ["::::::", ":::\n:::"])
async def test_nothing_between_two_fences_is_no_line(
    chat: Chat, person: Scripted, fake_model: FakeModels, line: str
) -> None:
    assert (await execute_line(chat, line, person)).run is None
    assert not fake_model.requests
