"""Fixtures of the tests of sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.session_store import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """See `Shelf`."""
    return Shelf(tmp_path / "config")
