"""How long the event loop is kept from its other work while runs are started, by each front end.

    python benchmarks/starts.py [--own] [--where] [starts]

45 agents are installed. One front end after the other starts and ends `starts` graph runs that need no model. Server
and clients share one process and one loop, so what the clients cost is in the figures too; the first row is the machine
by itself. Three figures are taken at the same time:

late    A probe asks to be woken every millisecond, and notes by how much it was late: what other tasks feel. Other
        programs on the machine are in it.
own     The part of it in which this process has used a CPU: the loop, or the thread that reads agents.
step    The CPU time of each step of a task, from one `await` that waits to the next: what holds the loop.

The budget is 10 ms for 99 of 100 lates; `--own` judges `own` in its place, for a busy machine. A step that is longer
once in some hundred starts is a full garbage collection. `--where` tells on stderr where steps beyond 3 ms were.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import trio
from trio_websocket import open_websocket_url

import callboard
from callboard.actors.front.mcp_server.service import read_agents
from callboard.actors.front.mcp_server.serving import serve_stdio
from callboard.actors.front.server.serving import HttpServer, ListeningServer, ServeOptions
from callboard.actors.runs.batch.batch import BatchTarget
from callboard.actors.runs.batch.tasks import BatchTask
from callboard.cli.actions.run import RunFlags, _drive
from callboard.cli.frame import open_frame
from callboard.cli.render.progress import ProgressDisplay
from callboard.cli.render.result import for_format
from callboard.protocol.requests import RunRequest

STARTS = 200
AGENTS = 45
BUDGET = 10.0
"""Milliseconds, of 99 of 100 lates."""

EVERY = 0.001
HERE = f"{Path(callboard.__file__).parent}{os.sep}"
LONG = 0.003
"""Seconds of a step that `--where` tells."""

GRAPH = """
name: {name}
description: One of many.
initial_state: {{topic: "the weather", notes: [], tries: 0}}
start: first
nodes:
  first: {{type: end, output: "{{{{initial_prompt}}}} about {{{{topic}}}}"}}
"""
TOOLS = """
# @cmd Notes something down.
# @option --text! What to note.
note() { echo "$argc_text"; }
"""

Start = Callable[[int], Awaitable[Any]]


class Probe:
    """Notes how late it is woken, in milliseconds, and the part of it that is this process's `own`."""

    def __init__(self) -> None:
        self.lates: list[float] = []
        self.own: list[float] = []

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            before, cpu = time.perf_counter(), time.process_time()
            await trio.sleep(EVERY)
            late = max(0.0, time.perf_counter() - before - EVERY)
            self.lates.append(late * 1000)
            self.own.append(min(late, time.process_time() - cpu) * 1000)


def at(share: float, figures: list[float]) -> float:
    """What this share of the figures does not exceed."""
    return sorted(figures)[min(len(figures) - 1, int(len(figures) * share))]


class Steps(trio.abc.Instrument):
    """The longest step of a task since `longest` was set to 0, in milliseconds of this thread's CPU time.

    Args:
        where: tell on stderr where steps are that take long.
    """

    def __init__(self, *, where: bool = False) -> None:
        self.longest = 0.0
        self._where = where
        self._seen = ""
        self._began = 0.0
        if where:
            signal.signal(signal.SIGALRM, self._look)

    def before_task_step(self, _: trio.lowlevel.Task) -> None:
        self._seen = ""
        if self._where:
            signal.setitimer(signal.ITIMER_REAL, LONG)
        self._began = time.thread_time()

    def after_task_step(self, _: trio.lowlevel.Task) -> None:
        if not self._began:
            return  # it began before we looked
        took = time.thread_time() - self._began
        if self._where:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if took > LONG:
                sys.stderr.write(f"{took * 1000:.1f} ms: {self._seen}\n")
        self.longest = max(self.longest, took * 1000)

    def _look(self, _: int, frame: FrameType | None) -> None:
        stack = [(each.f_code.co_filename, line) for each, line in traceback.walk_stack(frame)]
        ours = [f"{file.removeprefix(HERE)}:{line}" for file, line in stack if not file.startswith("<frozen")]
        self._seen = " < ".join(ours[:12])


async def measured(start: Start, starts: int, steps: Steps) -> tuple[Probe, float, float]:
    """The lates while a front end makes so many starts, one after the other; the longest step and of the others."""
    probe = Probe()
    first = 0.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe.watch)
        steps.longest = 0.0
        for number in range(starts):
            await start(number)
            if number == 0:
                first, steps.longest = steps.longest, 0.0
        nursery.cancel_scope.cancel()
    return probe, first, steps.longest


def name(number: int) -> str:
    """Of the agent of this start; another one than the last."""
    return f"agent{number % AGENTS}"


class Frames:
    """JSON-RPC requests, one at a time, and their results; what else is said is passed over."""

    def __init__(self, say: Callable[[str], Awaitable[None]], hear: Callable[[], Awaitable[Any]]) -> None:
        self._say = say
        self._hear = hear
        self._id = 0

    async def call(self, method: str, **params: Any) -> Any:
        """The result."""
        self._id += 1
        await self._say(json.dumps({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}))
        while (frame := json.loads(await self._hear())).get("id") != self._id:
            pass
        assert "result" in frame, frame
        return frame["result"]


@asynccontextmanager
async def mcp_server(root: callboard.Root) -> AsyncIterator[Frames]:
    """A client of an MCP server that offers all agents, over pipes."""
    offers, _ = read_agents(root)
    there, here = os.pipe(), os.pipe()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve_stdio, root, offers, pipes=(there[0], here[1])))
        async with trio.lowlevel.FdStream(here[0]) as reading, trio.lowlevel.FdStream(there[1]) as writing:
            buffer = b""

            async def hear() -> bytes:
                nonlocal buffer
                while b"\n" not in buffer:
                    buffer += await reading.receive_some(65_536)
                line, _, buffer = buffer.partition(b"\n")
                return line

            frames = Frames(lambda text: writing.send_all(text.encode() + b"\n"), hear)
            client = {"name": "benchmark", "version": "1"}
            await frames.call("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
            await writing.send_all(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
            yield frames


def front_ends(root: callboard.Root, client: httpx.AsyncClient, websocket: Frames, mcp: Frames) -> dict[str, Start]:
    """By name, what starts a run there; each of another agent than the last."""

    async def cli(number: int) -> None:
        request, config_dir = RunRequest(target=name(number), prompt="hi"), str(root.config_dir)
        flags = RunFlags(no_input=True, output="text", quiet=True, verbose=False, config_dir=config_dir)
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            result = for_format("text", nowhere)
            async with open_frame(ProgressDisplay(), config_dir=config_dir, person=False) as own:
                outcome = await _drive(request, flags, ProgressDisplay(), result, False, None, own)
        assert isinstance(outcome, callboard.Outcome), outcome
        assert outcome.status == "done", outcome

    async def post(path: str, body: Any) -> None:
        response = await client.post(path, json=body)
        assert response.status_code in (200, 201), response.text

    async def batch(number: int) -> None:
        target = BatchTarget(RunRequest(target=name(number)), root)
        task = BatchTask(id=str(number), prompt="hi")
        await target.check(Path("tasks.csv"), [task])
        await target.perform(task)

    def agui(number: int) -> Awaitable[None]:
        said = [{"id": "1", "role": "user", "content": "hi"}]
        body = {"threadId": "t", "runId": str(number), "state": {}, "messages": said, "tools": [], "context": []}
        return post(f"/agui?target=graph/{name(number)}", {**body, "forwardedProps": {}})

    async def acp(number: int) -> None:
        place = {"cwd": str(root.config_dir), "mcpServers": [], "_meta": {"callboard": {"agent": name(number)}}}
        session = (await websocket.call("session/new", **place))["sessionId"]
        said = [{"type": "text", "text": "hi"}]
        reply = await websocket.call("session/prompt", sessionId=session, prompt=said)
        assert reply["stopReason"] == "end_turn", reply

    async def tool(number: int) -> None:
        reply = await mcp.call("tools/call", name=name(number), arguments={"prompt": "hi"})
        assert not reply.get("isError"), reply

    said = [{"role": "user", "content": "hi"}]
    return {
        "cli": cli,
        "python": lambda number: callboard.run(name(number), "hi", root=root),
        "batch": batch,
        "websocket": lambda number: websocket.call("_run/start", target=name(number), prompt="hi"),
        "acp": acp,
        "mcp server": tool,
        "http runs": lambda number: post("/v1/runs", {"target": name(number), "prompt": "hi"}),
        "sessions": lambda number: post("/v1/runs", {"target": name(number), "prompt": "hi", "session": "s"}),
        "openai chat": lambda number: post(
            "/v1/chat/completions", {"model": f"graph/{name(number)}", "messages": said}
        ),
        "ag-ui": agui,
    }


@asynccontextmanager
async def opened(base: Path) -> AsyncIterator[dict[str, Start]]:
    """The front ends, over a server on loopback."""
    for number in range(AGENTS):
        home = base / "agents" / f"agent{number}"
        home.mkdir(parents=True)
        (home / "graph.yaml").write_text(GRAPH.format(name=home.name))
        (home / "tools.sh").write_text(TOOLS)
    (base / "config.yaml").write_text("model: openai:none\napi: {audit: {file: /dev/null}}\n")
    listening: list[ListeningServer] = []
    async with (
        callboard.Root(config_dir=base, wait_for_front_end=True, keep_servers=True) as root,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(HttpServer(ServeOptions(port=0, read=True)).serve, root, listening.append)
        while not listening:
            await trio.sleep(0.01)
        url, token = listening[0].url, listening[0].page.partition("#token=")[2]
        headers = {"authorization": f"Bearer {token}"}
        async with AsyncExitStack() as stack:
            client = httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30)
            await stack.enter_async_context(client)
            bearer = [(b"Authorization", f"Bearer {token}".encode())]
            ws = await stack.enter_async_context(
                open_websocket_url(f"{url.replace('http', 'ws', 1)}/ws", extra_headers=bearer)
            )
            mcp = await stack.enter_async_context(mcp_server(root))
            websocket = Frames(ws.send_message, ws.get_message)
            await websocket.call("initialize", protocolVersion=1, clientCapabilities={})
            yield front_ends(root, client, websocket, mcp)
        nursery.cancel_scope.cancel()


async def main(starts: int, base: Path, *, where: bool, only_own: bool) -> bool:
    """Whether all stay within the budget."""
    good = True
    steps = Steps(where=where)
    async with opened(base) as each:
        gc.freeze()  # as `callboard serve` does
        trio.lowlevel.add_instrument(steps)
        heads = "".join(f"{head:>8}" for head in ("p50", "p99", "most", "own p99", "step", "first"))
        sys.stdout.write(f"{'front end':12}{heads}   ms late, own, in a step (and in the first start); {starts} each\n")
        idle: dict[str, Start] = {"(nothing)": lambda _: trio.sleep(0.005)}
        for title, start in {**idle, **each}.items():
            probe, first, others = await measured(start, starts, steps)
            lates, own = [at(share, probe.lates) for share in (0.5, 0.99, 1)], at(0.99, probe.own)
            good &= title in idle or (own if only_own else lates[1]) <= BUDGET
            sys.stdout.write(f"{title:12}{''.join(f'{each:8.2f}' for each in (*lates, own, others, first))}\n")
            sys.stdout.flush()
        trio.lowlevel.remove_instrument(steps)
    sys.stdout.write(f"budget: {'own p99' if only_own else 'p99'} {BUDGET:g} ms: {'kept' if good else 'MISSED'}\n")
    return good


if __name__ == "__main__":
    given = sys.argv[1:]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        os.environ["XDG_STATE_HOME"] = f"{made}/state"
        os.environ["XDG_CACHE_HOME"] = f"{made}/cache"
        count = int(next((each for each in given if each.isdigit()), STARTS))
        flags = {"where": "--where" in given, "only_own": "--own" in given}
        sys.exit(0 if trio.run(partial(main, count, Path(made) / "config", **flags)) else 1)
