"""Forks of runs of a cluster, and their steps: at any gateway, played by any worker."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import httpx
import pytest
from support.cluster import SWEEPS, ClusterProcesses, Standing, answer_all, info, over, until
from support.control_hub import Client
from support.messages import fragment
from trio_websocket import open_websocket_url

WRITER = """
name: writer
start: plan
initial_state: {topic: dogs}
nodes:
  plan: {type: script, script: plan.sh, next: ask}
  ask: {type: input, question: "Well?", state_updates: {said: "{{input}}"}, next: write}
  write: {type: script, script: write.sh, next: end}
  end: {type: end, output: "{{topic}} {{said}} {{planned}}"}
"""
BOSS = """
name: boss
start: call
nodes:
  call: {type: agent, agent: does, prompt: "{{initial_prompt}}", place: anywhere, next: more}
  more: {type: agent, agent: does, prompt: "{{initial_prompt}}", place: anywhere, next: end}
  end: {type: end, output: "done"}
"""
DOES = """
name: does
start: do
nodes:
  do: {type: script, script: do.sh, next: end}
  end: {type: end, output: "it is done"}
"""
SCRIPT = """
run=$(printf '%s' "$GRAPH_STATE" | jq -r .initial_prompt)
echo "$run EFFECT" >> WORLD
PRINTS
"""


@pytest.fixture
def written(standing: Standing) -> tuple[ClusterProcesses, httpx.Client, str]:
    """A run of the agent `writer` that is over; its plan is so long that its row is a blob."""
    cluster_processes, http = standing
    home = cluster_processes.config / "agents" / "writer"
    if not home.exists():
        home.mkdir()
        (home / "graph.yaml").write_text(WRITER)
        long = """printf '{"planned": "long", "notes": "%s"}' "$(head -c 20000 /dev/zero | tr '\\0' x)\""""
        for effect, prints in (("plan", long), ("write", "echo '{}'")):
            text = (
                SCRIPT.replace("EFFECT", effect)
                .replace("WORLD", str(cluster_processes.world))
                .replace("PRINTS", prints)
            )
            (home / f"{effect}.sh").write_text(text)
    run = cluster_processes.start(http, "writer", answers=["go"])
    assert over(http, run)["output"] == "dogs go long"
    return cluster_processes, http, run


def fork(cluster_processes: ClusterProcesses, http: httpx.Client, run: str, at: object, **more: Any) -> str:
    """A fork of a run, which is begun."""
    answer = http.post(f"/v1/runs/{run}/fork", json={"at": at, **more})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["run"]["status"] in ("queued", "running", "waiting", "done")
    new = str(told["run"]["run"])
    assert new != run
    cluster_processes.runs[new] = cluster_processes.runs[run]
    return new


def done(cluster_processes: ClusterProcesses, run: str) -> Counter[str]:
    """How often each effect was done by the runs with the prompt of this one."""
    tag = cluster_processes.runs[run]
    lines = [line.split(" ") for line in cluster_processes.world.read_text().splitlines()]
    return Counter(effect for of, effect in lines if of == tag)


def resumed(http: httpx.Client, run: str) -> list[dict[str, Any]]:
    """What a run has said of where it goes on from."""
    events = http.get(f"/v1/runs/{run}/events", params={"limit": 1000}).json()["events"]
    return [event["data"] for event in events if event["kind"] == "run.resumed"]


def asked(http: httpx.Client, run: str) -> str:
    """The id of what a run asks now, or ""."""
    found = [each["id"] for each in http.get("/v1/questions").json()["questions"] if each["run"] == run]
    return str(found[0]) if found else ""


def steps_of(http: httpx.Client, run: str) -> list[dict[str, Any]]:
    answer = http.get(f"/v1/runs/{run}/steps", params={"limit": 1000})
    assert answer.status_code == 200, answer.text
    assert answer.json()["next"] is None
    return list(answer.json()["steps"])


def test_steps_of_a_run_of_the_cluster_are_listed_at_a_gateway_with_the_nodes_that_begin(
    written: tuple[ClusterProcesses, httpx.Client, str],
) -> None:
    cluster_processes, http, run = written
    steps = steps_of(http, run)
    ((rows,),) = cluster_processes.sql("select rows from callboard.runs where run = %s", run)
    assert [step["row"] for step in steps] == list(range(1, rows + 1))
    assert [step["place"] for step in steps if step["place"]] == ["plan#1", "ask#1", "write#1"]
    assert steps[0]["what"] == "begun"
    first = http.get(f"/v1/runs/{run}/steps", params={"limit": 2}).json()
    assert (first["steps"], first["next"]) == (steps[:2], 2)


def test_a_fork_with_another_state_is_played_by_a_worker_which_does_only_what_came_behind(
    written: tuple[ClusterProcesses, httpx.Client, str],
) -> None:
    cluster_processes, http, run = written
    new = fork(cluster_processes, http, run, "write#1", state={"topic": "cats"}, title="of cats")
    told = over(http, new)
    assert (told["status"], told["output"]) == ("done", "cats go long")
    assert (told["title"], told["name"]) == ("of cats", "writer")
    assert done(cluster_processes, run) == {"plan": 1, "write": 2}
    assert cluster_processes.wrongs(effects=(), runs=[run, new]) == []
    at = next(step["row"] for step in steps_of(http, run) if step["place"] == "write#1")
    (begun,) = resumed(http, new)
    assert (begun["life"], begun["forked_from"], begun["forked_at"]) == (1, run, at)
    assert info(http, run)["output"] == "dogs go long"
    ((first, kinds),) = cluster_processes.sql(
        "select min(e.first), count(*) from callboard.events e join callboard.runs r on r.id = e.run where r.run = %s",
        new,
    )
    assert (first, kinds > 0) == (1, True)


def test_a_fork_at_a_question_with_another_answer_says_the_other(
    written: tuple[ClusterProcesses, httpx.Client, str],
) -> None:
    cluster_processes, http, run = written
    question = next(step["question"] for step in steps_of(http, run) if step["question"])
    new = fork(cluster_processes, http, run, question, answers={question: "stay"})
    assert over(http, new)["output"] == "dogs stay long"
    assert done(cluster_processes, run) == {"plan": 1, "write": 2}


def test_a_fork_of_a_fork_goes_on_from_its_rows(written: tuple[ClusterProcesses, httpx.Client, str]) -> None:
    cluster_processes, http, run = written
    first = fork(cluster_processes, http, run, "write#1", state={"topic": "cats"})
    over(http, first)
    second = fork(cluster_processes, http, first, "write#1", prompt=cluster_processes.runs[run], state={"said": "went"})
    assert over(http, second)["output"] == "cats went long"
    assert [step["where"] for step in steps_of(http, second)][:1] == [""]
    assert cluster_processes.wrongs(effects=(), runs=[second]) == []


def test_what_a_fork_would_do_again_is_told_and_nothing_begins(
    written: tuple[ClusterProcesses, httpx.Client, str],
) -> None:
    cluster_processes, http, run = written
    before = cluster_processes.sql("select count(*) from callboard.runs")
    looked = http.post(f"/v1/runs/{run}/fork", json={"at": "ask#1", "dry_run": True}).json()
    assert looked["run"] is None
    assert len(looked["again"]) == 1
    assert "write.sh" in looked["again"][0]
    assert cluster_processes.sql("select count(*) from callboard.runs") == before
    assert done(cluster_processes, run) == {"plan": 1, "write": 1}


async def test_the_websocket_of_a_gateway_forks_as_well(written: tuple[ClusterProcesses, httpx.Client, str]) -> None:
    _, http, run = written
    headers = [(b"Authorization", http.headers["authorization"].encode())]
    async with open_websocket_url(f"ws://127.0.0.1:{http.base_url.port}/ws", extra_headers=headers) as websocket:
        client = Client(websocket)
        page = await client.result("_run/steps", run=run, limit=3)
        assert [step["row"] for step in page["steps"]] == [1, 2, 3]
        forked = await client.result("_run/fork", run=run, at="write#1", state={"topic": "birds"})
    assert over(http, forked["run"]["run"])["output"] == "birds go long"


def test_a_fork_needs_of_its_worker_what_its_run_does_and_has_its_files(
    written: tuple[ClusterProcesses, httpx.Client, str],
) -> None:
    cluster_processes, http, _ = written
    run = cluster_processes.start(http, "writer", needs=["two"], answers=["go"])
    over(http, run)
    new = fork(cluster_processes, http, run, "write#1")
    over(http, new)
    (of, its) = cluster_processes.sql(
        "select needs, bundle, subject from callboard.runs where run = any(%s)", [run, new]
    )
    assert of == its
    assert of[0] == ["two"]
    assert of[1] is not None


def test_a_run_under_way_can_be_forked_and_stays_as_it_is(standing: Standing) -> None:
    cluster_processes, http = standing
    run = cluster_processes.start(http, "asks")
    question = until(lambda: asked(http, run))
    new = fork(cluster_processes, http, run, question)
    of_fork = until(lambda: asked(http, new))  # it is asked anew, under an id of the fork
    assert of_fork != question
    for each, said in ((of_fork, "yes"), (question, "no")):
        assert http.post(f"/v1/questions/{each}/answer", json={"value": said}).status_code == 200
    assert (over(http, run)["output"], over(http, new)["output"]) == ("no", "yes")
    assert done(cluster_processes, run) == {"one": 1, "last": 1}


def with_parts(cluster_processes: ClusterProcesses, http: httpx.Client) -> str:
    """A run that is over, with two parts of which each has an effect."""
    for name, text in (("boss", BOSS), ("does", DOES)):
        (cluster_processes.config / "agents" / name).mkdir(exist_ok=True)
        (cluster_processes.config / "agents" / name / "graph.yaml").write_text(text)
    text = SCRIPT.replace("EFFECT", "do").replace("WORLD", str(cluster_processes.world)).replace("PRINTS", "echo '{}'")
    (cluster_processes.config / "agents" / "does" / "do.sh").write_text(text)
    run = cluster_processes.start(http, "boss")
    assert over(http, run)["output"] == "done"
    return run


def parts(cluster_processes: ClusterProcesses, run: str) -> list[str]:
    """The parts of a run."""
    return [
        part for (part,) in cluster_processes.sql("select run from callboard.runs where parent = %s order by id", run)
    ]


def test_parts_behind_the_place_are_played_again_and_what_they_did_is_told(standing: Standing) -> None:
    cluster_processes, http = standing
    run = with_parts(cluster_processes, http)
    assert done(cluster_processes, run) == {"do": 2}
    steps = steps_of(http, run)
    notes = [step["row"] for step in steps if step["what"].startswith("part run-")]
    assert len(notes) == 2
    for at, again in ((1, 2), (notes[0], 2), ("more#1", 1), (notes[1], 1), (notes[1] + 1, 0), (len(steps), 0)):
        looked = http.post(f"/v1/runs/{run}/fork", json={"at": at, "dry_run": True}).json()
        assert looked["again"] == ["does: do#1: the script 'do.sh'"] * again, at
    new = fork(cluster_processes, http, run, "more#1")
    assert over(http, new)["output"] == "done"
    assert done(cluster_processes, run) == {"do": 3}
    assert len(parts(cluster_processes, new)) == 1
    assert not {*parts(cluster_processes, new)} & {*parts(cluster_processes, run)}


def test_what_can_not_be_forked_is_refused_plainly_and_begins_nothing(
    written: tuple[ClusterProcesses, httpx.Client, str],
) -> None:
    cluster_processes, http, run = written
    boss = with_parts(cluster_processes, http)
    part = parts(cluster_processes, boss)[0]
    waits = cluster_processes.start(http, "nothing", needs=["nobody"])
    said = {"target": "", "prompt": "Hello", "session": "notes", "needs": ["nobody"]}
    turn = http.post("/v1/runs", json=said).json()["run"]
    before = cluster_processes.sql("select count(*) from callboard.runs")
    for of, wanted, status, words in (
        (run, {"at": "nowhere#1"}, 404, fragment("runs.rerun.fork.cut.2", word="nowhere#1")),
        (run, {"at": 99}, 404, "there is no row 99"),
        (run, {"at": "write#1", "answers": {"q-none": "x"}}, 400, "no question 'q-none' is open"),
        (run, {"at": "write#1", "with_changes": True}, 400, "`with_changes`"),
        (part, {"at": 1}, 400, f"is a child of {boss}"),
        (turn, {"at": 1}, 400, "a turn of a session"),
        (waits, {"at": 1}, 409, "has not started"),
        ("run-none", {"at": 1}, 404, "there is no run 'run-none'"),
    ):
        for dry in (False, True):
            if dry and "answers" in wanted:
                continue  # it is not looked at
            answer = http.post(f"/v1/runs/{of}/fork", json={**wanted, "dry_run": dry})
            assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert cluster_processes.sql("select count(*) from callboard.runs") == before
    for each in (waits, turn):
        http.post(f"/v1/runs/{each}/cancel")


def test_a_fork_whose_worker_is_killed_goes_on_with_another_one(cluster_processes: ClusterProcesses) -> None:
    first = cluster_processes.worker("first")
    http = cluster_processes.client(cluster_processes.gateway("one"))
    run = cluster_processes.start(http, "steps")
    over(http, run)
    first.end(signal.SIGTERM)
    other = cluster_processes.client(cluster_processes.gateway("two"))
    new = fork(cluster_processes, other, run, "two#1")
    dies = cluster_processes.worker("dies", order={"kill": 1})  # right behind the row that says what it is about to do
    dies.process.wait(60)
    cluster_processes.worker("last", *SWEEPS)
    cluster_processes.expire("dies")
    told = until(lambda: answer_all(other) >= 0 and (found := info(other, new))["ended"] and found)
    assert (told["status"], told["output"]) == ("done", f"all of {cluster_processes.runs[run]}")
    assert done(cluster_processes, run) == {"one": 1, "two": 2, "left": 2, "right": 2, "last": 2}
    assert cluster_processes.wrongs(effects=(), runs=[run, new]) == []
    assert [each.get("forked_from") for each in resumed(http, new)] in ([run, None], [run])
