"""The contender's side of `harness.contender`: answers `{"case": ..., "n": ...}` lines with `{"result": ...}`."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

clock = time.process_time
"""Seconds of CPU that this process has used, all threads together."""

Cases = Mapping[str, Callable[[int], Any]]


def serve(cases: Cases) -> None:
    """Measure what is asked for until stdin ends. What the contender prints goes to stderr."""
    if len(sys.argv) == 3:  # started by `in_a_fresh_process`
        print(json.dumps(cases[sys.argv[1]](int(sys.argv[2]))))
        return
    wire = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps({"cases": list(cases)}), file=wire)
    for line in sys.stdin:
        request = json.loads(line)
        gc.collect()
        try:
            answer = {"result": cases[request["case"]](request["n"])}
        except Exception as error:  # noqa: BLE001 - whatever it is, the table's side says so and stops
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=wire)


def in_a_fresh_process(case: str, of: str | None = None) -> Callable[[int], Any]:
    """A case that has the case of this name measured in a process of its own, for what can't be undone (memory).

    Args:
        of: another contender; None for this one.
    """

    def run(n: int) -> Any:
        program = sys.argv[0] if of is None else str(Path(sys.argv[0]).with_name(f"{of}.py"))
        done = subprocess.run([sys.executable, program, case, str(n)], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    return run


def resident() -> float:
    """KB of memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


class Idle:
    """Tells, when asked every now and then, whether this process has run out of things to do."""

    def __init__(self) -> None:
        self._spent = 0.0

    def __call__(self) -> bool:
        before, self._spent = self._spent, clock()
        return self._spent - before < 0.005


def absent(error: ImportError) -> NoReturn:
    """Tell that this contender's package is not installed."""
    print(json.dumps({"missing": f"the package '{error.name}' is not installed"}), flush=True)
    raise SystemExit(0)


def micro(began: float, n: int) -> float:
    """CPU microseconds per piece since `began`."""
    return (clock() - began) / n * 1e6


@contextlib.contextmanager
def tracing() -> Iterator[Callable[[], int]]:
    """Gives a function that says how many bytes are allocated and alive; use it in a warm process."""

    def heap() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        yield heap
    finally:
        tracemalloc.stop()
