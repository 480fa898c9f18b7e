"""A child that crashes is started again, with the same ref and the mail it had; too often, and its supervisor gives up.

python examples/kernel/restart.py
"""

from __future__ import annotations

import trio

from callboard.supervisors import Actor, ActorError, ChildSpec, Event, Message, Ref, Root, Supervisor


class Divide(Message, frozen=True):
    by: int


async def divider(me: Actor[Divide]) -> None:
    """Answers 100 / n, and has never heard of 0."""
    async for message in me:
        me.reply(100 / message.by)


def narrate(event: Event) -> None:
    """Nobody prints from an actor: what happens is told by events."""
    if event.kind in ("actor.restarted", "actor.failed"):
        print(f"  [{event.kind}] {event.actor}: {event.data}")


async def main() -> None:
    """Two restarts in five seconds are fine, the third is too many."""
    site = Supervisor(ChildSpec(name="divider", body=divider), intensity=2, period=5)
    async with Root() as root:
        with root.bus.listen(narrate):
            ref = await root.start(site, name="site", link=False)
            child: Ref[Divide] | None = site.child("divider")
            assert child is not None
            for n in (4, 0, 5, 0, 10, 0, 20):
                try:
                    print(f"100 / {n} =", await child.ask(Divide(n)))
                except ActorError as error:
                    print(f"100 / {n}: {type(error).__name__}: {error}")
            print("the supervisor:", (await ref.wait()).error)


if __name__ == "__main__":
    trio.run(main)
