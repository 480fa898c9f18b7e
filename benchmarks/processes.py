"""What processes cost: to run one, to end twenty stubborn ones, and how long a host takes to exit.

    python benchmarks/processes.py

Wall clock, since nearly all of it is waiting; the machine's speed cancels out in the ratios. The budget: a process in
bubblewrap takes 7.2 times as long as one without a sandbox, in Landlock 2.4 times; a SIGINT ends a host within 0.5 s if
nothing is stubborn and within 3 s if everything is; twenty stubborn processes end within the time of one plus a second.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import trio

from callboard.actors.io.temporary import LazyDirectory
from callboard.actors.work.sandbox.backends import VARIABLE, backend
from callboard.actors.work.sandbox.grants import Grants
from callboard.actors.work.sandbox.policy import Nature
from callboard.actors.work.sandbox.run_sandbox import Sandbox
from callboard.protocol.sandbox import UserSandbox
from callboard.supervisors import Actor, Root
from callboard.supervisors.process import run_process, start_process

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/supervisors/faults"))

from matrix import CELLS, ENDINGS, HOST, KINDS, run_cells

RUNS = 50
STUBBORN = "trap '' TERM; echo up; while :; do sleep 300; done"


async def runs(me: Actor) -> None:
    """A run of `true`, supervised and by trio alone, interleaved."""
    supervised, bare = [], []
    await run_process(me, ["true"])  # starts the guardian
    for _ in range(RUNS):
        began = trio.current_time()
        await run_process(me, ["true"])
        middle = trio.current_time()
        await trio.run_process(["true"], stdin=subprocess.DEVNULL, capture_stdout=True, capture_stderr=True)
        supervised.append(middle - began)
        bare.append(trio.current_time() - middle)
    ours, theirs = statistics.median(supervised) * 1000, statistics.median(bare) * 1000
    print(f"run `true`: {ours:.1f} ms supervised, {theirs:.1f} ms by trio.run_process: {ours / theirs:.1f} x")


async def sandboxes(me: Actor) -> None:
    """A run of `true` by each backend of the sandbox, interleaved with one without."""
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        rules = UserSandbox(profile="workspace")
        environ = {"HOME": str(Path.home())}
        grants = Grants(None, None)
        sandbox = Sandbox(
            rules, here=base, config_dir=base, environ=environ, temporary=LazyDirectory("tmp"), grants=grants
        )
        for kind in ("bubblewrap", "landlock"):
            os.environ[VARIABLE] = kind
            if backend().kind != kind:
                print(f"run `true` by {kind}: not to be had here")
                continue
            took: dict[bool, list[float]] = {False: [], True: []}
            for count in range(2 * RUNS):
                held = bool(count % 2)
                began = trio.current_time()
                confinement = await sandbox.held(me, Nature(name="true")) if held else None
                await run_process(me, ["true"], cwd=base, confinement=confinement)
                took[held].append(trio.current_time() - began)
            free, held_ = (statistics.median(each) * 1000 for each in (took[False], took[True]))
            ratio = held_ / free
            print(f"run `true` by {kind}: {held_:.1f} ms, {free:.1f} ms without: {held_ - free:+.1f} ms, {ratio:.1f} x")
        del os.environ[VARIABLE]


async def teardown(me: Actor, number: int) -> None:
    """End so many stubborn processes at once; the graces are 0.5 + 0.5 s."""
    processes = [await start_process(me, ["sh", "-c", STUBBORN], stdin="pipe") for _ in range(number)]
    for process in processes:
        assert process.stdout is not None
        await process.stdout.receive_some()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for process in processes:
            nursery.start_soon(process.stop)
    print(f"end {number} stubborn processes: {trio.current_time() - began:.2f} s")


async def exits() -> None:
    """The fault matrix, one cell at a time."""
    with tempfile.TemporaryDirectory() as directory:
        outcomes = await run_cells(CELLS, Path(directory), at_once=1, program=[sys.executable, HOST])
    print("\nfrom the end of the host to silence below it, seconds (`cancel` includes its start-up and 12 starts):")
    print(f"{'':14}" + "".join(f"{kind:>10}" for kind in KINDS))
    for ending in ENDINGS:
        cells = [outcomes[kind, ending] for kind in KINDS]
        print(f"{ending:14}" + "".join(f"{cell.to_exit + (cell.to_silence or 99):10.3f}" for cell in cells))


async def main() -> None:
    """All of it."""
    async with Root() as root:
        await runs(root.actor)
        await sandboxes(root.actor)
        for number in (1, 20):
            await teardown(root.actor, number)
    await exits()


if __name__ == "__main__":
    trio.run(main)
