"""A server with a capped key is killed at random moments, many requests under way, and starts again, until the day is
spent. What the provider has charged, what the ledger says and what the cap is are compared afterwards."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
import trio
from support.access_keys import made_key
from support.fake_models import FakeModels, Reply, Request
from support.starter import CALLBOARD
from support.waiting import until

from callboard.actors.work.spending.book import read

CALLERS = 16
MOST_OUTPUT = 100
USD = 1e-3
"""For a token."""

BODY = {"model": "fake:model", "messages": [{"role": "user", "content": "a few words " * 8}]}


class Provider:
    """Charges what arrives, whoever hears the reply."""

    def __init__(self, rng: random.Random) -> None:
        self.tokens = 0
        self._rng = rng

    def answer(self, _: Request) -> Reply:
        spent = Reply("ok", input_tokens=30, output_tokens=self._rng.randint(1, MOST_OUTPUT))
        spent.delay = self._rng.random() * 0.2
        self.tokens += spent.input_tokens + spent.output_tokens
        return spent


class Server:
    """Lives of one server, one after the other, and those who call it."""

    def __init__(self, home: Path, model: FakeModels, cap: int, port: int) -> None:
        self.home = home
        self.key, alice = made_key("alice", "run:agents", "read:models")
        self.port = port
        self.spent = trio.Event()
        priced = {"name": "model", "input_price": USD * 1e6, "output_price": USD * 1e6}
        config = json.loads(model.config())
        config["clients"][0]["models"] = [priced | {"max_output_tokens": MOST_OUTPUT}]
        daily = {"max_tokens": cap, "max_cost": cap * USD * 2}
        api = {
            "auth": {"keys": [msgspec.to_builtins(alice) | {"daily": daily}]},
            "limits": {"per_subject_concurrency": 1_000, "max_concurrent_requests": 1_000, "daily": daily},
            "audit": {"sink": "off"},
        }
        (home / "config").mkdir()
        (home / "config" / "config.yaml").write_text(json.dumps({**config, "api": api}))

    @property
    def book(self) -> Path:
        return self.home / "state" / "callboard" / "usage.db"

    @asynccontextmanager
    async def life(self) -> AsyncIterator[subprocess.Popen[bytes]]:
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "XDG_STATE_HOME": str(self.home / "state")}
        argv = [*CALLBOARD, "serve", "--port", str(self.port), "--config-dir", str(self.home / "config")]
        with (self.home / "stderr").open("ab") as stderr:
            process = subprocess.Popen(argv, stderr=stderr, env=environ)
        try:
            async with httpx.AsyncClient(trust_env=False, verify=False) as client:
                while process.poll() is None:
                    with contextlib.suppress(httpx.TransportError):
                        await client.get(f"http://127.0.0.1:{self.port}/healthz/live")
                        break
                    await trio.sleep(0.02)
            assert process.poll() is None, (self.home / "stderr").read_text()
            yield process
        finally:
            process.kill()
            await trio.to_thread.run_sync(process.wait)

    async def call(self, started: float) -> None:
        """Ask until the day is spent, through all lives of the server."""
        await trio.sleep(started)
        headers = {"authorization": f"Bearer {self.key}"}
        async with httpx.AsyncClient(trust_env=False, verify=False, headers=headers, timeout=60) as client:
            while not self.spent.is_set():
                try:
                    reply = await client.post(f"http://127.0.0.1:{self.port}/v1/chat/completions", json=BODY)
                except httpx.TransportError:
                    await trio.sleep(0.05)
                    continue
                if reply.status_code == 429:
                    assert reply.json()["error"]["code"] == "daily_budget"
                    self.spent.set()
                else:  # the server ends by itself once the day is spent
                    assert reply.status_code == 200 or self.spent.is_set(), reply.text

    def rows(self, table: str, key: str) -> list[tuple[int, float]]:
        with contextlib.closing(sqlite3.connect(self.book)) as db:
            return db.execute(f"SELECT tokens, cost FROM {table} WHERE key = ?", (key,)).fetchall()


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.soak)])
async def test_the_ledger_is_right_after_kill_9_and_no_cap_is_passed(
    tmp_path: Path, fake_model: FakeModels, free_port: int, kills: int
) -> None:
    rng = random.Random(5)
    provider, cap = Provider(rng), 2_000 + kills * 3_500
    server = Server(tmp_path, fake_model, cap, free_port)
    fake_model.answer_with(provider.answer)
    async with trio.open_nursery() as nursery:
        for _ in range(CALLERS):
            nursery.start_soon(server.call, rng.random() * 0.2)
        for _ in range(kills):
            async with server.life() as process:
                before = len(fake_model.requests)
                await until(lambda before=before: len(fake_model.requests) > before or server.spent.is_set())
                with trio.move_on_after(rng.uniform(0.0, 0.4)):
                    await server.spent.wait()
                assert process.poll() is None, (server.home / "stderr").read_text()
        async with server.life() as process:
            with trio.fail_after(60):
                await server.spent.wait()
            process.send_signal(signal.SIGTERM)
            await trio.to_thread.run_sync(process.wait)
        nursery.cancel_scope.cancel()
    if len({row[0] for row in read(server.book)}) > 1:
        pytest.skip("the day has changed meanwhile, and its limit begun anew")
    assert {entry[1] for entry in read(server.book)} == {"alice"}, "`callboard usage` reads the same file"
    for key in ("alice", ""):
        settled, held = server.rows("ledger", key), server.rows("held", key)
        assert held, "none was killed with requests under way"
        tokens = sum(row[0] for row in (*settled, *held))
        bound = max(row[0] for row in held)
        assert sum(row[0] for row in settled) <= provider.tokens <= tokens
        assert cap <= tokens
        assert provider.tokens <= cap + bound
        assert sum(row[1] for row in (*settled, *held)) == pytest.approx(tokens * USD)
