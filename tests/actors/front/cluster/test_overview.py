"""`callboard cluster`, and processes whose roles may do no more than they have to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.cluster import SWEEPS, ClusterProcesses, all_over, over, until
from support.messages import has_message
from support.postgres import Postgres
from support.starter import CALLBOARD

import callboard

ROLES = Path(callboard.__file__).parent / "docs" / "deploy" / "cluster-roles.sql"


def cluster(dsn: str, *flags: str) -> subprocess.CompletedProcess[str]:
    argv = [*CALLBOARD, "cluster", "--cluster", dsn, *flags]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=dict(os.environ))


@pytest.mark.skipif(shutil.which("psql") is None, reason="needs psql")
def test_workers_and_gateways_do_with_roles_that_can_t_change_the_tables(tmp_path: Path, postgres: Postgres) -> None:
    owner = postgres.database()
    before = cluster(owner)
    assert (before.returncode, before.stdout) == (3, "")
    assert "callboard cluster --migrate" in before.stderr
    empty = cluster(owner, "--migrate")
    assert empty.returncode == 0, empty.stderr
    assert "no workers; to start one: callboard worker" in empty.stdout
    for _ in range(2):  # it may be run again
        subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(ROLES), owner], check=True)
    of_worker, of_gateway = (f"{owner} user=callboard_{role}" for role in ("worker", "gateway"))
    cluster_processes = ClusterProcesses(tmp_path, owner)
    try:
        one = cluster_processes.worker("one", "--has", "gpu", dsn=of_worker)
        http = cluster_processes.client(cluster_processes.gateway(dsn=of_gateway))
        runs = [cluster_processes.start(http, "asks") for _ in range(3)]
        until(lambda: len(http.get("/v1/questions").json()["questions"]) == 3)
        cluster_processes.worker("two", *SWEEPS, dsn=of_worker)
        told = json.loads(cluster(of_gateway, "-o", "json").stdout)
        assert {each["name"]: (each["has"], each["runs"]) for each in told["workers"]} == {
            "one": (["gpu"], 3),
            "two": ([], 0),
        }
        assert told["tables"] == told["known"]
        one.end()
        cluster_processes.expire("one")
        until(lambda: all(cluster_processes.owner(run) == "two" for run in runs))
        all_over(http, runs)
        assert cluster_processes.wrongs(["one", "last"]) == []
        forked = http.post(f"/v1/runs/{runs[0]}/fork", json={"at": "last#1"})
        assert forked.status_code == 200, forked.text
        assert over(http, forked.json()["run"]["run"])["output"] == "yes"
        assert http.delete(f"/v1/runs/{runs[0]}").status_code in (200, 204)
        shown = cluster(of_worker).stdout
        assert "taken over 3 from silent workers" in shown
        for dsn, statement in (
            (of_gateway, "update callboard.rows set data = ''"),
            (of_gateway, "delete from callboard.rows"),
            (of_gateway, "update callboard.workers set lease = now()"),
            (of_worker, "delete from callboard.runs"),
            (of_worker, "drop table callboard.rows"),
        ):
            refused = subprocess.run(["psql", "-c", statement, dsn], capture_output=True, text=True, check=False)
            assert refused.returncode == 1, statement
            assert "permission denied" in refused.stderr or "must be owner" in refused.stderr
    finally:
        cluster_processes.end_all()


def test_a_database_that_is_not_there_is_told_with_the_exit_code_for_later() -> None:
    ended = cluster("host=127.0.0.1 port=1 dbname=callboard")
    assert (ended.returncode, ended.stdout) == (6, "")
    assert has_message(ended.stderr, "front.cluster.membership.overview.3")
