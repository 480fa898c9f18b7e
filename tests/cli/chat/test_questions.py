"""Questions at the terminal: what was typed before one is no answer to it."""

from __future__ import annotations

import json
from pathlib import Path

import trio
from support.fake_models import FakeModels, Reply
from support.messages import fragment
from support.program_window import Window
from support.talking import allow_commands, start
from support.waiting import PATIENCE, until


def asked_in(directory: Path) -> bool:
    """True if the log of a run has a question."""
    return any("question.asked" in log.read_text() for log in directory.glob("state/**/events.jsonl"))


def rests(lines: list[str]) -> bool:
    """True if no run works: nothing but a blank row is above the prompt."""
    return len(lines) > 1 and not lines[-2] and lines[-1].startswith("model/temp>")


async def test_what_was_typed_before_a_question_is_no_answer_to_it(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    begin = trio.Event()
    call = ("execute_command", {"command": "echo $((40 + 2))"})
    fake_model.script(Reply(calls=[call], hold=begin), Reply(text="so it is"))
    start(window, fake_model, tmp_path, configure=allow_commands)
    await window.shows(fragment("cli.chat.conversation.ChatConversation._open"))
    window.press("count", "Enter")
    await fake_model.arrived(1)
    window.press("yes")
    await window.shows("model> yes")
    begin.set()
    await window.shows("goes to it")  # the question stands there
    await trio.sleep(1)  # longer than it takes for one to take the keys by itself
    window.press("!")
    await window.shows("model> yes!")
    assert len(fake_model.requests) == 1
    window.press("M-a")
    await window.shows("1. Yes")
    window.press("1", "Enter")
    await window.until(lambda lines: "so it is" in lines and "model> yes!" in lines[-1])
    assert sum("= Yes, once" in line for line in window.lines()) == 1
    window.press("C-u", "C-d")  # Ctrl-C interrupts as long as the line has no answer
    assert await window.ended() == 0


async def test_a_question_on_an_empty_line_takes_the_keys(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    call = ("execute_command", {"command": "echo $((40 + 2))"})
    fake_model.script(Reply(calls=[call]), Reply(text="as you like"))
    start(window, fake_model, tmp_path, configure=allow_commands)
    await window.shows(fragment("cli.chat.conversation.ChatConversation._open"))
    window.press("count", "Enter")
    await window.shows("4. No")
    window.press("4", "Enter")
    await window.shows("as you like")
    assert sum("= No" in line for line in window.lines()) == 1
    assert not any("answered by" in line for line in window.lines())
    assert await window.leave() == 0


async def test_commands_that_look_work_while_a_permission_is_asked_and_are_no_answer(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    call = ("execute_command", {"command": "echo one"})
    fake_model.script(Reply(calls=[call]), Reply(text="as you like"))
    start(window, fake_model, tmp_path, configure=allow_commands)
    await window.shows(".help lists commands")
    window.press("count", "Enter")
    await window.shows("1-4 or arrows")
    window.press(".", "cost", "Enter")
    await window.shows("output tokens")
    await window.shows("1-4 or arrows")  # the question has the keys again
    window.press("/tools", "Enter")
    await window.shows("also there")
    assert len(fake_model.requests) == 1
    await window.shows("1-4 or arrows")
    window.press("3")
    await window.shows("stores > echo one")
    window.press(" *", "Enter")
    await window.shows("as you like")
    assert any("= Yes, always here: echo one *" in line for line in window.lines())
    assert await window.leave() == 0


async def test_a_refusal_is_shown_as_one_with_its_reason(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    call = ("execute_command", {"command": "echo one"})
    fake_model.script(Reply(calls=[call]), Reply(text="as you like"))
    start(window, fake_model, tmp_path, configure=allow_commands)
    await window.shows(".help lists commands")
    window.press("count", "Enter")
    await window.shows("1-4 or arrows")
    window.press("4", "use fs_ls", "Enter")
    await window.shows("as you like")
    assert any("refused: use fs_ls" in line for line in window.lines())
    assert not any("FAILED" in line for line in window.lines())
    assert await window.leave() == 0


async def test_what_was_typed_while_a_question_was_out_of_sight_is_no_answer_to_it(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    editor, opened = tmp_path / "editor.sh", tmp_path / "opened"
    editor.write_text(f"#!/bin/sh\ntouch {opened}\nwhile [ -e {opened} ]; do sleep 0.1; done\n")
    editor.chmod(0o755)
    begin = trio.Event()
    call = ("execute_command", {"command": "echo $((40 + 2))"})
    fake_model.script(Reply(calls=[call], hold=begin), Reply(text="so it is"))

    def configure(directory: Path) -> None:
        allow_commands(directory)
        file = directory / "config" / "config.yaml"
        file.write_text(json.dumps({**json.loads(file.read_text()), "editor": str(editor)}))

    start(window, fake_model, tmp_path, configure=configure)
    await window.shows(fragment("cli.chat.conversation.ChatConversation._open"))
    window.press("count", "Enter")
    await fake_model.arrived(1)
    window.press("C-o")
    with trio.fail_after(PATIENCE):
        while not opened.exists():
            await trio.sleep(0.05)
    begin.set()
    await until(lambda: asked_in(tmp_path))
    await trio.sleep(0.5)  # it has come to the screen as well
    window.press("1", "Enter")
    await trio.sleep(0.3)
    opened.unlink()
    await window.shows("model> 1")  # text of the input line
    await trio.sleep(0.7)
    assert len(fake_model.requests) == 1
    assert not any("= Yes, once" in line for line in window.lines())
    window.press("M-a")
    await window.shows("4. No")
    window.press("4", "Enter")
    await window.shows("so it is")
    assert any("= No" in line for line in window.lines())
    window.press("C-c", "C-c", "C-d")  # drops both rows of the line, or leaves where a run still ends
    assert await window.ended() == 0


async def test_leaving_asks_again_after_its_question_was_withdrawn(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    start(window, fake_model, tmp_path)
    await window.shows(fragment("cli.chat.conversation.ChatConversation._open"))
    window.press(".session", "Enter")
    window.press("one", "Enter")
    await window.until(lambda lines: lines.count("ok") == 1 and rests(lines))
    await trio.sleep(3)  # until the line is answered, which no row shows, Ctrl-D leaves without a question
    window.press("C-d")
    await window.shows("callboard asks: Save")
    window.press("C-c")
    await window.gone("callboard asks: Save")
    await trio.sleep(2.2)  # a second Ctrl-C within two seconds leaves
    assert not any("callboard asks: Save" in row for row in window.lines())
    window.press("two", "Enter")
    await window.until(lambda lines: lines.count("ok") == 2 and rests(lines))
    await trio.sleep(3)
    window.press("C-d")
    await window.shows("callboard asks: Save")
    window.press("C-c", "C-c")
    assert await window.ended() == 0


async def test_a_long_list_that_a_command_shows_is_searched_by_typing(
    window: Window, fake_model: FakeModels, tmp_path: Path
) -> None:
    def configure(directory: Path) -> None:
        file = directory / "config" / "config.yaml"
        settings = json.loads(file.read_text())
        names = ["model", *(f"m-{number}" for number in range(30)), "large-one"]
        settings["clients"][0]["models"] = [{"name": name, "max_input_tokens": 128_000} for name in names]
        file.write_text(json.dumps(settings))

    start(window, fake_model, tmp_path, configure=configure)
    await window.shows(fragment("cli.chat.conversation.ChatConversation._open"))
    window.press(".model", "Enter")
    await window.shows(fragment("cli.render.menu.FilterMenu.visible_rows"))
    window.press("one large")
    await window.until(lambda lines: any("1 of 32" in line for line in lines))
    assert any("> fake:large-one  window 128k" in line for line in window.lines())
    window.press("Enter")
    await window.shows("= fake:large-one")
    await window.until(lambda lines: lines[-1].startswith("large-one>"))
    assert await window.leave() == 0
