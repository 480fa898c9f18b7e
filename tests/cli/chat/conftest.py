"""Fixtures of the conversation at the terminal: programs that begin quickly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from qa.starter import Starter
from window import Window

HERE = Path(__file__).parent
STARTER = Starter()
"""Begins the programs of all modules."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Tests of other rooms look for processes that are left: ours is gone when they begin."""
    if nextitem is None or HERE not in nextitem.path.parents:
        STARTER.close()


@pytest.fixture
def starter() -> Starter:
    """Begins programs."""
    return STARTER


@pytest.fixture
def window(starter: Starter) -> Iterator[Window]:
    """A window for one program."""
    window = Window(starter)
    yield window
    window.close()
