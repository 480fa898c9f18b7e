"""xoscar: coroutine objects in a pool of this process. Idle actors have no task."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

from _serve import absent, clock, micro, serve

try:
    import xoscar
except ImportError as error:
    absent(error)

_port = itertools.count(1)


class Echo(xoscar.Actor):
    async def echo(self, n: int) -> int:
        return n


Case = Callable[[str, int], Coroutine[Any, Any, float]]


def run(case: Case) -> Callable[[int], float]:
    """The case in a pool of its own."""

    async def main(n: int) -> float:
        pool = await xoscar.create_actor_pool("127.0.0.1", n_process=0)
        async with pool:
            return await case(pool.external_address, n)

    return functools.wraps(case)(lambda n: asyncio.run(main(n)))


async def spawn(address: str, n: int) -> float:
    began = clock()
    for number in range(n):
        await xoscar.create_actor(Echo, uid=f"a{number}", address=address)
    return micro(began, n)


async def stop(address: str, n: int) -> float:
    refs = [await xoscar.create_actor(Echo, uid=f"a{number}", address=address) for number in range(n)]
    began = clock()
    for ref in refs:
        await xoscar.destroy_actor(ref)
    return micro(began, n)


async def tell(address: str, n: int) -> float:
    ref = await xoscar.create_actor(Echo, uid="echo", address=address)
    began = clock()
    for number in range(n):
        await ref.echo.tell(number)
    await ref.echo(n)
    return micro(began, n)


async def ask(address: str, n: int) -> float:
    ref = await xoscar.create_actor(Echo, uid="echo", address=address)
    await ref.echo(0)
    began = clock()
    for number in range(n):
        await ref.echo(number)
    return micro(began, n)


if __name__ == "__main__":
    serve({case.__name__: run(case) for case in (spawn, stop, tell, ask)})
