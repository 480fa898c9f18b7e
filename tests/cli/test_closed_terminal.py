"""A terminal that is closed while a run goes on there leaves the run to `callboard resume`, whatever it waited for."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from fake_models import FakeModels, Reply
from talking import environment_of
from tmux import Tmux
from waiting import until

from callboard.actors.io.directories import journal_dir
from callboard.supervisors.journal.reading import kept_runs

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is the terminal")
PROGRAM = [sys.executable, "-m", "callboard.cli"]

ASKS = """
name: asks
start: ask
nodes:
  ask: {type: input, question: "Who is there?", state_updates: {who: "{{input}}"}, next: done}
  done: {type: end, output: "hello {{who}}"}
"""


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Tmux]:
    found = Tmux(100, 30, tmp_path)
    yield found
    found.close()


def stands(environ: dict[str, str]) -> list[str]:
    """How the runs stand that are kept."""
    return [run.state.value for run in kept_runs(journal_dir(environ))]


async def say(environ: dict[str, str], *words: str) -> str:
    program = await trio.run_process([*PROGRAM, *words], env={**os.environ, **environ}, capture_stdout=True)
    return bytes(program.stdout).decode()


async def test_at_a_question_it_waits_for_its_answer_which_may_come_while_nobody_plays_it(
    terminal: Tmux, fake_model: FakeModels, tmp_path: Path
) -> None:
    environ = environment_of(fake_model.config_dir(tmp_path / "config"), tmp_path)
    (tmp_path / "asks.yaml").write_text(ASKS)
    terminal.start([*PROGRAM, "run", str(tmp_path / "asks.yaml")], environ)
    await terminal.shows("Who is there?")
    terminal.close()
    await until(lambda: stands(environ) == ["interrupted"])
    listed = await say(environ, "answer")
    (question,) = [word for word in listed.split() if word.startswith("q-")]
    await say(environ, "answer", question, "me")
    assert await say(environ, "resume", "--no-input") == "hello me\n"


async def test_in_a_chat_the_answer_goes_on(terminal: Tmux, fake_model: FakeModels, tmp_path: Path) -> None:
    environ = environment_of(fake_model.config_dir(tmp_path / "config"), tmp_path)
    fake_model.script(Reply(text="never", hold=trio.Event()), "said at last")
    terminal.start([*PROGRAM, "chat"], environ)
    await terminal.shows("Ctrl-D leaves")
    terminal.press("hello", "Enter")
    await fake_model.arrived(1)
    terminal.close()
    await until(lambda: stands(environ) == ["interrupted"])
    assert await say(environ, "resume", "--no-input") == "said at last\n"
