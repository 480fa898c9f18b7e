"""How long the event loop is kept from its other work while runs are started, by each front end.

    python benchmarks/starts.py [starts]

45 agents are installed. A probe asks to be woken every millisecond and notes by how much it was late, while one front
end after the other starts and ends `starts` graph runs that need no model. Server and clients share one process and one
loop, so what the clients cost is in the figures too; the first row is the machine by itself. The budget is 10 ms for 99
of 100 lates.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import trio
from trio_websocket import open_websocket_url

import callboard
from callboard.actors.front.server.serving import Served, ServeOptions, Server
from callboard.actors.runs.batch.targets import Target
from callboard.actors.runs.batch.tasks import Task
from callboard.protocol.requests import RunRequest

STARTS = 200
AGENTS = 45
BUDGET = 10.0
"""Milliseconds, of 99 of 100 lates."""

EVERY = 0.001
GRAPH = """
name: {name}
description: One of many.
initial_state: {{topic: "the weather", notes: [], tries: 0}}
start: first
nodes:
  first: {{type: end, output: "{{{{initial_prompt}}}} about {{{{topic}}}}"}}
"""

Start = Callable[[int], Awaitable[Any]]


class Probe:
    """Notes how late it is woken, in milliseconds."""

    def __init__(self) -> None:
        self.lates: list[float] = []

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            before = time.perf_counter()
            await trio.sleep(EVERY)
            self.lates.append(max(0.0, time.perf_counter() - before - EVERY) * 1000)

    def at(self, share: float) -> float:
        """What this share of the lates does not exceed."""
        return sorted(self.lates)[min(len(self.lates) - 1, int(len(self.lates) * share))]


async def measured(start: Start, starts: int) -> Probe:
    """The lates while a front end makes so many starts, one after the other."""
    probe = Probe()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe.watch)
        for number in range(starts):
            await start(number)
        nursery.cancel_scope.cancel()
    return probe


def front_ends(root: callboard.Root, client: httpx.AsyncClient, websocket: Any) -> dict[str, Start]:
    """By name, what starts a run there; each of another agent than the last."""

    def name(number: int) -> str:
        return f"agent{number % AGENTS}"

    async def post(path: str, body: Any) -> None:
        response = await client.post(path, json=body)
        assert response.status_code in (200, 201), response.text

    async def over_websocket(number: int) -> None:
        params = {"target": name(number), "prompt": "hi"}
        await websocket.send_message(
            json.dumps({"jsonrpc": "2.0", "id": number, "method": "_run/start", "params": params})
        )
        while (frame := json.loads(await websocket.get_message())).get("id") != number:
            pass
        assert "result" in frame, frame

    async def batch(number: int) -> None:
        target = Target(RunRequest(target=name(number)), root)
        task = Task(id=str(number), prompt="hi")
        await target.check(Path("tasks.csv"), [task])
        await target.perform(task)

    def agui(number: int) -> Awaitable[None]:
        said = [{"id": "1", "role": "user", "content": "hi"}]
        body = {"threadId": "t", "runId": str(number), "state": {}, "messages": said, "tools": [], "context": []}
        return post(f"/agui?target=graph/{name(number)}", {**body, "forwardedProps": {}})

    said = [{"role": "user", "content": "hi"}]
    return {
        "python": lambda number: callboard.run(name(number), "hi", root=root),
        "batch": batch,
        "websocket": over_websocket,
        "http runs": lambda number: post("/v1/runs", {"target": name(number), "prompt": "hi"}),
        "openai chat": lambda number: post(
            "/v1/chat/completions", {"model": f"graph/{name(number)}", "messages": said}
        ),
        "ag-ui": agui,
    }


async def main(starts: int, base: Path) -> bool:
    """Whether all stay within the budget."""
    for number in range(AGENTS):
        home = base / "agents" / f"agent{number}"
        home.mkdir(parents=True)
        (home / "graph.yaml").write_text(GRAPH.format(name=home.name))
    (base / "config.yaml").write_text("model: openai:none\n")
    listening: list[Served] = []
    good = True
    async with callboard.Root(config_dir=base, patient=True, serving=True) as root, trio.open_nursery() as nursery:
        nursery.start_soon(Server(ServeOptions(port=0)).serve, root, listening.append)
        while not listening:
            await trio.sleep(0.01)
        url, token = listening[0].url, listening[0].page.partition("#token=")[2]
        headers = {"authorization": f"Bearer {token}"}
        async with (
            httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30) as client,
            open_websocket_url(
                f"{url.replace('http', 'ws', 1)}/ws", extra_headers=[(b"Authorization", f"Bearer {token}".encode())]
            ) as websocket,
        ):
            sys.stdout.write(f"{'front end':12} {'p50':>8} {'p99':>8} {'most':>8}   ms late, {starts} starts each\n")
            idle: dict[str, Start] = {"(nothing)": lambda _: trio.sleep(0.005)}
            for name, start in {**idle, **front_ends(root, client, websocket)}.items():
                probe = await measured(start, starts)
                good &= name in idle or probe.at(0.99) <= BUDGET
                sys.stdout.write(f"{name:12} {probe.at(0.5):8.2f} {probe.at(0.99):8.2f} {probe.at(1):8.2f}\n")
        nursery.cancel_scope.cancel()
    sys.stdout.write(f"budget: p99 {BUDGET:g} ms: {'kept' if good else 'MISSED'}\n")
    return good


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        os.environ["XDG_STATE_HOME"] = f"{made}/state"
        os.environ["XDG_CACHE_HOME"] = f"{made}/cache"
        count = int(sys.argv[1]) if len(sys.argv) > 1 else STARTS
        sys.exit(0 if trio.run(main, count, Path(made) / "config") else 1)
