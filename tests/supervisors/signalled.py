"""A host for test_signals: a root that owns its signals, and one actor that behaves as the first argument says."""

from __future__ import annotations

import _thread
import os
import re
import resource
import signal
import sys
from pathlib import Path

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
    with trio.move_on_after(300, shield=True):  # longer than any test waits, and not for ever
        say("ready")
        await trio.sleep_forever()


async def busy(me: Actor) -> None:
    say("ready")
    seen = 0
    while True:  # the event loop never runs again
        if me.root._handlers._count != seen:
            seen = me.root._handlers._count
            say(f"signal {seen}")


async def native(me: Actor) -> None:
    say("ready")
    re.match("(a+)+$", "a" * 64 + "b")  # holds the interpreter's lock for ever: no thread of ours runs again


async def starved(me: Actor) -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    try:
        _thread.start_new_thread(print, ())
    except (RuntimeError, MemoryError):
        os.write(1, b"ready\n")
    while True:  # the event loop never runs again
        me.root._handlers._count  # noqa: B018 - something to do that takes no memory


async def drains_for_ever(me: Actor) -> None:
    await polite(me)


def block() -> None:
    say("draining")
    while True:
        pass


async def ends_at_the_second_hangup(me: Actor) -> None:
    await polite(me)


async def reloads(me: Actor) -> None:
    await polite(me)


async def drains(me: Actor) -> None:
    await polite(me)


async def drains_in_a_block(me: Actor) -> None:
    with trio.open_signal_receiver(signal.SIGUSR1) as told:
        say("ready")
        try:
            await anext(told)
            with me.root.draining(lambda: say("draining"), 300.0):
                say("the block begins")
                await anext(told)
            say("the block is over")
            await trio.sleep_forever()
        finally:
            say("cleaned up")


async def main(name: str, stop_within: float) -> int:
    hangups = iter((False, True))
    async with Root(
        signals=True,
        stop_within=stop_within,
        on_signal=lambda number, count: say(f"signal {count}"),
        on_hangup=(lambda: say("reloaded")) if name in ("reloads", "ends_at_the_second_hangup") else None,
        hangup_ends=(lambda: next(hangups)) if name == "ends_at_the_second_hangup" else None,
        on_drain={"drains": lambda: say("draining"), "drains_for_ever": block}.get(name),
        drain_within=0.05 if name == "drains_for_ever" else float("inf"),
    ) as root:
        await root.spawn(globals()[name], stop_within=stop_within).wait()
    say("left the block")
    return 128 + (root.signal or 0)


sys.exit(trio.run(main, sys.argv[1], float(sys.argv[2])))
