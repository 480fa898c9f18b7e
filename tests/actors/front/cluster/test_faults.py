"""Workers are killed, stopped and cut off, and their database is restarted: nothing is lost, nothing is done twice
that nobody was asked about. What the database tells is compared with what was done to the world (`cluster_history`).
"""

from __future__ import annotations

import random
import signal

import pytest
from support.cluster import SWEEPS, WAKES, House, Process, all_over, answer_all, info, over, through, until
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
def test_killed_after_any_row_it_goes_on_with_another_worker_and_repeats_nothing(house: House, row: int) -> None:
    house.worker("one", order={"kill": row})
    http = house.client(house.gateway())
    run = house.start(http, "steps")
    one = house.processes[0]
    until(lambda: one.process.poll() is not None)
    house.worker("two", *SWEEPS)
    house.expire("one")
    all_over(http, [run])
    assert over(http, run)["status"] == "done"
    assert house.wrongs() == []
    assert house.sql("select life from callboard.runs") == [(2,)]


@pytest.mark.soak
def test_runs_of_a_dead_worker_are_taken_over_when_its_lease_is_over(house: House) -> None:
    one = house.worker("one")
    http = house.client(house.gateway())
    runs = [house.start(http, "asks") for _ in range(5)]
    until(lambda: len(http.get("/v1/questions").json()["questions"]) == 5)
    house.worker("two", *SWEEPS, "--room", "50")
    one.process.kill()
    until(lambda: all(house.owner(run) == "two" for run in runs))  # the lease expires without help of the test
    all_over(http, runs)
    assert house.wrongs(["one", "last"]) == []


def test_stopped_for_longer_than_its_lease_a_worker_does_nothing_more_when_it_wakes(house: House) -> None:
    one = house.worker("one", *WAKES)
    http = house.client(house.gateway())
    runs = [house.start(http, "steps") for _ in range(4)]
    until(lambda: house.world.exists() and house.world.read_text().count(" one\n") == len(runs))  # it has begun all
    one.process.send_signal(signal.SIGSTOP)
    house.worker("two", *SWEEPS)
    until(lambda: all(house.owner(run) != "one" for run in runs))
    one.process.send_signal(signal.SIGCONT)
    until(lambda: runs_ended(one) >= len(runs))  # it knows that it lost its runs
    all_over(http, runs)
    house.sql("update callboard.workers set draining = true where name = 'two'")
    more = [house.start(http, "nothing") for _ in range(6)]  # and it takes part again
    all_over(http, more)
    assert house.wrongs(runs=runs) == []
    assert one.process.poll() is None


def test_without_the_fence_the_history_shows_a_double_effect(house: House) -> None:
    one = house.worker("one", order={"unfenced": True})
    http = house.client(house.gateway())
    run = house.start(http, "steps")
    until(lambda: house.world.exists())
    one.process.send_signal(signal.SIGSTOP)
    house.worker("two", *SWEEPS)
    house.expire("one")
    until(lambda: house.owner(run) == "two")
    one.process.send_signal(signal.SIGCONT)
    all_over(http, [run])
    found = until(lambda: [each for each in house.wrongs() if "times" in each], 60)
    assert "was done 2 times, and 1 were allowed" in found[0]


@pytest.mark.parametrize(
    "ways", [pytest.param("both", marks=pytest.mark.soak), "up", pytest.param("down", marks=pytest.mark.soak)]
)
def test_cut_off_from_the_database_a_worker_is_replaced_and_finds_that_out(
    own: tuple[Postgres, House, Link], ways: str
) -> None:
    _, house, link = own
    one = house.worker("one", dsn=through(house, link))
    http = house.client(house.gateway())
    runs = [house.start(http, "steps") for _ in range(4)]
    until(lambda: house.world.exists())
    link.up, link.down = ways == "down", ways == "up"
    house.worker("two", *SWEEPS)
    until(lambda: house.expire("one") or all(house.owner(run) != "one" for run in runs))
    link.heal()
    until(lambda: runs_ended(one) >= len(runs))  # it knows that it lost its runs
    all_over(http, runs)
    assert house.wrongs() == []


@pytest.mark.parametrize("how", [signal.SIGQUIT, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_runs_wait_while_the_database_is_away_and_go_on(own: tuple[Postgres, House, Link], how: signal.Signals) -> None:
    server, house, _ = own
    for name in ("one", "two"):
        house.worker(name)
    http = house.client(house.gateway())
    runs = [house.start(http, target) for target in ("steps", "asks", "steps", "asks")]
    until(lambda: house.world.exists())
    server.stop(how)
    server.start()
    house.expire("one", "two")  # as after an absence longer than the leases
    all_over(http, runs)
    assert [each for each in house.wrongs() if "was done 0" not in each] == []  # `asks` has fewer effects
    assert house.sql("select value from callboard.counts where name = 'takeovers'") == []


def test_an_answer_given_while_its_worker_is_replaced_counts_once(house: House) -> None:
    one = house.worker("one")
    http = house.client(house.gateway())
    runs = [house.start(http, "asks") for _ in range(4)]
    until(lambda: len(http.get("/v1/questions").json()["questions"]) == 4)
    one.process.kill()
    assert answer_all(http) == 4
    assert answer_all(http) == 0
    house.worker("two", *SWEEPS)
    house.expire("one")
    all_over(http, runs)
    assert {over(http, run)["output"] for run in runs} == {"yes"}
    assert house.wrongs(["one", "last"]) == []


@pytest.mark.soak
def test_a_worker_that_was_taken_for_dead_and_gets_its_runs_again_plays_each_once(house: House) -> None:
    house.worker("one")
    http = house.client(house.gateway())
    runs = [house.start(http, "asks") for _ in range(3)]
    until(lambda: len(http.get("/v1/questions").json()["questions"]) == 3)
    house.sql("update callboard.runs set owner = null")  # as others do when its lease is over
    house.sql("notify callboard, 'q'")
    until(lambda: house.sql("select count(*) from callboard.runs where life = 2 and owner is not null") == [(3,)])
    all_over(http, runs)
    assert {over(http, run)["output"] for run in runs} == {"yes"}
    assert house.wrongs(["one", "last"]) == []


@pytest.mark.soak
def test_a_run_whose_last_rows_the_database_has_lost_goes_on_from_those_before(house: House) -> None:
    house.worker("one")
    http = house.client(house.gateway())
    runs = [house.start(http, "asks") for _ in range(3)]
    until(lambda: len(http.get("/v1/questions").json()["questions"]) == 3)
    house.sql(  # as a crash does, of what nobody has waited for
        "with gone as (delete from callboard.rows r using (select run, max(seq) as seq from callboard.rows group by 1)"
        " as last where r.run = last.run and r.seq = last.seq returning r.run, r.seq)"
        " update callboard.runs r set rows = gone.seq - 1, crc = before.crc from gone join callboard.rows before"
        " on before.run = gone.run and before.seq + before.count = gone.seq where r.id = gone.run"
    )
    house.sql("delete from callboard.questions")
    all_over(http, runs)
    assert {over(http, run)["output"] for run in runs} == {"yes"}
    assert house.wrongs(["one", "last"]) == []
    more = house.start(http, "steps")  # and the worker takes part
    assert over(http, more)["status"] == "done"


@pytest.mark.soak
def test_a_worker_whose_connections_were_cut_goes_on_with_what_it_takes(house: House) -> None:
    one = house.worker("one", "--has", "one")
    house.worker("two", "--has", "two")
    http = house.client(house.gateway())
    over(http, house.start(http, "nothing", needs=["two"]))  # from now on it has a connection for its rows
    run = house.start(http, "asks", needs=["one"])
    until(lambda: http.get("/v1/questions").json()["questions"])
    one.end()
    house.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'callboard two%%'")
    house.sql("update callboard.runs set owner = null, needs = '{}' where run = %s", run)
    house.sql("notify callboard, 'q'")
    all_over(http, [run])
    assert over(http, run)["output"] == "yes"


@pytest.mark.soak
def test_a_worker_that_can_keep_nothing_more_ends_and_leaves_its_runs_to_others(house: House) -> None:
    one = house.worker("one", order={"break": 4})
    http = house.client(house.gateway())
    run = house.start(http, "steps")
    assert one.process.wait(60) == 1
    assert "this worker shuts down, and leaves its runs to the other workers" in one.said
    house.worker("two", *SWEEPS)
    house.expire("one")
    all_over(http, [run])
    assert over(http, run)["status"] == "done"
    assert house.wrongs() == []


@pytest.mark.soak
def test_a_gateway_sees_changes_whose_numbers_the_database_gives_again_after_a_crash(house: House) -> None:
    http = house.client(house.gateway())
    run, *_ = [house.start(http, "nothing", needs=["nobody"]) for _ in range(30)]
    until(lambda: info(http, run)["status"] == "queued")
    seen = house.start(http, "nothing", needs=["nobody"])  # the gateway has polled since the start
    until(lambda: info(http, seen)["status"] == "queued")
    house.sql("select setval('callboard.changes', (select max(changed) - 20 from callboard.runs))")
    house.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'callboard %%'"
        " and pid <> pg_backend_pid()"
    )
    house.sql("update callboard.runs set parked = true, changed = nextval('callboard.changes') where run = %s", run)
    until(lambda: info(http, run)["status"] == "interrupted")


def test_a_worker_that_dies_as_a_run_ends_leaves_its_outcome(house: House) -> None:
    one = house.worker("one", order={"ends": True})
    http = house.client(house.gateway())
    run = house.start(http, "nothing")
    until(lambda: one.process.poll() is not None)
    told = over(http, run)
    assert (told["status"], told["output"]) == ("done", f"nothing of {house.runs[run]}")
    events = http.get(f"/v1/runs/{run}/events", params={"limit": 1000}).json()["events"]
    assert events[-1]["kind"] == "run.finished"
