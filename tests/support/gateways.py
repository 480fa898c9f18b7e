"""A gateway under a root of its own, for tests that need no more of a process than that."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from callboard.actors.work.models.gateway import Gateway
from callboard.protocol.events import EventData, LlmRetry, LlmWaiting
from callboard.protocol.settings import Settings
from callboard.supervisors import Root


@asynccontextmanager
async def reaching(
    settings: Settings, environ: Mapping[str, str] | None = None, *, seed: int | None = None
) -> AsyncIterator[Gateway]:
    rng = None if seed is None else random.Random(seed)
    async with Root() as root, Gateway(root, settings, environ or {}, rng=rng) as gateway:
        yield gateway


class Silent:
    """Emits to nobody."""

    path = "/run"

    def emit(self, data: object, *, id: str = "", corr: str = "") -> None:
        return


class Recorder:
    """Keeps the events of requests and their ids; `on_wait` is called with the wait before each of their tries."""

    path = "/run"

    def __init__(self, on_wait: Callable[[float], None] | None = None) -> None:
        self.events: list[EventData] = []
        self.ids: set[str] = set()
        self._on_wait = on_wait

    def emit(self, data: EventData, *, id: str = "", corr: str = "") -> None:
        self.events.append(data)
        self.ids.add(id)
        if isinstance(data, LlmRetry | LlmWaiting) and self._on_wait is not None:
            self._on_wait(data.wait)

    def of(self, kind: type[EventData]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]
