"""What strangers and callers with few scopes try, on real sockets, and what comes of it: nothing."""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio
from support.access_server import FORBIDDEN, NOT_FOUND, AccessServer, started
from support.http_server import SOON, ApiServer

from callboard.actors.front.server import listener
from callboard.actors.front.server.token_file import ServerFile, write_server

GRAPH = "name: mine\nstart: d\nnodes:\n  d: {type: end, output: hello}\n"
USAGE = -32011


@asynccontextmanager
async def line_to(api_server: ApiServer) -> AsyncIterator[trio.SocketStream]:
    """A connection, raw."""
    async with await trio.open_tcp_stream("127.0.0.1", api_server.port) as stream:
        with trio.fail_after(SOON):
            yield stream


def upgrade(api_server: ApiServer, *more: str, token: bool = True) -> bytes:
    """A request for a websocket."""
    key = base64.b64encode(b"k" * 16).decode()
    lines = ["GET /ws HTTP/1.1", f"host: 127.0.0.1:{api_server.port}", "connection: Upgrade", "upgrade: websocket"]
    lines += ["sec-websocket-version: 13", f"sec-websocket-key: {key}", *more]
    lines += [f"authorization: Bearer {api_server.token}"] if token else []
    return "\r\n".join([*lines, "", ""]).encode()


def frame(payload: bytes, *, first: int = 0x81) -> bytes:
    """A masked frame; `first` is its first byte."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else struct.pack("!BH", 254, size)
    return bytes([first]) + length + bytes(4) + payload


async def everything(stream: trio.SocketStream) -> bytes:
    """What comes until the other side hangs up."""
    text = b""
    while True:
        try:
            piece = await stream.receive_some(65536)
        except trio.BrokenResourceError:
            return text
        if not piece:
            return text
        text += piece


# --- the websocket -------------------------------------------------------------------------------------------


async def test_a_compression_bomb_is_not_even_unpacked(api_server: ApiServer) -> None:
    async with line_to(api_server) as stream:
        offer = "sec-websocket-extensions: permessage-deflate; client_max_window_bits"
        await stream.send_all(upgrade(api_server, offer))
        answer = await stream.receive_some()
        assert answer.startswith(b"HTTP/1.1 101")
        assert b"deflate" not in answer.lower()
        await stream.send_all(frame(b"\x00" * 100, first=0xC1))  # as if it had been agreed on
        assert b"jsonrpc" not in await everything(stream)
    assert await api_server.get("/v1/info")


async def test_a_message_in_many_fragments_has_the_same_bound_as_one(api_server: ApiServer) -> None:
    async with line_to(api_server) as stream:
        await stream.send_all(upgrade(api_server))
        await stream.receive_some()
        ended = trio.Event()

        async def send() -> None:
            try:
                await stream.send_all(frame(b'{"x":"', first=0x01))
                for _ in range(40):
                    await stream.send_all(frame(b"a" * 65_000, first=0x00))
            except trio.BrokenResourceError:
                pass
            ended.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            assert struct.pack("!H", 1009) in await everything(stream)
            await ended.wait()
    assert await api_server.get("/v1/info")


@pytest.mark.parametrize("token", [True, False])
async def test_a_connection_that_began_with_http_never_becomes_a_websocket(api_server: ApiServer, token: bool) -> None:
    """What speaks HTTP knows no websockets, so nobody gets past the control channel's own handshake."""
    async with line_to(api_server) as stream:
        head = f"GET /healthz/live HTTP/1.1\r\nhost: 127.0.0.1:{api_server.port}\r\n\r\n".encode()
        await stream.send_all(head)
        said = b""
        while b'"ok"}' not in said:
            said += await stream.receive_some()
        await stream.send_all(upgrade(api_server, token=token))
        answer = await stream.receive_some()
    assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 401", b"HTTP/1.1 400", b"HTTP/1.1 404")), answer


async def test_a_header_that_is_given_twice_equals_nothing(api_server: ApiServer) -> None:
    for twice in ("origin: https://evil.test", "authorization: Bearer nonsense"):
        async with line_to(api_server) as stream:
            own = f"origin: {api_server.url}"
            await stream.send_all(upgrade(api_server, own, twice))
            assert (await stream.receive_some()).startswith((b"HTTP/1.1 403", b"HTTP/1.1 401"))


# --- connections ---------------------------------------------------------------------------------------------


async def connections(api_server: ApiServer) -> int:
    """How many are open at the server, but for the client's own."""
    import psutil

    here = psutil.Process().net_connections("tcp")
    return sum(each.laddr.port == api_server.port and each.status in ("ESTABLISHED", "CLOSE_WAIT") for each in here)


@pytest.mark.parametrize("said", [b"", b"GET", b"POST / HT", b"GET /healthz/live HTTP/1.1\r\nhost: localhost\r\n\r\n"])
async def test_who_hangs_up_is_forgotten_at_once(api_server: ApiServer, said: bytes) -> None:
    await api_server.get("/v1/info")
    before = await connections(api_server)
    for _ in range(10):
        async with line_to(api_server) as stream:
            if said:
                await stream.send_all(said)
            if said.endswith(b"\n\n"):
                await stream.receive_some()
    with trio.fail_after(SOON):
        while await connections(api_server) > before:
            await trio.sleep(0.01)


async def test_a_client_that_reads_nothing_of_its_reply_does_not_keep_its_place(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HEAD_WITHIN", SOON)
    api_server.agent_runner.agent('start: a\nnodes:\n  a: {type: end, output: "' + "x" * 400_000 + '"}\n', name="long")
    run = (await api_server.post("/v1/runs", {"target": "long"}, 201))["run"]
    with trio.fail_after(SOON):
        while (await api_server.get(f"/v1/runs/{run}"))["status"] != "done":
            await trio.sleep(0.01)
    before = await connections(api_server)
    async with line_to(api_server) as stream:
        stream.setsockopt(6, 10, 1)  # acknowledge nothing early
        request = (
            f"GET /v1/runs/{run}/events HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {api_server.token}\r\n\r\n"
        )
        with trio.fail_after(SOON):
            while await connections(api_server) <= before:
                await trio.sleep(0.01)
            monkeypatch.setattr(listener, "TAKES_WITHIN", 0.3)
            await stream.send_all(request.encode() * 60)
            while await connections(api_server) > before:
                await trio.sleep(0.05)


# --- names and paths -----------------------------------------------------------------------------------------


async def test_a_name_means_what_is_installed_and_nothing_that_lies_where_the_server_was_started(
    access_server: AccessServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "planted").mkdir(parents=True)
    (here / "planted" / "graph.yaml").write_text(GRAPH)
    (here / "written").write_text(GRAPH)
    (tmp_path / "graph.yaml").write_text(GRAPH)
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    async with access_server.http("alice") as http, access_server.socket("alice") as call:
        assert (await http.post("/v1/runs", content=b'{"target": "\\udcff"}')).status_code == 400
        for name in ("planted", "written", "~", "~root", "here", "\u00e9" * 200, "x" * 300, "agents", "asker\u200b"):
            response = await http.post("/v1/runs", content=_json({"target": name}))
            assert response.status_code in (400, 403, 404), (name, response.text)
            assert "hello" not in response.text
            assert await call("_run/start", target=name) in (FORBIDDEN, NOT_FOUND, USAGE, -32602), name
            meta = {"callboard": {"agent": name}}
            assert isinstance(await call("session/new", cwd="/", mcpServers=[], _meta=meta), int), name
            for path in ("/v1/chat/completions", f"/agui?target=agent/{name[:50]}"):
                given = {"model": f"graph/{name}", "messages": [], "threadId": "t", "runId": "r"}
                assert (await http.post(path, content=_json(given))).status_code in (400, 403, 404), (path, name)
    assert await access_server.status("local", "POST", "/v1/runs", {"target": "planted"}) == 201, (
        "who runs the server may"
    )


def _json(value: object) -> bytes:
    import json

    return json.dumps(value).encode()


async def test_a_knowledge_base_that_is_a_path_needs_the_scope_for_files(
    access_server: AccessServer, tmp_path: Path
) -> None:
    planted = tmp_path / "planted.kb"
    planted.mkdir()
    async with access_server.http("alice") as http:
        for name in (str(planted), "planted.kb", "../planted.kb", "./x/y"):
            response = await http.post("/v1/runs", json={"target": "asker", "knowledge": [name]})
            assert response.status_code == 403, response.text
            body = {"prompt": "x", "knowledge": [name]}
            assert (await http.post("/v1/completions", json=body)).status_code in (400, 403)
            assert (await http.post("/v1/sessions", json={"rag": name})).status_code in (400, 403)


async def test_an_mcp_server_of_the_caller_s_own_is_not_started_without_the_scope_for_files(
    access_server: AccessServer, tmp_path: Path
) -> None:
    proof = tmp_path / "proof"
    servers = [
        {"name": "mine", "command": "/bin/sh", "args": ["-c", f"touch {proof}"], "env": []},
        {"type": "http", "name": "inside", "url": "http://127.0.0.1:9/mcp", "headers": []},
    ]
    async with access_server.socket("alice") as call:
        own = await call("session/new", cwd=str(tmp_path), mcpServers=[])
        for server in servers:
            for method in ("session/new", "session/load", "session/resume"):
                given = {} if method == "session/new" else {"sessionId": own["sessionId"]}
                told = await call(method, cwd=str(tmp_path), mcpServers=[server], **given)
                assert told == FORBIDDEN, (method, server, told)
        prompt = [{"type": "text", "text": "x"}]
        access_server.api_server.agent_runner.models.script("there is nothing")
        assert isinstance(await call("session/prompt", sessionId=own["sessionId"], prompt=prompt), dict | int)
    assert not proof.exists()


async def test_a_link_in_a_prompt_is_a_word_and_reads_no_file(access_server: AccessServer, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret of the server")
    access_server.api_server.agent_runner.models.script("thanks")
    async with access_server.socket("alice") as call:
        made = await call("session/new", cwd="/", mcpServers=[])
        link = {"type": "resource_link", "name": "secret", "uri": f"file://{secret}"}
        await call("session/prompt", sessionId=made["sessionId"], prompt=[link])
    asked = [str(request.body) for request in access_server.api_server.agent_runner.models.requests]
    assert asked
    assert "the secret of the server" not in "".join(asked)


RAW = [
    *("/ui/../../../../etc/passwd", "/ui/%2e%2e/%2e%2e/etc/passwd", "/ui/..%2f..%2fetc%2fpasswd", "//etc/passwd"),
    *("/ui/%2fetc%2fpasswd", "/ui//etc/passwd", "/ui/main.js%00.html", "/ui/%c0%ae%c0%ae/etc/passwd", "/ui/..\\..\\x"),
    *("http://evil.test/etc/passwd", "/ui/\u2025/etc/passwd", "/ui/__init__.py", "/ui/%2e/__init__.py", "*", "/ui/"),
    *("/../etc/passwd", "/ui/main.js/../../__init__.py", "/ui/file:///etc/passwd", "/ui/%ff%fe", "/" + "a" * 20_000),
]


@pytest.mark.parametrize("target", RAW)
async def test_no_path_leads_out_of_the_page_s_own_files(api_server: ApiServer, target: str) -> None:
    async with line_to(api_server) as stream:
        line = f"GET {target} HTTP/1.1\r\nhost: 127.0.0.1:{api_server.port}\r\nconnection: close\r\n\r\n"
        await stream.send_all(line.encode())
        answer = await everything(stream)
    assert b"root:" not in answer
    assert b"import" not in answer
    assert answer == b"" or answer.split(b" ", 2)[1] in (b"400", b"401", b"404", b"403", b"431"), answer[:200]


# --- pages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
async def test_what_any_page_can_send_without_being_asked_starts_nothing(api_server: ApiServer, media: str) -> None:
    """A form or a simple request of a page: no token, for the token is no cookie."""
    headers = {"content-type": media, "cookie": f"token={api_server.token}; callboard.token={api_server.token}"}
    async with httpx.AsyncClient(base_url=api_server.url, trust_env=False, verify=False, timeout=SOON) as browser:
        for origin, status in ((None, 401), (api_server.url, 401), ("https://evil.test", 403), ("null", 403)):
            shown = {**headers, **({"origin": origin} if origin else {})}
            for path in ("/v1/runs", "/agui", "/v1/chat/completions", "/v1/mcp/reload", "/v1/sessions"):
                response = await browser.post(path, content=b'{"target":"asker"}', headers=shown)
                assert response.status_code == status, (path, origin)
                assert "access-control-allow-origin" not in response.headers
    assert (await api_server.get("/v1/runs"))["runs"] == []


async def test_a_page_can_t_be_framed_and_runs_no_script_but_its_own(api_server: ApiServer) -> None:
    async with httpx.AsyncClient(base_url=api_server.url, trust_env=False, verify=False, timeout=SOON) as browser:
        response = await browser.get("/")
    policy = dict(part.strip().partition(" ")[::2] for part in response.headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["script-src"], policy["frame-ancestors"]) == ("'none'", "'self'", "'none'")
    assert (policy["base-uri"], policy["form-action"]) == ("'none'", "'none'")
    assert "unsafe" not in response.headers["content-security-policy"]
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert api_server.token not in response.text


# --- the token's file ----------------------------------------------------------------------------------------


def test_a_link_or_another_s_directory_in_the_place_of_ours_gets_no_token(tmp_path: Path) -> None:
    server = ServerFile(url="http://127.0.0.1:1", token="t" * 32, pid=1, started=0.0)
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o777)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "callboard").symlink_to(elsewhere)
    with pytest.raises(PermissionError):
        write_server(server, 1, environ)
    (tmp_path / "state" / "callboard").unlink()
    (tmp_path / "state" / "callboard").mkdir()
    (tmp_path / "state" / "callboard" / "servers").symlink_to(elsewhere)
    with pytest.raises(PermissionError):
        write_server(server, 1, environ)
    assert list(elsewhere.iterdir()) == []


def test_a_link_that_waits_in_the_place_of_the_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    server = ServerFile(url="http://127.0.0.1:1", token="t" * 32, pid=1, started=0.0)
    folder = tmp_path / "callboard" / "servers"
    folder.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder / "1.json").symlink_to(victim)
    before = os.umask(0)
    try:
        path = write_server(server, 1, {"XDG_STATE_HOME": str(tmp_path)})
    finally:
        os.umask(before)
    assert victim.read_text() == "mine"
    assert not path.is_symlink()
    assert [oct(each.stat().st_mode & 0o777) for each in (path, folder, folder.parent)] == ["0o600", "0o700", "0o700"]


# --- everything at once --------------------------------------------------------------------------------------


TEN_THOUSAND = pytest.param(10_000, marks=(pytest.mark.soak, pytest.mark.timeout(300)))
"""A core is busy with them for 16 s, so on a busy machine they take a minute and more."""


@pytest.mark.parametrize("logins", [200, TEN_THOUSAND])
async def test_while_thousands_try_bad_keys_on_real_sockets_a_good_caller_is_served(
    access_server: AccessServer, logins: int
) -> None:
    run = await started(access_server)
    answers: dict[int, int] = {}
    limiter = trio.CapacityLimiter(20)
    id = access_server.keys["alice"].split("_")[1]

    async def bad(number: int) -> None:
        request = f"GET /v1/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer cb_{id}_{number:064}\r\n\r\n"
        async with limiter, await trio.open_tcp_stream("127.0.0.1", access_server.api_server.port) as stream:
            await stream.send_all(request.encode())
            status = int((await stream.receive_some()).split(b" ", 2)[1])
            answers[status] = answers.get(status, 0) + 1

    async with trio.open_nursery() as nursery, access_server.http("alice") as http:
        for number in range(logins):
            nursery.start_soon(bad, number)
        while sum(answers.values()) < logins:
            assert (await http.get(f"/v1/runs/{run}")).status_code == 200
            await trio.sleep(0.02)
    assert {401, 429} <= set(answers) <= {401, 429, 503}, "on a busy machine some find as many under way as may be"
    assert answers[401] <= logins // 5, "almost none of them is even looked at"
