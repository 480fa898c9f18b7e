"""What there is to know of a server: models, agents, itself; and how it refuses."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest
from support.http_agents import HELLO, LOOP
from support.http_server import SOON, ApiServer, Serve

from callboard.actors.work.spending.book import BookFile, SpendingBook
from callboard.protocol.chat import TokenUsage


async def test_who_has_the_local_token_may_do_all(api_server: ApiServer) -> None:
    assert await api_server.post("/v1/auth/check") == {"subject": "local", "scopes": ["*"]}


async def test_the_server_tells_what_it_is(api_server: ApiServer) -> None:
    info = await api_server.get("/v1/info")
    assert info["name"] == "callboard"
    assert info["version"]
    assert info["runs"] == 0


async def test_what_models_have_cost_is_told_by_what_is_asked_for(api_server: ApiServer, tmp_path: Path) -> None:
    assert (await api_server.get("/v1/usage"))["by"] == ["day", "model"]
    book = SpendingBook(
        api_server.agent_runner.root.kernel, BookFile(tmp_path / "state" / "callboard" / "usage.db"), now=time.time
    )
    for cost in (0.5, None):
        book.add("local", "clerk", "a:b", TokenUsage(input_tokens=100, output_tokens=10, cached_tokens=40), cost)
    await book.aclose()
    found = await api_server.get("/v1/usage?by=agent,model&days=1")
    sums = {"requests": 2, "input_tokens": 200, "cached_tokens": 80, "output_tokens": 20, "cost": 0.5}
    told = {**sums, "unpriced": 1, "priced": False}
    assert found["since"] == found["until"]
    assert (found["usage"], found["total"]) == ([{"model": "a:b", "agent": "clerk", **told}], told)
    for query in ("by=owner", "by=", "by=day,,model", "days=0", "days=40000", "days=x", "since=2026-01-01"):
        assert (await api_server.get(f"/v1/usage?{query}", 400))["error"]["code"] == "usage", query


async def test_agents_are_listed_with_what_is_wrong_with_them(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    api_server.agent_runner.plain(f"{LOOP}\nconversation_starters: [How long is the warranty?]", name="clerk")
    api_server.agent_runner.agent("start: nowhere\nnodes: {}", name="broken")
    found = {agent["name"]: agent for agent in (await api_server.get("/v1/agents"))["agents"]}
    assert found["hello"]["dialect"] == "graph"
    assert found["clerk"]["dialect"] == "agent"
    assert found["clerk"]["conversation_starters"] == ["How long is the warranty?"]
    assert found["broken"]["problem"]
    assert found["coder"]["source"] == "library"


async def test_models_are_listed_as_openai_does_with_agents_among_them(api_server: ApiServer) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    listed = await api_server.get("/v1/models")
    assert listed["object"] == "list"
    found = {model["id"]: model for model in listed["data"]}
    assert found["fake:model"]["callboard"]["default"] is True
    assert found["agent/clerk"]["owned_by"] == "callboard"
    assert (await api_server.get("/v1/models/agent/clerk"))["id"] == "agent/clerk"
    await api_server.get("/v1/models/agent/nobody", 404)


async def test_knowledge_bases_are_listed_and_those_that_are_not_there_not_built(api_server: ApiServer) -> None:
    assert await api_server.get("/v1/rags") == {"rags": []}
    await api_server.post("/v1/rags/nothing/rebuild", None, 404)


async def test_mcp_servers_are_told_and_read_again(api_server: ApiServer) -> None:
    info = await api_server.get("/v1/info/mcp")
    assert info["servers"] == []
    assert info["counters"]["spawned"] == 0
    assert await api_server.post("/v1/mcp/reload") == {"reloaded": []}
    assert (await api_server.post("/v1/mcp/reload", {"server": "nobody"}, 400))["error"]["code"] == "usage"


async def test_case_105_a_bad_key_an_unknown_session_and_a_long_body_are_refused_in_one_shape(serve: Serve) -> None:
    async with serve(api={"limits": {"max_body_bytes": 2000}}) as api_server:
        for headers in ({}, {"authorization": "Bearer nonsense"}, {"authorization": "Basic eA=="}):
            async with httpx.AsyncClient(
                base_url=api_server.url, trust_env=False, verify=False, timeout=SOON
            ) as stranger:
                response = await stranger.get("/v1/info", headers=headers)
            assert response.status_code == 401
            error = response.json()["error"]
            assert set(error) == {"code", "message", "request_id", "type", "param"}
            assert error["code"] == "unauthorized"
            assert response.headers["x-request-id"] == error["request_id"]
        unknown = await api_server.get("/v1/sessions/550e8400-e29b-41d4-a716-446655440000", 404)
        assert unknown["error"]["code"] == "not_found"
        long = await api_server.post("/v1/completions", {"prompt": "x" * 3000}, 413)
        assert long["error"]["code"] == "too_large"


async def test_case_110_it_lives_is_ready_and_has_figures(api_server: ApiServer) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    async with httpx.AsyncClient(base_url=api_server.url, trust_env=False, verify=False, timeout=SOON) as stranger:
        assert (await stranger.get("/healthz/live")).status_code == 200
        assert (await stranger.get("/healthz/ready")).status_code == 200
        assert (await stranger.get("/metrics")).status_code == 401
    response = await api_server.client.get("/metrics")
    names = {family.name for family in text_string_to_metric_families(response.text)}
    assert "http_requests" in names


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/v1/runs", "GET, HEAD, POST"),
        ("PUT", "/v1/completions", "POST"),
        ("POST", "/healthz/live", "GET, HEAD"),
    ],
)
async def test_what_a_path_allows_is_said_where_it_does_not(
    api_server: ApiServer, method: str, path: str, allowed: str
) -> None:
    response = await api_server.client.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == allowed
    assert response.json()["error"]["code"] == "method_not_allowed"


async def test_a_path_that_leads_nowhere_is_told_so(api_server: ApiServer) -> None:
    for path in ("/nope", "/v1", "/v1/runs/..%2f..", "/ui/../pyproject.toml", "/ui/nothing.js"):
        assert (await api_server.get(path, 404))["error"]["code"] == "not_found"


async def test_a_body_that_is_no_json_is_refused(api_server: ApiServer) -> None:
    for body in (b"{", b"\xff", b"[]", b"{}" * 2, b"[" * 5000):
        response = await api_server.client.post("/v1/completions", content=body)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "usage"


async def test_the_page_is_there_for_everybody_and_runs_nothing_of_others(api_server: ApiServer) -> None:
    async with httpx.AsyncClient(base_url=api_server.url, trust_env=False, verify=False, timeout=SOON) as stranger:
        page = await stranger.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "unsafe" not in page.headers["content-security-policy"]
        assert (await stranger.get("/ui/main.js")).status_code == 200
        assert (await stranger.head("/")).content == b""


async def test_every_route_has_a_rule_for_who_may_use_it() -> None:
    from callboard.actors.front.http.routes import find_route, routes

    for route in routes():
        path = route.path.replace("{path:path}", "x").replace("{model:path}", "x")
        found = find_route(route.method, path)
        assert found is not None, route.path
        assert found.rule is route.rule, route.path
