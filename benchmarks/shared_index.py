"""Fifty agents that look things up in one knowledge base at the same time: how many indexes are open, and what it does
to the event loop.

    python benchmarks/shared_index.py [agents] [chunks]

Every agent is a graph of ten lookups, one after the other, each with a query of its own; the texts are made of a seed
and embedded with local:static (`callboard models pull wordllama`). A ticking actor wants to wake every millisecond; by
how much it comes late is the stall. It ticks alone first, so that what the machine does by itself can be told apart.
What is there before the agents begin is frozen for Python's collector: looking through it takes 50 ms now and then, in
any program with as many modules.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import trio

import callboard
from callboard.actors.work.models import weights
from callboard.supervisors import Actor

AGENTS = 50
CHUNKS = 20_000
LOOKUPS = 10
TICK = 0.001
GOAL = 20.0
"""Milliseconds that the event loop may stall."""

GRAPH = """
name: reader
initial_state: {queries: []}
start: each
nodes:
  each: {type: map, over: "{{queries}}", as: query, branch: look, collect_into: found, max_concurrency: 1, next: done}
  look:
    type: rag
    documents: [texts/]
    query: "{{query}}"
    state_updates: {output: "{{output.sources}}"}
  done: {type: end, output: "{{found}}"}
"""


def words(chance: random.Random) -> list[str]:
    """Two thousand words."""
    letters = "abcdefghiklmnoprstuvw"
    return ["".join(chance.choices(letters, k=chance.randint(3, 9))) for _ in range(2_000)]


def write_texts(home: Path, chunks: int, known: list[str], chance: random.Random) -> None:
    """Files of a hundred paragraphs, each of which becomes a chunk."""
    (home / "texts").mkdir()
    for number in range(0, chunks, 100):
        paragraphs = (" ".join(chance.choices(known, k=100)) for _ in range(min(100, chunks - number)))
        (home / "texts" / f"{number:06d}.txt").write_text("\n\n".join(paragraphs))


class Ticker:
    """Wakes every millisecond, and writes down how late it was."""

    def __init__(self) -> None:
        self.late: list[float] = []

    async def tick(self, _: Actor) -> None:
        """Body of its actor."""
        while True:
            due = time.perf_counter() + TICK
            await trio.sleep(TICK)
            self.late.append((time.perf_counter() - due) * 1e3)

    def told(self) -> tuple[str, float]:
        """The median, the worst but for one in a thousand, and the worst, since the last time; and the worst alone."""
        late, self.late = sorted(self.late), []
        most = late[int(len(late) * 0.999)]
        return f"p50 {statistics.median(late):.2f} ms, p99.9 {most:.2f} ms, worst {late[-1]:.2f} ms", late[-1]


async def main(agents: int, chunks: int) -> int:
    """Prints the figures; 1 if the goal was missed."""
    if not weights.KNOWN["wordllama"].are_in(weights.directory(os.environ)):
        print("skipped: the weights of local:static are not here; run: callboard models pull wordllama")
        return 0
    chance = random.Random(1)
    known = words(chance)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "reader"
        home.mkdir()
        (home / "graph.yaml").write_text(GRAPH)
        write_texts(home, chunks, known, chance)
        async with callboard.Root(config_dir=Path(directory) / "config") as root:
            return await _measure(root, home, agents, known, chance)


async def _measure(root: callboard.Root, home: Path, agents: int, known: list[str], chance: random.Random) -> int:
    reader = callboard.load(home)

    async def work(lookups: int) -> None:
        queries = [" ".join(chance.choices(known, k=8)) for _ in range(lookups)]
        outcome = await callboard.run(reader, state={"queries": queries}, root=root)
        if outcome.status != "done":
            raise SystemExit(f"a run failed: {outcome.error}")

    began = time.perf_counter()
    await work(1)
    print(f"built and opened in {time.perf_counter() - began:.1f} s")
    gc.collect()
    gc.freeze()
    ticker = Ticker()
    root.kernel.spawn(ticker.tick, name="ticker", link=False)
    await trio.sleep(1.0)
    print(f"ticks, nothing else to do:  {ticker.told()[0]}")
    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(agents):
            nursery.start_soon(work, LOOKUPS)
            await trio.lowlevel.checkpoint()  # they come one after the other, as agents do
    seconds = time.perf_counter() - began
    text, worst = ticker.told()
    print(f"ticks, {agents} agents at work:   {text}")
    lookups = agents * LOOKUPS
    print(f"{lookups} lookups in {seconds:.2f} s, {lookups / seconds:.0f} a second")
    pool = root.knowledge.statistics
    print(f"open indexes: {pool.opened}, used {pool.hits + pool.misses} times")
    print(f"worst stall {worst:.1f} ms (goal {GOAL:g} ms: {'met' if worst <= GOAL else 'NOT met'})")
    return 0 if worst <= GOAL and pool.opened == 1 else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # nothing is left behind
    numbers = [int(each) for each in sys.argv[1:]]
    sys.exit(trio.run(main, *(numbers + [AGENTS, CHUNKS][len(numbers) :])))
