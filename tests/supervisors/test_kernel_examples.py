"""The programs in examples/kernel run as they are, and show what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.messages import fragment

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "kernel"


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("ping_pong", [r"/pinger: ping 2 -> pong 3", r"result: 3"]),
        (
            "restart",
            [
                r"100 / 0: ActorFailed: /site/divider crashed: division by zero",
                r"100 / 10 = 10\.0",
                r"100 / 20: ActorDead: .*",
                fragment(
                    "supervisors.supervisor.Supervisor._restart",
                    path="…the supervisor: /site",
                    _limits="2",
                    _limits_2="5 s, .*…",
                ),
            ],
        ),
        (
            "pool",
            [r"process (\d+) heard: two", r"process \d+ heard: three, to a new process", r"PoolStat.*opened=3,.*"],
        ),
        (
            "workers",
            [
                r"2: 4 \(by ann\)",
                r"13: /workers/bob crashed: 13 brings bad luck",
                r"7: 49 \(by bob\)",
                r"100: 10000 \(by cyd\)",
                r"200: None \(by cyd\)",
            ],
        ),
        ("question", [r"soup with salt: no \(says /kitchen\)", r"fish with salt: yes \(says guest 2\)"]),
    ],
)
def test_an_example_shows_what_it_says(name: str, lines: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    for line in lines:
        assert re.search(f"^{line}$", done.stdout, flags=re.MULTILINE), (line, done.stdout)
