"""What the tests of the package share."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.built_wheel import build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's file."""
    return build(tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built"))
