"""The mutation check, run on a small package of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).parent / "run.py"

CODE = '''
def ordered(low: int, high: int) -> bool:
    return low < high


def chosen(first: bool, second: bool) -> bool:
    """Not tested."""
    return first and second
'''

TEST = """
from shelf.books.order import ordered


def test_equal_numbers_are_not_ordered():
    assert ordered(1, 2) is True
    assert ordered(1, 1) is False
"""

RED = """

def test_that_fails_without_a_mutation_too():
    assert False
"""


class Shelf:
    """A package `shelf` with one module, its tests, and the command line of the check."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path / "shelf"
        self.write("books/order.py", CODE)
        self.write("tests/books/test_order.py", TEST)

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        common = (
            "--root",
            str(self.root),
            "--package",
            "shelf",
            "--packages",
            "books",
            "--selection",
            "selection.json",
        )
        environment = {**os.environ, "PYTHONPATH": str(self.path), "PYTEST_PLUGINS": "pytest_timeout"}
        return subprocess.run(
            [sys.executable, str(RUN), *common, *arguments],
            cwd=self.path,
            env=environment,
            capture_output=True,
            text=True,
        )

    def select(self, *operators: str) -> None:
        """Save a selection, reduced to these operators."""
        assert self.run("--save", "selection.json").returncode == 0
        rows = json.loads((self.path / "selection.json").read_text())
        (self.path / "selection.json").write_text(json.dumps([row for row in rows if row["operator"] in operators]))

    def outcomes(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the rows of a file of results, by operator."""
        operators = {row["id"]: row["operator"] for row in json.loads((self.path / "selection.json").read_text())}
        rows = [json.loads(line) for line in (self.path / name).read_text().splitlines()]
        assert len(rows) == len({row["id"] for row in rows})
        return {operators[row["id"]]: row for row in rows}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_selection_is_the_same_for_the_same_code(shelf: Shelf) -> None:
    saved = [shelf.run("--save", name) for name in ("first.json", "second.json")]
    assert [each.returncode for each in saved] == [0, 0]
    first, second = ((shelf.path / name).read_text() for name in ("first.json", "second.json"))
    assert first == second
    # One mutation per function; strings and annotations are none.
    assert {row["function"] for row in json.loads(first)} == {"ordered", "chosen"}


@pytest.mark.full
def test_tested_code_is_killed_and_untested_code_survives(shelf: Shelf) -> None:
    shelf.write("tests/books/test_order.py", TEST + RED)
    shelf.select("comparison", "and-or")
    done = shelf.run("--results", "results.jsonl", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    rows = shelf.outcomes("results.jsonl")
    assert rows["comparison"]["outcome"] == "killed"
    assert rows["comparison"]["test"].endswith("test_order.py::test_equal_numbers_are_not_ordered")
    assert rows["and-or"]["outcome"] == "survived"
    assert "all                  1/2 killed, 1 survived, 0 gone" in done.stdout
    assert (shelf.root / "books/order.py").read_text() == CODE

    again = shelf.run("--results", "results.jsonl")
    assert again.stdout.splitlines()[-1] == done.stdout.splitlines()[-1]
    assert shelf.outcomes("results.jsonl") == rows


@pytest.mark.full
def test_comparison_lists_mutations_that_survive_now(shelf: Shelf) -> None:
    shelf.select("comparison", "and-or")
    assert shelf.run("--results", "before.jsonl").returncode == 0
    # The module is renamed, one function is deleted, and an assertion is lost.
    (shelf.root / "books/order.py").unlink()
    shelf.write("books/sequence.py", CODE.partition("def chosen")[0])
    shelf.write(
        "tests/books/test_order.py",
        TEST.replace("books.order", "books.sequence").partition("    assert ordered(1, 1)")[0],
    )
    done = shelf.run("--results", "after.jsonl", "--before", "before.jsonl")
    assert done.returncode == 1, done.stderr
    rows = shelf.outcomes("after.jsonl")
    assert rows["and-or"]["outcome"] == "gone"
    assert rows["comparison"]["at"] == "books/sequence.py:ordered"
    assert "books/order.py:ordered comparison" in done.stdout.splitlines()[-1]
