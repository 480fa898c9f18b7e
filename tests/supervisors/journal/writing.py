"""A program that keeps a run, or goes on with one, and is killed in the midst of it; see `killed.py`."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio

from callboard.protocol.kernel.errors import CallboardError
from callboard.supervisors.journal.claiming import claim
from callboard.supervisors.journal.journal import RunJournal, open_journal


def kill_at_statement(number: int) -> None:
    """Kill this process just before it has SQLite do the statement of this number."""
    connect = sqlite3.connect
    left = [number]

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*args, **options)
        db.set_trace_callback(count)
        return db

    def count(_: str) -> None:
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sqlite3.connect = traced  # type: ignore[assignment]


def kill_at_effects(file: Path, runs: list[str], number: int) -> None:
    """Kill this process when each of these runs has had so many effects, if it is to be killed so (not zero)."""
    seen = [line.split()[0] for line in file.read_text().splitlines()]
    if number and all(seen.count(run) >= number for run in runs):
        os.kill(os.getpid(), signal.SIGKILL)


def effect(file: Path, text: str) -> None:
    """What the world sees of a run."""
    with file.open("a") as world:
        world.write(text + "\n")


def data_of(row: int) -> bytes:
    """What row `row` says; every seventh is a blob, of which there are few."""
    return bytes([row % 3]) * 20_000 if row % 7 == 0 else b"%d" % row * 40


async def work(run: RunJournal, rows: int, world: Path, done: Callable[[], None] = lambda: None) -> None:
    """Write rows up to this number. Every fifth is an effect, done when its row is on the disk; `done` hears of it."""
    for row in range(run.rows + 1, rows + 1):
        run.append(f"actor-{row % 2}", data_of(row))
        if row % 5 == 0:
            await run.barrier()
            effect(world, f"{run.run} {row}")
            done()
        await trio.lowlevel.checkpoint()
    await run.barrier()
    run.set_summary(b"over", over=True)
    await run.barrier()
    effect(world, f"{run.run} over")


async def main(order: dict[str, Any]) -> None:
    directory, world = Path(order["directory"]), Path(order["world"])
    journal = await open_journal(directory)
    print(journal.sign, flush=True)
    try:
        if order.get("claim"):
            kill_at_statement(order.get("kill", 10**9))
            for run, past in await claim(journal, order["claim"], order.get("runs")):
                assert [row.data for row in past.rows] == [data_of(row.seq) for row in past.rows]
                effect(world, f"{run.run} claimed {run.rows}")
                await work(run, order["rows"], world)
        else:
            kill_at_statement(order.get("kill", 10**9))
            done = partial(kill_at_effects, world, order["runs"], order.get("effects", 0))
            async with trio.open_nursery() as nursery:
                for name in order["runs"]:
                    nursery.start_soon(work, journal.begin(name, b"begun"), order["rows"], world, done)
    except* CallboardError as group:
        effect(world, f"refused {type(group.exceptions[0]).__name__}")
    print(await journal.aclose(), flush=True)


if __name__ == "__main__":
    trio.run(main, json.loads(sys.argv[1]))
