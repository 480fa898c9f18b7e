"""What a cluster costs and does: three workers as processes, one PostgreSQL with fsync on the same machine.

    python benchmarks/cluster.py [--runs N] [--dbos PYTHON]

No-op runs a second through three workers; what the queue and the database add to one run at a time, beside the same
run in this process, durable in a file; steps a second of a chain of 100 nodes, beside DBOS with the same database
(`--dbos`: a Python that has it); how long after a `kill -9` another worker has the runs; what an idle worker holds.
Needs the programs of PostgreSQL. docs/benchmarks.md explains the rows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import msgspec
import psutil
import trio
from support.cluster import House, until
from support.postgres import Postgres, running

import callboard
from callboard.actors.front.cluster.bundle import pack
from callboard.protocol.control.resources import RunInfo
from callboard.protocol.requests import RunRequest
from callboard.supervisors.cluster import queries, queue
from callboard.supervisors.cluster.database import connected
from callboard.supervisors.journal.row import hash_of

WORKERS = 3
STEPS = 100
WORKFLOWS = 10

_NODES = "\n".join(f"    - {{id: n{number}, type: passthrough, config: {{}}}}" for number in range(STEPS))
_EDGES = "\n".join(f"    - {{from: n{number}, to: n{number + 1}}}" for number in range(STEPS - 1))
_HEAD = f"version: 0.4.0\ngraph:\n  id: chain\n  start: [n0]\n  end: [n{STEPS - 1}]"
CHAIN = f"{_HEAD}\n  nodes:\n{_NODES}\n  edges:\n{_EDGES}\n"


def main() -> int:
    """Prints the rows; 1 if a budget was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--dbos", default="")
    given = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as directory, running(fsync=True) as server:
        house = House(Path(directory), server.database(), program=[str(Path(sys.executable).with_name("callboard"))])
        chain = house.config / "agents" / "chain"
        chain.mkdir()
        (chain / "graph.yaml").write_text(CHAIN)
        try:
            workers = [house.worker(f"w{number}") for number in range(WORKERS)]
            time.sleep(3)
            held = [psutil.Process(each.process.pid).memory_full_info() for each in workers]
            idle = statistics.median(each.pss for each in held) / 1e6
            missed += row("an idle worker holds", idle, "MB Pss", "≤ 60", idle <= 60)
            with connected(house.dsn, "benchmark", 10.0) as db:
                submits = Submits(db, house)
                submits.play("nothing", 50)
                for_all = submits.play("nothing", given.runs)
                rate = given.runs / for_all
                missed += row(
                    f"{given.runs} no-op runs through {WORKERS} workers", rate, "runs/s", "≥ 100", rate >= 100
                )
                one = [1000 * submits.play("nothing", 1, look=0.0005) for _ in range(50)]
                local = trio.run(alone, house)
                added = statistics.median(one) - statistics.median(local)
                missed += row("one run at a time adds", added, "ms at p50", "≤ 20", added <= 20)
                steps = WORKERS * WORKFLOWS * STEPS / submits.play("chain/graph.yaml", WORKERS * WORKFLOWS)
                peer = dbos(given.dbos, server, WORKFLOWS)
                good = not peer or steps >= 5 * peer
                missed += row(f"steps of chains of {STEPS}", steps, "steps/s", "≥ 5 × DBOS", good)
                row("the same with DBOS, three processes", peer, "steps/s", "", True) if peer else None
            taken = take_over(house)
            missed += row("after kill -9 another has the runs in", taken, "s, lease 2", "≤ 3", taken <= 3)
        finally:
            house.end_all()
    return int(missed > 0)


class Submits:
    """Puts runs into the queue and waits for their end."""

    def __init__(self, db: Any, house: House) -> None:
        self._db = db
        self.agent_with_all_files = house
        self._number = 0

    def play(self, name: str, runs: int, look: float = 0.02) -> float:
        """Seconds for so many runs."""
        data, target = pack(self.agent_with_all_files.config / "agents" / name, self.agent_with_all_files.config)
        queries.put_blob(self._db, hash_of(data), data)
        begun = time.monotonic()
        mine = []
        with self._db.transaction():
            for _ in range(runs):
                self._number += 1
                run = f"run-bench{self._number}"
                mine.append(run)
                request = msgspec.json.encode(RunRequest(target=target, prompt=run, id=run))
                info = msgspec.json.encode(RunInfo(run=run, status="queued", owner="local"))
                wanted = queue.Wanted(run=run, request=request, info=info, bundle=hash_of(data))
                assert queue.submit(self._db, wanted)
        sql = "select count(*) from callboard.runs where state = 0"
        until(lambda: self._db.execute(sql).fetchone() == (0,), 600, look)
        return time.monotonic() - begun


async def alone(house: House) -> list[float]:
    """Milliseconds of the same run in one process, durable in a file."""
    os.environ["XDG_STATE_HOME"] = str(house.home / "alone")
    took = []
    async with callboard.Root(config_dir=house.config) as root:
        for number in range(50):
            begun = time.monotonic()
            await callboard.run("nothing", str(number), root=root, durable=True)
            took.append(1000 * (time.monotonic() - begun))
    return took


def dbos(python: str, server: Postgres, workflows: int) -> float:
    """Steps a second of as many processes of DBOS with the same server; 0 without one."""
    if not python:
        return 0.0
    name = server.database().partition("dbname=")[2].split()[0]
    url = f"postgresql+psycopg://me@/{name}?host={server.home}"
    program = str(Path(__file__).parent / "contenders" / "cluster_dbos.py")
    argv = [*python.split(), program, url, str(STEPS), str(workflows)]
    first = subprocess.run([*argv[:-1], "1"], capture_output=True, text=True, check=False)  # makes its tables
    assert first.returncode == 0, first.stderr[-2000:]
    begun = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(WORKERS)
    ]
    took = [float(each.communicate()[0].split()[-1]) for each in begun]
    return sum(STEPS * workflows / seconds for seconds in took)


def take_over(house: House) -> float:
    """Seconds from a kill until other workers have all its runs."""
    http = house.client(house.gateway())
    runs = [house.start(http, "asks") for _ in range(12)]
    until(lambda: len(http.get("/v1/questions").json()["questions"]) == len(runs))
    time.sleep(2.5)
    victim = house.processes[0]
    victim.process.kill()
    begun = time.monotonic()
    until(lambda: all(house.owner(run) not in ("", "w0") for run in runs))
    return time.monotonic() - begun


def row(what: str, value: float, unit: str, budget: str, good: bool) -> int:
    """Print a row; 1 if its budget was missed."""
    print(f"{what:45} {value:10.1f} {unit:12} {budget:8} {'' if good else 'MISSED'}", flush=True)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
