"""A process with a control channel on it, for benchmarks/control.py: prints its port, ends with its stdin.

Beside the channel's own methods it has `_bench/emit` (as many made runs as wanted say so many words a second) and
`_bench/used` (memory and CPU).
"""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path
from typing import Any

import trio

import callboard
from callboard.actors.front.access.access_control import AccessControl
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.methods import Method, open_hub
from callboard.actors.front.control.peer import ControlPeer
from callboard.actors.front.control.websocket import serve_websocket
from callboard.protocol.control.method_structs import Params
from callboard.protocol.events import LlmDelta, RunStarted
from callboard.protocol.settings.api import ApiSettings
from callboard.supervisors import Actor

PAGE = os.sysconf("SC_PAGE_SIZE")


class Emit(Params, frozen=True):
    """How much is said: so many words a second by each run, `burst` of them at a time."""

    rate: float = 0.0
    seconds: float = 0.0
    burst: int = 1


async def _idle(me: Actor) -> None:
    me.started()
    await trio.sleep_forever()


class Made:
    """Runs that say words."""

    def __init__(self, root: callboard.Root, count: int) -> None:
        self.actors: list[Actor] = []
        for number in range(count):
            id = f"run-made{number}"
            stream = root.bus.open(id)
            actor = root.kernel.actor.adopt(_idle, (), name=id, bond="watched", stream=stream)
            actor.emit(RunStarted(target="made", name="made", dialect="agent"))
            actor.launch()
            self.actors.append(actor)

    async def emit(self, _: ControlPeer, wanted: Emit) -> dict[str, int]:
        """All runs say something, evenly spread, for so many seconds."""
        said, began = 0, trio.current_time()
        pause = wanted.burst / (wanted.rate * len(self.actors))
        while trio.current_time() < began + wanted.seconds:
            due = int((trio.current_time() - began) / pause)
            while said < due:
                for _ in range(wanted.burst):
                    self.actors[said % len(self.actors)].emit(LlmDelta(text="some words of an answer"))
                said += 1
            await trio.sleep(pause)
        return {"said": said * wanted.burst}


def used(_: ControlPeer, __: Emit) -> dict[str, float]:
    """Resident bytes, after a collection, and seconds of CPU until now."""
    gc.collect()
    return {"rss": int(Path("/proc/self/statm").read_text().split()[1]) * PAGE, "cpu": time.process_time()}


async def main(config: Path, state: Path, runs: int, token: str) -> None:
    """Serve until stdin ends."""
    async with callboard.Root(config_dir=config, wait_for_front_end=True) as root:

        async def control(_: Actor) -> None:
            async with open_hub(root, directory=state / "runs") as hub, trio.open_nursery() as nursery:
                made = Made(root, runs)
                access = AccessControl(ApiSettings(), local_token=token, loopback=True)
                hub.methods |= {
                    "_bench/emit": Method(Emit, Any, made.emit),
                    "_bench/used": Method(Emit, Any, used),
                }
                listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=2048)
                print(listeners[0].socket.getsockname()[1], flush=True)

                async def accept(stream: trio.SocketStream) -> None:
                    await _served(root, hub, access, stream)

                nursery.start_soon(trio.serve_listeners, accept, listeners)
                await trio.sleep_forever()

        root.kernel.spawn(control, stop_within=3.0)
        await trio.lowlevel.wait_readable(sys.stdin.fileno())


async def _served(root: callboard.Root, hub: Hub, access: AccessControl, stream: trio.SocketStream) -> None:
    async def client(me: Actor) -> None:
        await serve_websocket(me, stream, hub, access, peer="127.0.0.1")

    await root.kernel.spawn(client, link=False).wait()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
