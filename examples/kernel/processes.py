"""Processes under supervision: talk to one, run one to its end, and see what happens to those that won't go.

    python examples/kernel/processes.py

Press Ctrl-C while it runs, or kill it with SIGKILL from another terminal: `sleep 3600` is gone either way.
"""

from __future__ import annotations

import trio

from callboard.supervisors import Actor, Root
from callboard.supervisors.process import run_process, start_process

STUBBORN = "trap '' TERM INT; echo ready; setsid sleep 3600 & while :; do sleep 3600; done"


async def tour(me: Actor) -> None:
    """An actor that owns processes: they end when it does, at the latest."""
    calculator = await start_process(me, ["sed", "-u", "s/^/you said: /"], stdin="pipe")
    assert calculator.stdin is not None
    assert calculator.stdout is not None
    await calculator.stdin.send_all(b"hello\n")
    print((await calculator.stdout.receive_some()).decode().strip())
    print("it ends politely:", await calculator.stop())

    done = await run_process(me, ["sh", "-c", "echo to stdout; echo to stderr >&2; exit 3"])
    print("run to its end:", done)

    flood = await run_process(me, ["sh", "-c", "yes | head -c 100000000"], output_limit=1000)
    print(f"100 MB of output: {len(flood.stdout)} bytes kept, truncated: {flood.truncated}")

    began = trio.current_time()
    stubborn = await start_process(me, ["sh", "-c", STUBBORN], stdin="pipe")
    assert stubborn.stdout is not None
    await stubborn.stdout.receive_some()
    end = await stubborn.stop()
    print(
        f"it ignores everything: signal {end.signal} after {trio.current_time() - began:.1f} s; {end.swept} more swept"
    )


async def main() -> None:
    """The root owns signals; when its block ends, nothing is left."""
    async with Root(signals=True) as root:
        await root.spawn(tour).result()


if __name__ == "__main__":
    trio.run(main)
