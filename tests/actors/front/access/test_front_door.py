"""A whole server, and callers who are not the person that runs it: what each may, over HTTP and over the websocket."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path

import httpx
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from support.access_keys import made_key
from support.access_server import FORBIDDEN, NOT_FOUND, AccessServer, entries, started
from support.http_server import SOON, ApiServer
from support.waiting import until
from trio_websocket import ConnectionRejected, open_websocket_url

from callboard.actors.front.access.scopes import METHODS
from callboard.actors.front.control.methods import METHODS as OWN
from callboard.actors.front.http.routes import routes


def test_every_method_has_a_rule_and_every_route_needs_a_key_but_those_of_the_page_and_of_health() -> None:
    assert set(OWN) <= set(METHODS)
    assert {route.path for route in routes() if route.rule.open} == {
        *("/", "/ui/{path:path}", "/openapi.json"),
        *("/healthz/live", "/healthz/ready"),
    }


async def test_another_s_run_is_refused_unless_one_is_an_admin(access_server: AccessServer) -> None:
    run = await started(access_server)
    for path, method in (
        (f"/v1/runs/{run}", "GET"),
        (f"/v1/runs/{run}/events", "GET"),
        (f"/v1/runs/{run}/cancel", "POST"),
    ):
        assert await access_server.status("bob", method, path) == 403, path
        assert await access_server.status("stranger", method, path) == 401, path
    async with access_server.http("bob") as http:
        assert run not in (await http.get("/v1/runs")).text
        assert run not in (await http.get("/v1/questions")).text
    async with access_server.socket("bob") as call:
        for method in ("_run/get", "_run/cancel", "_run/events", "_run/subscribe", "_run/graph", "_run/delete"):
            assert await call(method, run=run) == FORBIDDEN, method
        for method in ("_run/changes", "_run/restore"):
            assert await call(method, run=run) == FORBIDDEN, method
        for method in ("_actor/inspect", "_actor/pause", "_actor/cancel"):
            assert await call(method, path=f"/{run}") in (FORBIDDEN, NOT_FOUND), method
        assert run not in json.dumps(await call("_run/list"))
        assert run not in json.dumps(await call("_actor/tree"))
        assert await call("_question/list") == {"questions": []}
    assert await access_server.status("claire", "GET", f"/v1/runs/{run}") == 200
    assert await access_server.status("alice", "POST", f"/v1/runs/{run}/cancel") == 200


async def test_another_s_question_can_t_be_answered(access_server: AccessServer) -> None:
    await started(access_server)
    async with access_server.http("alice") as http:
        (question,) = (await http.get("/v1/questions")).json()["questions"]
    assert await access_server.status("bob", "POST", f"/v1/questions/{question['id']}/answer", {"value": "x"}) in (
        403,
        404,
    )
    async with access_server.socket("bob") as call:
        assert await call("_question/answer", question=question["id"], value="x") in (
            FORBIDDEN,
            NOT_FOUND,
            {"answered": False},
        )
    assert await access_server.status("alice", "POST", f"/v1/questions/{question['id']}/answer", {"value": "x"}) == 200


async def test_case_107_another_s_session_is_403_an_admin_s_200_and_lists_are_filtered(
    access_server: AccessServer,
) -> None:
    async with access_server.http("alice") as http:
        response = await http.post("/v1/sessions", json={"alias": "bridges"})
        assert response.status_code in (200, 201), response.text
        id = response.json()["id"]
    assert await access_server.status("bob", "GET", f"/v1/sessions/{id}") == 403
    assert await access_server.status("bob", "DELETE", f"/v1/sessions/{id}") == 403
    assert await access_server.status("bob", "POST", f"/v1/sessions/{id}/empty") == 403
    assert await access_server.status("claire", "GET", f"/v1/sessions/{id}") == 200
    for who, sees in (("alice", True), ("bob", False), ("claire", True)):
        async with access_server.http(who) as http:
            assert (id in (await http.get("/v1/sessions")).text) is sees, who
    async with access_server.socket("bob") as call:
        assert await call("_session/get", session=id) in (FORBIDDEN, -32602)
        assert id not in json.dumps(await call("_session/list"))


async def test_a_key_does_what_its_scopes_say_and_nothing_more(access_server: AccessServer) -> None:
    assert await access_server.status("reader", "GET", "/v1/runs") == 200
    for method, path in (
        ("POST", "/v1/runs"),
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/sessions"),
        ("GET", "/metrics"),
    ):
        assert await access_server.status("reader", method, path, {}) == 403, path
    async with access_server.socket("reader") as call:
        assert isinstance(await call("_run/list"), dict)
        for method in ("_run/start", "_session/list", "_mcp/reload", "_question/list", "_target/list"):
            assert await call(method) == FORBIDDEN, method
    assert await access_server.status("prometheus", "GET", "/v1/runs") == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer nonsense"}, 401),
        ({"sec-websocket-protocol": "callboard.v1"}, 401),
        ({"token": "yes", "origin": "https://evil.test"}, 403),
        ({"token": "yes", "origin": "null"}, 403),
        ({"token": "yes", "host": "evil.test"}, 403),
    ],
)
async def test_a_stranger_s_handshake_is_refused_before_it_is_answered(
    api_server: ApiServer, headers: dict[str, str], status: int
) -> None:
    lines = {"host": f"127.0.0.1:{api_server.port}", "connection": "Upgrade", "upgrade": "websocket"}
    lines |= {"sec-websocket-version": "13", "sec-websocket-key": base64.b64encode(b"k" * 16).decode(), **headers}
    if lines.pop("token", None):
        lines["authorization"] = f"Bearer {api_server.token}"
    text = "GET /ws HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    async with await trio.open_tcp_stream("127.0.0.1", api_server.port) as stream:
        await stream.send_all(text.encode())
        with trio.fail_after(SOON):
            assert (await stream.receive_some()).startswith(f"HTTP/1.1 {status}".encode())


async def test_a_page_s_token_comes_as_a_subprotocol_and_another_page_s_does_not_help(api_server: ApiServer) -> None:
    packed = base64.urlsafe_b64encode(api_server.token.encode()).rstrip(b"=").decode()
    url = f"ws://127.0.0.1:{api_server.port}/ws"
    offered = ["callboard.v1", f"bearer.{packed}"]
    own = [(b"origin", api_server.url.encode())]
    async with open_websocket_url(url, subprotocols=offered, extra_headers=own) as socket:
        assert socket.subprotocol == "callboard.v1"
    with pytest.raises(ConnectionRejected) as refused:
        async with open_websocket_url(url, subprotocols=offered, extra_headers=[(b"origin", b"http://127.0.0.1:1")]):
            pass
    assert refused.value.status_code == 403


TRICKS = [
    *("../asker", "../../etc/passwd", "/etc/passwd", "./asker", "asker/../asker", "~/.ssh/id_rsa", "asker/graph.yaml"),
    *("..", ".", "a\0b", "file:///etc/passwd", "asker\n", "%2e%2e/asker", "..\\asker"),
]


async def test_a_name_is_a_name_and_never_a_path(access_server: AccessServer) -> None:
    async with access_server.http("alice") as http, access_server.socket("alice") as call:
        for name in TRICKS:
            response = await http.post("/v1/runs", json={"target": name})
            assert response.status_code in (400, 403, 404), (name, response.text)
            chat = {"model": f"agent/{name}", "messages": [{"role": "user", "content": "x"}]}
            response = await http.post("/v1/chat/completions", json=chat)
            assert response.status_code in (400, 403, 404), (name, response.text)
            await http.post("/v1/sessions", json={"alias": name})
            assert await call("_run/start", target=name) in (FORBIDDEN, NOT_FOUND, -32011, -32602), name
    inside = (access_server.config / "sessions").resolve()
    made = list(access_server.config.parent.rglob("state.yaml"))
    assert all(path.resolve().is_relative_to(inside) for path in made), (
        "an alias may be an odd word, and is in its place"
    )


async def test_an_id_is_an_id_and_never_a_path(access_server: AccessServer) -> None:
    before = (access_server.config / "config.yaml").read_bytes()
    async with access_server.http("alice") as http:
        for id in ("..%2f..%2fconfig", "%2e%2e", "a%00b", "%2fetc%2fpasswd", "....//", "x" * 5000):
            for method, path in (
                ("GET", f"/v1/runs/{id}"),
                ("GET", f"/v1/runs/{id}/events"),
                ("GET", f"/v1/sessions/{id}"),
                ("DELETE", f"/v1/sessions/{id}"),
            ):
                response = await http.request(method, path)
                assert response.status_code in (400, 403, 404), (method, path, response.text)
    assert (access_server.config / "config.yaml").read_bytes() == before


async def test_a_workflow_or_a_file_of_one_s_own_needs_the_scope_for_it(
    access_server: AccessServer, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nstart: d\nnodes:\n  d: {type: end, output: hello}\n")
    async with access_server.http("alice") as http:
        for body in (
            {"target": str(file)},
            {"target": "asker", "files": ["/etc/passwd"]},
            {"target": "asker", "attach": ["/etc/passwd"]},
        ):
            response = await http.post("/v1/runs", json=body)
            assert response.status_code == 403, response.text
        text = file.read_text()
        for media in ("application/yaml", "multipart/form-data; boundary=x", "application/octet-stream"):
            response = await http.post("/v1/runs", content=text, headers={"content-type": media})
            assert response.status_code == 415, response.text
    assert await access_server.status("local", "POST", "/v1/runs", {"target": str(file)}) == 201


async def test_case_110_probes_and_metrics_of_a_whole_server(access_server: AccessServer) -> None:
    async with httpx.AsyncClient(
        base_url=access_server.api_server.url, trust_env=False, verify=False, timeout=SOON
    ) as anybody:
        assert (await anybody.get("/healthz/live")).json() == {"status": "ok"}
        assert (await anybody.get("/healthz/ready")).json() == {"status": "ok"}
        assert (await anybody.get("/metrics")).status_code == 401
    await started(access_server)
    async with access_server.http("prometheus") as http:
        response = await http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {s.name: s.value for family in text_string_to_metric_families(response.text) for s in family.samples}
    assert found["questions_open"] == 1
    assert found["runs_active"] == 1
    assert found["http_requests_total"] >= 1
    for secret in access_server.keys.values():
        assert secret not in response.text


async def test_case_109_a_running_server_takes_a_new_key_and_keeps_the_old_file_if_the_new_one_is_wrong(
    access_server: AccessServer, caplog: pytest.LogCaptureFixture
) -> None:
    file = access_server.config / "config.yaml"
    good = json.loads(file.read_text())
    file.write_text("api:\n  listen_addr: x\n  limits: {max_body_bytes: 0}\n  audit: {sink: tape}\n")
    access_server.api_server.server.hang_up()
    await until(lambda: "stay in effect" in caplog.text)
    for key in ("listen_addr", "max_body_bytes", "sink"):
        assert key in caplog.text
    assert await access_server.status("alice", "GET", "/v1/runs") == 200
    token, key = made_key("dora", "read:runs")
    access_server.keys["dora"] = token
    assert await access_server.status("dora", "GET", "/v1/runs") == 401
    good["api"]["auth"]["keys"] = entries({"dora": key})
    file.write_text(json.dumps(good))
    access_server.api_server.server.hang_up()
    with trio.fail_after(SOON):
        while await access_server.status("dora", "GET", "/v1/runs") != 200:
            await trio.sleep(0.05)
    assert await access_server.status("alice", "GET", "/v1/runs") == 401


def audited(access_server: AccessServer) -> list[str]:
    """The actions of the whole lines that the audit log has by now."""
    text = access_server.audit.read_text() if access_server.audit.exists() else ""
    return [json.loads(line)["action"] for line in text.splitlines(keepends=True) if line.endswith("\n")]


async def test_no_key_and_no_token_is_in_anything_that_is_written(
    access_server: AccessServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = {"AgentActivate", "RunControl", "AuthFailure"}
    run = await started(access_server)
    await access_server.status("bob", "GET", f"/v1/runs/{run}")
    await access_server.status("stranger", "GET", "/v1/runs")
    async with access_server.socket("alice") as call:
        await call("_run/cancel", run=run)
    async with await trio.open_tcp_stream("127.0.0.1", access_server.api_server.port) as stream:
        line = (
            f"GET /v1/runs?token={access_server.keys['alice']} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        await stream.send_all(line.encode())
        assert b" 401 " in await stream.receive_some()
    await until(lambda: told <= set(audited(access_server)), SOON)
    texts: dict[str, str] = {}

    def is_read() -> bool:
        places = [path for path in (tmp_path / "state").rglob("*") if path.parent.name != "servers"]
        try:
            texts.update((str(path), path.read_text(errors="replace")) for path in places if path.is_file())
        except FileNotFoundError:  # it was a file that the server was about to rename
            return False
        return bool(texts)

    await until(is_read, SOON)
    texts["audit"] = access_server.audit.read_text()
    texts["log"] = "\n".join(
        record.getMessage() + repr(vars(record)) for record in caplog.records if record.name.startswith("callboard")
    )
    assert [
        (place, who) for place, text in texts.items() for who, secret in access_server.keys.items() if secret in text
    ] == []
    assert told <= set(audited(access_server))
