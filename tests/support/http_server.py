"""A server on loopback, with agents and a scripted model behind it, and a client that has its token."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

import callboard
from callboard.actors.front.server.serving import HttpServer, ListeningServer, ServeOptions
from callboard.actors.front.server.token_file import read_servers
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels
from support.waiting import PATIENCE, until

SOON = PATIENCE


@dataclass
class ApiServer:
    """Attributes: `agent_runner` writes agents, `client` has the token, `server` can be told to end."""

    agent_runner: AgentRunner
    server: HttpServer
    client: httpx.AsyncClient
    served: ListeningServer
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.served.url

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def token(self) -> str:
        return self.served.page.partition("#token=")[2]

    async def get(self, path: str, status: int = 200, **more: Any) -> Any:
        """The JSON of a reply with this status."""
        return await self.ask("GET", path, status, **more)

    async def post(self, path: str, body: Any = None, status: int = 200, **more: Any) -> Any:
        return await self.ask("POST", path, status, json=body, **more)

    async def ask(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        response = await self.client.request(method, path, **more)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    async def events(self, method: str, path: str, body: Any = None, **more: Any) -> list[tuple[str, str, Any]]:
        """A whole stream: (id, name, data) of each event."""
        headers = {"accept": "text/event-stream", **more.pop("headers", {})}
        async with self.client.stream(method, path, json=body, headers=headers, **more) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            return [each async for each in told(response)]


async def told(response: httpx.Response) -> AsyncIterator[tuple[str, str, Any]]:
    """The events of a stream as they come."""
    id = name = ""
    async for line in response.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "id":
            id = value
        elif field == "event":
            name = value
        elif field == "data":
            yield id, name, value if value == "[DONE]" else json.loads(value)
            id = name = ""


Serve = Callable[..., AbstractAsyncContextManager[ApiServer]]


@pytest.fixture
def serve(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """`serve(**settings)` is a context: a server whose `config.yaml` has these settings beside its model."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config_dir = fake_model.config_dir(tmp_path / "config")

    @asynccontextmanager
    async def served(**settings: Any) -> AsyncIterator[ApiServer]:
        file = config_dir / "config.yaml"
        file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
        server = HttpServer(ServeOptions(port=0))
        listening: list[ListeningServer] = []
        environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
        async with (
            callboard.Root(config_dir=config_dir, wait_for_front_end=True, keep_servers=True) as root,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(server.serve, root, listening.append)
            await until(lambda: listening)
            (token,) = [each.token for each in read_servers(environ)]
            headers = {"authorization": f"Bearer {token}"}
            # `verify=False`: reading the certificates for https takes 24 ms of CPU per client, and this is http.
            async with httpx.AsyncClient(
                base_url=listening[0].url, headers=headers, trust_env=False, verify=False, timeout=SOON
            ) as client:
                yield ApiServer(AgentRunner(config_dir, fake_model, root), server, client, listening[0])
            nursery.cancel_scope.cancel()
        assert not read_servers(environ)

    return served


@pytest.fixture
async def api_server(serve: Serve) -> AsyncIterator[ApiServer]:
    """A server with the usual settings."""
    async with serve() as served:
        yield served
