"""A signal at any moment ends the program by its exit code, with a line at most."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import PATIENCE

GRAPH = """
name: echo
start: end
nodes: {end: {type: end, output: "{{initial_prompt}}"}}
"""

CUT = """
import atexit, os, sys
from callboard.cli.start import main
at, number = int(sys.argv[1]), int(sys.argv[2])
sys.argv = ["callboard", *sys.argv[3:]]
count = 0

def hook(event, arguments):
    global count
    if event == "import":
        count += 1
        if count == at:
            os.kill(os.getpid(), number)

sys.addaudithook(hook)
if at == 0:
    atexit.register(lambda: print(count, file=sys.stderr))
main()
"""
"""The program, which sends itself a signal when it imports something for the `at`-th time."""


def cut(at: int, number: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CUT, str(at), str(number), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture
def graph(tmp_path: Path) -> str:
    (tmp_path / "graph.yaml").write_text(GRAPH)
    return str(tmp_path)


def check(graph: str, *, moments: int | None) -> None:
    """Cut a run at so many moments between its first import and its last; at all of them for None."""
    imports = int(cut(0, 0, "run", graph, "hi").stderr.splitlines()[-1])
    assert imports > 100
    step = 1 if moments is None else max(imports // moments, 1)
    for place, at in enumerate(range(1, imports + 1, step)):
        number = (signal.SIGINT, signal.SIGTERM)[place % 2]
        ended = cut(at, number, "run", graph, "hi", "-q")
        told = f"at import {at} of {imports}: {ended.returncode}, {ended.stderr}"
        if ended.returncode == 0:  # it had ended before it stopped
            assert ended.stdout == "hi\n", told
            continue
        assert ended.returncode == 128 + number, told
        lines = [line for line in ended.stderr.splitlines() if "callboard resume run-" not in line]  # it had begun
        assert len(lines) <= 1, told
        assert "Traceback" not in ended.stderr, told


@pytest.mark.parametrize("moments", [4, pytest.param(12, marks=pytest.mark.full)])
def test_a_signal_while_it_starts_ends_it_by_its_code_with_a_line_at_most(graph: str, moments: int) -> None:
    check(graph, moments=moments)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_signal_at_every_moment_of_its_start_ends_it_by_its_code_with_a_line_at_most(graph: str) -> None:
    check(graph, moments=None)


@pytest.mark.parametrize("module", ["callboard", "callboard.cli"])
def test_it_is_a_module_that_can_be_run(module: str) -> None:
    ended = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("callboard ")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_in_the_middle_ends_it_with_141(graph: str, tmp_path: Path, unbuffered: str) -> None:
    (tmp_path / "text").write_text("x" * 2_000_000)  # more than a pipe holds
    with (tmp_path / "text").open("rb") as text:
        process = subprocess.Popen(
            [sys.executable, "-m", "callboard", "run", graph, "-q"],
            stdin=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.read1(10) == b"x" * 10  # type: ignore[attr-defined] - a pipe is a BufferedReader
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141
