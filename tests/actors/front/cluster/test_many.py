"""Many runs at once, while workers are killed and replaced: none is lost, and each question is answered once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import httpx
import pytest
from support.cluster import ClusterProcesses, over, until


def some(number: int) -> list[object]:
    """A tenth of it in every run of the tests, all among the long repetitions."""
    return [number // 10, pytest.param(number, marks=pytest.mark.soak)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", some(1_000))
def test_parked_questions_are_answered_exactly_once_while_workers_are_replaced(
    cluster_processes: ClusterProcesses, number: int
) -> None:
    for name in ("one", "two", "three"):
        cluster_processes.worker(name, "--room", str(number))
    gateways = [cluster_processes.gateway(f"gateway{each}") for each in range(2)]
    clients = [cluster_processes.client(gateways[each % 2]) for each in range(10)]
    runs = [cluster_processes.start(clients[each % 10], "waits") for each in range(number)]
    until(
        lambda: cluster_processes.sql("select count(*) from callboard.questions where answer is null") == [(number,)],
        300,
    )
    until(lambda: len(clients[1].get("/v1/questions").json()["questions"]) == number)
    asked = [each["id"] for each in clients[0].get("/v1/questions").json()["questions"]]
    accepted: list[tuple[str, str]] = []

    def answers(http: httpx.Client, seed: int) -> None:
        order = random.Random(seed).sample(asked, len(asked))
        for question in order[: len(order) // 3 if seed else len(order)]:
            value = f"client{seed}"
            while True:
                answer = http.post(f"/v1/questions/{question}/answer", json={"value": value})
                if answer.status_code == 200:
                    accepted.append((question, value))
                if answer.status_code < 500:
                    break
                time.sleep(0.1)

    threads = [threading.Thread(target=answers, args=(http, seed)) for seed, http in enumerate(clients)]
    for each in threads:
        each.start()
    for name in ("one", "two", "three"):
        next(each for each in cluster_processes.processes if each.home.name == name).end()
        cluster_processes.bury(name)
        cluster_processes.worker(f"{name} again", "--room", str(number))
    for each in threads:
        each.join()
    assert Counter(question for question, _ in accepted) == Counter(asked)
    until(lambda: cluster_processes.sql("select count(*) from callboard.runs where state = 0") == [(0,)], 300)
    outputs = Counter(over(clients[0], run)["output"] for run in runs)
    assert outputs == Counter(f"said {value}" for _, value in accepted)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [300, pytest.param(10_000, marks=pytest.mark.soak)])
def test_of_many_runs_all_are_done_though_two_of_three_workers_are_killed(
    cluster_processes: ClusterProcesses, number: int
) -> None:
    (cluster_processes.config / "config.yaml").write_text("api: {keep_runs: 100000}\n")  # all are looked at afterwards
    for name in ("one", "two", "three"):
        cluster_processes.worker(name)
    http = cluster_processes.client(cluster_processes.gateway())

    def starts() -> None:
        for _ in range(number):
            cluster_processes.start(http, "nothing")

    starter = threading.Thread(target=starts)
    starter.start()
    for victim in (0, 1):
        least = number * (victim + 1) // 10
        until(
            lambda least=least: (
                cluster_processes.sql("select count(*) from callboard.runs where state = 1")[0][0] >= least
            ),
            300,
        )
        cluster_processes.processes[victim].end()
        cluster_processes.bury(cluster_processes.processes[victim].home.name)
    starter.join()
    until(lambda: cluster_processes.sql("select count(*) from callboard.runs where state = 0") == [(0,)], 600)
    assert cluster_processes.wrongs([]) == []
    statuses = cluster_processes.sql(
        "select convert_from(info, 'UTF8')::json->>'status', count(*) from callboard.runs group by 1"
    )
    assert statuses == [("done", number)]
