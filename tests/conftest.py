"""Fixtures that several rooms share."""

from __future__ import annotations

import signal

import psutil
import pytest
import trio
from fake_models import FakeModels, listening

from callboard.supervisors.processes import become_subreaper


@pytest.fixture
async def fake_model(nursery: trio.Nursery) -> FakeModels:
    """A scripted model server on loopback; see tests/fake_models.py."""
    listener, port = listening()
    server = FakeModels(port)
    nursery.start_soon(server.serve, listener)
    return server


def pytest_sessionstart() -> None:
    """Have orphans of the tests fall to us, so that the check at the end sees them.

    And have the programs under test get the signals we send, even if we were started by nohup or in the background.
    """
    become_subreaper()
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The tests' own promise: no process that they started is alive when they end."""
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=3)
    for process in alive:
        print(f"\nleft behind by the tests: {process}")
        process.kill()
    if alive:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
