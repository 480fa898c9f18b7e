"""Servers that are killed and begun anew over the same directories, and what is asked of them over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import trio

from callboard.supervisors.journal.reading import stored_runs
from callboard.supervisors.journal.row import State
from support.fake_models import FakeModels
from support.serve_process import Serving
from support.waiting import PATIENCE

SOON = PATIENCE

ASKS = """
name: asks
start: first
initial_state: {}
nodes:
  first: {type: script, script: first.sh, next: who}
  who: {type: input, question: "Your name?", state_updates: {who: "{{input}}"}, next: think}
  think: {type: llm, prompt: "THINK {{who}}", state_updates: {thought: "{{output}}"}, next: done}
  done: {type: end, output: "{{who}}: {{thought}}"}
"""

THINKS = """
name: thinks
start: think
nodes:
  think: {type: llm, prompt: "FIRST {{initial_prompt}}", state_updates: {first: "{{output}}"}, next: again}
  again: {type: llm, prompt: "AGAIN {{first}}", state_updates: {again: "{{output}}"}, next: done}
  done: {type: end, output: "{{again}}"}
"""

CLERK = """
name: clerk
instructions: CLERK
"""


class KilledServers:
    """See the module.

    Args:
        home: of the servers.
        models: what their models are.
        settings: more keys of config.yaml.
    """

    def __init__(self, home: Path, models: FakeModels, settings: dict[str, Any] | None = None) -> None:
        self.home = home
        self.models = models
        config = models.config_dir(home / "config")
        file = config / "config.yaml"
        file.write_text(json.dumps({**json.loads(file.read_text()), **(settings or {})}))
        for name, file_name, text in (
            ("asks", "graph.yaml", ASKS),
            ("thinks", "graph.yaml", THINKS),
            ("clerk", "config.yaml", CLERK),
        ):
            (config / "agents" / name).mkdir(parents=True)
            (config / "agents" / name / file_name).write_text(text)
        (config / "agents" / "asks" / "first.sh").write_text(f"echo once >> {home}/world\necho '{{}}'\n")
        self.config = config
        self.serving: list[Serving] = []

    async def begin(self, *flags: str) -> Serving:
        """Another server, which listens."""
        serving = Serving(self.home, *flags)
        self.serving.append(serving)
        await trio.to_thread.run_sync(serving.see, "serving at ")
        return serving

    async def kill(self) -> None:
        """The last one, without a warning."""
        self.serving[-1].process.kill()
        await trio.to_thread.run_sync(self.serving[-1].end)

    def end_all(self) -> None:
        """Whatever still runs."""
        for serving in self.serving:
            if serving.process.poll() is None:
                serving.process.kill()
                serving.end()

    @property
    def server(self) -> dict[str, Any]:
        """What the server that runs has left for its user's programs."""
        pid = self.serving[-1].process.pid
        for file in (self.home / "state" / "callboard" / "servers").glob("*.json"):
            told: dict[str, Any] = json.loads(file.read_text())
            if told["pid"] == pid:
                return told
        raise AssertionError("no server has left its file")

    def client(self) -> httpx.AsyncClient:
        """Who asks the last server."""
        server = self.server
        return httpx.AsyncClient(
            base_url=server["url"],
            headers={"authorization": f"Bearer {server['token']}"},
            trust_env=False,
            verify=False,
            timeout=SOON,
        )

    @property
    def journal(self) -> Path:
        """Where journals are."""
        return self.home / "state" / "callboard" / "journal"

    def interrupted(self) -> list[str]:
        """Runs that may go on, as the disk tells."""
        return [kept.run for kept in stored_runs(self.journal, State.INTERRUPTED)]

    def rows_under_way(self) -> list[int]:
        """How many rows each run has on disk that goes on now."""
        return [kept.rows for kept in stored_runs(self.journal) if kept.state is State.PLAYED]

    async def rows_of(self, run: str, number: int) -> None:
        """Wait until so many rows of a run are on the disk."""

        def enough() -> bool:
            return any(kept.run == run and kept.rows >= number for kept in stored_runs(self.journal))

        with trio.fail_after(SOON):
            while not await trio.to_thread.run_sync(enough):
                await trio.sleep(0.02)

    async def logged(self, run: str) -> None:
        """Wait until the log of a run is on the disk: it is written a little behind the run."""
        log = self.home / "state" / "callboard" / "runs" / run / "events.jsonl"
        with trio.fail_after(SOON):
            while not log.exists() or b"run.started" not in log.read_bytes():
                await trio.sleep(0.02)

    @property
    def effects(self) -> int:
        """How often the script has run."""
        world = self.home / "world"
        return len(world.read_text().splitlines()) if world.exists() else 0


async def status_of(http: httpx.AsyncClient, run: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The run, once it is so."""
    with trio.fail_after(SOON):
        while True:
            info: dict[str, Any] = (await http.get(f"/v1/runs/{run}")).json()
            if wanted(info):
                return info
            await trio.sleep(0.02)


async def questions(http: httpx.AsyncClient, number: int) -> list[dict[str, Any]]:
    """The open ones, once there are so many."""
    with trio.fail_after(SOON):
        while True:
            found: list[dict[str, Any]] = (await http.get("/v1/questions")).json()["questions"]
            if len(found) == number:
                return found
            await trio.sleep(0.02)


async def events(http: httpx.AsyncClient, run: str) -> list[dict[str, Any]]:
    """All events of a run."""
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = (await http.get(f"/v1/runs/{run}/events", params={"after": after})).json()
        found += page["events"]
        if page["next"] == after:
            break
        after = page["next"]
    return found
