"""The control channel under load: many clients, many runs, many questions, and one who does not read.

    python benchmarks/control.py [--small]

The server is a process of its own, the clients are all in another one; both share the machine. 1,000 websocket clients
watch 100 runs that say two words a second each, while random clients give commands; then 1,000 graph runs are started,
wait for a person, and are answered by random clients. What watching costs the run is measured in one process, by the
CPU time of the event loop's thread, in interleaved rounds: publishing alone, with a hub, with a client that has stopped
reading as well.
"""

from __future__ import annotations

import contextlib
import gc
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio
from trio_websocket import WebSocketConnection, connect_websocket_url

import callboard
from callboard.actors.front.control.methods import open_hub
from callboard.actors.front.control.peer import ControlPeer
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.events import LlmDelta, RunStarted
from callboard.supervisors import Actor

GRAPH = """
name: asker
start: ask
nodes:
  ask:  {type: input, question: "What about {{initial_prompt}}?", next: done}
  done: {type: end, output: "{{initial_prompt}}: {{ask}}"}
"""
TOKEN = "benchmark"
RATE = 2.0
"""Words a second of each run."""
WARM = 1_000
"""Events before those that are measured."""
BUDGET_STALLED = 1.01
"""What a client that has stopped reading may make of the run's cost."""


class Client:
    """A client that notes when events reach it."""

    def __init__(self, websocket: WebSocketConnection) -> None:
        self.lags: list[float] = []
        self._websocket = websocket
        self._waiting: dict[int, tuple[trio.Event, list[Any]]] = {}
        self._count = 0

    async def read(self) -> None:
        """Take frames."""
        while True:
            frame = msgspec.json.decode(await self._websocket.get_message())
            if frame.get("method") == "_run/event":
                event = frame["params"]["event"]
                if event["kind"] == "llm.delta":
                    happened = datetime.fromisoformat(event["ts"])
                    self.lags.append((datetime.now(UTC) - happened).total_seconds())
            elif "id" in frame and frame["id"] in self._waiting:
                done, answer = self._waiting.pop(frame["id"])
                answer.append(frame)
                done.set()

    async def call(self, method: str, **params: Any) -> Any:
        """The result of a request."""
        self._count += 1
        done, answer = self._waiting[self._count] = trio.Event(), []
        request = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        await self._websocket.send_message(msgspec.json.encode(request).decode())
        await done.wait()
        return answer[0]["result"]


@contextlib.contextmanager
def server(place: Path, runs: int) -> Iterator[str]:
    """A server process; its address."""
    home = place / "config" / "agents" / "asker"
    home.mkdir(parents=True)
    (home / "graph.yaml").write_text(GRAPH)
    script = Path(__file__).parent / "contenders" / "_control.py"
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        str(script),
        str(place / "config"),
        str(place / "state"),
        str(runs),
        TOKEN,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"ws://127.0.0.1:{int(process.stdout.readline())}/ws"
        finally:
            process.stdin.close()


@contextlib.asynccontextmanager
async def connected(url: str, count: int) -> AsyncIterator[list[Client]]:
    """So many clients, connected a few at a time."""
    clients: list[Client] = []
    async with trio.open_nursery() as nursery:
        some = trio.CapacityLimiter(20)

        async def connect() -> None:
            async with some:
                headers = [(b"Authorization", f"Bearer {TOKEN}".encode())]
                client = Client(await connect_websocket_url(nursery, url, extra_headers=headers))
            clients.append(client)
            nursery.start_soon(client.read)

        async with trio.open_nursery() as connecting:
            for _ in range(count):
                connecting.start_soon(connect)
        yield clients
        nursery.cancel_scope.cancel()


async def watched(url: str, count: int, runs: int, seconds: float) -> None:
    """`count` clients watch `runs` runs, and give commands."""
    async with connected(url, 1) as (first,):
        before = (await first.call("_bench/used"))["rss"]
        async with connected(url, count) as clients:
            for number, client in enumerate(clients):
                await client.call("_run/subscribe", run=f"run-made{number % runs}")
            each = ((await first.call("_bench/used"))["rss"] - before) / count / 1024
            print(f"{count} clients watch {runs} runs: {each:.0f} KB per client")
            for burst in (1, 10):
                await told(first, clients, runs, seconds, burst)


async def told(first: Client, clients: list[Client], runs: int, seconds: float, burst: int) -> None:
    """The runs say words, `burst` at a time, while random clients give commands."""
    for client in clients:
        client.lags.clear()
    commands: list[float] = []
    async with trio.open_nursery() as nursery:
        if burst == 1:
            nursery.start_soon(commanding, clients, runs, commands)
        before = (await first.call("_bench/used"))["cpu"]
        said = (await first.call("_bench/emit", rate=RATE, seconds=seconds, burst=burst))["said"]
        await trio.sleep(1)
        cpu = (await first.call("_bench/used"))["cpu"] - before
        nursery.cancel_scope.cancel()
    lags = [lag for client in clients for lag in client.lags]
    wanted = said * len(clients) // runs
    print(f"  {burst} at a time: {len(lags) / seconds:.0f} events/s delivered, missing {wanted - len(lags)};", end=" ")
    print(f"{cpu / max(1, len(lags)) * 1e6:.0f} µs of the server's CPU each; lag {shown(lags)}")
    if commands:
        print(f"  a command meanwhile: {shown(commands)}")


async def commanding(clients: list[Client], runs: int, commands: list[float]) -> None:
    """Random clients look at random runs."""
    chance = random.Random(7)
    while True:
        began = time.perf_counter()
        await chance.choice(clients).call("_run/get", run=f"run-made{chance.randrange(runs)}")
        commands.append(time.perf_counter() - began)
        await trio.sleep(0.005)


async def answered(url: str, count: int, clients_count: int) -> None:
    """`count` runs wait for a person, and are answered by random clients."""
    chance = random.Random(7)
    async with connected(url, clients_count) as clients:
        before = (await clients[0].call("_bench/used"))["rss"]
        starts: list[float] = []
        answers: list[float] = []

        async def timed(times: list[float], method: str, **params: Any) -> None:
            async with some:
                began = time.perf_counter()
                await chance.choice(clients).call(method, **params)
                times.append(time.perf_counter() - began)

        some = trio.CapacityLimiter(8)
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(partial(timed, starts, "_run/start", target="asker", prompt=str(number)))
        questions: list[Any] = []
        while len(questions) < count:
            questions = (await clients[0].call("_question/list"))["questions"]
        each = ((await clients[0].call("_bench/used"))["rss"] - before) / count / 1024
        chance.shuffle(questions)
        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for question in questions:
                asked = question["id"]
                nursery.start_soon(partial(timed, answers, "_question/answer", question=asked, value="fine"))
        done = 0
        while done < count:
            done = len((await clients[0].call("_run/list", status="done", limit=1000))["runs"])
        took = time.perf_counter() - began
    print(f"{count} runs wait for a person: {each:.0f} KB each; answered by {clients_count} clients in {took:.2f} s")
    print(f"  start, 8 at a time: {shown(starts)};  answer, 8 at a time: {shown(answers)}")


async def cost_of_watching(place: Path, events: int, rounds: int) -> float:
    """What events cost the event loop: alone, with a hub, with a client that does not read as well; the last ratio."""
    alone: list[float] = []
    heard: list[float] = []
    stalled: list[float] = []
    async with callboard.Root(config_dir=place / "none", wait_for_front_end=True) as root:

        async def control(me: Actor) -> None:
            for number in range(rounds):
                alone.append(await published(root, f"run-a{number}", events, nobody))
                async with open_hub(root, directory=place / f"cost{number}") as hub:
                    peer = ControlPeer(me, hub, LOCAL, never)
                    both = [(heard, nobody), (stalled, partial(watched_by, peer))]
                    for times, subscribe in both if number % 2 else reversed(both):
                        times.append(await published(root, f"run-{number}-{len(times)}", events, subscribe))
                        await hub.logs.flush()
                    peer.close()

        await root.kernel.spawn(control, stop_within=3.0).wait()
    one, two, three = (statistics.median(times) / events * 1e6 for times in (alone, heard, stalled))
    print(
        f"an event costs {one:.1f} µs if nobody listens, {two:.1f} µs with a hub and its log; "
        f"a client that does not read: × {three / two:.3f}"
    )
    return three / two


async def never(_: bytes) -> None:
    """Sends to a client that has stopped reading."""
    await trio.sleep_forever()


async def nobody(_: str) -> None:
    """Subscribes nobody."""


async def watched_by(peer: ControlPeer, run: str) -> None:
    """Subscribes the peer."""
    request = {"jsonrpc": "2.0", "id": run, "method": "_run/subscribe", "params": {"run": run}}
    await peer.receive(msgspec.json.encode(request))


async def published(root: callboard.Root, id: str, events: int, subscribe: Callable[[str], Awaitable[None]]) -> float:
    """Publish so many events of a run, after some by which a reader that stalls has stalled; the CPU seconds."""

    async def idle(_: Actor) -> None:
        await trio.sleep_forever()

    stream = root.bus.open(id)
    actor = root.kernel.actor.adopt(idle, (), name=id, bond="watched", stream=stream)
    actor.emit(RunStarted(target="made", name="made", dialect="agent"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subscribe, id)
        await trio.sleep(0.01)
        began = 0.0
        for number in range(-WARM, events):
            if number == 0:
                gc.collect()
                began = time.thread_time()
            actor.emit(LlmDelta(text="some words of an answer"))
            if number % 10 == 0:
                await trio.lowlevel.checkpoint()
        took = time.thread_time() - began
        nursery.cancel_scope.cancel()
    actor.bury()
    root.bus.close(stream)
    return took


def shown(seconds: list[float]) -> str:
    """Median and 99th percentile, in milliseconds."""
    ranked = sorted(seconds) or [0.0]
    return f"p50 {ranked[len(ranked) // 2] * 1e3:.1f} ms, p99 {ranked[int(len(ranked) * 0.99)] * 1e3:.1f} ms"


def main() -> int:
    """Prints the figures; 1 if the budget was missed."""
    small = "--small" in sys.argv[1:]
    size = 10 if small else 1
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with server(place, 100 // size) as url:
            trio.run(watched, url, 1000 // size, 100 // size, 1.0 if small else 10.0)
            trio.run(answered, url, 1000 // size, 50 // size)
        ratio = trio.run(cost_of_watching, place, 10_000, 4 if small else 100)
    met = ratio <= BUDGET_STALLED
    print(f"a client that does not read costs a run ≤ 1 %: {'met' if met else 'NOT MET'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
