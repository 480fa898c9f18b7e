"""Workers of two versions on one database, and a database of the version before."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.cluster import SWEEPS, ClusterProcesses, all_over, over, until
from support.postgres import Postgres

import callboard
from callboard.supervisors.cluster import tables

GOLDEN = Path(__file__).parent / "golden"
"""Databases as `pg_dump` has written them: one per version of the tables, each with runs that were under way."""

NEXT = "alter table callboard.runs add column colour text; create table callboard.colours(name text primary key)"


BEFORE = "3f7ef6a5"
"""The last commit whose tables are of the version before this one's."""


@pytest.fixture
def before(tmp_path: Path) -> list[str]:
    """The program of that version."""
    there = tmp_path / "before" / "callboard"
    there.mkdir(parents=True)
    packed = subprocess.run(
        ["git", "archive", BEFORE], cwd=Path(callboard.__file__).parent, capture_output=True, check=False
    )
    if packed.returncode:
        pytest.skip(f"needs a clone with the commit {BEFORE}: {packed.stderr.decode()}")
    subprocess.run(["tar", "-x"], cwd=there, input=packed.stdout, check=True)
    return [
        sys.executable,
        "-c",
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from callboard.cli.start import main; main()",
        str(there.parent),
    ]


def test_workers_and_gateways_of_the_version_before_are_replaced_by_this_one_and_back(
    cluster_processes: ClusterProcesses, before: list[str]
) -> None:
    this = cluster_processes.program
    cluster_processes.program = before
    old = cluster_processes.worker("old")
    old_http = cluster_processes.client(cluster_processes.gateway("old gateway"))
    runs = [cluster_processes.start(old_http, "asks") for _ in range(3)]
    until(lambda: len(old_http.get("/v1/questions").json()["questions"]) == 3)
    assert cluster_processes.sql("select value from callboard.about where key = 'schema'") == [("1",)]
    cluster_processes.program = this
    new = cluster_processes.worker("new")
    http = cluster_processes.client(cluster_processes.gateway())
    assert cluster_processes.sql("select value from callboard.about where key = 'schema'") == [(str(tables.VERSION),)]
    old.end(signal.SIGTERM)
    until(lambda: all(cluster_processes.owner(run) == "new" for run in runs))
    runs.append(cluster_processes.start(old_http, "steps"))
    all_over(http, runs)
    runs.append(cluster_processes.start(http, "asks"))
    until(lambda: http.get("/v1/questions").json()["questions"])
    cluster_processes.program = before
    cluster_processes.worker("back", *SWEEPS)
    new.end()
    cluster_processes.expire("new")
    all_over(old_http, runs)
    assert {over(old_http, run)["status"] for run in runs} == {"done"}
    assert [each for each in cluster_processes.wrongs() if "was done 0" not in each] == []  # `asks` has fewer effects


@pytest.mark.soak
def test_workers_are_replaced_by_those_of_the_next_version_and_back_while_runs_go_on(
    cluster_processes: ClusterProcesses,
) -> None:
    old = cluster_processes.worker("old")
    http = cluster_processes.client(cluster_processes.gateway())
    runs = [cluster_processes.start(http, "asks") for _ in range(3)]
    until(lambda: len(http.get("/v1/questions").json()["questions"]) == 3)
    newer = cluster_processes.worker("newer", *SWEEPS, order={"step": NEXT})
    assert cluster_processes.sql("select value from callboard.about where key = 'schema'") == [
        (str(tables.VERSION + 1),)
    ]
    old.end()
    cluster_processes.expire("old")
    until(lambda: all(cluster_processes.owner(run) == "newer" for run in runs))
    runs.append(cluster_processes.start(http, "steps"))
    cluster_processes.worker("old again", *SWEEPS)
    newer.end()
    cluster_processes.expire("newer")
    all_over(http, runs)
    assert {over(http, run)["status"] for run in runs} == {"done"}
    assert [each for each in cluster_processes.wrongs() if "was done 0" not in each] == []  # `asks` has fewer effects


@pytest.mark.parametrize("dump", sorted(GOLDEN.glob("*.sql")), ids=lambda path: path.stem)
def test_runs_of_an_earlier_version_go_on(tmp_path: Path, postgres: Postgres, dump: Path) -> None:
    if shutil.which("psql") is None:
        pytest.skip("needs psql")
    dsn = postgres.database()
    argv = ["psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(dump), dsn]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cluster_processes = ClusterProcesses(tmp_path, dsn)
    try:
        cluster_processes.worker("one", *SWEEPS)
        http = cluster_processes.client(cluster_processes.gateway())
        found = [each["run"] for each in http.get("/v1/runs").json()["runs"]]
        assert len(found) == 3
        all_over(http, found)
        assert {over(http, run)["output"] for run in found} == {"nothing of tag1", "nothing of tag3", "said yes"}
    finally:
        cluster_processes.end_all()
