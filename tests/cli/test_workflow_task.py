"""`callboard run` of a workflow without a task, by a person at a terminal."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from support.screen import Screen
from support.starter import CALLBOARD
from support.waiting import PATIENCE

WORKFLOW = """
graph:
  id: poet
  INSTRUCTION
  nodes: [{id: A, type: passthrough, config: {}}]
"""


@pytest.fixture
def screen() -> Iterator[Screen]:
    found = Screen()
    yield found
    found.close()


def run(screen: Screen, file: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*CALLBOARD, "run", str(file)],
        stdin=screen.slave,
        stderr=screen.slave,
        stdout=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1", "CALLBOARD_CONFIG_DIR": str(file.parent)},
    )


async def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    with trio.fail_after(PATIENCE):
        out, _ = await trio.to_thread.run_sync(process.communicate)
    return process.returncode, out


async def test_it_is_asked_for_with_what_the_workflow_says_about_it(screen: Screen, tmp_path: Path) -> None:
    file = tmp_path / "poet.yaml"
    file.write_text(WORKFLOW.replace("INSTRUCTION", "initial_instruction: Name a thing to write about."))
    process = run(screen, file)
    await screen.shows(r"Name a thing to write about\.[\s\S]*  >")
    screen.press("bicycles\r")
    assert await ended(process) == (0, b"bicycles\n")


async def test_nothing_is_asked_for_where_the_workflow_says_nothing(screen: Screen, tmp_path: Path) -> None:
    file = tmp_path / "poet.yaml"
    file.write_text(WORKFLOW.replace("INSTRUCTION", "initial_instruction: ''"))
    assert await ended(run(screen, file)) == (0, b"")
