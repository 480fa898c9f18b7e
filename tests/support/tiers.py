"""Tiers of tests by cost, found from what the code of a test uses.

    default      in this process, or with one child process
    process      starts programs
    terminal     drives a program in a terminal
    postgres     uses a PostgreSQL server
    browser      drives Chromium
    interop      uses other people's programs (tests/interop)

A test has each of these as a marker: `pytest -m "not (terminal or postgres)"`. `full` marks what `make test` leaves
to `make test-all`: all of browser and interop, tests of faults that need a PostgreSQL server, of a parametrised
terminal test every case but the first, and of the terminal tests of a file all but the first three. It is set by hand
on tests that install packages, run benchmarks or load a real model. `soak` is set by hand.

`@pytest.mark.sample(n)` on a parametrised test leaves `n` of its cases in `make test`; the others are `full`. A hash of
a case's name decides, so the choice is the same in each run and on each machine, and a new case displaces one at most.

The code of a test is followed through the functions, classes and fixtures that it names, as far as they are in tests/.
Code that the product runs (a tool that starts `bash`) is not looked at: what the product starts is cheap beside a
program of its own.
"""

from __future__ import annotations

import hashlib
import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
_INTEROP = f"{TESTS}/interop/"

MODULES = {
    "pty": "terminal",
    "pyte": "terminal",
    "qa.terminal": "terminal",
    "subprocess": "process",
    "support.browser": "browser",
    "support.browser_keeper": "browser",
    "support.cluster": "postgres",
    "support.postgres": "postgres",
    "support.program_window": "terminal",
    "support.screen": "terminal",
    "support.serve_process": "process",
    "support.starter": "process",
    "support.tmux": "terminal",
}
"""Modules, and the tier of what uses them."""

NAMES = {"Popen": "process", "open_process": "process", "run_process": "process"}
"""Attributes and functions, whatever they belong to."""

FAULTS = {"Link", "SIGKILL", "SIGSTOP", "SIGQUIT", "kill", "send_signal"}
"""Names that a test of faults in a cluster uses: a link that is cut, a worker that is killed or stopped."""


TERMINAL_TESTS = 3
"""Terminal tests of a file that `make test` runs: a start of the program at a terminal takes up to a second."""


def mark_tiers(items: list[pytest.Item]) -> None:
    """Add the markers of their tiers to the tests."""
    tiers = Tiers()
    cases: set[Any] = set()
    terminal: dict[Path, int] = defaultdict(int)
    for item in items:
        found = tiers.of(item)
        function = getattr(item, "function", None)
        again = function in cases
        cases.add(function)
        if (
            found & {"browser", "interop"}
            or ("postgres" in found and "faults" in found)
            or ("terminal" in found and again)
        ):
            item.add_marker("full")
        elif "terminal" in found and not {"full", "soak"} & {mark.name for mark in item.iter_markers()}:
            terminal[item.path] += 1
            if terminal[item.path] > TERMINAL_TESTS:
                item.add_marker("full")
        for tier in found - {"faults"}:
            item.add_marker(tier)
    mark_samples(items)


def mark_samples(items: list[pytest.Item]) -> None:
    """Mark as `full` the cases that `sample(n)` leaves to `make test-all`; cases that are `soak` do not count."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") is not None and item.get_closest_marker("soak") is None:
            cases[item.nodeid.partition("[")[0]].append(item)
    for group in cases.values():
        sample = group[0].get_closest_marker("sample")
        assert sample is not None
        for item in sorted(group, key=_rank)[sample.args[0] :]:
            item.add_marker("full")


def _rank(item: pytest.Item) -> bytes:
    return hashlib.sha256(item.name.encode()).digest()


class Tiers:
    """The tiers of functions. Each function is looked at once, and each test function once for all of its cases."""

    def __init__(self) -> None:
        self._found: dict[Any, frozenset[str]] = {}
        self._tests: dict[Any, frozenset[str]] = {}

    def of(self, item: pytest.Item) -> frozenset[str]:
        """Return the tiers of a test and of the fixtures that it requests."""
        info = getattr(item, "_fixtureinfo", None)  # one object for the cases of a function
        if info is None:
            return self._of_test(item, [])
        if id(info) not in self._tests:
            fixtures = [each.func for defs in info.name2fixturedefs.values() for each in defs]
            self._tests[id(info)] = self._of_test(item, fixtures)
        return self._tests[id(info)]

    def _of_test(self, item: pytest.Item, fixtures: list[Any]) -> frozenset[str]:
        found = {"interop"} if str(item.path).startswith(_INTEROP) else set()
        for each in (getattr(item, "obj", None), *fixtures):
            found |= self._of_object(each)
        return frozenset(found)

    def _of_object(self, value: Any) -> frozenset[str]:
        value = inspect.unwrap(value.__func__ if isinstance(value, MethodType) else value) if callable(value) else value
        if isinstance(value, ModuleType):
            tier = MODULES.get(value.__name__)
            return frozenset({tier} if tier else ())
        if not isinstance(value, FunctionType | type):
            return frozenset()
        module = getattr(value, "__module__", None) or ""
        tier = MODULES.get(module) or NAMES.get(value.__name__)
        if value not in self._found:
            self._found[value] = frozenset()  # a function that names itself, or is named by what it names
            self._found[value] = frozenset(self._within(value)) | ({tier} if tier else set())
        return self._found[value]

    def _within(self, value: FunctionType | type) -> Iterator[str]:
        for function in _functions(value):
            if not function.__code__.co_filename.startswith(f"{TESTS}/"):
                continue
            for name in _names(function.__code__):
                if name in NAMES:
                    yield NAMES[name]
                if name in FAULTS:
                    yield "faults"
                if name in function.__globals__:
                    yield from self._of_object(function.__globals__[name])


def _functions(value: FunctionType | type) -> Iterable[FunctionType]:
    if isinstance(value, FunctionType):
        return [value]
    members = (inspect.unwrap(getattr(each, "__func__", each)) for each in vars(value).values() if callable(each))
    return [each for each in members if isinstance(each, FunctionType)]


def _names(code: CodeType) -> Iterator[str]:
    """Yield the global names and attributes that a function uses, those of its inner functions too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
