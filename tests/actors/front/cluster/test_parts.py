"""Parts of a run that other workers play (`place`): items of maps, agents of graphs and of agents."""

from __future__ import annotations

import json
import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
from support.cluster import SWEEPS, ClusterProcesses, Standing, all_over, answer_all, info, over, until
from support.fake_models import FakeModels, Reply, Request
from support.postgres import Postgres

FAN = """
name: fan
start: fan
initial_state: {items: [a, b, c, d, e, f]}
nodes:
  fan:
    type: map
    place: PLACE
    over: "{{items}}"
    as: item
    branch: work
    output_key: done
    collect_into: results
    next: end
  work: {type: script, script: work.sh, next: []}
  end: {type: end, output: "{{results}}"}
"""
WORK = """
run=$(printf '%s' "$GRAPH_STATE" | jq -r .initial_prompt)
item=$(printf '%s' "$GRAPH_STATE" | jq -r .item)
echo "$run $item" >> WORLD
sleep PAUSE
[ "$item" != bad ] || exit 3
printf '{"done": "%s of %s"}' "$item" "$run"
"""
BOSS = """
name: boss
start: call
nodes:
  call: {type: agent, agent: helper, prompt: "for {{initial_prompt}}", place: {needs: [two]}, TIMEOUT
         state_updates: {said: "{{output}}"}, next: end}
  end: {type: end, output: "boss: {{said}}"}
"""
HELPER = """
name: helper
start: ask
nodes:
  ask: {type: approval, question: "Shall I, {{initial_prompt}}?", options: ["yes", "no"],
        routes: {"yes": end, "no": no}, on_other: no}
  no: {type: end, output: "no"}
  end: {type: end, output: "yes, {{initial_prompt}}"}
"""


def fan(
    cluster_processes: ClusterProcesses, place: str = "anywhere", pause: float = 0.1, items: str = "[a, b, c, d, e, f]"
) -> None:
    """The agent `fan`, whose items are counted outside."""
    home = cluster_processes.config / "agents" / "fan"
    home.mkdir(exist_ok=True)
    (home / "graph.yaml").write_text(FAN.replace("PLACE", place).replace("[a, b, c, d, e, f]", items))
    (home / "work.sh").write_text(WORK.replace("WORLD", str(cluster_processes.world)).replace("PAUSE", str(pause)))


def boss(cluster_processes: ClusterProcesses, timeout: str = "") -> None:
    """The agent `boss`, whose helper has to be played by a worker with the label `two`."""
    for name, text in (("boss", BOSS.replace("TIMEOUT", timeout)), ("helper", HELPER)):
        (cluster_processes.config / "agents" / name).mkdir(exist_ok=True)
        (cluster_processes.config / "agents" / name / "graph.yaml").write_text(text)


def parts(cluster_processes: ClusterProcesses, run: str) -> list[tuple[str, str]]:
    """Each part of a run, with its worker."""
    return cluster_processes.sql(
        "select r.run, coalesce(w.name, '') from callboard.runs r left join callboard.workers w on w.sign = r.owner"
        " where parent = %s",
        run,
    )


def worked_on(cluster_processes: ClusterProcesses, run: str) -> list[str]:
    """The items of a run that were worked on, each as often as it was."""
    lines = cluster_processes.world.read_text().splitlines() if cluster_processes.world.exists() else []
    return sorted(line.split()[1] for line in lines if line.split()[0] == cluster_processes.runs[run])


def test_the_items_of_a_map_are_played_by_several_workers_and_collected_in_order(standing: Standing) -> None:
    cluster_processes, http = standing
    fan(cluster_processes, pause=0.5)
    run = cluster_processes.start(http, "fan")
    until(lambda: {worker for _, worker in parts(cluster_processes, run)} >= {"one", "two"})
    told = over(http, run)
    assert told["status"] == "done", told["error"]
    assert json.loads(told["output"]) == [f"{item} of {cluster_processes.runs[run]}" for item in "abcdef"]
    assert worked_on(cluster_processes, run) == list("abcdef")
    listed = http.get("/v1/runs").json()["runs"]
    assert [each.get("parent") for each in listed].count(run) == 6


def test_an_item_that_fails_elsewhere_is_told_as_one_that_fails_here(standing: Standing) -> None:
    cluster_processes, http = standing
    told = []
    for place in ("anywhere", "here"):
        fan(cluster_processes, place, pause=0.01, items="[a, bad]")
        told.append(over(http, cluster_processes.start(http, "fan"))["error"])
    assert told[0] == told[1]
    assert "failed at node 'work' (step 1)" in told[0]["message"]


def test_an_agent_that_needs_a_label_is_played_where_that_is_and_asks_as_a_part_of_its_run(standing: Standing) -> None:
    cluster_processes, http = standing
    boss(cluster_processes)
    run = cluster_processes.start(http, "boss")
    (question,) = until(lambda: http.get("/v1/questions").json()["questions"])
    assert question["run"] == run
    assert cluster_processes.runs[run] in question["text"]
    assert [worker for _, worker in parts(cluster_processes, run)] == ["two"]
    assert http.post(f"/v1/questions/{question['id']}/answer", json={"value": "yes"}).status_code == 200
    assert over(http, run)["output"] == f"boss: yes, for {cluster_processes.runs[run]}"
    assert http.get("/v1/questions").json()["questions"] == []


def test_a_cancelled_run_ends_its_parts(standing: Standing) -> None:
    cluster_processes, http = standing
    boss(cluster_processes)
    run = cluster_processes.start(http, "boss")
    until(lambda: http.get("/v1/questions").json()["questions"])
    ((part, _),) = parts(cluster_processes, run)
    assert http.post(f"/v1/runs/{run}/cancel").status_code == 200
    assert over(http, part)["status"] == "cancelled"
    assert over(http, run)["status"] == "cancelled"
    assert http.get("/v1/questions").json()["questions"] == []


def test_the_time_of_a_node_ends_its_part(standing: Standing) -> None:
    cluster_processes, http = standing
    boss(cluster_processes, "timeout: 5,")
    run = cluster_processes.start(http, "boss")
    assert over(http, run)["error"]["message"] == "at node 'call': Agent 'helper' timed out after 5s"
    ((part, _),) = parts(cluster_processes, run)
    assert over(http, part)["status"] == "cancelled"


@pytest.mark.soak
def test_one_worker_with_room_for_one_run_plays_a_run_and_its_parts(cluster_processes: ClusterProcesses) -> None:
    fan(cluster_processes, pause=0.01)
    cluster_processes.worker("one", "--room", "1")
    http = cluster_processes.client(cluster_processes.gateway())
    run = cluster_processes.start(http, "fan")
    assert over(http, run)["status"] == "done"
    assert worked_on(cluster_processes, run) == list("abcdef")


def test_parts_of_a_run_whose_worker_dies_go_on_and_are_found_by_the_next(cluster_processes: ClusterProcesses) -> None:
    fan(cluster_processes, pause=1.0)
    one = cluster_processes.worker("one", "--room", "1", "--has", "first")
    http = cluster_processes.client(cluster_processes.gateway())
    run = cluster_processes.start(http, "fan", needs=["first"])
    until(lambda: cluster_processes.owner(run) == "one")
    cluster_processes.sql("update callboard.runs set needs = '{}' where parent is null")  # the others may have it later
    cluster_processes.worker("two", "--has", "first")
    cluster_processes.worker("three", *SWEEPS, "--has", "first")
    until(lambda: len(worked_on(cluster_processes, run)) >= 3)
    one.end()
    cluster_processes.expire("one")
    all_over(http, [run])
    told = info(http, run)
    assert (told["status"], told["life"]) == ("done", 2), told["error"]
    worked = worked_on(cluster_processes, run)
    assert sorted(set(worked)) == list("abcdef")
    lives = cluster_processes.sql("select sum(life - 1) from callboard.runs where parent is not null")[0][0]
    assert len(worked) <= 6 + lives  # what `one` had under way is asked about or made again, and nothing else


@pytest.mark.soak
def test_parts_of_a_run_that_is_gone_are_cancelled(cluster_processes: ClusterProcesses) -> None:
    boss(cluster_processes)
    cluster_processes.worker("plain")
    gpu = cluster_processes.worker("gpu", "--has", "two")
    http = cluster_processes.client(cluster_processes.gateway())
    run = cluster_processes.start(http, "boss")
    until(lambda: http.get("/v1/questions").json()["questions"])
    ((part, _),) = parts(cluster_processes, run)
    cluster_processes.sql("update callboard.runs set state = 1, owner = null where run = %s", run)
    assert over(http, part)["status"] == "cancelled"
    assert gpu.end(signal.SIGTERM) in (0, 143)


@pytest.mark.soak
@pytest.mark.parametrize("who", ["boss", "helper"])
def test_a_question_of_a_part_outlives_the_worker(cluster_processes: ClusterProcesses, who: str) -> None:
    boss(cluster_processes)
    workers = {"boss": cluster_processes.worker("plain", "--has", "boss")}
    http = cluster_processes.client(cluster_processes.gateway())
    run = cluster_processes.start(http, "boss")
    until(lambda: cluster_processes.owner(run) == "plain")
    workers["helper"] = cluster_processes.worker("gpu", "--has", "two")
    (question,) = until(lambda: http.get("/v1/questions").json()["questions"])
    cluster_processes.worker("other", *SWEEPS, "--has", "two,boss")
    workers[who].end()
    cluster_processes.expire(workers[who].home.name)
    until(lambda: cluster_processes.sql("select 1 from callboard.counts where name = 'takeovers'"))
    (same,) = until(lambda: http.get("/v1/questions").json()["questions"])
    assert same["id"] == question["id"]
    all_over(http, [run])
    assert info(http, run)["output"] == f"boss: yes, for {cluster_processes.runs[run]}"


async def test_an_agent_that_another_spawns_is_played_elsewhere_and_what_it_costs_is_counted(
    tmp_path: Path, postgres: Postgres, fake_model: FakeModels
) -> None:
    asked: list[str] = []

    def answer(request: Request) -> Reply:
        asked.append(request.prompt)
        if "spawn it" in request.prompt and not request.results:
            return Reply(calls=[("agent__spawn", {"agent": "scout", "prompt": "look around"})])
        if "spawn it" in request.prompt and len(request.results) == 1:
            child = re.search(r"agent_scout_[0-9a-f]{8}", request.results[-1])
            assert child is not None
            return Reply(calls=[("agent__collect", {"id": child[0]})])
        return Reply(text="all quiet" if "look around" in request.prompt else f"told: {request.results[-1]}")

    fake_model.answer_with(answer)
    cluster_processes = ClusterProcesses(tmp_path, postgres.database(), fake_model.config_dir(tmp_path / "config"))
    for name, more in (("lead", "can_spawn_agents: true"), ("scout", "place: {needs: [far]}")):
        home = cluster_processes.config / "agents" / name
        home.mkdir()
        (home / "config.yaml").write_text(f"name: {name}\ninstructions: You are {name}.\n{more}\n")

    def plays() -> None:
        cluster_processes.worker("near")
        cluster_processes.worker("far", "--has", "far")
        http = clients.enter_context(cluster_processes.client(cluster_processes.gateway()))
        answered = http.post("/v1/runs", json={"target": "lead", "prompt": "spawn it"})
        run = answered.json()["run"]
        told = over(http, run)
        assert told["status"] == "done", told["error"]
        assert "all quiet" in told["output"]
        ((part, _),) = parts(cluster_processes, run)
        of_part = info(http, part)
        assert of_part["parent"] == run
        assert told["input_tokens"] > of_part["input_tokens"] > 0
        events = http.get(f"/v1/runs/{run}/events", params={"limit": 1000}).json()["events"]
        assert [event["data"]["part"] for event in events if event["kind"] == "run.placed"] == [part]
        assert events[-1]["data"]["outcome"]["turns"] == 4
        assert answer_all(http) == 0

    with ExitStack() as clients:
        clients.callback(cluster_processes.end_all)
        await trio.to_thread.run_sync(plays)
    assert len(asked) == 4


@pytest.mark.parametrize("row", [9, *(pytest.param(row, marks=pytest.mark.soak) for row in range(1, 25) if row != 9)])
def test_killed_after_any_row_of_a_run_and_its_parts_no_item_is_lost_or_made_twice_unasked(
    cluster_processes: ClusterProcesses, row: int
) -> None:
    fan(cluster_processes, pause=0.05)
    one = cluster_processes.worker("one", order={"kill": row})
    http = cluster_processes.client(cluster_processes.gateway())
    run = cluster_processes.start(http, "fan")
    until(lambda: one.process.poll() is not None)
    cluster_processes.worker("two", *SWEEPS)
    cluster_processes.expire("one")
    all_over(http, [run])
    told = info(http, run)
    assert told["status"] == "done", told["error"]
    assert json.loads(told["output"]) == [f"{item} of {cluster_processes.runs[run]}" for item in "abcdef"]
    worked = worked_on(cluster_processes, run)
    assert sorted(set(worked)) == list("abcdef")
    asked = cluster_processes.sql(
        "select count(*) from callboard.questions q join callboard.runs r on r.id = q.run where r.parent is not null"
    )
    assert len(worked) - 6 <= asked[0][0]
