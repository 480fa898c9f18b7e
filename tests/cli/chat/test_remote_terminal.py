"""`callboard chat --url` and `--attach` in real terminals, with a server that is killed in the middle."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.messages import fragment
from support.talking import environment_of, without_agent
from support.tmux import Tmux
from support.waiting import PATIENCE

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is the terminal")
PROGRAM = [sys.executable, "-m", "callboard.cli"]


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[list[Tmux]]:
    three = [Tmux(100, 30, tmp_path) for _ in range(3)]
    yield three
    for each in three:
        each.close()


@pytest.mark.full
async def test_a_conversation_with_a_server_is_watched_elsewhere_and_goes_on_after_the_server_was_killed(
    terminals: list[Tmux], fake_model: FakeModels, tmp_path: Path, nursery: trio.Nursery, free_port: int
) -> None:
    first, second, third = terminals
    environ = environment_of(without_agent(fake_model.config_dir(tmp_path / "config")), tmp_path)
    url = f"http://127.0.0.1:{free_port}"

    async def serve() -> trio.Process:
        process: trio.Process = await nursery.start(
            lambda task_status: trio.run_process(
                [*PROGRAM, "serve", "-q", "--port", url.rpartition(":")[2]],
                env={**os.environ, **environ},
                check=False,
                task_status=task_status,
            )
        )
        return process

    server = await serve()
    with trio.fail_after(PATIENCE):
        while not list(tmp_path.glob("state/**/servers/*.json")):
            await trio.sleep(0.05)
    fake_model.script("The first answer.", "The second answer.", Reply(text="word " * 2000, gap=0.02))
    fake_model.answer_with(lambda request: "The last one." if request.prompt == "and now?" else "It went on.")
    first.start([*PROGRAM, "chat", "--url", url], environ)
    await first.shows(f"at {url}")
    first.press("hello", "Enter")
    await first.shows("The first answer.")
    second.start([*PROGRAM, "chat", "--url", url, "--attach", "chat-"], environ)
    await second.shows("The first answer.")
    second.press("from the other side", "Enter")
    await first.shows("The second answer.")
    lines = first.lines()
    assert sum("from the other side" in line for line in lines) == 1
    assert sum("The second answer." in line for line in lines) == 1
    second.press("C-d")
    assert await second.ended() == 0
    first.press("go on", "Enter")
    await first.shows("word word")
    os.kill(server.pid, signal.SIGKILL)
    await first.shows("is lost; reconnecting")
    first.press("and now?", "Enter", "half a")
    await serve()
    await first.until(lambda lines: "The last one." in lines and lines[-1].startswith("model> half a"))
    lines = first.lines()
    assert sum("the server continues the run; to see it: `.attach run-" in line for line in lines) == 1
    assert sum("The last one." in line for line in lines) == 1
    third.start([*PROGRAM, "chat", "--attach", "chat-"], environ)
    await third.shows("The last one.")
    first.press("C-u", ".exit", "Enter")
    assert await first.ended() == 0
    await third.shows(fragment("cli.chat.conversation.ChatConversation._end_if_closed"))
    assert await third.ended() == 0
