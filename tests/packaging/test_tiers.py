"""Choice of what `make test` runs: samples of parametrised tests, a third of the examples of hypothesis."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.examples import fewer, leaves_out_full

TESTS = Path(__file__).parents[1]
QUICK = "not (full or soak)"

CONFTEST = """
import pytest
from support.examples import draw_fewer, leaves_out_full
from support.tiers import mark_tiers

def pytest_configure(config):
    for name in ("full", "soak", "sample(n)"):
        config.addinivalue_line("markers", name)

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    mark_tiers(items)
    if leaves_out_full(config.option.markexpr):
        draw_fewer(items)
"""

SAMPLED = """
import pytest

@pytest.mark.sample(5)
@pytest.mark.parametrize("n", [*range({cases}), pytest.param(-1, marks=pytest.mark.soak)])
def test_it(n): pass

@pytest.mark.parametrize("n", range(7))
def test_whole(n): pass
"""

DRAWN = """
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

@settings(max_examples=60, database=None)
@given(st.integers())
def test_it(n):
    print("drawn")

class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        print("started")

    @rule()
    def go(self): pass

TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=45, stateful_step_count=2, database=None)
"""


def run(directory: Path, text: str, *arguments: str) -> str:
    (directory / "pytest.ini").write_text("[pytest]\n")
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_suite.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:trio", "-p", "no:cacheprovider", "-v", "-s", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def chosen(directory: Path, cases: int, *arguments: str) -> set[str]:
    output = run(directory, SAMPLED.format(cases=cases), *arguments)
    return {line.split()[0].partition("::")[2] for line in output.splitlines() if "PASSED" in line}


def test_a_sample_is_the_same_each_time_and_the_rest_is_full(tmp_path: Path) -> None:
    first = chosen(tmp_path, 40, "-m", QUICK)
    assert chosen(tmp_path, 40, "-m", QUICK) == first
    sampled = {name for name in first if name.startswith("test_it")}
    assert (len(sampled), len(first - sampled)) == (5, 7)
    assert "test_it[-1]" not in first
    assert len(chosen(tmp_path, 40, "-m", "not soak")) == 47


def test_a_new_case_displaces_one_case_of_a_sample_at_most(tmp_path: Path) -> None:
    before, after = chosen(tmp_path, 40, "-m", QUICK), chosen(tmp_path, 41, "-m", QUICK)
    assert len(before - after) <= 1


def test_a_third_of_the_examples_is_drawn_where_full_is_left_out(tmp_path: Path) -> None:
    quick, whole = run(tmp_path, DRAWN, "-m", QUICK), run(tmp_path, DRAWN, "-m", "not soak")
    assert (quick.count("drawn"), whole.count("drawn")) == (20, 60)
    assert whole.count("started") - quick.count("started") >= 30


@pytest.mark.parametrize(
    ("expression", "left_out"), [("", False), (QUICK, True), ("not soak", False), ("soak", True), ("full", False)]
)
def test_the_marker_expression_tells_whether_full_is_left_out(expression: str, left_out: bool) -> None:
    assert leaves_out_full(expression) == left_out


@pytest.mark.parametrize(("examples", "cut"), [(100, 34), (60, 20), (25, 10), (4, 4)])
def test_a_third_is_never_less_than_ten_examples(examples: int, cut: int) -> None:
    assert fewer(examples) == cut
