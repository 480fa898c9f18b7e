"""`callboard demo` tells its story to the end: killed, resumed, interrupted, live, with and without its parts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import trio
from support.demo_model import answer
from support.descendants import is_alive
from support.fake_models import FakeModels
from support.messages import has_message
from support.starter import CALLBOARD
from support.waiting import until

from callboard.actors.work.models import weights
from callboard.cli.commands.demo import ANSWER, PREFIX, PREPARED

FIXED = "(ordered[middle - 1] + ordered[middle]) / 2"
WEIGHTS = weights.directory(os.environ)
HAS_LOCAL = find_spec("xllamacpp") is not None and weights.KNOWN["smollm2"].are_in(WEIGHTS)


class Home:
    """An empty HOME with a directory for demos; nothing is fetched there.

    Attributes:
        environ: of programs.
    """

    def __init__(self, path: Path) -> None:
        self.demos = path / "demos"
        self.demos.mkdir(parents=True)
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(path),
            "TMPDIR": str(self.demos),
            "LANG": "C.UTF-8",
            "PIP_INDEX_URL": "http://127.0.0.1:9",  # nothing answers there
            "PIP_RETRIES": "0",
        }

    async def demo(self, *arguments: str, **more: str) -> tuple[int, str]:
        """Exit code and output of `callboard demo` without a terminal."""
        run = partial(trio.run_process, stdin=subprocess.DEVNULL, capture_stdout=True, check=False)
        ended = await run([*CALLBOARD, "demo", "--fast", *arguments], env=self.environ | more, stderr=subprocess.STDOUT)
        return ended.returncode, ended.stdout.decode()

    def program(self) -> str:
        """The repaired program of the only demo."""
        (demo,) = self.demos.glob(f"{PREFIX}*")
        return (demo / "repository/stats.py").read_text()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def has_the_story(shown: str) -> None:
    """The kill and the resume are of two processes, and the tests have failed and then passed."""
    assert re.search(r"kill -9 \d+ ", shown), shown
    killed = re.search(r"in the middle of the question (q-\w+-\d+)", shown)
    assert killed, shown
    assert f"$ callboard answer {killed[1]} {ANSWER}" in shown
    assert "all 4 passed" in shown
    assert re.search(r"[\d,]+ tokens in, \d+ tokens out, \$0\.\d+", shown), shown
    run = re.search(r"\$ callboard resume (run-\w+)", shown)
    assert run, shown
    assert len(set(re.findall(r"^\[process (\d+)\]$", shown, re.MULTILINE))) >= 2
    *_, first, second, third = shown.splitlines()
    assert f"replay {run[1]}" in first
    assert " init my-graph " in second
    assert " setup " in third


async def test_it_is_killed_at_a_question_and_resumed_to_green_tests(home: Home) -> None:
    code, shown = await home.demo()
    assert code == 0, shown
    assert " ".join(shown.split()).startswith(PREPARED)
    assert "1 of 4 failed" in shown
    has_the_story(shown)
    skipped = " ".join(shown.partition("Skipped:")[2].split())
    assert "the extra `local`" in skipped or "Its weights could not be fetched" in skipped
    assert FIXED in home.program()
    wide = [line for line in shown.splitlines() if len(line) >= 80 and not re.search(r"/\w+/|==", line)]
    assert not wide


@pytest.mark.full
async def test_a_live_model_plays_the_same_story_without_a_terminal(home: Home, fake_model: FakeModels) -> None:
    fake_model.answer_with(answer)
    config = fake_model.config_dir(home.demos.parent / ".config/callboard")
    assert config.is_dir()
    code, shown = await home.demo("--model", "fake:model")
    assert code == 0, shown
    assert "fake:model" in shown.splitlines()[0]
    assert FIXED in home.program()
    assert "all 4 passed" in shown
    assert re.search(r"kill -9 \d+ ", shown), shown
    assert "replies cost nothing" not in shown
    assert len(fake_model.requests) == 10


async def test_a_model_that_is_not_there_ends_it_with_the_error_of_the_run(home: Home) -> None:
    code, shown = await home.demo("--model", "nosuch:model")
    assert code == 3
    assert has_message(shown, "work.models.providers.unknown.4")
    assert not list(home.demos.glob("*"))


@pytest.mark.full
async def test_a_key_in_the_environment_is_offered_for_a_live_demo(home: Home) -> None:
    code, shown = await home.demo(ANTHROPIC_API_KEY="sk-none")
    assert code == 0
    assert re.search(r"demo --model claude:\S+", shown), shown


@pytest.mark.parametrize("flags", [("--step",), ("--step", "--fast")])
async def test_steps_want_a_terminal_and_no_haste(home: Home, flags: tuple[str, ...]) -> None:
    code, _shown = await home.demo(*flags)
    assert code == 2


@pytest.mark.full
@pytest.mark.skipif(not HAS_LOCAL, reason="the local model is not here")
async def test_the_local_model_writes_the_last_words(home: Home) -> None:
    code, shown = await home.demo(XDG_CACHE_HOME=str(WEIGHTS.parents[1]))
    assert code == 0, shown
    after = shown.partition("asks local:smollm2")[2]
    assert "median" in " ".join(after.split("All 4 tests pass")[0].split()).lower(), shown


MOMENTS = [1, 6, 9, 11, 12, 13, 15, 16, 18, 20, 22, 24, 26, 30, 40, 50, 56, 58, 60, 62]
"""Lines that the demo has printed when it is killed."""


@pytest.mark.full
@pytest.mark.parametrize("moment", MOMENTS)
async def test_killed_at_any_moment_the_next_demo_ends_as_it_would_have(home: Home, moment: int) -> None:
    await killed(home, moment)
    code, shown = await home.demo()
    assert code == 0, shown
    assert "all 4 passed" in shown
    programs = [demo / "repository/stats.py" for demo in home.demos.glob(f"{PREFIX}*")]
    assert sum(program.exists() and FIXED in program.read_text() for program in programs) >= 1
    left = await trio.run_process(
        [*CALLBOARD, "runs", "--interrupted", "-o", "json"], env=home.environ, capture_stdout=True
    )
    assert json.loads(left.stdout)["runs"] == []


async def killed(home: Home, lines: int) -> None:
    """Kill a demo once it has printed so many lines, and wait for the end of all its processes."""
    process = await trio.lowlevel.open_process(
        [*CALLBOARD, "demo", "--fast"],
        env=home.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    printed = b""
    while printed.count(b"\n") < lines and (piece := await process.stdout.receive_some()):
        printed += piece
    processes = list(_with_children(process.pid))
    process.kill()
    await process.wait()
    await process.stdout.aclose()
    await until(lambda: not any(map(is_alive, processes)))


def _with_children(pid: int) -> Iterator[psutil.Process]:
    try:
        process = psutil.Process(pid)
        yield process
        yield from process.children(recursive=True)
    except psutil.NoSuchProcess:
        return


@pytest.mark.full
async def test_ctrl_c_leaves_a_demo_that_the_next_one_continues(home: Home) -> None:
    process = await trio.lowlevel.open_process(
        [*CALLBOARD, "demo"],
        env=home.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    printed = b""
    while b"waits for" not in printed and (piece := await process.stdout.receive_some()):
        printed += piece
    os.kill(process.pid, signal.SIGINT)
    while piece := await process.stdout.receive_some():
        printed += piece
    assert await process.wait() == 130, printed.decode()
    await process.stdout.aclose()
    code, shown = await home.demo()
    assert code == 0, shown
    assert "An earlier demo was interrupted" in shown
    has_the_story(shown)
