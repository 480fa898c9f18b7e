"""SIGTERM to `callboard serve` with runs in flight: those that end in time end, the others are cancelled, all are told.

None of them is durable; what becomes of those that are is looked at in `test_serve_resume`.
Fifty runs among the long repetitions, a tenth of them in every run of the tests.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from support.descendants import is_alive
from support.http_server import told
from support.serve_process import Serving
from support.waiting import PATIENCE
from trio_websocket import ConnectionClosed, open_websocket_url

from callboard.actors.front.control.logs.run_logs import list_logged_runs

SOON = PATIENCE
AGENT = """
name: {name}
start: work
nodes:
  work: {{type: script, script: work.sh, timeout: 600, next: done}}
  done: {{type: end, output: "{name} is done"}}
"""
NUMBERS = [pytest.param(5, id="a tenth of fifty"), pytest.param(50, id="fifty", marks=pytest.mark.soak)]


class Flight:
    """A server with as many runs as wanted, every second of which ends when the file `go` is there."""

    def __init__(self, home: Path, grace: float) -> None:
        self.home = home
        self.go = home / "go"
        (home / "config").mkdir()
        settings = {"api": {"shutdown_grace_seconds": grace}, "durable": {"by_default": False}}
        (home / "config" / "config.yaml").write_text(json.dumps(settings))
        self.agent("quick", f"until [ -e {self.go} ]; do sleep 0.1; done; echo {{}}")
        self.agent("stuck", f"echo $$ >> {home}/pids; trap '' TERM; sleep 600 & echo $! >> {home}/pids; wait; wait")
        self.serving = Serving(home)
        self.url = self.serving.see("serving at ").split()[-1]
        (file,) = (home / "state" / "callboard" / "servers").glob("*.json")
        self.bearer = f"Bearer {json.loads(file.read_text())['token']}"
        self.heard: dict[str, list[Any]] = {"sse": [], "websocket": [], "http": []}
        self.runs: dict[str, str] = {}

    def agent(self, name: str, script: str) -> None:
        folder = self.home / "config" / "agents" / name
        folder.mkdir(parents=True)
        (folder / "graph.yaml").write_text(AGENT.format(name=name))
        (folder / "work.sh").write_text(script + "\n")

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url, headers={"authorization": self.bearer}, trust_env=False, verify=False, timeout=SOON
        )

    async def start(self, http: httpx.AsyncClient, count: int) -> None:
        for number in range(count):
            target = "stuck" if number % 2 else "quick"
            reply = await http.post("/v1/runs", json={"target": target})
            self.runs[reply.json()["run"]] = target

    def of(self, target: str) -> list[str]:
        return [run for run, each in self.runs.items() if each == target]

    def pids(self) -> list[int]:
        """Of the processes of runs that are stuck."""
        file = self.home / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    async def wait_for_processes(self) -> None:
        with trio.fail_after(SOON):
            while len(self.pids()) < 2 * len(self.of("stuck")):
                await trio.sleep(0.02)

    # --- three who wait for a run -----------------------------------------------------------------------------

    async def by_stream(self, http: httpx.AsyncClient, run: str, task_status: trio.TaskStatus[None]) -> None:
        headers = {"accept": "text/event-stream"}
        async with http.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
            task_status.started()
            async for _, name, _ in told(response):
                self.heard["sse"].append(name)

    async def by_websocket(self, run: str, task_status: trio.TaskStatus[None]) -> None:
        headers = [(b"authorization", self.bearer.encode())]
        async with open_websocket_url(self.url.replace("http", "ws") + "/ws", extra_headers=headers) as socket:
            ask = {"jsonrpc": "2.0", "id": 1, "method": "_run/subscribe", "params": {"run": run}}
            await socket.send_message(json.dumps(ask))
            assert "result" in json.loads(await socket.get_message())
            task_status.started()
            try:
                while True:
                    frame = json.loads(await socket.get_message())
                    if frame.get("method") == "_run/event":
                        self.heard["websocket"].append(frame["params"]["event"]["kind"])
            except ConnectionClosed as closed:
                self.heard["websocket"].append(closed.reason.code)

    async def by_reply(self, http: httpx.AsyncClient, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        reply = await http.post("/v1/completions", json={"prompt": "go", "agent": "stuck"})
        self.heard["http"] += [reply.status_code, reply.json()["error"]["code"]]

    # --- after the end ----------------------------------------------------------------------------------------

    def check_records(self) -> dict[str, set[str]]:
        """Every run's record is whole; the statuses by target."""
        statuses: dict[str, set[str]] = {"quick": set(), "stuck": set()}
        found = list_logged_runs(self.home / "state" / "callboard" / "runs")
        assert {info.run for info in found} >= set(self.runs)
        for info in found:
            lines = (self.home / "state" / "callboard" / "runs" / info.run / "events.jsonl").read_bytes().splitlines()
            events = [json.loads(line) for line in lines]
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            assert [event["kind"] for event in events if event["kind"] in ENDS] == [events[-1]["kind"]]
            statuses[info.target].add(info.status)
            if info.status == "done":
                assert info.output == f"{info.target} is done"
                assert events[-1]["data"]["outcome"]["output"] == info.output
        return statuses

    def nothing_lives(self) -> bool:
        return not [pid for pid in self.pids() if is_alive(pid)]


ENDS = ("run.finished", "run.failed", "run.cancelled")


@pytest.fixture
def flights(tmp_path: Path) -> Iterator[list[Flight]]:
    """What is put in here is killed at the end."""
    flights: list[Flight] = []
    yield flights
    for flight in flights:
        flight.serving.process.kill()
        flight.serving.process.wait()
        assert flight.serving.process.stderr is not None
        flight.serving.process.stderr.close()


@pytest.mark.parametrize("count", NUMBERS)
async def test_sigterm_with_runs_in_flight_drains_then_cancels_and_loses_nothing(
    tmp_path: Path, flights: list[Flight], count: int
) -> None:
    flight = Flight(tmp_path, grace=max(15.0, count / 10))
    flights.append(flight)
    async with flight.client() as http, trio.open_nursery() as nursery:
        await flight.start(http, count)
        await flight.wait_for_processes()
        (stuck, *_), (quick, *_) = flight.of("stuck"), flight.of("quick")
        await nursery.start(flight.by_stream, http, stuck)
        await nursery.start(flight.by_websocket, quick)
        await nursery.start(flight.by_reply, http)
        with trio.fail_after(SOON):
            while len(flight.pids()) < 2 * len(flight.of("stuck")) + 2:
                await trio.sleep(0.02)
        flight.serving.process.send_signal(signal.SIGTERM)
        await trio.to_thread.run_sync(flight.serving.see, f"{count + 1} runs under way")
        flight.go.touch()
    assert await trio.to_thread.run_sync(flight.serving.end) == 143
    assert flight.check_records() == {"quick": {"done"}, "stuck": {"cancelled"}}
    assert flight.heard["sse"][-1] == "run.cancelled"
    assert flight.heard["websocket"][-2:] == ["run.finished", 1001]
    assert flight.heard["http"] == [499, "cancelled"]
    assert flight.nothing_lives()
    assert not list((tmp_path / "state" / "callboard" / "servers").iterdir())
    assert "Traceback" not in "".join(flight.serving.said)


async def test_a_second_sigterm_does_not_wait_and_still_loses_nothing(tmp_path: Path, flights: list[Flight]) -> None:
    flight = Flight(tmp_path, grace=600)
    flights.append(flight)
    async with flight.client() as http:
        await flight.start(http, 4)
        await flight.wait_for_processes()
    flight.serving.process.send_signal(signal.SIGTERM)
    await trio.to_thread.run_sync(flight.serving.see, "4 runs under way")
    flight.serving.process.send_signal(signal.SIGTERM)
    assert await trio.to_thread.run_sync(flight.serving.end) == 143
    assert flight.check_records() == {"quick": {"cancelled"}, "stuck": {"cancelled"}}
    assert flight.nothing_lives()
