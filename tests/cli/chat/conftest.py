"""Fixtures of the conversation at the terminal: programs that begin quickly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.program_window import Window


@pytest.fixture
def window() -> Iterator[Window]:
    """A window for one program."""
    window = Window()
    yield window
    window.close()


@pytest.fixture
def wide() -> Iterator[Window]:
    """A window that has room for an address in a line."""
    window = Window(160, 60)
    yield window
    window.close()
