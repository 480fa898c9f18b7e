"""Streams of events: taken up where they broke, for whoever reads slowly, and refused before they begin."""

from __future__ import annotations

import pytest
import trio
from support.http_agents import ASKER, HELLO
from support.http_server import ApiServer, Serve
from support.messages import has_message

from callboard.protocol.events import Warned

SSE = {"accept": "text/event-stream"}


async def ended(api_server: ApiServer, target: str = "hello") -> str:
    """A run that is over."""
    api_server.agent_runner.agent(HELLO, name="hello")
    return str((await api_server.post("/v1/completions", {"prompt": "you", "agent": target}))["run"])


async def waiting(api_server: ApiServer) -> str:
    """A run that waits for an answer."""
    api_server.agent_runner.agent(ASKER, name="asker")
    run = str((await api_server.post("/v1/runs", {"target": "asker"}, 201))["run"])
    with trio.fail_after(60):
        while not (await api_server.get(f"/v1/runs/{run}/questions"))["questions"]:
            await trio.sleep(0.01)
    return run


async def test_a_run_that_is_over_is_taken_up_at_every_event_without_gap_or_double(api_server: ApiServer) -> None:
    run = await ended(api_server)
    whole = await api_server.events("GET", f"/v1/runs/{run}/events")
    assert whole[-1][1] == "run.finished"
    for number in range(len(whole) + 1):
        path, headers = f"/v1/runs/{run}/events", {"last-event-id": str(number)}
        assert await api_server.events("GET", path, headers=headers) == whole[number:]


async def test_a_stream_is_taken_up_from_the_log_by_a_server_that_was_started_again(serve: Serve) -> None:
    async with serve() as api_server:
        run = await ended(api_server)
        whole = await api_server.events("GET", f"/v1/runs/{run}/events")
    async with serve() as api_server:
        path, headers = f"/v1/runs/{run}/events", {"last-event-id": "3"}
        assert await api_server.events("GET", path, headers=headers) == whole[3:]
        assert (await api_server.get(path, params={"after": 3}))["next"] is None


@pytest.mark.parametrize("path", ["/v1/runs/{}/events", "/agui/{}"])
async def test_a_number_beyond_the_newest_event_is_refused_before_the_stream_begins(
    api_server: ApiServer, path: str
) -> None:
    run = await ended(api_server)
    response = await api_server.client.get(path.format(run), headers={**SSE, "last-event-id": "9999"})
    assert response.status_code == 400
    assert has_message(response.json()["error"]["message"], "front.control.hub.Hub.subscribe")


@pytest.mark.parametrize("path", ["/v1/runs/{}/events", "/agui/{}"])
async def test_a_head_does_not_wait_for_the_run(api_server: ApiServer, path: str) -> None:
    run = await waiting(api_server)
    with trio.fail_after(60):
        response = await api_server.client.head(path.format(run), headers=SSE)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.content == b""


async def test_a_reader_that_reads_nothing_holds_nobody_up_and_misses_nothing(api_server: ApiServer) -> None:
    run = await waiting(api_server)
    async with api_server.client.stream("GET", f"/v1/runs/{run}/events", headers=SSE) as response:
        lines = response.aiter_lines()
        while await anext(lines) != "event: question.asked":
            pass
        actor = api_server.agent_runner.root.kernel.actor.child(run)
        assert actor is not None
        for _ in range(3000):  # more than memory holds of a run
            actor.emit(Warned(code="test", message="x" * 500))
        question = (await api_server.get("/v1/questions"))["questions"][0]["id"]
        await api_server.post(f"/v1/questions/{question}/answer", {"value": "red"})
        with trio.fail_after(60):
            while (await api_server.get(f"/v1/runs/{run}"))["status"] != "done":
                await trio.sleep(0.01)
        numbers = [int(line[4:]) async for line in lines if line.startswith("id: ")]
    whole = [int(id) for id, _, _ in await api_server.events("GET", f"/v1/runs/{run}/events")]
    assert numbers == whole[-len(numbers) :]
    assert len(numbers) > 3000
