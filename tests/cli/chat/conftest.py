"""Fixtures of the conversation at the terminal: programs that begin quickly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from window import Window


@pytest.fixture
def window() -> Iterator[Window]:
    """A window for one program."""
    window = Window()
    yield window
    window.close()
