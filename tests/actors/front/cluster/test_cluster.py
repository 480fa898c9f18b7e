"""Workers and a gateway on one PostgreSQL, all of them real processes: what works on one machine works on many."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import trio
from support.cluster import ClusterProcesses, Standing, all_over, answer_all, info, over, until
from support.control_hub import Client
from support.fake_models import FakeModels, Reply
from support.postgres import Postgres
from trio_websocket import open_websocket_url


def test_a_run_of_a_gateway_is_played_by_a_worker_that_has_no_agents_of_its_own(standing: Standing) -> None:
    cluster_processes, http = standing
    run = cluster_processes.start(http, "steps")
    told = over(http, run)
    assert (told["status"], told["output"], told["name"]) == ("done", f"all of {cluster_processes.runs[run]}", "steps")
    assert cluster_processes.wrongs(runs=[run]) == []
    events = http.get(f"/v1/runs/{run}/events", params={"limit": 1000}).json()["events"]
    kinds = [event["kind"] for event in events]
    assert (kinds[0], kinds[-1]) == ("run.started", "run.finished")
    assert [event["seq"] for event in events] == sorted({event["seq"] for event in events})
    assert not (cluster_processes.home / "one" / "config" / "agents").exists()


def test_a_run_waits_in_the_queue_for_a_worker_that_has_what_it_needs(cluster_processes: ClusterProcesses) -> None:
    cluster_processes.worker("plain")
    http = cluster_processes.client(cluster_processes.gateway())
    run = cluster_processes.start(http, "nothing", needs=["gpu"])
    other = cluster_processes.start(http, "nothing")
    assert over(http, other)["status"] == "done"
    assert info(http, run)["status"] == "queued"
    cluster_processes.worker("gpu", "--has", "gpu,browser")
    assert over(http, run)["status"] == "done"


def test_a_question_of_any_worker_is_answered_at_any_gateway_once(cluster_processes: ClusterProcesses) -> None:
    cluster_processes.worker("one")
    first, second = (cluster_processes.client(cluster_processes.gateway(name)) for name in ("first", "second"))
    run = cluster_processes.start(first, "asks")
    (question,) = until(lambda: second.get("/v1/questions").json()["questions"])
    assert question["run"] == run
    assert until(lambda: info(second, run)["status"] == "waiting")
    answers = [
        http.post(f"/v1/questions/{question['id']}/answer", json={"value": value}).status_code
        for http, value in ((second, "yes"), (first, "no"))
    ]
    assert answers[0] == 200
    assert answers[1] in (404, 409)
    assert over(first, run)["output"] == "yes"
    assert cluster_processes.wrongs(["one", "last"]) == []


def test_a_run_is_cancelled_in_the_queue_and_at_its_worker(standing: Standing) -> None:
    cluster_processes, http = standing
    queued = cluster_processes.start(http, "steps", needs=["nobody"])
    assert http.post(f"/v1/runs/{queued}/cancel").status_code == 200
    assert over(http, queued)["status"] == "cancelled"
    run = cluster_processes.start(http, "asks")
    until(lambda: http.get("/v1/questions").json()["questions"])
    assert http.post(f"/v1/runs/{run}/cancel").status_code == 200
    assert over(http, run)["status"] == "cancelled"
    assert http.get("/v1/questions").json()["questions"] == []


def test_a_worker_that_is_told_to_end_hands_its_runs_to_the_others_at_once(cluster_processes: ClusterProcesses) -> None:
    one = cluster_processes.worker("one")
    http = cluster_processes.client(cluster_processes.gateway())
    runs = [cluster_processes.start(http, "asks") for _ in range(3)]
    until(lambda: len(http.get("/v1/questions").json()["questions"]) == 3)
    cluster_processes.worker("two")
    one.end(signal.SIGTERM)
    until(lambda: all(cluster_processes.owner(run) == "two" for run in runs))
    all_over(http, runs)
    assert cluster_processes.wrongs(["one", "last"]) == []
    assert cluster_processes.sql("select * from callboard.counts") == []  # nobody was taken for dead


def test_a_file_that_is_wrong_is_refused_by_the_gateway_and_reaches_no_worker(standing: Standing) -> None:
    cluster_processes, http = standing
    (cluster_processes.config / "agents" / "wrong").mkdir()
    (cluster_processes.config / "agents" / "wrong" / "graph.yaml").write_text("name: x\nnodes: {}\n")
    before = cluster_processes.sql("select count(*) from callboard.runs")
    answer = http.post("/v1/runs", json={"target": "wrong"})
    assert answer.status_code == 400
    assert "graph.yaml" in answer.json()["error"]["message"]
    assert cluster_processes.sql("select count(*) from callboard.runs") == before


def test_a_run_that_is_over_can_be_removed_and_one_under_way_not(standing: Standing) -> None:
    cluster_processes, http = standing
    run, other = cluster_processes.start(http, "nothing"), cluster_processes.start(http, "asks")
    over(http, run)
    assert http.delete(f"/v1/runs/{run}").status_code in (200, 204)
    assert http.get(f"/v1/runs/{run}").status_code == 404
    assert http.delete(f"/v1/runs/{other}").status_code == 409
    until(lambda: answer_all(http))
    over(http, other)


def test_the_actors_of_a_run_are_seen_and_steered_at_a_gateway(standing: Standing) -> None:
    cluster_processes, http = standing
    run = cluster_processes.start(http, "asks")
    until(lambda: http.get("/v1/questions").json()["questions"])
    url = str(http.base_url)
    environ = {
        "CALLBOARD_TOKEN": http.headers["authorization"].removeprefix("Bearer "),
        "HOME": str(cluster_processes.home),
    }
    argv = [str(Path(sys.executable).with_name("callboard")), "top", run, "-o", "json", "--url", url]
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **environ}, check=False)
    assert done.returncode == 0, done.stderr
    assert f"/{run}/" in done.stdout
    actor = next(word for word in re.findall(r"/run-[^\s\"]*", done.stdout) if word.count("/") > 1)
    argv[1:5] = ["stop", actor]
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **environ}, check=False)
    assert done.returncode == 0, done.stderr
    assert over(http, run)["status"] in ("failed", "cancelled")


async def test_the_actors_of_all_workers_are_watched_at_a_gateway_as_they_come_and_go(standing: Standing) -> None:
    cluster_processes, http = standing
    runs = await trio.to_thread.run_sync(
        lambda: [cluster_processes.start(http, "asks", needs=[of]) for of in ("one", "two")]
    )
    headers = [(b"Authorization", http.headers["authorization"].encode())]
    url = f"ws://127.0.0.1:{http.base_url.port}/ws"
    async with open_websocket_url(url, extra_headers=headers) as websocket:
        client = Client(websocket)
        for of, expected in ((None, runs), (runs[0], runs[:1])):
            watched = await client.result("_actor/subscribe", **({} if of is None else {"run": of}))
            known = {actor["path"]: actor for actor in watched["actors"]}
            while not all(f"/{run}/asks/ask" in known for run in expected):
                await changes(client, watched["subscription"], known)
            assert {actor["run"] for actor in known.values()} - {""} == set(expected)
        assert {info(http, run)["worker"] for run in runs} == {"one", "two"}
        await trio.to_thread.run_sync(all_over, http, runs)
        while any(path.startswith(f"/{runs[0]}") for path in known):
            await changes(client, watched["subscription"], known)


async def changes(client: Client, id: str, known: dict[str, Any]) -> None:
    """Take the next changes that are told to a watch."""
    told = (await client.until(lambda frame: frame.get("params", {}).get("subscription") == id))["params"]
    client.told = [frame for frame in client.told if frame.get("params") is not told]
    known.update({actor["path"]: actor for actor in told["changed"]})
    for path in told["gone"]:
        known.pop(path, None)


def test_what_is_kept_of_a_run_is_read_at_a_gateway_and_pruned_by_it(cluster_processes: ClusterProcesses) -> None:
    (cluster_processes.config / "config.yaml").write_text("api: {keep_runs: 2}\n")
    cluster_processes.worker("one")
    http = cluster_processes.client(cluster_processes.gateway())
    runs = [cluster_processes.start(http, "nothing") for _ in range(4)]
    all_over(http, runs)
    text = until(lambda: "cluster_workers 1.0" in (text := http.get("/metrics").text) and text)
    assert "cluster_queued_runs 0.0" in text
    cluster_processes.processes[-1].end(signal.SIGTERM)
    http = cluster_processes.client(cluster_processes.gateway("another"))
    until(lambda: cluster_processes.sql("select count(*) from callboard.runs") == [(2,)])
    until(lambda: http.get(f"/v1/runs/{runs[0]}").status_code == 404)
    assert http.get(f"/v1/runs/{runs[3]}").json()["output"].startswith("nothing of")


def test_a_file_that_is_named_is_played_with_what_lies_beside_it(standing: Standing) -> None:
    cluster_processes, http = standing
    run = cluster_processes.start(http, str(cluster_processes.config / "agents" / "steps" / "graph.yaml"))
    assert over(http, run)["status"] == "done"
    assert cluster_processes.wrongs(runs=[run]) == []


async def test_what_a_model_says_is_followed_at_a_gateway_piece_by_piece(
    tmp_path: Path, postgres: Postgres, fake_model: FakeModels
) -> None:
    attached = trio.Event()
    fake_model.answer_with(lambda _: Reply(text="one two three four five six", piece=4, gap=0.2, hold=attached))
    cluster_processes = ClusterProcesses(tmp_path, postgres.database(), fake_model.config_dir(tmp_path / "config"))

    def follows() -> list[str]:
        cluster_processes.worker("one")
        http = cluster_processes.client(cluster_processes.gateway())
        run = cluster_processes.start(http, "thinks")
        argv = [str(Path(sys.executable).with_name("callboard")), "attach", run, "-o", "stream-json"]
        environ = {
            "CALLBOARD_TOKEN": http.headers["authorization"].removeprefix("Bearer "),
            "HOME": str(cluster_processes.home),
        }
        argv += ["--url", str(http.base_url)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            trio.from_thread.run_sync(attached.set)
            lines = [first, *process.stdout]
        assert process.returncode == 0
        return lines

    try:
        lines = [json.loads(line) for line in await trio.to_thread.run_sync(follows)]
    finally:
        await trio.to_thread.run_sync(cluster_processes.end_all)
    pieces = [line["data"]["text"] for line in lines if line.get("kind") == "llm.delta"]
    assert len(pieces) > 2
    numbers = [line["seq"] for line in lines if "seq" in line]
    assert numbers == sorted(set(numbers))
    assert lines[-1]["kind"] == "run.finished" or "outcome" in lines[-1]


def test_a_question_whose_transaction_ends_after_those_of_later_ones_is_seen(standing: Standing) -> None:
    import psycopg

    cluster_processes, http = standing

    def shown() -> set[str]:
        return {each["id"] for each in http.get("/v1/questions").json()["questions"]}

    run = cluster_processes.start(http, "waits")
    (first,) = until(lambda: {id for id in shown() if run.removeprefix("run-") in id})
    late = f"{first}0"
    with psycopg.connect(cluster_processes.dsn, client_encoding="UTF8") as db:
        db.execute(
            "insert into callboard.questions(id, run, data, changed)"
            " select %s, run, convert_to(replace(convert_from(data, 'UTF8'), %s, %s), 'UTF8'),"
            " nextval('callboard.changes') from callboard.questions where id = %s",
            (late, first, late, first),
        )
        others = []
        for _ in range(2):  # two polls of the gateway
            others.append(cluster_processes.start(http, "waits"))
            until(lambda: any(others[-1].removeprefix("run-") in id for id in shown()))
        assert late not in shown()
    until(lambda: late in shown(), 60)
    for each in (run, *others):
        http.post(f"/v1/runs/{each}/cancel")
    until(lambda: not {first, late} & shown())
