"""A terminal that is closed while a run goes on there leaves the run to `callboard resume`, whatever it waited for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.screen import Screen
from support.starter import CALLBOARD
from support.talking import environment_of
from support.tmux import Tmux
from support.waiting import until

from callboard.actors.io.directories import journal_dir
from callboard.supervisors.journal.reading import stored_runs

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
    return [run.state.value for run in stored_runs(journal_dir(environ))]


async def say(environ: dict[str, str], *words: str) -> str:
    program = await trio.run_process([*CALLBOARD, *words], env={**os.environ, **environ}, capture_stdout=True)
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


SLEEPS = """
name: sleeps
start: sleep
nodes:
  sleep: {type: script, script: sleep.sh, next: done}
  done: {type: end, output: woke up}
"""


def started_in(slave: int, command: list[str], environ: dict[str, str], before: str) -> subprocess.Popen[bytes]:
    """Start a program whose controlling terminal is `slave`; `before` is what a shell does first.

    A program that is deaf to SIGHUP runs to its end, and then cannot write its result, as on a full disk.
    """
    return subprocess.Popen(
        ["sh", "-c", f'{before}\nexec "$@"', "sh", *command],
        env={**os.environ, **environ},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=partial(os.login_tty, slave),
    )


@pytest.mark.parametrize(
    ("flags", "before", "code", "state"),
    [
        ([], "", 129, ["interrupted"]),
        (["-q"], "", 129, ["interrupted"]),
        (["-v"], "trap '' HUP", 1, ["over"]),
    ],
    ids=["tree", "quiet", "nohup"],
)
async def test_the_exit_code_is_that_of_the_hangup(
    tmp_path: Path, flags: list[str], before: str, code: int, state: list[str]
) -> None:
    environ = environment_of(tmp_path / "config", tmp_path)
    (tmp_path / "sleeps.yaml").write_text(SLEEPS)
    started, go_on = tmp_path / "started", tmp_path / "go_on"
    (tmp_path / "sleep.sh").write_text(f"touch {started}; until test -e {go_on}; do sleep 0.05; done\n")
    screen = Screen()
    command = [*PROGRAM, "run", "--sandbox", "off", "--durable", *flags, str(tmp_path / "sleeps.yaml"), "x"]
    program = started_in(screen.slave, command, environ, before)
    try:
        await until(started.exists)
    finally:
        screen.close()
    if before:
        go_on.touch()
    await until(lambda: program.poll() is not None)
    assert (program.returncode, stands(environ)) == (code, state)
