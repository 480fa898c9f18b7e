"""One key against the memory of a real server: what it makes the server keep, and what it does not read."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from support.access_keys import made_key
from support.serve_process import CALLBOARD, SOON, Serving

MOST_GROWTH = 50 * 1024 * 1024
GRAPH = """
name: loud
start: done
nodes:
  done: {type: end, output: "{{initial_prompt}}"}
"""


class Attack:
    """A server for one key, and connections of that key that are written to and not read."""

    def __init__(self, home: Path) -> None:
        self.home = home
        agent = home / "config" / "agents" / "loud"
        agent.mkdir(parents=True)
        (agent / "graph.yaml").write_text(GRAPH)
        self.key, entry = made_key("mallory", "run:agents", "read:runs")
        limits = {"rate_limit_per_minute": 0}
        api = {
            "auth": {"keys": [msgspec.to_builtins(entry)]},
            "limits": limits,
            "audit": {"sink": "off"},
            "log_level": "error",
        }
        (home / "config" / "config.yaml").write_text(json.dumps({"api": api}))
        self.serving = Serving(home, program=[CALLBOARD])
        self.port = int(self.serving.see("serving at ").split()[-1].rpartition(":")[2])
        self.process = psutil.Process(self.serving.process.pid)
        self.connections: list[socket.socket] = []

    @property
    def memory(self) -> int:
        return int(self.process.memory_info().rss)

    def connect(self, *, reads: bool = True) -> socket.socket:
        """A websocket; of one that is not read little is kept on this side."""
        there = socket.create_connection(("127.0.0.1", self.port), timeout=SOON)
        if not reads:
            there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.connections.append(there)
        lines = [
            *("GET /ws HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Upgrade: websocket", "Connection: Upgrade"),
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
            *("Sec-WebSocket-Version: 13", f"Authorization: Bearer {self.key}", "", ""),
        ]
        there.sendall("\r\n".join(lines).encode())
        got = b""
        while b"\r\n\r\n" not in got:
            got += there.recv(1)
        assert b" 101 " in got, got
        return there

    def say(self, there: socket.socket, id: int, method: str, **params: Any) -> None:
        """A request; it is not waited for."""
        text = json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()
        size = len(text)
        head = struct.pack("!BB", 0x81, 0x80 | size) if size < 126 else struct.pack("!BBH", 0x81, 0xFE, size & 0xFFFF)
        if size > 0xFFFF:
            head = struct.pack("!BBQ", 0x81, 0xFF, size)
        there.sendall(head + bytes(4) + text)  # masked with zeros

    def answer(self, there: socket.socket) -> Any:
        """The next frame that is no ping."""

        def take(count: int) -> bytes:
            got = b""
            while len(got) < count:
                more = there.recv(count - len(got))
                assert more, "the server has hung up"
                got += more
            return got

        kind, size = take(2)
        if size > 125:
            size = int.from_bytes(take(2 if size == 126 else 8), "big")
        data = take(size)
        return self.answer(there) if kind & 0x08 else json.loads(data)

    def call(self, there: socket.socket, method: str, **params: Any) -> Any:
        self.say(there, 1, method, **params)
        return self.answer(there)

    def ask_without_reading(self, count: int, method: str, **params: Any) -> None:
        """As many requests as the server takes, on ten connections, of which no answer is read."""
        for _ in range(10):
            there = self.connect(reads=False)
            there.settimeout(0.5)
            with contextlib.suppress(TimeoutError):  # it takes no more, since nothing is read
                for id in range(count):
                    self.say(there, id, method, **params)

    def highest(self, seconds: float) -> int:
        """The most memory that the server had within this time."""
        until, most = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            most = max(most, self.memory)
            time.sleep(0.05)
        return most

    def end(self) -> None:
        for there in self.connections:
            there.close()
        self.serving.process.kill()
        self.serving.process.wait()
        assert self.serving.process.stderr is not None
        self.serving.process.stderr.close()


@pytest.fixture
def attack(tmp_path: Path) -> Iterator[Attack]:
    attack = Attack(tmp_path)
    yield attack
    attack.end()


def test_titles_are_short_and_long_ones_are_refused_and_not_kept(attack: Attack) -> None:
    there = attack.connect()
    before = attack.memory
    for _ in range(50):
        refused = attack.call(there, "_run/start", target="loud", prompt="x", title="t" * 900_000)
        assert refused["error"]["code"] == -32602
    began = attack.call(there, "_run/start", target="loud", prompt="x", title="t" * 500)
    assert len(began["result"]["run"]["title"]) == 500
    assert attack.memory - before <= MOST_GROWTH
    kept = sum(file.stat().st_size for file in (attack.home / "state").rglob("*") if file.is_file())
    assert kept < 1024 * 1024


@pytest.mark.parametrize(
    ("count", "method", "params"),
    [
        pytest.param(300, "_run/list", {"limit": 1000}, id="lists", marks=pytest.mark.soak),
        pytest.param(250, "_run/events", {"limit": 1000}, id="pages of events", marks=pytest.mark.full),
    ],
)
def test_what_a_key_does_not_read_is_not_made(attack: Attack, count: int, method: str, params: dict[str, Any]) -> None:
    there = attack.connect()
    runs = [
        attack.call(there, "_run/start", target="loud", prompt="y" * 100_000)["result"]["run"]["run"]
        for _ in range(200)
    ]
    if method != "_run/list":
        params = {**params, "run": runs[-1]}
    assert "result" in attack.call(there, method, **params)
    before = attack.memory
    attack.ask_without_reading(count, method, **params)
    assert attack.highest(3) - before <= MOST_GROWTH
    assert attack.serving.ask("/healthz/live") == {"status": "ok"}
