"""Every benchmark runs, with sizes that prove it works and nothing else. What they measure is no test's business.

Those that take longer are among the long repetitions.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from callboard.actors.work.models import weights

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        pytest.param(
            "kernel",
            ["--rounds=1", "--scale=0.002"],
            ["spawn an actor", "tell, 100 → 1", "warm lease", "NOT MET|met"],
            marks=pytest.mark.soak,
        ),
        ("graph", ["--rounds=1", "--scale=0.02"], ["a no-op node", "1,000-way map", "1,000 parallel nodes"]),
        pytest.param(
            "agents",
            ["--rounds=1", "--scale=0.02"],
            ["an agent, 1,000 at once", "chain of 20", "exit 130 after"],
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "mcp",
            ["--rounds=1", "--scale=0.05"],
            ["a warm call, leased for it", "8 servers started at once"],
            marks=pytest.mark.soak,
        ),
        ("shared_index", ["5", "200"], ["open indexes: 1|skipped"]),
        pytest.param(
            "workflow",
            ["--rounds=1", "--scale=0.02"],
            ["a literal, in a chain", "a map of 500", "until all people are asked"],
            marks=pytest.mark.soak,
        ),
        ("embedding", ["--rounds=1", "--scale=0.01"], ["an agent, 1,000 at once", "under trio", "loop lag"]),
        ("runs", ["20"], ["20 runs parked", "40 of 40 finished"]),
        pytest.param(
            "control",
            ["--small"],
            ["100 clients watch 10 runs", "missing 0", "NOT MET|met"],
            marks=pytest.mark.soak,
        ),
        ("telemetry", ["--rounds=1", "--scale=0.02"], ["telemetry off: ×", "telemetry on: ×"]),
        pytest.param(
            "knowledge",
            ["--chunks=300", "--rivals=/no/python"],
            ["open again", "no /no/python", "NOT MET|met"],
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_benchmark_measures_every_row(name: str, options: list[str], words: list[str]) -> None:
    shown = _output(name, options)
    for word in words:
        assert any(part in shown for part in word.split("|")), shown


@pytest.mark.parametrize("name", ["callboard", "langchain"])
def test_a_contender_that_is_told_to_end_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    script = BENCHMARKS / "contenders" / f"knowledge_{name}.py"
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    ) as process:
        assert process.stdout is not None
        is_missing = "missing" in json.loads(process.stdout.readline())  # it ends by itself, if so
        if not is_missing:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == (0 if is_missing else 128 + signal.SIGTERM)
    assert list(tmp_path.iterdir()) == []


PODS = {
    "perlfaq1": """=head1 NAME

=head2 How do I X<bread>bake I<bread> at home?

Flour, water and salt are mixed with yeast, left alone until C<< size > 2 >>, and put into a hot oven. """
    + "Time and patience matter more than the kind of flour that you can find in the shop around the corner. " * 2
    + """

=head2 Where is E<lt>thisE<gt>?

See L<perlfunc/"somewhere else">.

=head2 Why does a bicycle stay upright?

"""
    + "The rider steers towards the side that it leans to, mostly without noticing, and the wheels help. " * 3
    + """

=head1 AUTHOR

Somebody who has baked bread at home.
""",
    "perlfunc": "=head1 Functions\n\n=over\n\n=item * print\n\nPrints what it is given.\n\n=back\n",
}


def test_retrieval_asks_what_has_an_answer_of_its_own(tmp_path: Path) -> None:
    if not weights.KNOWN["wordllama"].are_in(weights.directory(os.environ)):
        pytest.skip("run: callboard models pull wordllama")
    for name, pod in PODS.items():
        (tmp_path / f"{name}.pod").write_text(pod)
    shown = _output("retrieval", [f"--corpus={tmp_path}"])
    assert "2 questions" in shown
    assert "chunks of 1000: 3 chunks" in shown
    for way in ("keyword", "vector", "hybrid", "hybrid, by ranks"):
        assert re.search(rf"  {way}( +[01][.][0-9]{{3}}){{4}} ", shown), shown


def _output(name: str, options: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{name}.py"), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr  # 1: a budget was missed, which at this size means nothing
    assert done.stderr == ""
    return done.stdout
