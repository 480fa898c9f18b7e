"""A host for `test_crowds`: several runs at once, each of which calls several tools that leave helpers behind.

    python crowded_host.py <directory> <fifo that the helpers hold> <runs> <calls of each>

Prints, as JSON, the results, the codes of the warnings, and how long it took.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import trio
from support.tool_bench import Bench

from callboard.protocol.errors import ToolFailed
from callboard.protocol.events import Event, Warned
from callboard.supervisors import Root

TOOL = """
main() {
    exec 9>%s
    setsid sleep 300 &
    env -i sleep 300 &
    (trap '' TERM; exec sleep 300) &
    echo done >> "$LLM_OUTPUT"
}
"""


async def main(directory: str, life: str, runs: int, calls: int) -> None:
    """Play them all at the same time."""
    told: list[Any] = []
    warned: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event.data, Warned):
            warned.append(event.data.code)

    async with Root() as root:
        bench = Bench(root, Path(directory))
        declaration = bench.declare(bench.write("tools.sh", TOOL % life))
        await bench.python("def run(): return 'warm'")
        began = trio.current_time()

        async def call() -> None:
            try:
                told.append(await bench.call(declaration, timeout=120))
            except ToolFailed as failed:
                told.append(str(failed))

        async def run() -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(calls):
                    nursery.start_soon(call)

        with root.bus.listen(listen):
            async with trio.open_nursery() as nursery:
                for _ in range(runs):
                    nursery.start_soon(run)
        seconds = trio.current_time() - began
    print(json.dumps({"told": told, "warned": warned, "seconds": seconds}))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
