"""Who hears the events."""

from __future__ import annotations

import pytest
from support.model_events import Ears


@pytest.fixture
def ears() -> Ears:
    """See `Ears`."""
    return Ears()
