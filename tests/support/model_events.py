"""Who hears the events of models that are asked without a run, and waits between tries that are of no length."""

from __future__ import annotations

import random
from typing import Any

from callboard.protocol.events import EventData, LlmEmbedding, LlmRerank


class EventCollector:
    """Hears events.

    Attributes:
        requests: how those for vectors and for an order have ended; all else is in `events`.
    """

    path = "/run/ears"

    def __init__(self) -> None:
        self.requests: list[LlmEmbedding | LlmRerank] = []
        self.events: list[Any] = []

    def emit(self, data: EventData, *, id: str = "", corr: str = "") -> None:
        (self.requests if isinstance(data, LlmEmbedding | LlmRerank) else self.events).append(data)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


class Impatient(random.Random):
    """All waits are of no length."""

    def uniform(self, a: float, b: float) -> float:
        return a
