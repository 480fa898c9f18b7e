"""Parts of a run that other workers play (`place`): items of maps, agents of graphs and of agents."""

from __future__ import annotations

import json
import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
from support.cluster import SWEEPS, House, Standing, all_over, answer_all, info, over, until
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


def fan(house: House, place: str = "anywhere", pause: float = 0.1, items: str = "[a, b, c, d, e, f]") -> None:
    """The agent `fan`, whose items are counted outside."""
    home = house.config / "agents" / "fan"
    home.mkdir(exist_ok=True)
    (home / "graph.yaml").write_text(FAN.replace("PLACE", place).replace("[a, b, c, d, e, f]", items))
    (home / "work.sh").write_text(WORK.replace("WORLD", str(house.world)).replace("PAUSE", str(pause)))


def boss(house: House, timeout: str = "") -> None:
    """The agent `boss`, whose helper has to be played by a worker with the label `two`."""
    for name, text in (("boss", BOSS.replace("TIMEOUT", timeout)), ("helper", HELPER)):
        (house.config / "agents" / name).mkdir(exist_ok=True)
        (house.config / "agents" / name / "graph.yaml").write_text(text)


def parts(house: House, run: str) -> list[tuple[str, str]]:
    """Each part of a run, with its worker."""
    return house.sql(
        "select r.run, coalesce(w.name, '') from callboard.runs r left join callboard.workers w on w.sign = r.owner"
        " where parent = %s",
        run,
    )


def worked_on(house: House, run: str) -> list[str]:
    """The items of a run that were worked on, each as often as it was."""
    lines = house.world.read_text().splitlines() if house.world.exists() else []
    return sorted(line.split()[1] for line in lines if line.split()[0] == house.runs[run])


def test_the_items_of_a_map_are_played_by_several_workers_and_collected_in_order(standing: Standing) -> None:
    house, http = standing
    fan(house, pause=0.5)
    run = house.start(http, "fan")
    until(lambda: {worker for _, worker in parts(house, run)} >= {"one", "two"})
    told = over(http, run)
    assert told["status"] == "done", told["error"]
    assert json.loads(told["output"]) == [f"{item} of {house.runs[run]}" for item in "abcdef"]
    assert worked_on(house, run) == list("abcdef")
    listed = http.get("/v1/runs").json()["runs"]
    assert [each.get("parent") for each in listed].count(run) == 6


def test_an_item_that_fails_elsewhere_is_told_as_one_that_fails_here(standing: Standing) -> None:
    house, http = standing
    told = []
    for place in ("anywhere", "here"):
        fan(house, place, pause=0.01, items="[a, bad]")
        told.append(over(http, house.start(http, "fan"))["error"])
    assert told[0] == told[1]
    assert "failed at node 'work' (step 1)" in told[0]["message"]


def test_an_agent_that_needs_a_label_is_played_where_that_is_and_asks_as_a_part_of_its_run(standing: Standing) -> None:
    house, http = standing
    boss(house)
    run = house.start(http, "boss")
    (question,) = until(lambda: http.get("/v1/questions").json()["questions"])
    assert question["run"] == run
    assert house.runs[run] in question["text"]
    assert [worker for _, worker in parts(house, run)] == ["two"]
    assert http.post(f"/v1/questions/{question['id']}/answer", json={"value": "yes"}).status_code == 200
    assert over(http, run)["output"] == f"boss: yes, for {house.runs[run]}"
    assert http.get("/v1/questions").json()["questions"] == []


def test_a_cancelled_run_ends_its_parts(standing: Standing) -> None:
    house, http = standing
    boss(house)
    run = house.start(http, "boss")
    until(lambda: http.get("/v1/questions").json()["questions"])
    ((part, _),) = parts(house, run)
    assert http.post(f"/v1/runs/{run}/cancel").status_code == 200
    assert over(http, part)["status"] == "cancelled"
    assert over(http, run)["status"] == "cancelled"
    assert http.get("/v1/questions").json()["questions"] == []


def test_the_time_of_a_node_ends_its_part(standing: Standing) -> None:
    house, http = standing
    boss(house, "timeout: 5,")
    run = house.start(http, "boss")
    assert over(http, run)["error"]["message"] == "at node 'call': Agent 'helper' timed out after 5s"
    ((part, _),) = parts(house, run)
    assert over(http, part)["status"] == "cancelled"


@pytest.mark.soak
def test_one_worker_with_room_for_one_run_plays_a_run_and_its_parts(house: House) -> None:
    fan(house, pause=0.01)
    house.worker("one", "--room", "1")
    http = house.client(house.gateway())
    run = house.start(http, "fan")
    assert over(http, run)["status"] == "done"
    assert worked_on(house, run) == list("abcdef")


def test_parts_of_a_run_whose_worker_dies_go_on_and_are_found_by_the_next(house: House) -> None:
    fan(house, pause=1.0)
    one = house.worker("one", "--room", "1", "--has", "first")
    http = house.client(house.gateway())
    run = house.start(http, "fan", needs=["first"])
    until(lambda: house.owner(run) == "one")
    house.sql("update callboard.runs set needs = '{}' where parent is null")  # the others may have it later
    house.worker("two", "--has", "first")
    house.worker("three", *SWEEPS, "--has", "first")
    until(lambda: len(worked_on(house, run)) >= 3)
    one.end()
    house.expire("one")
    all_over(http, [run])
    told = info(http, run)
    assert (told["status"], told["life"]) == ("done", 2), told["error"]
    worked = worked_on(house, run)
    assert sorted(set(worked)) == list("abcdef")
    lives = house.sql("select sum(life - 1) from callboard.runs where parent is not null")[0][0]
    assert len(worked) <= 6 + lives  # what `one` had under way is asked about or made again, and nothing else


@pytest.mark.soak
def test_parts_of_a_run_that_is_gone_are_cancelled(house: House) -> None:
    boss(house)
    house.worker("plain")
    gpu = house.worker("gpu", "--has", "two")
    http = house.client(house.gateway())
    run = house.start(http, "boss")
    until(lambda: http.get("/v1/questions").json()["questions"])
    ((part, _),) = parts(house, run)
    house.sql("update callboard.runs set state = 1, owner = null where run = %s", run)
    assert over(http, part)["status"] == "cancelled"
    assert gpu.end(signal.SIGTERM) in (0, 143)


@pytest.mark.soak
@pytest.mark.parametrize("who", ["boss", "helper"])
def test_a_question_of_a_part_outlives_the_worker(house: House, who: str) -> None:
    boss(house)
    workers = {"boss": house.worker("plain", "--has", "boss")}
    http = house.client(house.gateway())
    run = house.start(http, "boss")
    until(lambda: house.owner(run) == "plain")
    workers["helper"] = house.worker("gpu", "--has", "two")
    (question,) = until(lambda: http.get("/v1/questions").json()["questions"])
    house.worker("other", *SWEEPS, "--has", "two,boss")
    workers[who].end()
    house.expire(workers[who].home.name)
    until(lambda: house.sql("select 1 from callboard.counts where name = 'takeovers'"))
    (same,) = until(lambda: http.get("/v1/questions").json()["questions"])
    assert same["id"] == question["id"]
    all_over(http, [run])
    assert info(http, run)["output"] == f"boss: yes, for {house.runs[run]}"


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
    house = House(tmp_path, postgres.database(), fake_model.config_dir(tmp_path / "config"))
    for name, more in (("lead", "can_spawn_agents: true"), ("scout", "place: {needs: [far]}")):
        home = house.config / "agents" / name
        home.mkdir()
        (home / "config.yaml").write_text(f"name: {name}\ninstructions: You are {name}.\n{more}\n")

    def plays() -> None:
        house.worker("near")
        house.worker("far", "--has", "far")
        http = clients.enter_context(house.client(house.gateway()))
        answered = http.post("/v1/runs", json={"target": "lead", "prompt": "spawn it"})
        run = answered.json()["run"]
        told = over(http, run)
        assert told["status"] == "done", told["error"]
        assert "all quiet" in told["output"]
        ((part, _),) = parts(house, run)
        of_part = info(http, part)
        assert of_part["parent"] == run
        assert told["input_tokens"] > of_part["input_tokens"] > 0
        events = http.get(f"/v1/runs/{run}/events", params={"limit": 1000}).json()["events"]
        assert [event["data"]["part"] for event in events if event["kind"] == "run.placed"] == [part]
        assert events[-1]["data"]["outcome"]["turns"] == 4
        assert answer_all(http) == 0

    with ExitStack() as clients:
        clients.callback(house.end_all)
        await trio.to_thread.run_sync(plays)
    assert len(asked) == 4


@pytest.mark.parametrize("row", [9, *(pytest.param(row, marks=pytest.mark.soak) for row in range(1, 25) if row != 9)])
def test_killed_after_any_row_of_a_run_and_its_parts_no_item_is_lost_or_made_twice_unasked(
    house: House, row: int
) -> None:
    fan(house, pause=0.05)
    one = house.worker("one", order={"kill": row})
    http = house.client(house.gateway())
    run = house.start(http, "fan")
    until(lambda: one.process.poll() is not None)
    house.worker("two", *SWEEPS)
    house.expire("one")
    all_over(http, [run])
    told = info(http, run)
    assert told["status"] == "done", told["error"]
    assert json.loads(told["output"]) == [f"{item} of {house.runs[run]}" for item in "abcdef"]
    worked = worked_on(house, run)
    assert sorted(set(worked)) == list("abcdef")
    asked = house.sql(
        "select count(*) from callboard.questions q join callboard.runs r on r.id = q.run where r.parent is not null"
    )
    assert len(worked) - 6 <= asked[0][0]
