"""Two actors that talk, under one root.

python examples/kernel/ping_pong.py
"""

from __future__ import annotations

import trio

from callboard.supervisors import Actor, ChildSpec, Message, Ref, Root, Supervisor


class Ping(Message, frozen=True):
    n: int


class Pong(Message, frozen=True):
    n: int


async def ponger(me: Actor[Ping]) -> None:
    """Answers every ping until it is told to stop."""
    async for message in me:
        me.reply(Pong(n=message.n + 1))


async def pinger(me: Actor, to: Ref[Ping], rounds: int) -> int:
    """Asks, and asks again with what it got; what it returns is its result."""
    n = 0
    for _ in range(rounds):
        pong = await to.ask(Ping(n=n), timeout=1)
        print(f"{me.path}: ping {n} -> pong {pong.n}")
        n = pong.n
    return n


async def main() -> None:
    """The supervisor looks after the ponger; leaving the block ends them all."""
    site = Supervisor(ChildSpec(name="ponger", body=ponger))
    async with Root(signals=True) as root:
        await root.start(site, name="site")
        to = site.child("ponger")
        assert to is not None
        print("result:", await root.spawn(pinger, to, 3).result())


if __name__ == "__main__":
    trio.run(main)
