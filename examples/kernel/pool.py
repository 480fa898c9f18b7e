"""A pool of processes: one calculator per precision, started when first needed, shared, replaced when it dies.

python examples/kernel/pool.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from callboard.supervisors import Actor, Pool, Root
from callboard.supervisors.process import Process, start_process

SERVER = 'while read line; do echo "process $$ heard: $line"; done'


async def watch(_me: Actor, process: Process) -> None:
    """Linked to the resource's owner: when the process ends by itself, so does the resource."""
    end = await process.wait()
    raise ChildProcessError(f"the server ended: {end}")


@asynccontextmanager
async def server(me: Actor, key: str) -> AsyncIterator[Process]:
    """Opens one resource. `me` owns it, so everything here ends with it."""
    process = await start_process(me, ["sh", "-c", SERVER], stdin="pipe", name=key)
    me.spawn(watch, process)
    yield process


async def say(pool: Pool[str, Process], key: str, text: str) -> None:
    async with pool.lease(key) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.send_all(text.encode() + b"\n")
        print((await process.stdout.receive_some()).decode().strip())


async def main() -> None:
    async with Root(signals=True) as root:
        pool = Pool(root, server, name="servers", idle_ttl=300)
        for text in ("one", "two"):
            await say(pool, "a", text)

        lease = pool.lease("a")
        async with lease as process:
            process.ref.cancel()  # it dies in our hands
            await lease.lost.wait()
        await say(pool, "a", "three, to a new process")

        async with trio.open_nursery() as nursery:
            for _ in range(1000):
                nursery.start_soon(pool.warm, "b")
        print(pool.statistics)


if __name__ == "__main__":
    trio.run(main)
