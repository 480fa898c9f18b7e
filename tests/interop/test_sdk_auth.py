"""A server of the official SDK with the SDK's own authorization server: signed in to, refreshed, revoked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import trio
from interop.environments import HERE, MODERN, needs, printed_port
from support.mcp_processes import McpProcesses

from callboard.actors.io.http.transport import TrioTransport
from callboard.actors.io.oauth.authorization import Authorization, Redirect
from callboard.actors.work.mcp.auth.access import LoginStore, folder
from callboard.actors.work.mcp.auth.sign_in import sign_in, sign_out
from callboard.protocol.errors import McpSignInNeeded
from callboard.protocol.mcp.config import Server
from callboard.supervisors import Root

pytestmark = needs("modern")

PROGRAM = [str(MODERN / "python"), str(HERE / "servers/sdk_auth.py")]


class Lab:
    """A process of ours, and the server."""

    def __init__(self, mcp_processes: McpProcesses, origin: str, directory: Path) -> None:
        self.mcp_processes = mcp_processes
        self.origin = origin
        self.http = httpx.AsyncClient(transport=TrioTransport(), trust_env=False)
        self.entry = Server(name="sdk", type="http", url=f"{origin}/mcp")
        self.store = LoginStore(folder({"XDG_STATE_HOME": str(directory)}), self.entry)
        mcp_processes.environ["XDG_STATE_HOME"] = str(directory)
        mcp_processes.build(self.entry)

    async def sign_in(self) -> None:
        async def person(request: Authorization, redirect: Redirect) -> str:
            code: list[str] = []

            async def browser() -> None:
                answer = await self.http.get(request.url)
                await self.http.get(answer.headers["location"])

            async with trio.open_nursery() as nursery:
                nursery.start_soon(browser)
                code.append(await redirect.answer(request, 10.0))
            return code[0]

        await sign_in(self.entry, self.store, {}, person)

    async def whoami(self, agent: str = "/agent") -> str:
        return await self.mcp_processes.call(self.mcp_processes.scope(agent), "sdk", "whoami")


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with Root() as root, printed_port(root.actor, PROGRAM) as port:
        yield Lab(McpProcesses(root, tmp_path), f"http://127.0.0.1:{port}", tmp_path)


async def test_signed_in_refreshed_and_revoked(lab: Lab) -> None:
    with pytest.raises(McpSignInNeeded, match=r"sign in: callboard auth login mcp:sdk"):
        await lab.whoami()
    await lab.sign_in()
    assert await lab.whoami() == f"mcp at {lab.origin}/mcp; 0 refreshes"

    await lab.http.post(f"{lab.origin}/expire")
    said: list[str] = []

    async def agent(number: int) -> None:
        said.append(await lab.whoami(f"/agent-{number}"))

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(agent, number)
    assert said == [f"mcp at {lab.origin}/mcp; 1 refreshes"] * 50

    await lab.http.post(f"{lab.origin}/revoke-all")
    with pytest.raises(McpSignInNeeded):
        await lab.whoami()
    await lab.sign_in()
    assert (await lab.whoami()).startswith("mcp at")
    assert await sign_out(lab.store, {}) == (True, "")
    with pytest.raises(McpSignInNeeded):
        await lab.whoami("/another")
