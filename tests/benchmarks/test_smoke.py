"""Every benchmark runs, with sizes that prove it works and nothing else. What they measure is no test's business."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("kernel", ["--rounds=1", "--scale=0.002"], ["spawn an actor", "tell, 100 → 1", "warm lease", "NOT MET|met"]),
        ("graph", ["--rounds=1", "--scale=0.02"], ["a no-op node", "1,000-way map", "1,000 parallel nodes"]),
        ("agents", ["--rounds=1", "--scale=0.02"], ["an agent, 1,000 at once", "chain of 20", "exit 130 after"]),
        ("runs", ["20"], ["20 runs parked", "40 of 40 finished"]),
    ],
)
def test_a_benchmark_measures_every_row(name: str, options: list[str], words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{name}.py"), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr  # 1: a budget was missed, which at this size means nothing
    assert done.stderr == ""
    for word in words:
        assert any(part in done.stdout for part in word.split("|")), done.stdout
