"""Workers are killed, stopped and cut off, and their database is restarted: nothing is lost, nothing is done twice
that nobody was asked about. What the database tells is compared with what was done to the world (`cluster_history`).
"""

from __future__ import annotations

import random
import signal

import pytest
from support.cluster import SWEEPS, WAKES, ClusterProcesses, Process, all_over, answer_all, info, over, through, until
from support.cutting_proxy import Link
from support.postgres import Postgres

ROWS = 15
"""Rows of a run of `steps`, at least."""


def some(rows: list[int], number: int) -> list[object]:
    """So many of these in every run of the tests, the others among the long repetitions."""
    chosen = set(random.Random("cluster").sample(rows, number))
    return [row if row in chosen else pytest.param(row, marks=pytest.mark.soak) for row in rows]


def runs_ended(worker: Process) -> int:
    """Count the runs that a worker stopped because another worker had claimed them."""
    return worker.said.count("performance summary") + worker.said.count("continues on another one")


@pytest.mark.parametrize("row", some(list(range(1, ROWS + 1)), 0))
def test_killed_after_any_row_it_goes_on_with_another_worker_and_repeats_nothing(
    cluster_processes: ClusterProcesses, row: int
) -> None:
    cluster_processes.worker("one", order={"kill": row})
    http = cluster_processes.client(cluster_processes.gateway())
    run = cluster_processes.start(http, "steps")
    one = cluster_processes.processes[0]
    until(lambda: one.process.poll() is not None)
    cluster_processes.worker("two", *SWEEPS)
    cluster_processes.expire("one")
    all_over(http, [run])
    assert over(http, run)["status"] == "done"
    assert cluster_processes.wrongs() == []
    assert cluster_processes.sql("select life from callboard.runs") == [(2,)]


@pytest.mark.soak
def test_runs_of_a_dead_worker_are_taken_over_when_its_lease_is_over(cluster_processes: ClusterProcesses) -> None:
    one = cluster_processes.worker("one")
    http = cluster_processes.client(cluster_processes.gateway())
    runs = [cluster_processes.start(http, "asks") for _ in range(5)]
    until(lambda: len(http.get("/v1/questions").json()["questions"]) == 5)
    cluster_processes.worker("two", *SWEEPS, "--room", "50")
    one.process.kill()
    until(
        lambda: all(cluster_processes.owner(run) == "two" for run in runs)
    )  # the lease expires without help of the test
    all_over(http, runs)
    assert cluster_processes.wrongs(["one", "last"]) == []


def test_stopped_for_longer_than_its_lease_a_worker_does_nothing_more_when_it_wakes(
    cluster_processes: ClusterProcesses,
) -> None:
    one = cluster_processes.worker("one", *WAKES)
    http = cluster_processes.client(cluster_processes.gateway())
    runs = [cluster_processes.start(http, "steps") for _ in range(4)]
    until(
        lambda: cluster_processes.world.exists() and cluster_processes.world.read_text().count(" one\n") == len(runs)
    )  # it has begun all
    one.process.send_signal(signal.SIGSTOP)
    cluster_processes.worker("two", *SWEEPS)
    until(lambda: all(cluster_processes.owner(run) != "one" for run in runs))
    one.process.send_signal(signal.SIGCONT)
    until(lambda: runs_ended(one) >= len(runs))  # it knows that it lost its runs
    all_over(http, runs)
    cluster_processes.sql("update callboard.workers set draining = true where name = 'two'")
    more = [cluster_processes.start(http, "nothing") for _ in range(6)]  # and it takes part again
    all_over(http, more)
    assert cluster_processes.wrongs(runs=runs) == []
    assert one.process.poll() is None


def test_without_the_fence_the_history_shows_a_double_effect(cluster_processes: ClusterProcesses) -> None:
    one = cluster_processes.worker("one", order={"unfenced": True})
    http = cluster_processes.client(cluster_processes.gateway())
    run = cluster_processes.start(http, "steps")
    until(lambda: cluster_processes.world.exists())
    one.process.send_signal(signal.SIGSTOP)
    cluster_processes.worker("two", *SWEEPS)
    cluster_processes.expire("one")
    until(lambda: cluster_processes.owner(run) == "two")
    one.process.send_signal(signal.SIGCONT)
    all_over(http, [run])
    found = until(lambda: [each for each in cluster_processes.wrongs() if "times" in each], 60)
    assert "was done 2 times, and 1 were allowed" in found[0]


@pytest.mark.parametrize(
    "ways", [pytest.param("both", marks=pytest.mark.soak), "up", pytest.param("down", marks=pytest.mark.soak)]
)
def test_cut_off_from_the_database_a_worker_is_replaced_and_finds_that_out(
    own: tuple[Postgres, ClusterProcesses, Link], ways: str
) -> None:
    _, cluster_processes, link = own
    one = cluster_processes.worker("one", dsn=through(cluster_processes, link))
    http = cluster_processes.client(cluster_processes.gateway())
    runs = [cluster_processes.start(http, "steps") for _ in range(4)]
    until(lambda: cluster_processes.world.exists())
    link.up, link.down = ways == "down", ways == "up"
    cluster_processes.worker("two", *SWEEPS)
    until(lambda: cluster_processes.expire("one") or all(cluster_processes.owner(run) != "one" for run in runs))
    link.heal()
    until(lambda: runs_ended(one) >= len(runs))  # it knows that it lost its runs
    all_over(http, runs)
    assert cluster_processes.wrongs() == []


@pytest.mark.parametrize("how", [signal.SIGQUIT, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_runs_wait_while_the_database_is_away_and_go_on(
    own: tuple[Postgres, ClusterProcesses, Link], how: signal.Signals
) -> None:
    server, cluster_processes, _ = own
    for name in ("one", "two"):
        cluster_processes.worker(name)
    http = cluster_processes.client(cluster_processes.gateway())
    runs = [cluster_processes.start(http, target) for target in ("steps", "asks", "steps", "asks")]
    until(lambda: cluster_processes.world.exists())
    server.stop(how)
    server.start()
    cluster_processes.expire("one", "two")  # as after an absence longer than the leases
    all_over(http, runs)
    assert [each for each in cluster_processes.wrongs() if "was done 0" not in each] == []  # `asks` has fewer effects
    assert cluster_processes.sql("select value from callboard.counts where name = 'takeovers'") == []


def test_an_answer_given_while_its_worker_is_replaced_counts_once(cluster_processes: ClusterProcesses) -> None:
    one = cluster_processes.worker("one")
    http = cluster_processes.client(cluster_processes.gateway())
    runs = [cluster_processes.start(http, "asks") for _ in range(4)]
    until(lambda: len(http.get("/v1/questions").json()["questions"]) == 4)
    one.process.kill()
    assert answer_all(http) == 4
    assert answer_all(http) == 0
    cluster_processes.worker("two", *SWEEPS)
    cluster_processes.expire("one")
    all_over(http, runs)
    assert {over(http, run)["output"] for run in runs} == {"yes"}
    assert cluster_processes.wrongs(["one", "last"]) == []


@pytest.mark.soak
def test_a_worker_that_was_taken_for_dead_and_gets_its_runs_again_plays_each_once(
    cluster_processes: ClusterProcesses,
) -> None:
    cluster_processes.worker("one")
    http = cluster_processes.client(cluster_processes.gateway())
    runs = [cluster_processes.start(http, "asks") for _ in range(3)]
    until(lambda: len(http.get("/v1/questions").json()["questions"]) == 3)
    cluster_processes.sql("update callboard.runs set owner = null")  # as others do when its lease is over
    cluster_processes.sql("notify callboard, 'q'")
    until(
        lambda: (
            cluster_processes.sql("select count(*) from callboard.runs where life = 2 and owner is not null") == [(3,)]
        )
    )
    all_over(http, runs)
    assert {over(http, run)["output"] for run in runs} == {"yes"}
    assert cluster_processes.wrongs(["one", "last"]) == []


@pytest.mark.soak
def test_a_run_whose_last_rows_the_database_has_lost_goes_on_from_those_before(
    cluster_processes: ClusterProcesses,
) -> None:
    cluster_processes.worker("one")
    http = cluster_processes.client(cluster_processes.gateway())
    runs = [cluster_processes.start(http, "asks") for _ in range(3)]
    until(lambda: len(http.get("/v1/questions").json()["questions"]) == 3)
    cluster_processes.sql(  # as a crash does, of what nobody has waited for
        "with gone as (delete from callboard.rows r using (select run, max(seq) as seq from callboard.rows group by 1)"
        " as last where r.run = last.run and r.seq = last.seq returning r.run, r.seq)"
        " update callboard.runs r set rows = gone.seq - 1, crc = before.crc from gone join callboard.rows before"
        " on before.run = gone.run and before.seq + before.count = gone.seq where r.id = gone.run"
    )
    cluster_processes.sql("delete from callboard.questions")
    all_over(http, runs)
    assert {over(http, run)["output"] for run in runs} == {"yes"}
    assert cluster_processes.wrongs(["one", "last"]) == []
    more = cluster_processes.start(http, "steps")  # and the worker takes part
    assert over(http, more)["status"] == "done"


@pytest.mark.soak
def test_a_worker_whose_connections_were_cut_goes_on_with_what_it_takes(cluster_processes: ClusterProcesses) -> None:
    one = cluster_processes.worker("one", "--has", "one")
    cluster_processes.worker("two", "--has", "two")
    http = cluster_processes.client(cluster_processes.gateway())
    over(http, cluster_processes.start(http, "nothing", needs=["two"]))  # from now on it has a connection for its rows
    run = cluster_processes.start(http, "asks", needs=["one"])
    until(lambda: http.get("/v1/questions").json()["questions"])
    one.end()
    cluster_processes.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'callboard two%%'"
    )
    cluster_processes.sql("update callboard.runs set owner = null, needs = '{}' where run = %s", run)
    cluster_processes.sql("notify callboard, 'q'")
    all_over(http, [run])
    assert over(http, run)["output"] == "yes"


@pytest.mark.soak
def test_a_worker_that_can_keep_nothing_more_ends_and_leaves_its_runs_to_others(
    cluster_processes: ClusterProcesses,
) -> None:
    one = cluster_processes.worker("one", order={"break": 4})
    http = cluster_processes.client(cluster_processes.gateway())
    run = cluster_processes.start(http, "steps")
    assert one.process.wait(60) == 1
    assert "this worker shuts down, and leaves its runs to the other workers" in one.said
    cluster_processes.worker("two", *SWEEPS)
    cluster_processes.expire("one")
    all_over(http, [run])
    assert over(http, run)["status"] == "done"
    assert cluster_processes.wrongs() == []


@pytest.mark.soak
def test_a_gateway_sees_changes_whose_numbers_the_database_gives_again_after_a_crash(
    cluster_processes: ClusterProcesses,
) -> None:
    http = cluster_processes.client(cluster_processes.gateway())
    run, *_ = [cluster_processes.start(http, "nothing", needs=["nobody"]) for _ in range(30)]
    until(lambda: info(http, run)["status"] == "queued")
    seen = cluster_processes.start(http, "nothing", needs=["nobody"])  # the gateway has polled since the start
    until(lambda: info(http, seen)["status"] == "queued")
    cluster_processes.sql("select setval('callboard.changes', (select max(changed) - 20 from callboard.runs))")
    cluster_processes.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'callboard %%'"
        " and pid <> pg_backend_pid()"
    )
    cluster_processes.sql(
        "update callboard.runs set parked = true, changed = nextval('callboard.changes') where run = %s", run
    )
    until(lambda: info(http, run)["status"] == "interrupted")


def test_a_worker_that_dies_as_a_run_ends_leaves_its_outcome(cluster_processes: ClusterProcesses) -> None:
    one = cluster_processes.worker("one", order={"ends": True})
    http = cluster_processes.client(cluster_processes.gateway())
    run = cluster_processes.start(http, "nothing")
    until(lambda: one.process.poll() is not None)
    told = over(http, run)
    assert (told["status"], told["output"]) == ("done", f"nothing of {cluster_processes.runs[run]}")
    events = http.get(f"/v1/runs/{run}/events", params={"limit": 1000}).json()["events"]
    assert events[-1]["kind"] == "run.finished"
