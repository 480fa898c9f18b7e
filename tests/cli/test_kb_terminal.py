"""`callboard kb` as a process: interrupted in the middle, and asked at a real terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.messages import has_message
from support.screen import Screen
from support.starter import CALLBOARD

COMMAND = [*CALLBOARD, "kb"]


@pytest.fixture
def home(tmp_path: Path, fake_model: FakeModels) -> Path:
    """A configuration directory in which the scripted server embeds, and a base `fruit` of one file."""
    config = fake_model.config_dir(tmp_path / "config")
    settings = json.loads((config / "config.yaml").read_text()) | {"rag_embedding_model": "fake:m"}
    (config / "config.yaml").write_text(json.dumps(settings))
    (config / "knowledge").mkdir()
    (config / "knowledge" / "plums.md").write_text("plums are blue")
    (config / "knowledge" / "fruit.yaml").write_text("documents: [plums.md]")
    fake_model.answer_with(embedded)
    return config


def embedded(request: Request) -> Reply:
    rows = [{"index": n, "embedding": [1.0, float(n)]} for n, _ in enumerate(request.json["input"])]
    return Reply(raw=json.dumps({"data": rows}).encode())


async def test_an_interrupted_build_says_how_it_goes_on_and_does(
    fake_model: FakeModels, home: Path, nursery: trio.Nursery
) -> None:
    environment = {**os.environ, "CALLBOARD_CONFIG_DIR": str(home)}
    fake_model.script(Reply(hold=trio.Event()))
    process = await nursery.start(
        lambda task_status: trio.run_process(
            [*COMMAND, "build", "fruit"],
            env=environment,
            stderr=subprocess.PIPE,
            check=False,
            task_status=task_status,
        )
    )
    await fake_model.arrived(1)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    told = b"".join([piece async for piece in process.stderr]).decode()
    assert await process.wait() == 130
    assert has_message(told, "cli.actions.kb.build_bases", verb="build", target="fruit")
    done = await trio.run_process([*COMMAND, "build", "fruit"], env=environment, capture_stdout=True)
    assert done.stdout.startswith(b"fruit: 1 added; 1 chunk, 1 embedded")


@pytest.mark.parametrize(("keys", "code", "left"), [("\r", 1, True), ("\x1b[A\r", 0, False), ("\x04", 1, True)])
async def test_drop_asks_and_enter_alone_removes_nothing(
    home: Path, screen: Screen, nursery: trio.Nursery, keys: str, code: int, left: bool
) -> None:
    environment = {**os.environ, "CALLBOARD_CONFIG_DIR": str(home), "TERM": "xterm-256color", "NO_COLOR": "1"}
    await trio.run_process([*COMMAND, "build", "fruit", "-q"], env=environment, capture_stdout=True)
    process = await nursery.start(
        lambda task_status: trio.run_process(
            [*COMMAND, "drop", "fruit"],
            stdin=screen.slave,
            stderr=screen.slave,
            stdout=subprocess.PIPE,
            env=environment,
            check=False,
            task_status=task_status,
        )
    )
    await screen.shows(r"Delete these files[\s\S]*then enter")
    screen.press(keys)
    assert await process.wait() == code
    assert (home / "knowledge" / "fruit.kb").exists() == left
    assert (home / "knowledge" / "fruit.yaml").exists()
