"""A host for test_signals: a root that owns its signals, and one actor that behaves as the first argument says."""

from __future__ import annotations

import sys

import trio

from callboard.supervisors import Actor, Root


def say(text: str) -> None:
    print(text, flush=True)


async def polite(me: Actor) -> None:
    try:
        say("ready")
        await trio.sleep_forever()
    finally:
        with me.cleanup():
            await trio.sleep(0.01)
            say("cleaned up")


async def slow(me: Actor) -> None:
    try:
        say("ready")
        await trio.sleep_forever()
    finally:
        with me.cleanup():
            await trio.sleep_forever()
        say("cut short")


async def shielded(me: Actor) -> None:
    with trio.CancelScope(shield=True):
        say("ready")
        await trio.sleep_forever()


async def busy(me: Actor) -> None:
    say("ready")
    seen = 0
    while True:  # the event loop never runs again
        if me.root._count != seen:
            seen = me.root._count
            say(f"signal {seen}")


async def reloads(me: Actor) -> None:
    await polite(me)


async def drains(me: Actor) -> None:
    await polite(me)


async def main(name: str, stop_within: float) -> int:
    async with Root(
        signals=True,
        stop_within=stop_within,
        on_signal=lambda number, count: say(f"signal {count}"),
        on_hangup=(lambda: say("reloaded")) if name == "reloads" else None,
        on_drain=(lambda: say("draining")) if name == "drains" else None,
    ) as root:
        await root.spawn(globals()[name], stop_within=stop_within).wait()
    say("left the block")
    return 128 + (root.signal or 0)


sys.exit(trio.run(main, sys.argv[1], float(sys.argv[2])))
