"""The database of a cluster gets full, and fails over to a replica, while runs are under way: they wait before their
next effect, and go on; nothing is lost or done twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest
from support.descendants import HELPERS, name_of

sys.path.insert(0, str(Path(__file__).parents[2] / "runs" / "durable"))

from playing import fill
from support.cluster import ClusterProcesses, Process, all_over, answer_all, over, until
from support.ports import reserved_port
from support.postgres import Postgres, find_programs, running

SIZE = "150m"
"""Of the disk that gets full: an empty server has 40 MB, and the next segments of its log."""

EFFECTS = ("first", "second", "third", "fourth")

HEAVY = """
name: heavy
start: first
nodes:
  first: {type: script, script: first.sh, next: second}
  second: {type: script, script: second.sh, next: third}
  third: {type: script, script: third.sh, next: fourth}
  fourth: {type: script, script: fourth.sh, next: end}
  end: {type: end, output: "all"}
"""

SCRIPT = """
if [ -n "$GRAPH_STATE_FILE" ]; then GRAPH_STATE=$(cat "$GRAPH_STATE_FILE"); fi
run=$(printf '%s' "$GRAPH_STATE" | jq -r .initial_prompt)
echo "$run {effect}" >> {world}
sleep 0.3
echo "{{\\"text\\": \\"$(head -c 60000 /dev/urandom | base64 -w0)\\"}}"
"""
"""An effect, and a row that needs room: it can't be made smaller."""


@contextmanager
def small_disk() -> Iterator[Path]:
    """A directory that is a disk of its own."""
    place = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    try:
        if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("a small disk can't be mounted here: that takes root")
        try:
            yield place
        finally:
            subprocess.run(["umount", "-l", str(place)], check=True)
    finally:
        place.rmdir()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[Postgres, ClusterProcesses]]:
    """A database on a small disk, and a cluster with a graph that needs room."""
    find_programs()
    with small_disk() as place:
        server = Postgres(place)
        server.start()
        cluster_processes = ClusterProcesses(tmp_path, server.database())
        directory = cluster_processes.config / "agents" / "heavy"
        directory.mkdir()
        (directory / "graph.yaml").write_text(HEAVY)
        for effect in EFFECTS:
            (directory / f"{effect}.sh").write_text(SCRIPT.format(effect=effect, world=cluster_processes.world))
        try:
            yield server, cluster_processes
        finally:
            cluster_processes.end_all()
            server.stop()


@pytest.mark.parametrize("what", ["tables", pytest.param("log", marks=pytest.mark.soak)])
def test_while_the_database_is_full_runs_wait_before_their_next_effect_and_then_go_on(
    full: tuple[Postgres, ClusterProcesses], what: str
) -> None:
    server, cluster_processes = full
    workers = {name: cluster_processes.worker(name) for name in ("one", "two")}
    http = cluster_processes.client(cluster_processes.gateway())
    runs = [cluster_processes.start(http, "heavy") for _ in range(4)]
    until(lambda: cluster_processes.world.exists())
    owners = {cluster_processes.owner(run) for run in runs} - {""}
    fill(server.home / "filler")
    if what == "log":  # its next segment has no room: the whole server ends, again and again
        with suppress(psycopg.Error):
            cluster_processes.sql("select pg_switch_wal()")
    for name in owners:
        workers[name].see("runs are paused before their next effect")
    until(lambda: not any(scripts(workers[name]) for name in owners))  # scripts that had started have ended
    done = cluster_processes.world.read_text()
    time.sleep(1.0)
    assert cluster_processes.world.read_text() == done
    assert len(done.splitlines()) < len(runs) * len(EFFECTS)
    (server.home / "filler").unlink()
    if what == "log" and not server.alive:
        server.start()
    all_over(http, runs)
    assert {over(http, run)["status"] for run in runs} == {"done"}
    assert cluster_processes.wrongs(EFFECTS) == []


def scripts(worker: Process) -> list[psutil.Process]:
    """Return the running script processes of a worker."""
    return [
        each
        for each in psutil.Process(worker.process.pid).children(recursive=True)
        if name_of(each) not in ("", "python", *HELPERS)
    ]


@contextmanager
def primary_and_replica() -> Iterator[tuple[Postgres, Postgres]]:
    """Two servers with ports, of which the second has all that the first has said to be kept."""
    with reserved_port() as first, reserved_port() as second, running(first) as primary:
        home = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
        try:
            replica = Postgres(home, second, primary=primary)
            replica.start()
            try:
                with psycopg.connect(primary.dsn("postgres"), autocommit=True) as db:
                    db.execute("alter system set synchronous_standby_names = '*'")
                    db.execute("select pg_reload_conf()")
                    state = "select sync_state from pg_stat_replication"
                    until(lambda: db.execute(state).fetchone() == ("sync",))
                yield primary, replica
            finally:
                replica.stop()
        finally:
            shutil.rmtree(home, ignore_errors=True)


@pytest.mark.parametrize("moment", [0.9, *(pytest.param(at, marks=pytest.mark.soak) for at in (0.0, 0.4, 1.5))])
def test_when_the_database_fails_over_to_its_replica_runs_go_on_there(tmp_path: Path, moment: float) -> None:
    with primary_and_replica() as (primary, replica):
        database = primary.database().partition("dbname=")[2].split()[0]
        both = f"host=127.0.0.1,127.0.0.1 port={primary.port},{replica.port} target_session_attrs=read-write"
        cluster_processes = ClusterProcesses(tmp_path, f"{both} user=me dbname={database}")
        try:
            for name in ("one", "two"):
                cluster_processes.worker(name)
            http = cluster_processes.client(cluster_processes.gateway())
            runs = [cluster_processes.start(http, target) for target in ("steps", "asks", "steps", "asks")]
            until(lambda: cluster_processes.world.exists())
            answers_until(http, time.monotonic() + moment)
            primary.crash()
            with psycopg.connect(replica.dsn("postgres"), autocommit=True) as db:
                db.execute("select pg_promote()")
            cluster_processes.expire("one", "two")  # as after an absence longer than the leases
            all_over(http, runs)
            assert [
                each for each in cluster_processes.wrongs() if "was done 0" not in each
            ] == []  # `asks` has fewer effects
            more = cluster_processes.start(http, "steps")
            assert over(http, more)["status"] == "done"
        finally:
            cluster_processes.end_all()


def answers_until(http: httpx.Client, moment: float) -> None:
    while time.monotonic() < moment:
        answer_all(http)
        time.sleep(0.05)
