"""A whole server and callers who are not the person that runs it, each with a key of their own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio_websocket import open_websocket_url

from callboard.protocol.settings.api import ApiKey
from support.access_keys import made_key
from support.http_server import SOON, ApiServer, Serve

USER = ("run:agents", "read:runs", "write:runs", "read:sessions", "write:sessions", "answer:questions", "read:agents")
ASK = """
start: ask
nodes:
  ask: {type: input, question: "Which bridge?", next: done}
  done: {type: end, output: "{{input}}"}
"""
FORBIDDEN, NOT_FOUND = -32003, -32004


@dataclass
class AccessServer:
    """A server with callers. `keys` by the name of the caller, `audit` is the log's file."""

    api_server: ApiServer
    keys: dict[str, str]
    audit: Path
    config: Path

    def http(self, who: str, **headers: str) -> httpx.AsyncClient:
        """A client that comes with this caller's key."""
        shown = {"authorization": f"Bearer {self.keys[who]}", **headers}
        return httpx.AsyncClient(
            base_url=self.api_server.url, headers=shown, trust_env=False, verify=False, timeout=SOON
        )

    async def status(self, who: str, method: str, path: str, body: Any = None) -> int:
        """What a caller is told; the error's code is as in the table."""
        async with self.http(who) as http:
            response = await http.request(method, path, json=body)
        return int(response.status_code)

    @asynccontextmanager
    async def socket(self, who: str) -> AsyncIterator[Any]:
        """`await call(method, **params)` over a websocket: the result, or the error's number."""
        headers = [(b"authorization", f"Bearer {self.keys[who]}".encode())]
        async with open_websocket_url(f"ws://127.0.0.1:{self.api_server.port}/ws", extra_headers=headers) as socket:

            async def call(method: str, /, **params: Any) -> Any:
                request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                await socket.send_message(json.dumps(request))
                with trio.fail_after(SOON):
                    while True:
                        answer = json.loads(await socket.get_message())
                        if answer.get("id") == 1:
                            return answer["error"]["code"] if "error" in answer else answer["result"]

            yield call


def entries(keys: dict[str, ApiKey]) -> list[dict[str, Any]]:
    return [
        {"subject": key.subject, "id": key.id, "key_hash": key.key_hash, "scopes": list(key.scopes)}
        for key in keys.values()
    ]


CALLERS = {
    "alice": USER,
    "bob": USER,
    "claire": (*USER, "admin:runs", "admin:sessions"),
    "reader": ("read:runs",),
    "prometheus": ("admin:metrics",),
}


@asynccontextmanager
async def open_access_server(
    serve: Serve, tmp_path: Path, callers: Mapping[str, tuple[str, ...]], **api: Any
) -> AsyncIterator[AccessServer]:
    """A server that knows these callers, by name and with their scopes."""
    made = {name: made_key(name, *scopes) for name, scopes in callers.items()}
    audit = tmp_path / "audit.jsonl"
    api = {
        "auth": {"keys": entries({name: key for name, (_, key) in made.items()})},
        "audit": {"sink": "file", "file": str(audit)},
        **api,
    }
    async with serve(api=api) as api_server:
        api_server.agent_runner.agent(ASK, name="asker")
        keys = {name: token for name, (token, _) in made.items()}
        yield AccessServer(
            api_server,
            {**keys, "local": api_server.token, "stranger": made_key("x")[0]},
            audit,
            api_server.agent_runner.config_dir,
        )


@pytest.fixture
async def access_server(serve: Serve, tmp_path: Path) -> AsyncIterator[AccessServer]:
    """The callers that everybody begins with."""
    async with open_access_server(serve, tmp_path, CALLERS) as access_server:
        yield access_server


async def started(access_server: AccessServer, who: str = "alice") -> str:
    """A run of theirs that waits for an answer."""
    async with access_server.http(who) as http:
        response = await http.post("/v1/runs", json={"target": "asker"})
        assert response.status_code == 201, response.text
        run = str(response.json()["run"])
        with trio.fail_after(SOON):
            while not (await http.get(f"/v1/runs/{run}")).json()["open_questions"]:
                await trio.sleep(0.01)
    return run
