"""Run the tests of one mutation in this process, and write the outcome to a file.

`run.py` starts this program with a `Job` in JSON as its argument. When the tests import the mutated module, it is
compiled from the changed tree; files on disk stay unchanged. Child processes of the tests import the unchanged code.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from mutations import Mutation, mutated

WALL = 20
"""Limit of wall-clock time, as a multiple of the limit of processor time."""

LONGEST_TEST = 120
"""Seconds until a test counts as hanging: four times the slowest test of the suite."""


@dataclass
class Job:
    """One mutation and the tests that may kill it."""

    root: str
    package: str
    """Import name of the folder `root`."""
    tests: list[str]
    """Files or ids of tests, in this order."""
    limit: float
    """Seconds of processor time after which no further test begins."""
    result: str
    """File for a `Result`."""
    mutation: dict[str, Any] | None = None
    """Fields of a `Mutation`, or None to run the tests on the code as it is."""
    without: list[str] = field(default_factory=list)
    """Ids of tests that fail without a mutation."""


@dataclass
class Result:
    """Outcome of a mutation: `killed`, `survived`, or `timeout` if a test hangs."""

    outcome: str
    test: str = ""
    """Id of the test that failed."""
    limited: bool = False
    """Not all tests have run."""
    imported: bool = True
    """The tests have imported the module."""


class _Finder(importlib.abc.MetaPathFinder):
    """Finder that gives one module a loader with a changed tree."""

    def __init__(self, name: str, mutation: Mutation) -> None:
        self.name = name
        self.mutation = mutation

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self.mutation)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, mutation: Mutation) -> None:
        super().__init__(name, path)
        self.mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        # Override of `get_code`: `source_to_code` would be skipped when a valid .pyc exists.
        return compile(mutated(Path(self.path).read_text(), self.mutation), self.path, "exec", dont_inherit=True)


class _Watch:
    """Pytest plugin that records the first failure and stops at the limit."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.failed = ""
        self.hung = False
        self.limited = False
        self.began = time.monotonic()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [
            item
            for item in items
            if item.nodeid not in self.job.without and "postgres" not in getattr(item, "fixturenames", ())
        ]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def _note(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid
            self.hung = "Timeout (>" in report.longreprtext

    def pytest_runtest_logfinish(self) -> None:
        used = sum(os.times()[:4])
        # Processor time makes the limit independent of load. The wall clock bounds tests that only wait.
        if used > self.job.limit or time.monotonic() - self.began > WALL * self.job.limit:
            self.limited = True

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if self.limited:
            item.session.shouldstop = "limit of seconds"


def run(job: Job) -> Result:
    """Run the tests; import errors count as killed."""
    name = ""
    if job.mutation is not None:
        mutation = Mutation(**job.mutation)
        name = ".".join((job.package, *mutation.path.removesuffix(".py").split("/")))
        assert name not in sys.modules, f"{name} was imported before its mutation"
        sys.meta_path.insert(0, _Finder(name, mutation))
    os.chdir(job.root)
    watch = _Watch(job)
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not soak", f"--timeout={LONGEST_TEST}"]
    try:
        code = pytest.main([*arguments, *job.tests], plugins=[watch])
    except Exception as error:  # noqa: BLE001 - a mutated conftest import may raise anything
        return Result("killed", f"import: {type(error).__name__}")
    imported = name in sys.modules or not name
    if watch.failed:
        return Result("timeout" if watch.hung else "killed", watch.failed, imported=imported)
    if watch.limited:
        return Result("survived", limited=True, imported=imported)
    if code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        return Result("survived", imported=imported)
    # No failed test: a conftest.py failed to import, or tests/conftest.py found leftover processes.
    return Result("killed", f"exit status {int(code)}", imported=imported)


if __name__ == "__main__":
    given = Job(**json.loads(sys.argv[1]))
    done = run(given)
    Path(given.result).write_text(json.dumps(asdict(done)))
    sys.stdout.flush()
    # Skip interpreter shutdown: threads and exit handlers of a mutated program may hang.
    os._exit(0)
