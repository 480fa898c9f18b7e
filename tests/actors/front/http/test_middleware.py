"""What stands before the application."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from support.access_keys import LOCAL_TOKEN, AuditFile, access_for, client_of, made_key

from callboard.actors.front.access.access_control import AccessControl
from callboard.actors.front.access.scopes import METHODS
from callboard.actors.front.http.app import guarded
from callboard.actors.front.http.routes import find_route, routes
from callboard.actors.front.metrics import Metrics
from callboard.actors.io.server_log import REQUEST
from callboard.protocol.settings.api import ApiLimits, Cors

BEARER = {"authorization": f"Bearer {LOCAL_TOKEN}"}

ROUTES = {(route.method, route.path): route.rule for route in routes()}


class EchoApplication:
    """An application that tells what it was asked, and can be made to wait."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.about: list[dict[str, str]] = []
        self.status = 200
        self.headers: list[tuple[bytes, bytes]] = [(b"Server", b"something/1.0")]
        self.hold: trio.Event | None = None
        self.body = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope)
        self.about.append(dict(REQUEST.get()))
        self.body = b""
        more = True
        while more:
            message = await receive()
            self.body += message.get("body", b"")
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"so ", "more_body": True})
        if self.hold is not None:
            await self.hold.wait()
        await send({"type": "http.response.body", "body": b"it is"})


@pytest.fixture
def app() -> EchoApplication:
    return EchoApplication()


def client(
    app: EchoApplication, access: AccessControl | None = None, metrics: Metrics | None = None, peer: str = "127.0.0.1"
) -> Any:
    return client_of(guarded(app, access or access_for(), metrics=metrics), peer)


def error_of(response: httpx.Response) -> dict[str, str]:
    body = response.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ["code", "message", "request_id", "type", "param"]
    assert response.headers["x-request-id"] == body["error"]["request_id"]
    return dict(body["error"])


async def test_every_reply_has_an_id_and_the_headers_that_keep_browsers_careful(app: EchoApplication) -> None:
    async with client(app) as http:
        reply = await http.get("/v1/runs", headers=BEARER)
        assert reply.text == "so it is"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["referrer-policy"] == "strict-origin-when-cross-origin"
        assert "strict-transport-security" not in reply.headers
        assert "server" not in reply.headers
        assert len(reply.headers["x-request-id"]) == 36
        refused = await http.get("/v1/runs")
        assert refused.headers["x-content-type-options"] == "nosniff"
    async with client(app, access_for(force_https=True)) as http:
        reply = await http.get("/v1/runs", headers=BEARER)
        assert reply.headers["strict-transport-security"].startswith("max-age=31536000")


async def test_a_client_s_own_request_id_is_kept_if_it_is_a_sane_one(app: EchoApplication) -> None:
    async with client(app) as http:
        reply = await http.get("/v1/runs", headers={**BEARER, "x-request-id": "trace-7.1"})
        assert reply.headers["x-request-id"] == "trace-7.1"
        assert app.asked[0]["state"]["request_id"] == "trace-7.1"
        reply = await http.get("/v1/runs", headers={**BEARER, "x-request-id": 'x","evil":"'})
        assert "evil" not in reply.headers["x-request-id"]


async def test_a_reply_that_says_something_else_itself_is_left_alone(app: EchoApplication) -> None:
    app.headers = [(b"Referrer-Policy", b"no-referrer")]
    async with client(app) as http:
        reply = await http.get("/v1/runs", headers=BEARER)
    assert reply.headers.get_list("referrer-policy") == ["no-referrer"]


async def test_case_105_a_bad_key_is_told_in_the_error_table_s_shape(app: EchoApplication) -> None:
    async with client(app) as http:
        for headers in ({}, {"authorization": "Bearer nonsense"}):
            reply = await http.get("/v1/runs", headers=headers)
            assert (reply.status_code, error_of(reply)["code"]) == (401, "unauthorized")
            assert reply.headers["www-authenticate"] == "Bearer"
    assert app.asked == []


async def test_a_caller_without_the_scope_is_refused_and_told_which(app: EchoApplication) -> None:
    token, entry = made_key("alice", "read:runs")
    async with client(app, access_for(entry)) as http:
        http.headers["authorization"] = f"Bearer {token}"
        assert (await http.get("/v1/runs")).status_code == 200
        reply = await http.post("/v1/runs", json={})
        assert (reply.status_code, error_of(reply)["code"]) == (403, "forbidden")
        assert "run:agents" in reply.json()["error"]["message"]
        assert app.asked[0]["state"]["caller"].subject == "alice"
    assert len(app.asked) == 1


@pytest.mark.parametrize(("method", "template"), [route for route, rule in ROUTES.items() if rule.scopes])
async def test_each_route_wants_every_one_of_its_scopes_and_no_more(
    app: EchoApplication, method: str, template: str
) -> None:
    rule = ROUTES[method, template]
    path = template.replace("{path:path}", "a/b").replace("{model:path}", "a/b").replace("{", "").replace("}", "")
    enough, entry = made_key("enough", *rule.scopes)
    others = [made_key(f"without {scope}", *(set(rule.scopes) - {scope})) for scope in rule.scopes]
    nothing = made_key("nothing")
    access = access_for(entry, nothing[1], *(key for _, key in others))
    async with client(app, access) as http:

        async def status(token: str) -> int:
            reply = await http.request(method, path, headers={"authorization": f"Bearer {token}"})
            return int(reply.status_code)

        assert await status(enough) == 200
        assert [await status(token) for token, _ in (*others, nothing)] == [403] * (len(others) + 1)


async def test_a_path_that_the_table_does_not_have_is_not_found_for_all_but_the_owner(app: EchoApplication) -> None:
    token, entry = made_key("alice", *{scope for rule in ROUTES.values() for scope in rule.scopes})
    async with client(app, access_for(entry)) as http:
        for path in (
            "/v1/nothing",
            "/v1/runs/../../healthz/live/x",
            "/V1/runs",
            "//v1/runs",
            "/v1/runs/a/b/c",
            "/metrics/",
        ):
            reply = await http.get(path, headers={"authorization": f"Bearer {token}"})
            assert (reply.status_code, error_of(reply)["code"]) == (404, "not_found"), path
        assert app.asked == []
        assert (await http.get("/v1/nothing", headers=BEARER)).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/healthz/live/../../v1/runs", "/healthz/live%2f..%2f..%2fv1%2fruns", "/ui/../v1/runs", "/ui/..%2fv1%2fruns"),
        *("/;/v1/runs", "/v1/runs;/healthz/live", "/v1/runs?x=/healthz/live", "/v1/runs#/healthz/live", "/healthz"),
        *("/healthz/live/", "/HEALTHZ/live", "/openapi.json/", "/%00", "/healthz/live\x00"),
    ],
)
async def test_no_trick_with_a_path_gets_a_stranger_to_more_than_the_open_routes(
    app: EchoApplication, path: str
) -> None:
    async with client(app) as http:
        try:
            reply = await http.get(path)
        except httpx.InvalidURL:
            return
    if reply.status_code == 200:  # what the application sees is what was looked up
        (scope,) = app.asked
        found = find_route("GET", scope["path"])
        assert found is not None
        assert found.rule.open
    else:
        assert reply.status_code == 401


async def test_health_is_asked_for_by_anybody_and_by_any_name(app: EchoApplication) -> None:
    async with client(app, peer="10.1.2.3") as http:
        for path in ("/healthz/live", "/healthz/ready"):
            assert (await http.get(path, headers={"host": "10.9.9.9:3400"})).status_code == 200
        assert (await http.get("/", headers={"host": "evil.test"})).status_code == 403
        assert (await http.get("/metrics")).status_code == 401
    async with client(app, access_for(metrics_public=True)) as http:
        assert (await http.get("/metrics")).status_code == 200


async def test_another_page_and_another_name_are_refused(app: EchoApplication) -> None:
    async with client(app) as http:
        for headers in ({"origin": "https://evil.test"}, {"origin": "null"}, {"host": "evil.test:3400"}):
            reply = await http.post("/v1/runs", headers={**BEARER, **headers}, json={})
            assert (reply.status_code, error_of(reply)["code"]) == (403, "forbidden")
            assert "access-control-allow-origin" not in reply.headers
    assert app.asked == []


async def test_pages_that_were_allowed_may_read_replies_and_refusals(app: EchoApplication) -> None:
    access = access_for(cors=Cors(allowed_origins=("https://friend.test",), allow_credentials=True))
    async with client(app, access) as http:
        http.headers["origin"] = "https://friend.test"
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        before = await http.options("/v1/runs", headers=asked)
        assert before.status_code == 204
        assert "POST" in before.headers["access-control-allow-methods"]
        assert "authorization" in before.headers["access-control-allow-headers"]
        for reply in (before, await http.get("/v1/runs", headers=BEARER), await http.get("/v1/runs")):
            assert reply.headers["access-control-allow-origin"] == "https://friend.test"
            assert reply.headers["access-control-allow-credentials"] == "true"
            assert reply.headers["vary"] == "origin"
        stranger = await http.options("/v1/runs", headers={**asked, "origin": "https://evil.test"})
        assert stranger.status_code == 403


async def test_case_107_the_next_request_of_a_minute_is_429_with_retry_after(
    app: EchoApplication, mock_clock: trio.testing.MockClock
) -> None:
    (alice, one), (bob, two) = made_key("alice", "read:runs"), made_key("bob", "read:runs")
    metrics = Metrics()
    access = access_for(one, two, limits=ApiLimits(rate_limit_per_minute=60, rate_limit_burst=0))
    access.metrics = metrics
    async with client(app, access, metrics) as http:
        statuses = [
            (await http.get("/v1/runs", headers={"authorization": f"Bearer {alice}"})).status_code for _ in range(60)
        ]
        assert statuses == [200] * 60
        reply = await http.get("/v1/runs", headers={"authorization": f"Bearer {alice}"})
        assert (reply.status_code, error_of(reply)["code"]) == (429, "rate_limited")
        assert 1 <= int(reply.headers["retry-after"]) <= 120
        assert (await http.get("/v1/runs", headers={"authorization": f"Bearer {bob}"})).status_code == 200
    assert b'rate_limit_rejections_total{kind="requests"} 1.0' in metrics.exposition()


async def test_case_105_a_body_that_is_too_big_is_413_whether_it_says_so_or_not(app: EchoApplication) -> None:
    access = access_for(limits=ApiLimits(max_body_bytes=1024))

    async def dribble() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    async with client(app, access) as http:
        http.headers.update(BEARER)
        assert (await http.post("/v1/runs", content=b"x" * 1024)).status_code == 200
        assert app.body == b"x" * 1024
        said = await http.post("/v1/runs", content=b"x" * 1025)
        unsaid = await http.post("/v1/runs", content=dribble())
        for reply in (said, unsaid):
            assert (reply.status_code, error_of(reply)["code"]) == (413, "too_large")


async def test_a_request_that_takes_too_long_is_504_and_a_stream_of_events_is_not(
    app: EchoApplication, autojump_clock: trio.testing.MockClock
) -> None:
    app.hold = trio.Event()
    access = access_for(request_timeout_seconds=5.0)

    async def never(scope: Any, receive: Any, send: Any) -> None:
        await trio.sleep_forever()

    async with client_of(guarded(never, access)) as http:
        reply = await http.get("/v1/runs", headers=BEARER)
        assert (reply.status_code, error_of(reply)["code"]) == (504, "timeout")
    app.headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    async with client(app, access) as http, trio.open_nursery() as nursery:

        async def later() -> None:
            await trio.sleep(600)
            assert app.hold is not None
            app.hold.set()

        nursery.start_soon(later)
        reply = await http.get("/v1/runs/r/events", headers=BEARER, timeout=None)
        assert reply.text == "so it is"


async def test_case_105_a_saturated_server_is_503(app: EchoApplication, autojump_clock: trio.testing.MockClock) -> None:
    token, entry = made_key("alice", "read:runs")
    access = access_for(entry, limits=ApiLimits(per_subject_concurrency=2))
    async with client(app, access) as http, trio.open_nursery() as nursery:
        http.headers["authorization"] = f"Bearer {token}"
        assert (await http.get("/v1/runs")).status_code == 200  # the key is known from now on: no thread, no real time
        app.hold = trio.Event()
        for _ in range(2):
            nursery.start_soon(http.get, "/v1/runs")
        await trio.testing.wait_all_tasks_blocked()
        reply = await http.get("/v1/runs")
        assert (reply.status_code, error_of(reply)["code"]) == (503, "saturated")
        assert reply.headers["retry-after"] == "1"
        app.hold.set()


async def test_requests_are_counted_by_template_and_not_by_path(app: EchoApplication) -> None:
    metrics = Metrics()
    async with client(app, metrics=metrics) as http:
        for number in range(20):
            await http.get(f"/v1/runs/run-{number}", headers=BEARER)
            await http.get(f"/strange/{number}", headers=BEARER)
        await http.request("BREW", "/v1/runs", headers=BEARER)
    families = {family.name: family for family in text_string_to_metric_families(metrics.exposition().decode())}
    counted = {
        (sample.labels["method"], sample.labels["route"]): sample.value
        for sample in families["http_requests"].samples
        if sample.name.endswith("_total")
    }
    assert counted == {("GET", "/v1/runs/{run}"): 20, ("GET", "other"): 20, ("other", "other"): 1}
    assert [sample.value for sample in families["http_requests_in_flight"].samples] == [0]


async def test_what_a_caller_did_is_in_the_audit_log_with_its_result(app: EchoApplication, tmp_path: Path) -> None:
    audit = AuditFile(tmp_path)
    token, entry = made_key("alice", "read:sessions", "write:sessions")
    async with client(app, access_for(entry, log=audit.log)) as http:
        http.headers["authorization"] = f"Bearer {token}"
        await http.post("/v1/sessions", json={}, headers={"x-request-id": "r-1"})
        await http.get("/v1/sessions/s-1")
        app.status = 403
        await http.get("/v1/sessions/s-2")
        app.status = 404
        await http.delete("/v1/sessions/s-3")
        await http.post("/v1/runs", json={})
        await http.get("/v1/sessions")
    lines = audit.lines()
    assert [(line["action"], line["result"], line.get("target")) for line in lines] == [
        ("SessionCreate", "success", None),
        ("SessionRead", "success", "s-1"),
        ("SessionRead", "denied", "s-2"),
        ("SessionDelete", "error", "s-3"),
        ("AccessDenied", "denied", None),
    ]
    assert {line["subject"] for line in lines} == {"alice"}
    assert {line["key_id"] for line in lines} == {entry.id}
    assert lines[0]["request_id"] == "r-1"
    assert lines[0]["peer"] == "127.0.0.1"
    assert token not in json.dumps(lines)


async def test_log_lines_of_a_request_say_whose_it_is(app: EchoApplication, caplog: pytest.LogCaptureFixture) -> None:
    token, entry = made_key("alice", "read:runs")
    with caplog.at_level(logging.INFO, "callboard.server.requests"):
        async with client(app, access_for(entry)) as http:
            await http.get("/v1/runs", headers={"authorization": f"Bearer {token}", "x-request-id": "r-9"})
            await http.get("/healthz/live")
    assert app.about[0] == {"request_id": "r-9", "subject": "alice", "peer": "127.0.0.1"}
    (record,) = caplog.records
    assert (record.status, record.subject) == (200, "alice")


def test_the_table_has_only_scopes_that_exist() -> None:
    from callboard.protocol.control.caller import SCOPES

    asked = {scope for rule in (*ROUTES.values(), *METHODS.values()) for scope in rule.scopes}
    assert asked <= set(SCOPES)


async def test_other_kinds_of_connections_pass_untouched() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    layers = guarded(app, access_for())
    await layers({"type": "lifespan"}, None, None)
    assert seen == [{"type": "lifespan"}]
