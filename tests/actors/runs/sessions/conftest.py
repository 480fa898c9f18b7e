"""Fixtures of the tests of sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.session_store import SessionDirectory


@pytest.fixture
def session_dir(tmp_path: Path) -> SessionDirectory:
    """See `SessionDirectory`."""
    return SessionDirectory(tmp_path / "config")
