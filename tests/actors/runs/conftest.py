"""The process that programs of these tests are forks of ends with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "durable"))

from forking import FORKS


@pytest.fixture(scope="session", autouse=True)
def _forks() -> Iterator[None]:
    yield
    FORKS.close()
