"""Who hears the events."""

from __future__ import annotations

import pytest
from support.model_events import EventCollector


@pytest.fixture
def event_collector() -> EventCollector:
    """See `EventCollector`."""
    return EventCollector()
