"""`callboard ask` on a real terminal (tmux): what it shows while a model speaks, and what stands there at the end."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.screen import Screen
from support.starter import CALLBOARD
from support.tmux import Tmux
from support.waiting import READING

from callboard.cli.render.markdown.stream import MarkdownStream
from callboard.cli.render.markdown.theme import Theme, of_pygments

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

HERE = Path(__file__).parents[2]
ASK = [sys.executable, "-m", "callboard.cli", "ask", "-q", "Hello"]
ANSI = re.compile(r"\x1b\[[0-9;]*m")
SAMPLE = (HERE / "tests/cli/markdown/sample.md").read_text(encoding="utf-8")


def rendered(text: str, columns: int) -> list[str]:
    stream = MarkdownStream(columns, Theme(of_pygments("monokai")))
    return [ANSI.sub("", line) for line in stream.feed(text).settled + stream.end().settled]


@pytest.fixture
def environment(fake_model: FakeModels, tmp_path: Path) -> dict[str, str]:
    directory = str(fake_model.config_dir(tmp_path / "config"))
    given = {"CALLBOARD_CONFIG_DIR": directory, "CALLBOARD_SANDBOX": "workspace", "PYTHONPATH": str(HERE / ".types")}
    return {**given, "TERM": "tmux-256color"}


@pytest.fixture
def tmux(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tmux]:
    columns, rows = getattr(request, "param", (40, 12))
    tmux = Tmux(columns, rows, tmp_path)
    yield tmux
    tmux.close()


@pytest.mark.parametrize(
    "tmux",
    [(40, 10), *(pytest.param(size, marks=pytest.mark.soak) for size in ((80, 24), (200, 50)))],
    indirect=True,
    ids=str,
)
async def test_the_capture_equals_the_text(
    tmux: Tmux, fake_model: FakeModels, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    columns = request.node.callspec.params["tmux"][0]
    text = SAMPLE + (HERE / "docs/limits.md").read_text(encoding="utf-8")[:6_000]
    fake_model.script(Reply(text, piece=3, gap=0.0004))
    tmux.start(ASK, environment)
    assert await tmux.ended() == 0
    expected = rendered(text, columns)
    while expected and not expected[-1]:
        expected.pop()
    assert "".join(tmux.lines()).replace(" ", "") == "".join(expected).replace(" ", "")  # -J also joins full rows
    assert tmux.cursor() == (0, True)


async def test_progress_and_answer_share_the_terminal(
    tmux: Tmux, fake_model: FakeModels, environment: dict[str, str]
) -> None:
    first = Reply("Let me *look*.\n\nOne moment", calls=[("get_current_time", {})], piece=3, gap=0.01)
    fake_model.script(first, Reply("It is **late**.", piece=3, gap=0.01))
    tmux.start([*ASK[:4], "--tool", "get_current_time", "Hello"], environment)
    assert await tmux.ended() == 0
    lines = [re.sub(r"\d\d:\d\d:\d\d|\d+(\.\d+)?m?s\b", "T", line) for line in tmux.lines() if line]
    assert lines[0] == "▸ agent: ask (1 tool)"
    assert lines[1:3] == ["Let me look.", "One moment"]
    assert lines[3].startswith("▸ T get_current_time")
    assert "It is late." in lines
    assert "\n".join(lines).count("moment") == "\n".join(lines).count("late") == 1


async def test_a_question_is_asked_where_the_open_block_stood(
    tmux: Tmux, fake_model: FakeModels, environment: dict[str, str], tmp_path: Path
) -> None:
    call = ("fs_write", {"path": str(tmp_path / "x.txt"), "contents": "x"})
    fake_model.script(Reply("I *write* it", calls=[call], piece=3, gap=0.01), Reply("Done: **x**", piece=3, gap=0.01))
    tmux.start([*ASK[:4], "--tool", "fs_write", "--root", str(tmp_path), "Hello"], environment)
    await tmux.shows("then Enter")
    await trio.sleep(READING)
    tmux.press("1")
    tmux.press("Enter")
    assert await tmux.ended() == 0
    shown = "\n".join(tmux.lines())
    assert shown.count("I write it") == 1
    assert shown.count("Done: x") == 1
    assert (tmp_path / "x.txt").exists()


async def test_an_interrupt_keeps_what_was_said(
    tmux: Tmux, fake_model: FakeModels, environment: dict[str, str]
) -> None:
    fake_model.script(Reply("# Title\n\nSome **bold words " + "and more " * 500, piece=3, stall=200))
    tmux.start(ASK, environment)
    await tmux.shows("and more")
    tmux.press("C-c")
    assert await tmux.ended() == 130
    lines = tmux.lines()
    assert lines[0] == "# Title"
    shown = "\n".join(lines)
    assert shown.count("Ctrl-C, stopping") == shown.count("# Title") == shown.count("Some ") == 1
    assert tmux.cursor() == (0, True)


async def test_a_window_that_gets_narrower_shows_nothing_twice(
    tmux: Tmux, fake_model: FakeModels, environment: dict[str, str]
) -> None:
    words = " ".join(f"word{number}" for number in range(150))
    fake_model.script(Reply(f"# First\n\n{words}\n\n- {words}", piece=3, gap=0.002))
    tmux.start(ASK, environment)
    await tmux.shows("word60")
    tmux.resize(25, 12)
    await tmux.shows("word80")
    tmux.resize(60, 12)
    assert await tmux.ended() == 0
    told = re.findall(r"word\d+", "\n".join(tmux.lines()))
    assert told == [f"word{number}" for number in range(150)] * 2


async def test_a_whole_answer_is_rendered_at_its_end(
    tmux: Tmux, fake_model: FakeModels, environment: dict[str, str]
) -> None:
    fake_model.script(Reply("Some *words* that come", piece=3, gap=0.05))
    tmux.start([*ASK, "-S"], environment)
    with trio.move_on_after(0.7):
        await tmux.shows("Some")
    assert await tmux.ended() == 0
    assert tmux.lines() == ["Some words that come"]


@pytest.mark.parametrize(
    "extra",
    [{"NO_COLOR": "1"}, {"TERM": "dumb"}, pytest.param({"CALLBOARD_HIGHLIGHT": "false"}, marks=pytest.mark.soak)],
    ids=["no-color", "dumb", "highlight"],
)
@pytest.mark.full
async def test_plain_text_is_shown_as_it_was_written(
    tmux: Tmux, fake_model: FakeModels, environment: dict[str, str], extra: dict[str, str]
) -> None:
    fake_model.script(Reply("# A *b*\n\n```py\nx = 1\n```\n| a |", piece=3, gap=0.01))
    tmux.start(ASK, {**environment, **extra})
    assert await tmux.ended() == 0
    assert tmux.lines() == ["# A *b*", "", "```py", "x = 1", "```", "| a |"]
    assert "\x1b[" not in tmux.styled()


@pytest.mark.full
async def test_a_theme_that_is_not_there_is_an_error_with_its_name(
    tmux: Tmux, fake_model: FakeModels, environment: dict[str, str]
) -> None:
    tmux.start(ASK, {**environment, "CALLBOARD_THEME": "drakula"})
    assert await tmux.ended() == 3
    assert "did you mean dracula?" in " ".join(" ".join(tmux.lines()).split())


async def test_a_pipe_gets_what_the_model_said(
    fake_model: FakeModels, environment: dict[str, str], screen: Screen
) -> None:
    fake_model.script(Reply(SAMPLE, piece=7))
    done = await trio.run_process(
        [*CALLBOARD, *ASK[3:]],
        env={**environment, "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        stderr=screen.slave,
        capture_stdout=True,
    )
    assert done.stdout.decode() == SAMPLE
