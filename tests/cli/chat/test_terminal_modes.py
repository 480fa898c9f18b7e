"""The terminal's modes: what is typed before the prompt, what a signal leaves, and a terminal with lines alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.screen import Screen
from support.starter import CALLBOARD
from support.talking import allow_commands, environment_of
from support.waiting import PATIENCE, READING


async def test_keys_pressed_before_the_prompt_stands_are_there_once_and_a_signal_gives_the_terminal_back(
    fake_model: FakeModels, tmp_path: Path, screen: Screen
) -> None:
    before = screen.modes()
    environment = {**os.environ, **environment_of(fake_model.config_dir(tmp_path / "config"), tmp_path)}
    fd = screen.slave
    screen.press("typed before it stood")
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "callboard.cli"], stdin=fd, stdout=fd, stderr=fd, env=environment
    )
    await screen.shows("lists commands(?s:.)*before it stood")
    assert screen.modes() != before
    assert "\n".join(screen.display()).count("before it stood") == 1  # and the terminal has echoed it first
    process.terminate()
    with trio.fail_after(PATIENCE):
        assert await process.wait() == 143
    assert screen.modes() == before


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGHUP, 129), (signal.SIGQUIT, 131), (signal.SIGUSR1, 138), (signal.SIGALRM, 142)],
)
async def test_a_signal_ends_it_and_gives_the_terminal_back(
    fake_model: FakeModels, tmp_path: Path, screen: Screen, number: signal.Signals, code: int
) -> None:
    before = screen.modes()
    fake_model.config_dir(tmp_path / "config")
    program = begun(tmp_path, screen)
    await screen.shows("lists commands")
    assert screen.modes() != before
    program.send_signal(number)
    assert program.wait(PATIENCE) == code
    assert screen.modes() == before


def begun(tmp_path: Path, screen: Screen, **more: str) -> subprocess.Popen[bytes]:
    environment = {"PATH": os.environ["PATH"], **environment_of(tmp_path / "config", tmp_path), **more}
    fd = screen.slave
    return subprocess.Popen(
        CALLBOARD,
        stdin=fd,
        stdout=fd,
        stderr=fd,
        env=environment,
        cwd=tmp_path,
        preexec_fn=partial(os.login_tty, fd),
    )


async def test_a_dumb_terminal_gets_lines_and_no_escape_sequence(
    fake_model: FakeModels, tmp_path: Path, screen: Screen
) -> None:
    call = ("execute_command", {"command": "echo $((40 + 2))"})
    long = [Reply(text="more " * 2000, stall=20) for _ in range(2)]
    fake_model.script(
        Reply(text="# Title\n\n**bold** words"), Reply(calls=[call]), Reply(text="so it is"), "both", *long
    )
    fake_model.config_dir(tmp_path / "config")
    allow_commands(tmp_path)
    before = screen.modes()
    program = begun(tmp_path, screen, TERM="dumb")
    await screen.shows("lists commands, Ctrl-D leaves\r\nmodel> $")
    screen.press("hello\n")
    await screen.shows(r"model> hello\r\n# Title\r\n\r\n(?s:.)*bold(?s:.)* words\r\n\r\nmodel> $")
    screen.press("count\n")
    await screen.shows(r"1\. yes\r\n(?s:.)*  > $")
    await trio.sleep(READING)
    screen.press("1\n")
    await screen.shows(r"so it is\r\n(?s:.)*model> $")
    assert "42" in fake_model.requests[-1].results[-1]
    assert screen.modes() == before
    screen.press(":::\n")
    await screen.shows(r":::\r\n  \(::: ends the text\)\r\n  $")
    screen.press("one\n")
    await screen.shows(r"  one\r\n  $")
    screen.press("two\n")
    await screen.shows(r"  two\r\n  $")
    screen.press(":::\n")
    await screen.shows(r"both\r\n\r\nmodel> $")
    assert fake_model.requests[-1].prompt == "one\ntwo"
    screen.press("go on\n")
    await long[0].stalled.wait()
    screen.press("\x03")
    await screen.shows(r"(?s:interrupted\r\n.*)model> $")
    await trio.sleep(2.1)  # a second Ctrl-C within two seconds leaves
    screen.press("go on\n")
    await long[1].stalled.wait()
    screen.press("\x03")
    await screen.shows(r"(?s:interrupted\r\n.*){2}model> $")
    with trio.fail_after(PATIENCE):
        while program.poll() is None:
            screen.press("\x03")
            await trio.sleep(0.3)
    assert program.returncode == 0
    assert "\x1b" not in screen.text
    assert screen.text.count("hello") == 1
