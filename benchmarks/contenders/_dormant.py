"""Runs of a hub that wait for a person, and are dormant: their memory, their waking, and a thousand that come back."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import trio
from _serve import resident

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.methods import open_hub
from callboard.actors.front.control.runs.live_run import HubOptions
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.control.method_structs import StartRun
from callboard.protocol.journal import BY_SERVER

GRAPH = """
name: asker
start: ask
nodes:
  ask:  {type: input, question: "What about {{initial_prompt}}?", state_updates: {said: "{{input}}"}, next: done}
  done: {type: end, output: "{{initial_prompt}}: {{said}}"}
"""

AT_ONCE, BATCH = 50, 200
"""Runs that begin at once, and that are played at once."""


class House:
    """A configuration, and a state on this disk."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".dormant-"))
        agent = self.home / "config" / "agents" / "asker"
        agent.mkdir(parents=True)
        (agent / "graph.yaml").write_text(GRAPH)
        (self.home / "config" / "config.yaml").write_text("durable: {dormant_after: 0}\n")

    @asynccontextmanager
    async def hub(self) -> AsyncIterator[Hub]:
        """That of the next process."""
        options = HubOptions(durable=True, by=BY_SERVER, keep_runs=0)
        with mock.patch.dict(os.environ, XDG_STATE_HOME=str(self.home / "state")):
            async with (
                callboard.Root(config_dir=self.home / "config", wait_for_front_end=True) as root,
                open_hub(root, options=options) as hub,
            ):
                yield hub

    def remove(self) -> None:
        """All of it."""
        shutil.rmtree(self.home)


async def sleeping(hub: Hub, count: int) -> None:
    """Have so many runs more that are dormant; as on a server, others begin when these wait."""
    while count > 0:
        await _sleeping(hub, min(count, BATCH))
        count -= BATCH


async def _sleeping(hub: Hub, count: int) -> None:
    wanted = len(hub.dormant.runs) + count

    async def start(limiter: trio.CapacityLimiter) -> None:
        async with limiter:
            await hub.start(LOCAL, StartRun(target="asker", prompt="the weather"))

    limiter = trio.CapacityLimiter(AT_ONCE)
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(start, limiter)
    while len(hub.dormant.runs) < wanted or hub.running.live:
        await trio.sleep(0.05)


def _collect() -> None:
    """Garbage may be found to hold more of it."""
    while gc.collect():
        pass


def memory(n: int) -> float:
    """MB that a hub has grown by."""

    async def main(house: House) -> float:
        async with house.hub() as hub:
            await sleeping(hub, 100)
            _collect()
            before = resident()
            await sleeping(hub, n)
            _collect()
            return (resident() - before) / 1024

    return _in_house(main)


def each(n: int) -> float:
    """kB of Python's objects that each of so many more takes."""

    async def main(house: House) -> float:
        async with house.hub() as hub:
            await sleeping(hub, n)
            tracemalloc.start()
            try:
                await sleeping(hub, n)
                _collect()
                before, _ = tracemalloc.get_traced_memory()
                await sleeping(hub, n)
                _collect()
                after, _ = tracemalloc.get_traced_memory()
                return (after - before) / n / 1000
            finally:
                tracemalloc.stop()

    return _in_house(main)


def wake(n: int) -> float:
    """ms from an answer to the end of its run, the median."""

    async def main(house: House) -> float:
        async with house.hub() as hub:
            await sleeping(hub, n)
            took = []
            for question in hub.questions(LOCAL):
                began = time.perf_counter()
                assert await hub.answer(LOCAL, question.id, "fine")
                assert (await hub.wait(LOCAL, question.run)).status == "done"
                took.append(time.perf_counter() - began)
            return sorted(took)[len(took) // 2] * 1e3

    return _in_house(main)


def back(n: int) -> float:
    """Seconds until a server has taken over so many."""

    async def main(house: House) -> float:
        async with house.hub() as hub:
            await sleeping(hub, n)
        async with house.hub() as hub:
            began = time.perf_counter()
            hub.resuming.expect()
            hub.running.nursery.start_soon(hub.resuming.work)
            while len(hub.dormant.runs) < n:
                await trio.sleep(0.01)
            return time.perf_counter() - began

    return _in_house(main)


def _in_house(main: object) -> float:
    house = House()
    try:
        return float(trio.run(main, house))  # type: ignore[arg-type] # one of those above
    finally:
        house.remove()
