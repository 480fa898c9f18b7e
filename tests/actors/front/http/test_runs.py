"""Runs as resources: started, followed, resumed, answered, cancelled, forgotten."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import trio
from support.fake_models import Reply
from support.http_agents import ASKER, HELLO
from support.http_server import ApiServer, told
from support.waiting import until


async def started(api_server: ApiServer, target: str, prompt: str = "") -> str:
    run = await api_server.post("/v1/runs", {"target": target, "prompt": prompt}, 201)
    return str(run["run"])


async def over(api_server: ApiServer, run: str) -> dict[str, Any]:
    with trio.fail_after(60):
        while (found := await api_server.get(f"/v1/runs/{run}"))["status"] in ("running", "waiting"):
            await trio.sleep(0.01)
    return dict(found)


async def test_a_run_goes_on_by_itself_and_is_there_afterwards(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    response = await api_server.client.post("/v1/runs", json={"target": "hello", "prompt": "you"})
    assert response.status_code == 201
    run = response.json()["run"]
    assert response.headers["location"] == f"/v1/runs/{run}"
    found = await over(api_server, run)
    assert found["status"] == "done"
    assert found["output"] == "hello you"
    listed = await api_server.get("/v1/runs", params={"status": "done", "limit": 1})
    assert [each["run"] for each in listed["runs"]] == [run]


async def test_its_events_are_read_page_by_page(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    run = await started(api_server, "hello")
    await over(api_server, run)
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        page = await api_server.get(f"/v1/runs/{run}/events", params={"after": after, "limit": 3})
        seen += [event["seq"] for event in page["events"]]
        after = page["next"]
    assert seen == list(range(1, len(seen) + 1))
    assert page["events"][-1]["kind"] == "run.finished"


async def test_a_stream_that_is_lost_goes_on_after_the_last_event(api_server: ApiServer) -> None:
    hold = trio.Event()
    api_server.agent_runner.agent(ASKER, name="asker")
    api_server.agent_runner.models.script(Reply(text="a" * 50, hold=hold))
    run = await started(api_server, "asker")
    headers = {"accept": "text/event-stream"}
    first: list[int] = []
    async with api_server.client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
        async for id, name, data in told(response):
            assert data["kind"] == name
            first.append(int(id))
            if name == "question.asked":
                break
    (question,) = (await api_server.get(f"/v1/runs/{run}/questions"))["questions"]
    await api_server.post(f"/v1/questions/{question['id']}/answer", {"value": "red"})
    rest = await api_server.events("GET", f"/v1/runs/{run}/events", headers={"last-event-id": str(first[-1])})
    numbers = first + [int(id) for id, _, _ in rest]
    assert numbers == list(range(1, len(numbers) + 1))
    assert rest[-1][1] == "run.finished"


async def test_a_client_that_leaves_changes_nothing(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(ASKER, name="asker")
    run = await started(api_server, "asker")
    headers = {"accept": "text/event-stream"}
    async with api_server.client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
        async for _ in told(response):
            break
    await until(lambda: api_server.agent_runner.root.kernel.actor.child(run))
    await _asked(api_server)
    assert (await api_server.get(f"/v1/runs/{run}"))["status"] == "waiting"


async def _asked(api_server: ApiServer) -> dict[str, Any]:
    with trio.fail_after(60):
        while not (found := (await api_server.get("/v1/questions"))["questions"]):
            await trio.sleep(0.01)
    return dict(found[0])


async def test_the_first_answer_to_a_question_counts(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(ASKER, name="asker")
    run = await started(api_server, "asker")
    question = await _asked(api_server)
    assert question["options"] == ["red", "blue"]
    path = f"/v1/questions/{question['id']}/answer"
    assert (await api_server.post(path, {"value": "blue"}))["answered"] is True
    await over(api_server, run)
    assert (await api_server.post(path, {"value": "red"}, 409))["error"]["code"] == "conflict"
    assert (await api_server.get(f"/v1/runs/{run}/questions"))["questions"] == []


async def test_a_run_is_cancelled_and_then_forgotten(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(ASKER, name="asker")
    run = await started(api_server, "asker")
    assert (await api_server.ask("DELETE", f"/v1/runs/{run}", 409))["error"]["code"] == "conflict"
    assert await api_server.post(f"/v1/runs/{run}/cancel") == {"run": run, "cancelled": True}
    assert (await over(api_server, run))["status"] == "cancelled"
    assert await api_server.post(f"/v1/runs/{run}/cancel") == {"run": run, "cancelled": False}
    await api_server.ask("DELETE", f"/v1/runs/{run}", 204)
    await api_server.get(f"/v1/runs/{run}", 404)


async def test_runs_that_nobody_has_started_are_not_there(api_server: ApiServer) -> None:
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/cancel"),
        ("GET", "/events"),
        ("GET", "/questions"),
    ):
        error = await api_server.ask(method, f"/v1/runs/run-00000000{path}", 404)
        assert error["error"]["code"] == "not_found"
    await api_server.get("/agui/run-00000000", 404)


async def test_numbers_that_are_none_are_refused(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    run = await started(api_server, "hello")
    await over(api_server, run)
    await api_server.get("/v1/runs", 400, params={"limit": "many"})
    await api_server.get(f"/v1/runs/{run}/events", 400, params={"after": -1})
    headers = {"accept": "text/event-stream", "last-event-id": "x"}
    response: httpx.Response = await api_server.client.get(f"/v1/runs/{run}/events", headers=headers)
    assert response.status_code == 400
    await api_server.get(f"/v1/runs/{run}/events", 400, headers={"last-event-id": "x"})


@pytest.mark.parametrize("query", ["status=null", "status=asleep", "limit=null", "limit=0", "limit=1.5", "surprise=1"])
async def test_a_query_that_says_what_nobody_can_mean_is_refused(api_server: ApiServer, query: str) -> None:
    assert (await api_server.get(f"/v1/runs?{query}", 400))["error"]["code"] == "usage"
    await api_server.get("/v1/runs?before=null", 404)
