"""Workers and gateways of one cluster as processes of their own, each with a home of its own, and who asks them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import httpx
import trio

from callboard.actors.front.cluster.worker import MOST_DEATHS
from callboard.supervisors.cluster import queue
from callboard.supervisors.cluster.database import connected
from support import cluster_history, secret_watch
from support.cutting_proxy import Link
from support.starter import CALLBOARD, forked
from support.waiting import PATIENCE

T = TypeVar("T")

SOON = PATIENCE
LEASE = 30.0
"""Seconds: so long that no worker of a busy machine is late. Tests end the leases of dead workers; see `expire`."""

WAKES = ("--lease", "6")
"""Flags of a worker that is stopped and woken by the test: a lease of six seconds, which expires without `expire`.

The worker itself has to know that its lease is over. A busy machine must not delay its renewals for six seconds.
"""

SWEEPS = ("--lease", "2")
"""Flags of a worker that looks for runs of dead workers soon after it has begun. Only one per cluster: a busy
machine can make it late, and another such worker would take its runs."""

EFFECTS = ("one", "two", "left", "right", "last")

STEPS = """
name: steps
start: one
nodes:
  one: {type: script, script: one.sh, next: two}
  two: {type: script, script: two.sh, next: [left, right]}
  left: {type: script, script: left.sh, state_updates: {}, next: meet}
  right: {type: script, script: right.sh, state_updates: {}, next: meet}
  meet: {type: script, script: rest.sh, next: last}
  last: {type: script, script: last.sh, next: end}
  end: {type: end, output: "all of {{initial_prompt}}"}
"""

ASKS = """
name: asks
start: one
nodes:
  one: {type: script, script: one.sh, next: ask}
  ask: {type: approval, question: "Go on?", options: ["yes", "no"], routes: {"yes": last, "no": no}, on_other: no}
  last: {type: script, script: last.sh, next: end}
  no: {type: end, output: "no"}
  end: {type: end, output: "yes"}
"""

WAITS = """
name: waits
start: ask
nodes:
  ask: {type: input, question: "Who?", state_updates: {who: "{{input}}"}, next: end}
  end: {type: end, output: "said {{who}}"}
"""

NOTHING = """
name: nothing
start: end
nodes:
  end: {type: end, output: "nothing of {{initial_prompt}}"}
"""

THINKS = """
name: thinks
start: think
nodes:
  think: {type: llm, prompt: "THINK {{initial_prompt}}", state_updates: {thought: "{{output}}"}, next: end}
  end: {type: end, output: "{{thought}}"}
"""


class Process:
    """A worker or a gateway."""

    def __init__(self, argv: list[str], home: Path, environ: dict[str, str]) -> None:
        self.home = home
        self.state = Path(environ["XDG_STATE_HOME"])
        home.mkdir(parents=True, exist_ok=True)
        self.log = home / f"log{time.monotonic_ns()}"
        with self.log.open("w") as written:
            self.process = subprocess.Popen(argv, stderr=written, stdout=written, env=environ)

    def see(self, text: str) -> None:
        """Wait until it has said this."""
        begun = time.monotonic()
        while text not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() - begun < SOON, self.said
            time.sleep(0.02)

    @property
    def said(self) -> str:
        """What it has said so far."""
        return self.log.read_text()

    def end(self, how: signal.Signals = signal.SIGKILL) -> int:
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(how)
        code = self.process.wait(SOON)
        for line in self.said.splitlines():
            secret_watch.told("callboard worker", line)
        return code


class ClusterProcesses:
    """See the module.

    Args:
        home: of all of it. dsn: of the database.
        config: directory with config.yaml for all; agents are those of gateways.
        program: what stands for `callboard`.
        disk: directory of state that all workers share; without it, each has its own.
    """

    def __init__(
        self,
        home: Path,
        dsn: str,
        config: Path | None = None,
        program: Sequence[str] = CALLBOARD,
        disk: Path | None = None,
    ) -> None:
        self.home = home
        self.program = program
        self.disk = disk
        self.dsn = dsn
        self.world = home / "world"
        self.config = config or home / "config"
        self.processes: list[Process] = []
        self.clients: list[httpx.Client] = []
        self.runs: dict[str, str] = {}
        self._tags = count(1)
        for name, text in (
            ("steps", STEPS),
            ("asks", ASKS),
            ("nothing", NOTHING),
            ("waits", WAITS),
            ("thinks", THINKS),
        ):
            directory = self.config / "agents" / name
            directory.mkdir(parents=True)
            (directory / "graph.yaml").write_text(text)
            for effect in re.findall(r"script: (\w+)\.sh", text):
                does = ":" if effect == "rest" else f'echo "$run {effect}" >> {self.world}'
                (directory / f"{effect}.sh").write_text(_SCRIPT.format(effect=does, pause=0.1))

    def worker(
        self,
        name: str,
        *flags: str,
        dsn: str | None = None,
        order: dict[str, Any] | None = None,
        within: Sequence[str] = (),
    ) -> Process:
        """A worker that is known to the cluster.

        Args:
            order: see tests/actors/front/cluster/working.py; without it, it is `callboard worker`.
            within: words before the command, which are a program that executes it.
        """
        config = self.home / name / "config"
        config.mkdir(parents=True, exist_ok=True)
        for shared in ("config.yaml", "mcp.json"):
            if (self.config / shared).exists():
                (config / shared).write_text((self.config / shared).read_text())
        words = ["worker", "--name", name, "--lease", str(LEASE), "--config-dir", str(config), *flags]
        argv = [*within, *([sys.executable, "-m", "callboard.cli"] if within else self.program), *words]
        if order is not None:
            program = Path(__file__).parents[1] / "actors" / "front" / "cluster" / "working.py"
            argv = [*forked(program), json.dumps({**order, "words": words})]
        return self._begin(argv, name, dsn)

    def gateway(self, name: str = "gateway", *flags: str, dsn: str | None = None) -> Process:
        """A gateway that listens."""
        argv = [*self.program, "serve", "--port", "0", "--config-dir", str(self.config), *flags]
        return self._begin(argv, name, dsn)

    def _begin(self, argv: list[str], name: str, dsn: str | None = None) -> Process:
        home = self.home / name
        temporary = home / "tmp"  # a killed process cannot remove its temporary files
        temporary.mkdir(parents=True, exist_ok=True)
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "XDG_STATE_HOME": str(self.disk or home / "state"),
            "CALLBOARD_SANDBOX": "off",  # effects are counted outside of the workspace
            "CALLBOARD_CLUSTER": dsn or self.dsn,
        }
        process = Process(argv, home, environ)
        self.processes.append(process)
        process.see("serving at ")
        return process

    def end_all(self) -> None:
        """Whatever still runs."""
        for client in self.clients:
            client.close()
        for each in self.processes:
            each.end()

    def client(self, process: Process) -> httpx.Client:
        """Who asks this gateway, or worker."""
        for file in (process.state / "callboard" / "servers").glob("*.json"):
            told = json.loads(file.read_text())
            if told["pid"] == process.process.pid:
                return self.client_at(told["url"], told["token"])
        raise AssertionError("no server has left its file")

    def client_at(self, url: str, token: str) -> httpx.Client:
        """Who asks there with a token, or a key."""
        headers = {"authorization": f"Bearer {token}"}
        self.clients.append(httpx.Client(base_url=url, headers=headers, trust_env=False, verify=False, timeout=SOON))
        return self.clients[-1]

    def start(self, http: httpx.Client, target: str, **more: Any) -> str:
        """Start a run; its prompt is a word of its own, by which its effects name it."""
        tag = f"tag{next(self._tags)}"
        answer = http.post("/v1/runs", json={"target": target, "prompt": tag, **more})
        assert answer.status_code == 201, answer.text
        run = str(answer.json()["run"])
        self.runs[run] = tag
        return run

    def wrongs(self, effects: Collection[str] = EFFECTS, runs: Iterable[str] | None = None) -> list[str]:
        """What is wrong with these runs, or with all that were started; see `cluster_history`."""
        tags = {run: self.runs[run] for run in (self.runs if runs is None else runs)}
        return cluster_history.wrongs(
            self.dsn, self.world, dict.fromkeys(tags, effects), tags, others=self.runs.values()
        )

    def expire(self, *names: str) -> None:
        """End the leases of these workers, which are dead or stopped; one that `SWEEPS` takes their runs over."""
        self.sql(
            "update callboard.workers set lease = clock_timestamp() - interval '1 second' where name = any(%s)",
            list(names),
        )

    def bury(self, *names: str) -> None:
        """End the leases of these workers, and put their runs back into the queue as another live worker does."""
        self.expire(*names)
        ((sweeper,), *_) = self.sql("select sign from callboard.workers where lease > clock_timestamp()")
        with connected(self.dsn, "sweeper", LEASE) as db:
            queue.sweep(db, sweeper, MOST_DEATHS, LEASE)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Ask the database."""
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True, client_encoding="UTF8") as db:
            cursor = db.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def owner(self, run: str) -> str:
        """The name of the worker that has a run, or ""."""
        found = self.sql(
            "select w.name from callboard.runs r join callboard.workers w on w.sign = r.owner where r.run = %s", run
        )
        return found[0][0] if found else ""


def through(cluster_processes: ClusterProcesses, link: Link) -> str:
    """The DSN of the database by way of the link."""
    database = cluster_processes.dsn.partition("dbname=")[2].split()[0]
    return f"host=127.0.0.1 port={link.port} user=me dbname={database}"


Standing = tuple[ClusterProcesses, httpx.Client]
"""A cluster that stands, and who asks its gateway."""

_SCRIPT = """
run=$(printf '%s' "$GRAPH_STATE" | jq -r .initial_prompt)
{effect}
sleep {pause}
echo '{{}}'
"""


async def beside(cluster_processes: ClusterProcesses, does: Callable[[], T]) -> T:
    """What a thread finds while servers of the test's own answer here; it ends the processes of the cluster."""

    def whole() -> T:
        try:
            return does()
        finally:
            cluster_processes.end_all()

    return await trio.to_thread.run_sync(whole)


def until(what: Callable[[], Any], within: float = SOON, look_every: float = 0.03) -> Any:
    """What is true at last."""
    begun = time.monotonic()
    while not (found := what()):
        assert time.monotonic() - begun < within, "it did not happen"
        time.sleep(look_every)
    return found


def info(http: httpx.Client, run: str) -> dict[str, Any]:
    """How a run stands."""
    found: dict[str, Any] = http.get(f"/v1/runs/{run}").json()
    return found


def over(http: httpx.Client, run: str) -> dict[str, Any]:
    """How it stands when it is over."""
    found: dict[str, Any] = until(lambda: (found := info(http, run))["ended"] and found)
    return found


def answer_all(http: httpx.Client, value: str = "yes") -> int:
    """Answer what is asked: `again` to what was under way, else the value; how many counted."""
    counted = 0
    for each in http.get("/v1/questions").json()["questions"]:
        said = "again" if "was running when" in each["text"] else value
        counted += http.post(f"/v1/questions/{each['id']}/answer", json={"value": said}).status_code == 200
    return counted


def all_over(http: httpx.Client, runs: Iterable[str], within: float = SOON) -> None:
    """Answer what is asked until all these runs are over."""
    left = set(runs)

    def done() -> bool:
        answer_all(http)
        found = http.get("/v1/runs", params={"limit": 1000}).json()["runs"]
        for each in found:
            if each["status"] == "interrupted":  # three workers died before it got on: a person has it go on
                http.post(f"/v1/runs/{each['run']}/resume")
        left.difference_update(each["run"] for each in found if each["ended"])
        return not left

    try:
        until(done, within)
    except AssertionError:
        raise AssertionError(f"these are not over: {[info(http, run) for run in left]}") from None
