"""Fixtures that several rooms share."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
import secret_watch
import starter
import trio
from fake_models import FakeModels, listening
from hypothesis import HealthCheck, settings
from repository import Repository

from callboard.actors.io import handed_out
from callboard.supervisors.processes import become_subreaper

LEFT: list[str] = []
"""What the processes that ran tests have left behind."""


@pytest.fixture
async def fake_model(nursery: trio.Nursery) -> FakeModels:
    """A scripted model server on loopback; see tests/fake_models.py."""
    listener, port = listening()
    server = FakeModels(port)
    nursery.start_soon(server.serve, listener)
    return server


STATES = Path(tempfile.mkdtemp(prefix="callboard-tests-"))
"""Where each test of this process has a directory of state, unless it says another."""

_NUMBERS = count()


@pytest.fixture(autouse=True)
def _what_is_kept_of_runs_is_nothing_to_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(STATES / str(next(_NUMBERS))))


@pytest.fixture(autouse=True)
def _what_was_handed_out_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process remembers the vault's values for good; those of one test are words in another."""
    monkeypatch.setattr(handed_out, "_HANDED", handed_out.Known())


@pytest.fixture(autouse=True)
def _logging_is_put_back() -> Iterator[None]:
    """Commands that a test runs in this process set up logging, each for itself alone."""
    kept = {logger: logger.level for logger in _loggers()}
    top = logging.getLogger("callboard")
    handlers, propagate = top.handlers, top.propagate
    yield
    for logger in _loggers():
        logger.setLevel(kept.get(logger, logging.NOTSET))
    top.handlers, top.propagate = handlers, propagate


def _loggers() -> list[logging.Logger]:
    return [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.split(".", 1)[0] == "callboard"
    ]


def pytest_configure(config: pytest.Config) -> None:
    """How hypothesis draws: the same in each run, so that red means the change, and however slow the machine is.

    `make soak` draws anew.
    """
    for name, same in (("same", True), ("anew", False)):
        settings.register_profile(name, derandomize=same, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("anew" if config.option.markexpr == "soak" else "same")


def pytest_sessionstart() -> None:
    """Have orphans of the tests fall to us, so that the check at the end sees them.

    And have the programs under test get the signals we send, even if we were started by nohup or in the background.
    """
    os.environ["XDG_STATE_HOME"] = str(STATES / "session")
    # Tests count effects outside of the workspace, and start thousands of processes; those of the sandbox, of the pages
    # and whatever has an environment of its own run as users' do.
    os.environ["CALLBOARD_SANDBOX"] = "off"
    _spare_shims()
    become_subreaper()
    secret_watch.listen()
    starter.listen()
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _spare_shims() -> None:
    """`python3` of a version manager is a shell script, which takes longer to start than Python."""
    found = shutil.which("python3")
    if found is None or not Path(found).read_bytes().startswith(b"#!"):
        return
    (STATES / "bin").mkdir()
    (STATES / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    os.environ["PATH"] = f"{STATES / 'bin'}{os.pathsep}{os.environ['PATH']}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first: begun last, it would keep one process busy alone at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/first_hour/"))


def pytest_collection_finish() -> None:
    """Spare the garbage collector the half million objects that the tests themselves are, and have it look seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that has had a secret written down fails, whatever else it was about."""
    report = yield
    if report.when == "teardown":
        directory = getattr(item, "funcargs", {}).get("tmp_path")
        found = secret_watch.leaks(report.sections, directory if isinstance(directory, Path) else None)
        if found and report.outcome != "failed":
            report.outcome = "failed"
            report.longrepr = "\n".join(("secrets were written down (see tests/secret_watch.py):", *found))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The tests' own promise: no process that they started is alive when they end.

    Where several processes run the tests, each looks for itself and tells us.
    """
    starter.STARTER.close()
    shutil.rmtree(STATES, ignore_errors=True)
    left = LEFT if session.config.pluginmanager.has_plugin("dsession") else _still_alive()
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["left"] = left
    for process in left:
        print(f"\nleft behind by the tests: {process}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of the processes that ran tests is over."""
    LEFT.extend(getattr(node, "workeroutput", {}).get("left", ()))


def _still_alive() -> list[str]:
    """What our processes that live are called; they don't any more."""
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=3)
    for process in alive:
        process.kill()
    return [str(process) for process in alive]


@pytest.fixture
def repository(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """See tests/repository.py."""
    return Repository(tmp_path, fake_model, monkeypatch)
