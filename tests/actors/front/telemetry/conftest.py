"""Fixtures: providers that keep what they are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.traced import Traced


@pytest.fixture
def traced() -> Iterator[Traced]:
    """See `Traced`."""
    kept = Traced()
    yield kept
    kept.shut_down()
