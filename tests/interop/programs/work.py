"""One run of a graph that needs no model, for processes that other programs start."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import callboard

GRAPH = Path(os.environ.get("WORK_GRAPH", "echo.yaml"))


async def main(text: str) -> str:
    """Run it twice at once under one root."""
    async with callboard.Root() as root:
        outcomes = await asyncio.gather(*(root.run(GRAPH, text) for _ in range(2)))
    return " ".join(outcome.output for outcome in outcomes)


def work(text: str) -> str:
    """Return what two runs of this process say, under asyncio and without an event loop."""
    return f"{asyncio.run(main(text))} {callboard.run_sync(GRAPH, text).output}"
