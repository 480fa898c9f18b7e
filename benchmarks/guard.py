"""Count of function calls; fails when a figure of `ledger.md` has grown by more than 3 %: `make bench-guard`.

    python benchmarks/guard.py [--write REASON]

Times depend on the machine and its load; the number of calls that Python makes does not. `sys.setprofile` counts, in
the main thread: calls of Python functions, and of functions in C.

    turn     an agent that calls a Python function and answers: a run of two requests
    node     a graph node that writes one key, with a listener on the bus
    row      the same node in a run that is kept, with its rows in the journal
    start    `callboard run` of a graph with one node, all its imports included; and how many modules it imports

A figure is the difference of a long and a short run, so what is done once per process is in `start` alone. Of a turn
the least of six counts: how often the loop turns depends on when the model's answer arrives. The figures hold for
one Python and the dependencies of `requirements/dev.lock`; on another Python the guard says so and does nothing.

The figures now are the last of each row of `ledger.md`. `--write` appends today's, with the reason for them.
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

HERE = Path(__file__).parent
LEDGER = HERE / "ledger.md"
PYTHON = (3, 11)
GROWTH = 1.03

ECHO = 'name: echo\nstart: end\nnodes: {end: {type: end, output: "{{initial_prompt}}"}}\n'

START = """
import json, os, sys
counts = {"call": 0, "c_call": 0}
def count(_frame, event, _argument):
    if event in counts: counts[event] += 1
from callboard.cli.main import run
before = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.setprofile(count)
code = run(["run", "-q", sys.argv[1], "hi"])
sys.setprofile(None)
assert code == 0, code
os.dup2(before, 1)
print(json.dumps([counts["call"], counts["c_call"], len(sys.modules)]))
"""


class Calls:
    """Counts calls of this thread in a `with` block.

    Attributes:
        python, c: how many of functions in Python, and in C.
    """

    def __init__(self) -> None:
        self.python = self.c = 0

    def __enter__(self) -> Self:
        gc.collect()
        gc.disable()  # a collection calls finalizers whenever it happens to run
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _count(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            self.python += 1
        elif event == "c_call":
            self.c += 1


def per_unit(work: Callable[[int], Any], short: int, long: int, times: int = 1) -> tuple[int, int]:
    """Calls in Python and in C for one more unit of `work(n)`, which does `n` units so many times."""
    work(short)  # what is imported, compiled, and cached at the first use
    with Calls() as few:
        work(short)
    with Calls() as many:
        work(long)
    units = (long - short) * times
    return round((many.python - few.python) / units), round((many.c - few.c) / units)


def measure() -> dict[str, tuple[int, ...]]:
    """Return all figures."""
    from agents import config, server

    with tempfile.TemporaryDirectory() as directory, server(0) as (url, _):
        place = Path(directory)
        os.environ |= {
            "BENCH_URL": url,
            "BENCH_CONFIG": str(config(place / "config", url)),
            "BENCH_CONFIG_SLOW": str(place),
            "HOME": directory,
            "XDG_STATE_HOME": str(place / "state"),
        }
        import agents_callboard
        import durable_callboard
        import graph_callboard
        import trio

        import callboard
        from callboard.supervisors import bus

        bus.RESOLUTION = math.inf  # how often the time of day is read depends on the machine's speed

        def turns(n: int) -> None:
            async def main() -> None:
                async with callboard.Root(config_dir=os.environ["BENCH_CONFIG"]):
                    for _ in range(n):
                        await agents_callboard.agents(1)

            trio.run(main)

        (place / "echo.yaml").write_text(ECHO)
        command = [sys.executable, "-c", START, str(place / "echo.yaml")]
        subprocess.run(command, check=True, capture_output=True)  # compiles what is not compiled
        started = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return {
            "turn": min(per_unit(turns, 20, 60) for _ in range(6)),
            "node": min(
                per_unit(lambda n: graph_callboard.play(graph_callboard.chained(n), times=1), 100, 300, 2)
                for _ in range(3)
            ),
            "row": min(per_unit(lambda n: durable_callboard.chain_durable(n, times=1), 100, 300, 2) for _ in range(3)),
            "start": tuple(json.loads(started)),
        }


def kept() -> dict[str, tuple[int, ...]]:
    """Return the last figures of each row in the ledger."""
    found = {}
    for line in LEDGER.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[1][:1].isdigit():
            found[cells[0]] = tuple(int(each.replace(",", "")) for each in cells[1].split(" / "))
    return found


def main(arguments: list[str]) -> int:
    """Print a line for each figure; return 1 if one has grown."""
    if sys.version_info[:2] != PYTHON:
        print(f"the figures of {LEDGER.name} hold for Python {'.'.join(map(str, PYTHON))}: nothing is compared")
        return 0
    sys.path[:0] = [str(HERE), str(HERE / "contenders")]
    before, now = kept(), measure()
    grown = []
    for name, figures in now.items():
        last = before.get(name, ())
        shown = " / ".join(f"{each:,}" for each in figures)
        print(f"{name:<6} {shown:<22} before: {' / '.join(f'{each:,}' for each in last)}")
        if len(last) != len(figures) or any(new > old * GROWTH for new, old in zip(figures, last, strict=True)):
            grown.append(name)
    if arguments[:1] == ["--write"]:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True)
        with LEDGER.open("a", encoding="utf-8") as ledger:
            for name, figures in now.items():
                shown = " / ".join(f"{each:,}" for each in figures)
                ledger.write(f"| {name} | {shown} | after {commit.stdout.strip()} | {' '.join(arguments[1:])} |\n")
        return 0
    if grown:
        print(
            f"more calls than {LEDGER.name} allows (3 %): {', '.join(grown)}. Take them away, or write down the reason:"
        )
        print('  python benchmarks/guard.py --write "the reason"')
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
