"""The wall clock jumps, forward or backward. What lasts and what is limited goes by a clock that does not.

What has to be known as a date (when a token expires, when a run began) is read from the wall clock, and follows it.
Waits of questions and durations of runs are looked at in `test_metrics`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import trio
import trio.testing
from support.access_keys import AUDIENCE, ISSUER, Signer
from support.http_agents import ASKER
from support.http_server import ApiServer, Serve
from support.waiting import until
from support.wall_clock import jump

from callboard.actors.front.access.credentials import KeySet, SignedTokens
from callboard.actors.front.access.limits import RateLimiter
from callboard.actors.front.control.logs.run_logs import list_logged_runs
from callboard.actors.front.server.token_file import ServerFile, read_servers, write_server
from callboard.protocol.errors import Unauthorized
from callboard.protocol.settings.api import Jwt

DAY = 86_400.0
BOTH_WAYS = pytest.mark.parametrize("moved", [-DAY, DAY], ids=["backward", "forward"])


@BOTH_WAYS
async def test_clock_jump_rates_give_nobody_a_new_minute(
    monkeypatch: pytest.MonkeyPatch, moved: float, mock_clock: trio.testing.MockClock
) -> None:
    rates = RateLimiter(10)
    assert [rates.charge("alice") for _ in range(10)] == [0.0] * 10
    jump(monkeypatch, moved)
    assert 0 < rates.charge("alice") <= 120


async def test_clock_jump_a_token_s_end_is_a_date_and_follows_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = Signer()
    async with signer.serving() as url:
        settings = Jwt(issuer=ISSUER, audience=AUDIENCE, jwks_url=url)
        keys = KeySet(url, settings.jwks_refresh_interval, environ={})
        tokens = SignedTokens(settings, keys, now=lambda: time.time())
        token = signer.token()
        await tokens.check(token)
        for moved in (DAY, -DAY):  # expired; and not yet made
            with monkeypatch.context() as jumped:
                jump(jumped, moved)
                with pytest.raises(Unauthorized):
                    await tokens.check(token)
        assert (await tokens.check(token)).subject == "carol"
        assert signer.asked == 1, "the keys were not fetched again because of the clock"


@BOTH_WAYS
async def test_clock_jump_runs_go_on_are_numbered_without_gaps_and_keep_their_order(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, moved: float, tmp_path: Path
) -> None:
    api_server.agent_runner.agent(ASKER, name="asker")
    run = (await api_server.post("/v1/runs", {"target": "asker"}, 201))["run"]
    await until(lambda: api_server.agent_runner.root.questions.open)
    jump(monkeypatch, moved)
    (question,) = api_server.agent_runner.root.questions.open
    await api_server.post(f"/v1/questions/{question.id}/answer", {"value": "red"})
    events = await api_server.events("GET", f"/v1/runs/{run}/events")
    assert [int(id) for id, _, _ in events] == list(range(1, len(events) + 1))
    assert events[-1][1] == "run.finished"
    assert (await api_server.get(f"/v1/runs/{run}"))["status"] == "done"
    assert 0 <= (await api_server.get("/v1/info"))["uptime"] < 600
    with trio.fail_after(60):
        while [info.status for info in list_logged_runs(tmp_path / "state" / "callboard" / "runs")] != ["done"]:
            await trio.sleep(0.01)


@BOTH_WAYS
async def test_clock_jump_the_grace_of_a_server_that_ends_is_neither_cut_nor_stretched(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, moved: float
) -> None:
    async with serve(api={"shutdown_grace_seconds": 0.5}, durable={"by_default": False}) as api_server:
        api_server.agent_runner.agent(ASKER, name="asker")
        await api_server.post("/v1/runs", {"target": "asker"}, 201)
        since = trio.current_time()
        api_server.server.drain()
        await trio.sleep(0)
        jump(monkeypatch, moved)
        await until(lambda: api_server.agent_runner.root.kernel.stopping)
        assert trio.current_time() - since >= 0.4


@BOTH_WAYS
async def test_clock_jump_a_session_made_before_is_read_and_written_after(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, moved: float
) -> None:
    made = await api_server.post("/v1/sessions", {"alias": "mine"}, 201)
    api_server.agent_runner.models.script("one", "two")
    await api_server.post(f"/v1/sessions/{made['id']}/completions", {"prompt": "hi"})
    jump(monkeypatch, moved)
    await api_server.post(f"/v1/sessions/{made['id']}/completions", {"prompt": "again"})
    await api_server.post("/v1/sessions", {"alias": "other"}, 201)
    told = await api_server.get(f"/v1/sessions/{made['id']}")
    assert "two" in str(told)
    assert len((await api_server.get("/v1/sessions"))["sessions"]) == 2


@BOTH_WAYS
def test_clock_jump_a_server_that_lives_is_found_whatever_its_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: float
) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    jump(monkeypatch, moved)
    server = ServerFile(url="http://127.0.0.1:1", token="a", pid=os.getpid(), started=time.time())
    write_server(server, 1, environ)
    monkeypatch.undo()
    assert read_servers(environ) == [server]
