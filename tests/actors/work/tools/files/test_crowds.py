"""Tools that leave helpers behind, where thousands of processes live that have nothing to do with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

sys.path.insert(0, str(Path(__file__).parents[4] / "supervisors/faults"))

from crowd import crowd
from lifeline import Lifeline

HOST = Path(__file__).with_name("crowded_host.py")
TESTS = Path(__file__).parents[4]
RUNS, CALLS = 8, 3


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[Lifeline]:
    life = Lifeline(tmp_path / "life")
    yield life
    await life.aclose()


async def played(directory: Path, life: Lifeline) -> dict[str, Any]:
    """What the host says. It is a process of its own: all that is below us would be no stranger to us."""
    argv = [sys.executable, str(HOST), str(directory), life.path, str(RUNS), str(CALLS)]
    done = await trio.run_process(
        argv, capture_stdout=True, stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(TESTS)}
    )
    told: dict[str, Any] = json.loads(done.stdout)
    await life.silent()
    return told


async def check(directory: Path, life: Lifeline, strangers: int) -> None:
    with crowd(strangers), trio.fail_after(110):
        told = await played(directory, life)
    print(f"beside {strangers}: {told['seconds']:.2f} s, warnings: {told['warned']}")
    assert told["told"] == [{"output": "done\n"}] * (RUNS * CALLS)


async def test_every_result_is_told_and_no_helper_is_left(tmp_path: Path, life: Lifeline) -> None:
    await check(tmp_path, life, 300)


@pytest.mark.soak
async def test_every_result_is_told_and_no_helper_is_left_beside_thousands(tmp_path: Path, life: Lifeline) -> None:
    await check(tmp_path, life, 3000)
