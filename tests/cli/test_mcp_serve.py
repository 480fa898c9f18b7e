"""`callboard mcp serve`, and asking a callboard that runs: `callboard mcp status` and `reload`."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.messages import has_message
from support.waiting import PATIENCE

Callboard = Callable[..., "tuple[int, str, str]"]

SCRIPTED = Path(__file__).parents[1] / "actors" / "work" / "mcp" / "servers" / "scripted.py"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}

HOLD = """
import sys, trio, callboard
async def main():
    async with callboard.Root() as root:
        async def use(me):
            with root.mcp.scope(run="run-1", agent=me.path) as scope:
                async with scope.client("s", me):
                    print("ready", flush=True)
                    await trio.to_thread.run_sync(sys.stdin.read)
        await root.kernel.spawn(use, name="user", link=False).wait()
trio.run(main)
"""
"""Keeps the server `s` in use until its input ends."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration directory with an agent, `greeter`, and an MCP server, `s`."""
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    greeter = tmp_path / "config" / "agents" / "greeter"
    greeter.mkdir(parents=True)
    (greeter / "graph.yaml").write_text(
        "name: greeter\nstart: done\nnodes:\n  done: {type: end, output: 'Hello {{initial_prompt}}'}\n"
    )
    server = {"command": sys.executable, "args": ["-S", str(SCRIPTED)]}
    (tmp_path / "config" / "mcp.json").write_text(json.dumps({"mcpServers": {"s": server, "t": server}}))
    return tmp_path


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process with pipes, which is gone at the end."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def serving(*arguments: str) -> list[str]:
    return ["-m", "callboard.cli", "mcp", "serve", *arguments]


# --- serve ------------------------------------------------------------------------------------------------


def test_agents_are_served_over_stdio_until_the_client_leaves() -> None:
    call = {"name": "greeter", "arguments": {"prompt": "Ada"}}
    messages = [INITIALIZE, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}]
    with started(*serving()) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for message in messages:
            server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline())["result"] for _ in messages]
        out, err = server.communicate(timeout=PATIENCE)
    assert (server.returncode, out, err) == (0, "", "")
    assert answers[0]["serverInfo"]["name"] == "callboard"
    assert answers[1]["content"] == [{"type": "text", "text": "Hello Ada"}]


def test_servers_that_are_to_be_kept_warm_are_started_with_it(home: Path) -> None:
    starts = home / "starts"
    os.mkfifo(starts)
    entry = {"command": sys.executable, "args": ["-S", str(SCRIPTED)], "env": {"STARTS": str(starts)}, "warm": True}
    (home / "config" / "mcp.json").write_text(json.dumps({"mcpServers": {"w": entry}}))
    reader = os.open(starts, os.O_RDONLY | os.O_NONBLOCK)
    with started(*serving()) as server:
        assert select.select([reader], [], [], 30)[0]
        server.communicate(timeout=PATIENCE)
    assert server.returncode == 0
    os.close(reader)


def test_agents_are_served_over_http_to_those_who_have_the_token(home: Path) -> None:
    (home / "token").write_text("opensesame\n")
    arguments = serving("greeter", "--http", "--port", "0", "--token-file", str(home / "token"))
    with started(*arguments) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        assert line.startswith("callboard: serving greeter at http://127.0.0.1:")
        url = line.split(" at ")[1].split()[0]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            post(url, "wrong")
        assert json.loads(post(url, "opensesame"))["result"]["serverInfo"]["name"] == "callboard"
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE) == 130


def post(url: str, token: str) -> bytes:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {token}",
    }
    request = urllib.request.Request(url, json.dumps(INITIALIZE).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        body: bytes = response.read()
    return body


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nobody"], "'nobody' is neither"),
        (["--port", "1"], "--port needs --http"),
        (["--token-file", "x"], "--token-file needs --http"),
        (["--http", "--token-file", "/nowhere/x"], "--token-file /nowhere/x: can't be read"),
        (["--http", "--token-file", "/dev/null"], "a token is one line"),
        (["--http", "--host", "0.0.0.0"], "set a token (--token-file FILE)"),
        (["--root", "/nowhere"], "--root /nowhere: there is no such directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_served_is_wrong_usage(callboard: Callboard, arguments: list[str], said: str) -> None:
    code, out, err = callboard("mcp", "serve", *arguments)
    assert (code, out) == (2, "")
    assert said in err


# --- status and reload ------------------------------------------------------------------------------------


def test_a_callboard_that_runs_tells_how_its_servers_are(callboard: Callboard) -> None:
    with started("-c", HOLD) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        code, out, err = callboard("mcp", "status")
        (process,) = json.loads(callboard("mcp", "status", "-o", "json")[1])["processes"]
    head, row, total = out.splitlines()
    assert (code, err) == (0, "")
    assert head.startswith(f"process {holder.pid} (")
    assert row.split()[:3] == ["s", "leased", "pool"]
    assert "1 lease" in row
    assert total.startswith("  servers: 1 started, waited for 1 time, ")
    assert process["pid"] == holder.pid
    assert {server["name"]: server["state"] for server in process["servers"]} == {"s": "leased", "t": "cold"}
    assert process["counters"]["spawned"] == 1


def test_a_callboard_that_runs_starts_its_servers_anew(callboard: Callboard) -> None:
    with started("-c", HOLD) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "ready\n"
        code, out, err = callboard("mcp", "reload", "nope")
        assert (code, out) == (1, "")
        assert f"process {holder.pid}: there is no MCP server 'nope'" in err
        assert callboard("mcp", "reload", "t") == (0, f"process {holder.pid}: nothing to restart\n", "")


def test_where_none_runs_that_is_said(callboard: Callboard) -> None:
    nobody = (0, "no running Callboard process uses MCP servers\n", "")
    assert callboard("mcp", "status") == nobody
    assert callboard("mcp", "reload") == nobody
    assert json.loads(callboard("mcp", "status", "-o", "json")[1])["processes"] == []


def test_one_that_does_not_answer_is_told(callboard: Callboard, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home / "callboard" / f"{os.getpid()}-0123456789ab"
    place.mkdir(parents=True)
    lock = os.open(place, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(place)  # the kernel takes 107 bytes of a path
        listener.bind(f"mcp-{os.getpid()}.sock")
        listener.listen()
        threading.Thread(target=lambda: [listener.accept()[0].close() for _ in range(3)], daemon=True).start()
        code, out, _err = callboard("mcp", "status")
        assert code == 0
        assert has_message(out, "work.mcp.pool.status._ask.2")
        code, _out, err = callboard("mcp", "reload")
        assert code == 1
        assert f"process {os.getpid()}: did not answer: " in err
    os.close(lock)
