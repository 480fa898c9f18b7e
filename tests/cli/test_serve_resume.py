"""`callboard serve` is killed with runs under way, and the next one goes on with them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.killed_servers import KilledServers, events, questions, status_of
from support.waiting import PATIENCE


@pytest.fixture
def killed_servers(tmp_path: Path, fake_model: FakeModels) -> Iterator[KilledServers]:
    fake_model.answer_with(lambda request: Reply(text=f"<{request.prompt}>"))
    made = KilledServers(tmp_path, fake_model)
    yield made
    made.end_all()


async def test_runs_go_on_by_themselves_with_their_ids_questions_and_events(killed_servers: KilledServers) -> None:
    held = trio.Event()
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        asks = (await http.post("/v1/runs", json={"target": "asks"})).json()["run"]
        (question,) = await questions(http, 1)
        killed_servers.models.script("first", Reply(text="never", hold=held))
        thinks = (await http.post("/v1/runs", json={"target": "thinks", "prompt": "x"})).json()["run"]
        await killed_servers.models.arrived(2)
        await killed_servers.rows_of(asks, 5)
        await killed_servers.rows_of(thinks, 3)
        for run in (asks, thinks):
            await killed_servers.logged(run)
        before = {run: await events(http, run) for run in (asks, thinks)}
    await killed_servers.kill()
    held.set()
    assert sorted(killed_servers.interrupted()) == sorted([asks, thinks])
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        over = await status_of(http, thinks, lambda info: info["status"] == "done")
        assert (over["output"], over["life"]) == ("<AGAIN first>", 2)
        (again,) = await questions(http, 1)
        assert (again["id"], again["run"]) == (question["id"], asks)
        assert (await http.post(f"/v1/questions/{again['id']}/answer", json={"value": "Ann"})).status_code == 200
        over = await status_of(http, asks, lambda info: info["status"] == "done")
        assert over["output"] == "Ann: <THINK Ann>"
        assert killed_servers.effects == 1
        for run in (asks, thinks):
            now = await events(http, run)
            numbers = [event["seq"] for event in now]
            assert numbers == sorted(set(numbers))
            kinds = [event["kind"] for event in now]
            assert kinds.count("run.started") == 2
            at = kinds.index("run.resumed")
            assert now[at]["data"]["after"] == numbers[at - 2] <= before[run][-1]["seq"]
            assert now[: at - 1] == before[run][: at - 1]
            assert kinds[-1] == "run.finished"
    assert [request.prompt for request in killed_servers.models.requests] == [
        "FIRST x",
        "AGAIN first",
        "AGAIN first",
        "THINK Ann",
    ]
    killed_servers.serving[-1].process.send_signal(signal.SIGTERM)
    assert await trio.to_thread.run_sync(killed_servers.serving[-1].end) == 0
    assert killed_servers.interrupted() == []


async def test_a_subscriber_who_is_ahead_of_the_log_hears_the_rest(killed_servers: KilledServers) -> None:
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        run = (await http.post("/v1/runs", json={"target": "asks"})).json()["run"]
        await questions(http, 1)
        await killed_servers.rows_of(run, 5)
        last = (await events(http, run))[-1]["seq"]
    await killed_servers.kill()
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        (again,) = await questions(http, 1)
        ahead = last + 7
        await http.post(f"/v1/questions/{again['id']}/answer", json={"value": "Ann"})
        heard = []
        accepts = {"accept": "text/event-stream", "last-event-id": str(ahead)}
        async with http.stream("GET", f"/v1/runs/{run}/events", headers=accepts) as stream:
            heard = [line async for line in stream.aiter_lines() if line.startswith(("event:", "id:"))]
        assert heard[1].removeprefix("event:").strip() == "run.started" or "run.started" in heard[0]
        assert any("run.resumed" in line for line in heard)
        assert "run.finished" in "".join(heard[-2:])
        page = (await http.get(f"/v1/runs/{run}/events", params={"after": ahead})).json()["events"]
        assert page[0]["kind"] == "run.started"


async def test_a_turn_of_a_session_goes_on_and_is_there_once(killed_servers: KilledServers) -> None:
    held = trio.Event()
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        started = {"target": "clerk", "prompt": "first", "session": "bridges"}
        run = (await http.post("/v1/runs", json=started)).json()["run"]
        await status_of(http, run, lambda info: info["status"] == "done")
        killed_servers.models.script(Reply(text="never", hold=held))
        run = (await http.post("/v1/runs", json={**started, "prompt": "second"})).json()["run"]
        await killed_servers.models.arrived(2)
        await killed_servers.rows_of(run, 2)
    await killed_servers.kill()
    held.set()
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        info = await status_of(http, run, lambda info: info["status"] == "done")
        with trio.fail_after(PATIENCE):
            while True:
                session = (await http.get(f"/v1/sessions/{info['session']}")).json()
                told = [message["content"] for message in session["messages"]]
                if len(told) == 4:
                    break
                await trio.sleep(0.02)
        assert told == ["first", "<first>", "second", "<second>"]
    with trio.fail_after(PATIENCE):
        while killed_servers.interrupted():
            await trio.sleep(0.02)


async def test_the_first_turn_of_a_session_that_is_left_to_the_next_server_finds_its_session(
    tmp_path: Path, fake_model: FakeModels
) -> None:
    held = trio.Event()
    killed_servers = KilledServers(tmp_path, fake_model, {"api": {"shutdown_grace_seconds": 0.1}})
    try:
        fake_model.script(Reply(text="never", hold=held))
        fake_model.answer_with(lambda request: Reply(text=f"<{request.prompt}>"))
        await killed_servers.begin("--durable")
        async with killed_servers.client() as http:
            started = {"target": "clerk", "prompt": "first", "session": "bridges"}
            run = (await http.post("/v1/runs", json=started)).json()["run"]
            await killed_servers.models.arrived(1)
        killed_servers.serving[-1].process.send_signal(signal.SIGTERM)
        await trio.to_thread.run_sync(killed_servers.serving[-1].end)
        held.set()
        assert killed_servers.interrupted() == [run]
        await killed_servers.begin("--durable")
        async with killed_servers.client() as http:
            info = await status_of(http, run, lambda info: info["ended"] or info["status"] == "interrupted")
            assert (info["status"], info["output"]) == ("done", "<first>"), info["error"]
    finally:
        killed_servers.end_all()


@pytest.mark.parametrize("mode", ["ask", "never"])
async def test_told_to_ask_it_waits_for_a_person_and_told_to_leave_them_it_does(
    tmp_path: Path, fake_model: FakeModels, mode: str
) -> None:
    fake_model.answer_with(lambda request: Reply(text=f"<{request.prompt}>"))
    killed_servers = KilledServers(tmp_path, fake_model, {"durable": {"by_default": True, "resume": mode}})
    try:
        await killed_servers.begin()
        async with killed_servers.client() as http:
            run = (await http.post("/v1/runs", json={"target": "asks"})).json()["run"]
            await questions(http, 1)
            await killed_servers.rows_of(run, 5)
            await killed_servers.logged(run)
        await killed_servers.kill()
        await killed_servers.begin()
        async with killed_servers.client() as http:
            info = (await http.get(f"/v1/runs/{run}")).json()
            found = (await http.get("/v1/runs", params={"status": "interrupted"})).json()["runs"]
            if mode == "never":
                assert (info["status"], found) == ("lost", [])
                return
            assert (info["status"], info["resumable"], info["life"]) == ("interrupted", True, 1)
            assert [each["run"] for each in found] == [run]
            assert (await http.post(f"/v1/runs/{run}/resume")).json()["status"] in ("running", "waiting")
            assert (await http.post(f"/v1/runs/{run}/resume")).status_code == 409
            (question,) = await questions(http, 1)
            await http.post(f"/v1/questions/{question['id']}/answer", json={"value": "Ann"})
            assert (await status_of(http, run, lambda info: info["status"] == "done"))["life"] == 2
    finally:
        killed_servers.end_all()


async def test_what_waits_for_a_person_is_left_at_once_when_the_server_is_told_to_end(
    killed_servers: KilledServers,
) -> None:
    file = killed_servers.config / "config.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), "api": {"shutdown_grace_seconds": 1000}}))
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        run = (await http.post("/v1/runs", json={"target": "asks"})).json()["run"]
        await questions(http, 1)
    killed_servers.serving[-1].process.send_signal(signal.SIGTERM)
    assert await trio.to_thread.run_sync(killed_servers.serving[-1].end) == 0  # it does not wait for its grace
    assert killed_servers.interrupted() == [run]
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        await questions(http, 1)
        now = await events(http, run)
        ended = next(event for event in now if event["kind"] == "run.cancelled")
        assert ended["data"]["outcome"]["resumable"] is True
        assert (await http.get(f"/v1/runs/{run}")).json()["status"] == "waiting"


async def test_a_run_of_a_terminal_waits_for_a_person_who_may_resume_or_remove_it(
    killed_servers: KilledServers,
) -> None:
    held = trio.Event()
    killed_servers.models.script("first", Reply(hold=held), "first", Reply(hold=held))
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(killed_servers.home),
        "XDG_STATE_HOME": str(killed_servers.home / "state"),
    }
    environ["CALLBOARD_SANDBOX"] = "off"
    words = [
        sys.executable,
        "-m",
        "callboard.cli",
        "run",
        "--config-dir",
        str(killed_servers.config),
        "thinks",
        "x",
        "--durable",
    ]
    for number in (2, 4):
        program = subprocess.Popen(
            words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=killed_servers.home
        )
        await killed_servers.models.arrived(number)
        with trio.fail_after(PATIENCE):
            while not any(rows >= 3 for rows in killed_servers.rows_under_way()):
                await trio.sleep(0.02)
        program.kill()
        await trio.to_thread.run_sync(program.communicate)
    held.set()
    one, two = killed_servers.interrupted()
    await killed_servers.begin()
    async with killed_servers.client() as http:
        info = (await http.get(f"/v1/runs/{one}")).json()
        assert (info["status"], info["resumable"], info["target"], info["prompt"]) == (
            "interrupted",
            True,
            "thinks",
            "x",
        )
        assert (await http.post(f"/v1/runs/{one}/resume")).status_code == 200
        assert (await status_of(http, one, lambda info: info["status"] == "done"))["output"] == "<AGAIN first>"
        rows = (await http.get(f"/v1/runs/{two}/rows", params={"limit": 2})).json()
        assert [row["kind"] for row in rows["rows"]] == ["began", "told"]
        assert rows["next"] == 2
        rest = (await http.get(f"/v1/runs/{two}/rows", params={"after": 2})).json()
        assert (rest["rows"][0]["seq"], rest["next"]) == (3, None)
        assert (await http.delete(f"/v1/runs/{two}")).status_code == 204
    assert killed_servers.interrupted() == []


async def test_a_run_whose_server_dies_again_and_again_waits_for_a_person(killed_servers: KilledServers) -> None:
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        run = (await http.post("/v1/runs", json={"target": "asks"})).json()["run"]
        await questions(http, 1)
        await killed_servers.rows_of(run, 5)
    for _ in range(3):
        await killed_servers.kill()
        await killed_servers.begin("--durable")
        async with killed_servers.client() as http:
            await questions(http, 1)
    await killed_servers.kill()
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        info = (await http.get(f"/v1/runs/{run}")).json()
        assert (info["status"], info["stuck"], info["resumable"]) == ("interrupted", True, True)
        await http.post(f"/v1/runs/{run}/resume")
        (question,) = await questions(http, 1)
        await http.post(f"/v1/questions/{question['id']}/answer", json={"value": "Ann"})
        await status_of(http, run, lambda info: info["status"] == "done")
