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
from inspect import iscoroutinefunction
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from hypothesis import HealthCheck, settings
from support import secret_watch, starter
from support.durations import Recorder
from support.examples import DEFAULT, draw_fewer, fewer, leaves_out_full
from support.fake_models import FakeModels, listening
from support.ports import reserved_port
from support.repository import Repository
from support.subreaper import become_subreaper
from support.tiers import mark_tiers
from support.waiting import run_on_mock_clock

from callboard.actors.io import secret_redaction

pytest_plugins = ["support.root_directory", "support.workers"]

LEFT: list[str] = []
"""Processes that the workers' tests left behind."""


@pytest.fixture
async def fake_model(nursery: trio.Nursery) -> FakeModels:
    """A scripted model server on loopback; see tests/support/fake_models.py."""
    listener, port = listening()
    server = FakeModels(port)
    nursery.start_soon(server.serve, listener)
    return server


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port of 127.0.0.1 that is reserved for the program under test; see tests/support/ports.py."""
    with reserved_port() as port:
        yield port


class States:
    """Directory in which each test of this process has a state directory of its own.

    A worker (support/workers.py) uses a subdirectory, so that no two processes write to the same one.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="callboard-tests-"))
        self._numbers = count()

    def next(self) -> Path:
        return self.directory / str(next(self._numbers))

    def divide(self, name: str) -> None:
        self.directory /= name
        self.directory.mkdir()


STATES = States()


@pytest.fixture(autouse=True)
def _separate_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test a state directory, no values of the vault, and the log levels that it found.

    One fixture and not three: each costs a tenth of a millisecond in 18,000 tests. `monkeypatch` is requested so that
    it is undone after all other fixtures of a test.
    """
    before = os.environ["XDG_STATE_HOME"]
    os.environ["XDG_STATE_HOME"] = str(STATES.next())
    # A process remembers the vault's values for good; those of one test are words in another.
    handed, secret_redaction._HANDED = secret_redaction._HANDED, secret_redaction.SecretTexts()
    # Commands that a test runs in this process set up logging, each for itself alone.
    levels = {logger: logger.level for logger in LOGGERS.all()}
    top = logging.getLogger("callboard")
    handlers, propagate = top.handlers, top.propagate
    yield
    for logger in LOGGERS.all():
        if logger.level != levels.get(logger, logging.NOTSET):
            logger.setLevel(levels.get(logger, logging.NOTSET))
    top.handlers, top.propagate = handlers, propagate
    secret_redaction._HANDED = handed
    os.environ["XDG_STATE_HOME"] = before


class Loggers:
    """Loggers of the package. The list is made again when the process has got another logger."""

    def __init__(self) -> None:
        self._known = 0
        self._loggers: list[logging.Logger] = []

    def all(self) -> list[logging.Logger]:
        every = logging.root.manager.loggerDict
        if len(every) != self._known:
            ours = [each for name, each in every.items() if name.split(".", 1)[0] == "callboard"]
            self._loggers = [each for each in ours if isinstance(each, logging.Logger)]
            # A name whose logger has not been asked for yet is a placeholder, which the logger replaces.
            self._known = len(every) if len(ours) == len(self._loggers) else 0
        return self._loggers


LOGGERS = Loggers()


def pytest_configure(config: pytest.Config) -> None:
    """Choose how hypothesis draws: the same examples in each run, without a deadline; `make soak` draws new ones.

    Where `-m` leaves out `full`, there is a third of the examples; see support/examples.py.
    """
    soak = config.option.markexpr == "soak"
    examples = fewer(DEFAULT) if leaves_out_full(config.option.markexpr) and not soak else DEFAULT
    settings.register_profile(
        "callboard",
        derandomize=not soak,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=examples,
    )
    settings.load_profile("callboard")
    gc.disable()  # until the end of collection, which makes objects and frees next to none
    config.pluginmanager.register(Recorder(config))


def pytest_sessionstart() -> None:
    """Have orphans of the tests fall to us, so that the check at the end sees them.

    And have the programs under test get the signals we send, even if we were started by nohup or in the background.
    """
    os.environ["XDG_STATE_HOME"] = str(STATES.directory / "session")
    # Tests count effects outside of the workspace, and start thousands of processes; those of the sandbox, of the pages
    # and whatever has an environment of its own run as users' do.
    os.environ["CALLBOARD_SANDBOX"] = "off"
    # Agents and tests run pytest in small projects. The plugins installed here take 0.8 s of the 1.4 s of such a start.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    _spare_shims()
    become_subreaper()
    secret_watch.listen()
    starter.listen()
    for number in (signal.SIGHUP, signal.SIGQUIT):  # a shell without job control ignores SIGQUIT in background jobs
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _spare_shims() -> None:
    """`python3` of a version manager is a shell script, which takes longer to start than Python."""
    found = shutil.which("python3")
    if found is None or not Path(found).read_bytes().startswith(b"#!"):
        return
    programs = STATES.directory / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tiers, before `-m` selects, and run it on the clock of its fixtures."""
    mark_tiers(items)
    if leaves_out_full(config.option.markexpr) and config.option.markexpr != "soak":
        draw_fewer(items)
    for item in items:
        # pytest-trio uses a clock only if the test function itself has it as an argument.
        if "autojump_clock" in getattr(item, "fixturenames", ()) and iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.trio(run=run_on_mock_clock))


def pytest_collection_finish() -> None:
    """Exclude the collected tests, half a million objects, from garbage collection, and collect seldom."""
    gc.collect()
    gc.freeze()
    gc.enable()
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
            report.longrepr = "\n".join(("secrets were written down (see tests/support/secret_watch.py):", *found))
    return report


def pytest_worker_begins(number: int) -> None:
    """Give a forked worker what the processes of the suite do not share."""
    STATES.divide(f"worker-{number}")
    os.environ["XDG_STATE_HOME"] = str(STATES.directory / "session")
    starter.STARTER.renew()
    become_subreaper()


def pytest_worker_ends() -> list[str]:
    starter.STARTER.close()
    return _still_alive()


def pytest_worker_left(processes: list[str]) -> None:
    LEFT.extend(processes)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The tests' own promise: no process that they started is alive when they end."""
    starter.STARTER.close()
    shutil.rmtree(STATES.directory, ignore_errors=True)
    for process in [*LEFT, *_still_alive()]:
        print(f"\nleft behind by the tests: {process}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _still_alive() -> list[str]:
    """Kill the descendants of this process that do not end by themselves; return their descriptions."""
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=30)
    for process in alive:
        process.kill()
    return [str(process) for process in alive]


@pytest.fixture
def repository(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """See tests/support/repository.py."""
    return Repository(tmp_path, fake_model, monkeypatch)
