"""The host of one cell of the fault matrix: `python host.py KIND ENDING FIFO`.

Says `ready` when the child was handed over, and `signal` for each signal seen; goes on when its stdin says so. What
ends it is ENDING: it does `normal`, `crash` and `cancel` (during start) itself, the test sends the signals.
"""

from __future__ import annotations

import signal
import sys

import trio
from kinds import command  # beside this file

from callboard.supervisors import Root, guardian_link, process
from callboard.supervisors.process import start_process

# Upper bounds that a slow machine would exceed. The matrix is about what is left behind, not about the time.
process.KILL_WITHIN = 60.0
guardian_link.ANSWER_WITHIN = guardian_link.START_WITHIN = 60.0

STARTS = 12
"""So many are started at once. Each is cancelled at a point of its own: before, within or after its fork."""


async def main(kind: str, ending: str, fifo: str) -> int:
    argv = command(kind, fifo)
    async with Root(signals=True, on_signal=lambda *_: say("signal")) as root:
        if ending == "cancel":
            async with trio.open_nursery() as nursery:
                for number in range(STARTS):
                    nursery.start_soon(start_and_cancel, root, argv, number)
            return 0
        process = await start_process(root.actor, argv, stdin="pipe")
        say("ready")
        if ending in ("normal", "crash"):
            await trio.to_thread.run_sync(sys.stdin.readline)
        else:
            await process.wait()
        if ending == "crash":
            raise RuntimeError("the host crashed")
    return 0 if root.signal is None else 128 + root.signal


async def start_and_cancel(root: Root, argv: list[str], number: int) -> None:
    """Cancel a start: the even ones after so many trips through the scheduler, the odd ones after so many forks."""

    async def cancel(scope: trio.CancelScope) -> None:
        ticks = 0
        while (len(root.processes.live) if number % 2 else ticks) < number:
            await trio.lowlevel.checkpoint()
            ticks += 1
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel, nursery.cancel_scope)
        await start_process(root.actor, argv, stdin="pipe")
        nursery.cancel_scope.cancel()


def say(word: str) -> None:
    print(word, flush=True)


if __name__ == "__main__":
    # One that comes when the root is over, or a test runner that was started in the background, changes nothing.
    signal.signal(signal.SIGINT, lambda *_: None)
    sys.exit(trio.run(main, *sys.argv[1:]))
