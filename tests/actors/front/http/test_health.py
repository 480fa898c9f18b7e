"""Whether there may be more work: case 110's readiness, by number."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import trio
from support.agent_runs import AgentRunner
from support.http_agents import ASKER
from support.http_server import ApiServer, Serve
from support.messages import has_message

from callboard.actors.front.access.limits import ConcurrencyLimiter
from callboard.actors.front.http import health
from callboard.actors.front.http.health import Health


async def test_case_110_ready_is_503_when_the_store_can_t_be_written_to(
    agent_runner: AgentRunner, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert await Health(agent_runner.root, ConcurrencyLimiter(1, 10), [tmp_path / "sessions"]).ready() == (
        200,
        {"status": "ok"},
    )
    assert list((tmp_path / "sessions").iterdir()) == [], "the probe leaves nothing"
    status, body = await Health(agent_runner.root, ConcurrencyLimiter(1, 10), [tmp_path / "file" / "sessions"]).ready()
    assert status == 503
    assert has_message(body["problems"][0], "front.http.health._write", name="sessions")
    assert str(tmp_path) not in str(body), "strangers are not told where things are"


async def test_case_110_ready_is_503_when_less_than_a_tenth_of_the_places_is_free(
    agent_runner: AgentRunner, nursery: trio.Nursery
) -> None:
    places = ConcurrencyLimiter(20, 20)
    it = Health(agent_runner.root, places, [])
    for _ in range(18):
        places._all.acquire_on_behalf_of_nowait(object())
    assert (await it.ready())[0] == 200
    places._all.acquire_on_behalf_of_nowait(object())
    assert await it.ready() == (503, {"status": "unavailable", "problems": ["19 of 20 requests are under way"]})
    assert it.live() == (200, {"status": "ok"})


async def test_case_110_live_is_200_until_the_server_ends(agent_runner: AgentRunner) -> None:
    it = Health(agent_runner.root, ConcurrencyLimiter(1, 10), [])
    assert it.live()[0] == 200
    it.draining = True
    assert it.live()[0] == 503
    assert (await it.ready())[0] == 503


async def test_the_store_is_looked_at_once_a_second_however_often_one_asks(
    agent_runner: AgentRunner, tmp_path: Path
) -> None:
    it = Health(agent_runner.root, ConcurrencyLimiter(1, 10), [tmp_path])
    await it.ready()
    looked = it._looked
    for _ in range(50):
        await it.ready()
    assert it._looked in (looked, pytest.approx(trio.current_time(), abs=5))


# --- a real server ------------------------------------------------------------------------------------------


async def ready(api_server: ApiServer, status: int) -> str:
    """What `/healthz/ready` says, once it has that status; without a key, as load balancers ask."""
    with trio.fail_after(60):
        while (
            response := await api_server.client.get("/healthz/ready", headers={"authorization": ""})
        ).status_code != status:
            await trio.sleep(0.02)
    return response.text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
async def test_case_110_ready_is_503_while_the_store_is_full_or_read_only(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(path: Path, data: bytes) -> int:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(health, "FRESH", 0.0)
    assert "ok" in await ready(api_server, 200)
    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", refused)
        said = await ready(api_server, 503)
        assert f"runs can't be written to: {os.strerror(number)}" in said
        assert (await api_server.client.get("/healthz/live")).status_code == 200
    await ready(api_server, 200)


async def test_case_110_ready_is_503_with_less_than_a_tenth_of_the_places_free_and_the_next_is_sent_away(
    serve: Serve,
) -> None:
    limits = {"max_concurrent_requests": 10, "per_subject_concurrency": 100}
    async with serve(api={"limits": limits}) as api_server:
        api_server.agent_runner.agent(ASKER, name="asker")
        run = (await api_server.post("/v1/runs", {"target": "asker"}, 201))["run"]

        async def follow(task_status: trio.TaskStatus[None]) -> None:
            headers = {"accept": "text/event-stream"}
            async with api_server.client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
                assert response.status_code == 200
                task_status.started()
                async for _ in response.aiter_raw():
                    pass

        async with trio.open_nursery() as nursery:
            for _ in range(9):
                await nursery.start(follow)
            await ready(api_server, 200)
            await nursery.start(follow)
            said = await ready(api_server, 503)
            assert has_message(said, "front.http.health.Health.ready.2", taken="…10", of_all=10)
            refused = await api_server.client.get("/v1/info")
            assert refused.status_code == 503, "case 105"
            assert refused.json()["error"]["code"] == "saturated"
            assert int(refused.headers["retry-after"]) >= 1
            nursery.cancel_scope.cancel()
        await ready(api_server, 200)


async def test_case_110_ready_is_503_and_live_too_while_it_drains(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(ASKER, name="asker")
    await api_server.post("/v1/runs", {"target": "asker"}, 201)
    api_server.server.drain()
    assert "stopping" in await ready(api_server, 503)
    assert (await api_server.client.get("/healthz/live")).status_code == 503
