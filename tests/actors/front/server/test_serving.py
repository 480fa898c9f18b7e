"""The life of a server: where it listens, what it leaves, and how it ends with work under way."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from support.http_agents import ASKER, HELLO
from support.http_server import ApiServer, Serve, told
from support.messages import has_message, says
from support.starter import CALLBOARD
from support.waiting import PATIENCE, until
from trio_websocket import HandshakeError, open_websocket_url

import callboard
from callboard.actors.front.control import hub
from callboard.actors.front.server import serving
from callboard.actors.front.server.listener import HEAD_WITHIN, upgrades
from callboard.actors.front.server.serving import HttpServer, ListeningServer, ServeOptions
from callboard.actors.front.server.token_file import ServerFile, read_servers, write_server
from callboard.protocol.errors import ConfigError, UsageError

SLOW = """
start: work
nodes:
  work: {type: script, script: work.sh, timeout: 60, next: done}
  done: {type: end, output: done}
"""


async def slow_run(api_server: ApiServer) -> tuple[str, Path]:
    """A run that ends when a file is there."""
    go_on = api_server.agent_runner.config_dir / "go"
    api_server.agent_runner.agent(SLOW, name="slow", work=f"until [ -e {go_on} ]; do sleep 0.05; done; echo {{}}")
    run = await api_server.post("/v1/runs", {"target": "slow"}, 201)
    return str(run["run"]), go_on


# --- the port -----------------------------------------------------------------------------------------------


async def test_one_port_speaks_http_and_websocket(api_server: ApiServer) -> None:
    assert (await api_server.get("/v1/info"))["name"] == "callboard"
    url = f"ws://127.0.0.1:{api_server.port}/ws"
    headers = [(b"authorization", f"Bearer {api_server.token}".encode())]
    async with open_websocket_url(url, extra_headers=headers) as socket_:
        await socket_.send_message(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "_server/info"}))
        with trio.fail_after(60):
            answer = json.loads(await socket_.get_message())
    assert answer["result"]["name"] == "callboard"


async def test_a_websocket_without_a_token_is_refused(api_server: ApiServer) -> None:
    with pytest.raises(HandshakeError):
        async with open_websocket_url(f"ws://127.0.0.1:{api_server.port}/ws"):
            pass


async def test_a_head_that_comes_in_pieces_is_put_together(api_server: ApiServer) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", api_server.port) as stream:
        text = f"GET /healthz/live HTTP/1.1\r\nhost: 127.0.0.1:{api_server.port}\r\nconnection: close\r\n\r\n"
        for piece in (text[:2], text[2:30], text[30:-1], text[-1:]):
            await stream.send_all(piece.encode())
            await trio.sleep(0.01)
        with trio.fail_after(60):
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01", b"GET / HTTP/1.1\r\n" + b"x" * 70_000, b"PRI * HTTP/2.0\r\n\r\n", b""]
)
async def test_garbage_ends_its_own_connection_only(api_server: ApiServer, garbage: bytes) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", api_server.port) as stream:
        await stream.send_all(garbage)
        await stream.send_eof()
        with trio.fail_after(60):
            while await stream.receive_some():
                pass
    assert (await api_server.get("/v1/info"))["name"] == "callboard"


def test_a_client_that_says_nothing_has_little_time_for_it() -> None:
    assert HEAD_WITHIN <= 30
    assert upgrades(b"GET /ws HTTP/1.1\r\nConnection: Upgrade\r\nUPGRADE:  WebSocket ")
    assert not upgrades(b"POST /ws HTTP/1.1\r\nUpgrade: websocket")
    assert not upgrades(b"GET /ws HTTP/1.1\r\nX-Upgrade: websocket")


async def test_a_port_that_is_taken_is_told_so(api_server: ApiServer) -> None:
    async with callboard.Root(config_dir=api_server.agent_runner.config_dir) as root:
        with pytest.raises(
            UsageError, match=f"can't listen on 127.0.0.1:{api_server.port}: .*; choose another port with --port"
        ):
            await HttpServer(ServeOptions(port=api_server.port)).serve(root, print)


async def test_case_105_it_does_not_serve_where_it_may_not(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "config.yaml").write_text("api: {enabled: false}\n")
    async with callboard.Root(config_dir=tmp_path / "config") as root:
        with pytest.raises(ConfigError, match=r"api\.enabled"):
            await HttpServer(ServeOptions(port=0)).serve(root, print)
    (tmp_path / "config" / "config.yaml").write_text("api: {enabled: true}\n")
    async with callboard.Root(config_dir=tmp_path / "config") as root:
        with pytest.raises(UsageError, match=says("front.access.access_control.check_may_listen.3")):
            await HttpServer(ServeOptions(host="0.0.0.0", port=0)).serve(root, print)
    assert not (tmp_path / "state").exists()


async def test_without_the_extra_the_websocket_is_served_and_http_says_what_is_missing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_http", lambda *_, **__: None)
    async with serve() as api_server:
        response = await api_server.client.get("/v1/info")
        assert response.status_code == 501
        assert has_message(response.text, "front.server.listener")
        assert api_server.served.http is False


# --- the token ----------------------------------------------------------------------------------------------


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What came of connecting to the port of each server when its token was about to be written."""
    results: list[int] = []

    def write(server: ServerFile, port: int, *rest: Any) -> Any:
        with socket.socket() as client:
            results.append(client.connect_ex(("127.0.0.1", port)))
        return write_server(server, port, *rest)

    monkeypatch.setattr(serving, "write_server", write)
    return results


async def test_the_token_is_written_before_the_server_listens(connected: list[int], api_server: ApiServer) -> None:
    assert connected == [errno.ECONNREFUSED]
    assert (await api_server.get("/v1/runs"))["runs"] == []


async def test_the_token_is_left_for_this_user_alone(api_server: ApiServer, tmp_path: Path) -> None:
    (file,) = (tmp_path / "state" / "callboard" / "servers").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    (found,) = read_servers({"XDG_STATE_HOME": str(tmp_path / "state")})
    assert found.url == api_server.url
    assert found.pid == os.getpid()
    assert api_server.served.page == f"{api_server.url}/#token={found.token}"


def test_files_of_servers_that_are_gone_are_removed(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    mine = ServerFile(url="http://127.0.0.1:1", token="a", pid=os.getpid(), started=1.0)
    newer = ServerFile(url="http://127.0.0.1:2", token="b", pid=os.getpid(), started=2.0)
    gone = ServerFile(url="http://127.0.0.1:3", token="c", pid=2**22 + 1, started=3.0)
    for port, server in enumerate((mine, newer, gone), 1):
        write_server(server, port, environ)
    (tmp_path / "callboard" / "servers" / "4.json").write_text("{")
    assert read_servers(environ) == [newer, mine]
    assert len(list((tmp_path / "callboard" / "servers").iterdir())) == 2


# --- the end ------------------------------------------------------------------------------------------------


async def test_told_to_end_it_lets_runs_end_and_tells_their_end(api_server: ApiServer) -> None:
    run, go_on = await slow_run(api_server)
    ended: list[str] = []

    async def follow() -> None:
        ended.extend([name for _, name, _ in await api_server.events("GET", f"/v1/runs/{run}/events")])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        api_server.server.drain()
        with trio.fail_after(60):
            while (await api_server.client.get("/healthz/ready")).status_code != 503:
                await trio.sleep(0.01)
        refused = await api_server.post("/v1/runs", {"target": "slow"}, 503)
        assert refused["error"]["code"] == "shutting_down"
        assert (await api_server.get(f"/v1/runs/{run}"))["status"] == "running"
        go_on.touch()
    assert ended[-1] == "run.finished"
    await until(lambda: api_server.agent_runner.root.kernel.stopping)
    assert api_server.server.drained is True


async def test_what_does_not_end_within_the_grace_is_cancelled(serve: Serve) -> None:
    ended: list[Any] = []
    async with serve(api={"shutdown_grace_seconds": 0.3}, durable={"by_default": False}) as api_server:
        run, _ = await slow_run(api_server)

        async def follow() -> None:
            headers = {"accept": "text/event-stream"}
            try:
                async with api_server.client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
                    async for _, name, _ in told(response):
                        ended.append(name)
            except httpx.HTTPError:
                ended.append("cut")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await until(lambda: ended)
            api_server.server.drain()
        assert ended[-1] in ("run.cancelled", "cut")
        await until(lambda: api_server.agent_runner.root.kernel.actor.end is not None)
        assert api_server.server.drained is False


async def test_a_run_that_waits_for_a_person_does_not_end_by_itself(serve: Serve) -> None:
    async with serve(api={"shutdown_grace_seconds": 0.2}, durable={"by_default": False}) as api_server:
        api_server.agent_runner.agent(ASKER, name="asker")
        await api_server.post("/v1/runs", {"target": "asker"}, 201)
        api_server.server.drain()
        await until(lambda: api_server.agent_runner.root.kernel.stopping)
        assert api_server.server.drained is False


async def test_settings_are_read_again_when_told_to(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    file = api_server.agent_runner.config_dir / "config.yaml"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, "api": {"limits": {"rate_limit_per_minute": 1, "rate_limit_burst": 0}}}))
    api_server.server.hang_up()
    with trio.fail_after(60):
        while (response := await api_server.client.get("/v1/info")).status_code != 429:
            await trio.sleep(0.01)
    assert int(response.headers["retry-after"]) >= 1


async def test_systemd_is_told_when_it_is_ready_and_when_it_ends(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    systemd.bind(str(tmp_path / "notify"))
    systemd.settimeout(PATIENCE)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    async with serve() as api_server:
        assert systemd.recv(100) == b"READY=1"
        api_server.server.drain()
        await until(lambda: api_server.agent_runner.root.kernel.stopping)
        assert systemd.recv(100) == b"STOPPING=1"
    systemd.close()


async def test_who_serves_hears_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    served: list[ListeningServer] = []
    async with callboard.Root(config_dir=tmp_path) as root, trio.open_nursery() as nursery:
        nursery.start_soon(HttpServer(ServeOptions(host="::1", port=0)).serve, root, served.append)
        await until(lambda: served)
        assert served[0].url.startswith("http://[::1]:")
        nursery.cancel_scope.cancel()


# --- records that somebody else removes ---------------------------------------------------------------------


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server looks at what others have done many times a second."""
    monkeypatch.setattr(hub, "LOOK_EVERY", 0.02)


@pytest.mark.usefixtures("_often")
async def test_a_run_s_record_that_is_deleted_beside_a_live_server_is_gone_for_it_too(serve: Serve) -> None:
    async with serve() as api_server:
        await delete_beside(api_server)


async def delete_beside(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(HELLO, name="hello")
    runs = [(await api_server.post("/v1/runs", {"target": "hello"}, 201))["run"] for _ in range(2)]
    state = api_server.agent_runner.config_dir.parent / "state"
    for run in runs:
        with trio.fail_after(60):
            while (await api_server.get(f"/v1/runs/{run}"))["status"] != "done":
                await trio.sleep(0.01)
    environ = {**os.environ, "XDG_STATE_HOME": str(state)}
    gone, kept = runs
    with trio.fail_after(60):
        while not (state / "callboard" / "runs" / gone / "run.json").exists():
            await trio.sleep(0.01)
    argv = [*CALLBOARD, "runs", "delete", gone]
    with trio.fail_after(60):
        done = await trio.run_process(argv, env=environ, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (state / "callboard" / "runs" / gone).exists()
    assert (await api_server.client.get(f"/v1/runs/{gone}/events")).status_code in (200, 404)
    with trio.fail_after(60):
        while [each["run"] for each in (await api_server.get("/v1/runs"))["runs"]] != [kept]:
            await trio.sleep(0.02)
    await api_server.get(f"/v1/runs/{gone}", 404)
    assert (await api_server.get(f"/v1/runs/{kept}"))["status"] == "done"
