"""A gateway under a root of its own, for tests that need no more of a process than that."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from callboard.actors.work.models.gateway import Gateway
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
