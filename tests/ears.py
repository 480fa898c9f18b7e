"""Who hears the events of models that are asked without a run, and waits between tries that are of no length."""

from __future__ import annotations

import random
from typing import Any

from callboard.protocol.events import EventData


class Ears:
    """Hears events."""

    path = "/run/ears"

    def __init__(self) -> None:
        self.events: list[Any] = []

    def emit(self, data: EventData, *, id: str = "", corr: str = "") -> None:
        self.events.append(data)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


class Impatient(random.Random):
    """All waits are of no length."""

    def uniform(self, a: float, b: float) -> float:
        return a
