"""What stands in a real terminal (tmux) is the text, each line once, whatever becomes of its size."""

from __future__ import annotations

import itertools
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.messages import fragment
from support.talking import environment_of, start, without_agent
from support.tmux import Tmux
from support.waiting import PATIENCE

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is the terminal")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Tmux]:
    tmux = Tmux(80, 24, tmp_path)
    yield tmux
    tmux.close()


def long_answer() -> str:
    """20 kB of Markdown, whose words are counted."""
    numbers = itertools.count()

    def words(many: int) -> list[str]:
        return [f"w{next(numbers):04}" for _ in range(many)]

    parts: list[str] = []
    for _ in range(10):
        code = [f"    print('{' '.join(words(12))}')" for _ in range(7)]
        rows = [f"| {' | '.join(words(3))} |" for _ in range(22)]
        items = [f"- **{one}** {two} `{three}`" for one, two, three in (words(3) for _ in range(8))]
        table = ["| a | b | c |", "|---|---|---|", *rows]
        blocks = [["# " + " ".join(words(2))], [" ".join(words(110))], ["```python", *code, "```"], table, items]
        parts += ["\n".join(block) for block in blocks]
    return "\n\n".join(parts)


async def test_a_long_answer_stands_in_the_scrollback_once_though_the_terminal_gets_narrower_and_wider(
    tmp_path: Path, fake_model: FakeModels
) -> None:
    text = long_answer()
    words = re.findall(r"w\d{4}", text)
    assert len(text) > 20_000
    fake_model.script(Reply(text=text, gap=0.004, piece=20))
    terminal = Tmux(200, 24, tmp_path)
    try:
        start(terminal, fake_model, tmp_path)
        await terminal.shows(fragment("cli.chat.conversation.ChatConversation._open"))
        terminal.press("tell me", "Enter")
        await terminal.shows(words[20])
        pauses = itertools.cycle((0.05, 0.05, 0.5, 0.5, 0.7, 0.05, 0.5))  # tmux tells the second of two a bit later
        with trio.fail_after(PATIENCE):
            for columns, rows in itertools.cycle(((60, 24), (40, 20), (120, 24), (200, 24))):
                if words[-1] in "".join(terminal.screen()):
                    break
                terminal.resize(columns, rows)
                await trio.sleep(next(pauses))
        await terminal.until(lambda lines: re.findall(r"w\d{4}", "\n".join(lines)) == words)
    finally:
        terminal.close()


@pytest.mark.full
async def test_a_paste_of_a_megabyte_is_folded_and_sent_whole(
    terminal: Tmux, fake_model: FakeModels, tmp_path: Path
) -> None:
    text = "".join(f"line {number:014}\n" for number in range(50_000))
    start(terminal, fake_model, tmp_path)
    await terminal.shows(fragment("cli.chat.conversation.ChatConversation._open"))
    terminal.press("before ")
    with trio.fail_after(PATIENCE):
        terminal.paste(text)
        terminal.press(" behind")
        await terminal.shows("model> before [pasted 1.0 MB #1] behind")
    terminal.press("Enter")
    await terminal.shows("\nok")
    assert fake_model.requests[-1].json["messages"][-1]["content"] == f"before {text} behind"
    assert not any("line 00" in line for line in terminal.lines())
    terminal.press("C-d")
    assert await terminal.ended() == 0


async def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_again(
    terminal: Tmux, fake_model: FakeModels, tmp_path: Path
) -> None:
    config = without_agent(fake_model.config_dir(tmp_path / "config"))
    terminal.start(["bash", "--norc", "--noprofile", "-i"], {**environment_of(config, tmp_path), "PS1": "shell$ "})
    await terminal.shows("shell$")
    terminal.press(f"{sys.executable} -m callboard.cli", "Enter")
    await terminal.shows(fragment("cli.chat.conversation.ChatConversation._open"))
    answers = trio.Event()
    fake_model.script(Reply(text="the answer", hold=answers))
    terminal.press("work", "Enter")
    await fake_model.arrived(1)
    terminal.press("half", "C-z")
    await terminal.until(lambda lines: lines[-1] == "shell$")
    assert not any("model> half" in line for line in terminal.lines())  # it was wiped
    terminal.press("echo $((40 + 2))", "Enter")
    await terminal.shows("\n42\nshell$")
    terminal.press("fg", "Enter")
    await terminal.shows("\nmodel> half")
    answers.set()
    await terminal.shows("the answer\n\nmodel> half")
    terminal.press(" and half", "Enter")
    await terminal.shows("\nok")
    assert fake_model.requests[-1].prompt == "half and half"
    terminal.press("C-d")
    await terminal.until(lambda lines: lines[-1] == "shell$")
    terminal.press("exit 7", "Enter")
    assert await terminal.ended() == 7
