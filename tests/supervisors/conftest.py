"""Fixtures for the kernel's tests. Whoever uses `root` runs on a mock clock that jumps: nothing ever sleeps."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from support.waiting import run_on_mock_clock

from callboard.protocol.events import Event
from callboard.supervisors import Actor, Root, guardian_link
from callboard.supervisors import process as process_module

sys.path.insert(0, str(Path(__file__).parent / "faults"))

from lifeline import Lifeline


@pytest.fixture
async def root(autojump_clock: trio.testing.MockClock) -> AsyncIterator[Root]:
    """A root that must end with nothing left: no task, no open question."""
    async with Root() as root:
        yield root
    assert not root.tasks
    assert root.questions.open == ()


@pytest.fixture
def me(root: Root) -> Actor:
    return root.actor


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[Lifeline]:
    """A fifo that shows which processes live; see `faults/lifeline.py`."""
    life = Lifeline(tmp_path / "life")
    yield life
    await life.aclose()


@pytest.fixture
def events(root: Root) -> Iterator[list[Event]]:
    """Every event under `root`, as it happens."""
    heard: list[Event] = []
    with root.bus.listen(heard.append):
        yield heard


@pytest.fixture
def lenient_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time limits of processes and their guardian that a slow machine does not exceed.

    They are upper bounds: nothing takes longer because of them. A test that is about one of them sets it itself.
    """
    monkeypatch.setattr(process_module, "KILL_WITHIN", 60.0)
    monkeypatch.setattr(guardian_link, "ANSWER_WITHIN", 60.0)
    monkeypatch.setattr(guardian_link, "START_WITHIN", 60.0)
    monkeypatch.setattr(guardian_link, "PERIOD", 600.0)


@pytest.fixture(scope="session")
def run() -> Callable[..., Any]:
    """`trio.run` on a mock clock, for tests that hypothesis calls many times."""
    return run_on_mock_clock
