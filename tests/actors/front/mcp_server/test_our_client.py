"""Our own client at our own server: both eras, both transports."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from support.agent_runs import AgentRunner
from support.mcp_guest import ASKER, HELLO, SLOW
from support.waiting import until

import callboard
from callboard.actors.front.mcp_server.service import read_agents
from callboard.actors.front.mcp_server.serving import serve_http
from callboard.actors.work.mcp.client.connect import OfferedCapabilities, connect
from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.protocol.errors import McpError
from callboard.protocol.mcp.config import Server
from callboard.protocol.mcp.model import Progress
from callboard.supervisors import Actor

PROGRAM = """
import sys, trio, callboard
from callboard.actors.front.mcp_server.service import read_agents
from callboard.actors.front.mcp_server.serving import serve_stdio

async def main():
    async with callboard.Root(config_dir=sys.argv[1], signals=True) as root:
        await serve_stdio(root, read_agents(root)[0])

trio.run(main)
"""


class User:
    """Answers every form with one answer."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def elicit(self, me: Actor, server: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(params["message"])
        return {"action": "accept", "content": {"answer": self.answer}}

    async def sample(self, me: Actor, server: str, params: Mapping[str, Any]) -> dict[str, Any]:
        raise McpError("nobody samples here")


@asynccontextmanager
async def served(agent_runner: AgentRunner, transport: str) -> AsyncIterator[Server]:
    """How a client reaches the stage's agents."""
    if transport == "stdio":
        yield Server(
            name="us", type="stdio", command=sys.executable, args=("-c", PROGRAM, str(agent_runner.config_dir))
        )
        return
    urls: list[str] = []

    async def run() -> None:
        await serve_http(agent_runner.root, read_agents(agent_runner.root)[0], on_listening=urls.append)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await until(lambda: urls)
        yield Server(name="us", type="http", url=urls[0])
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_lists_calls_hears_progress_answers_a_question_and_cancels(
    agent_runner: AgentRunner, transport: str, era: str
) -> None:
    marker = agent_runner.config_dir / "started"
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    agent_runner.agent(ASKER, name="asker")
    agent_runner.agent(SLOW, name="slow", work=f"touch {marker}; sleep 60; echo {{}}")
    told: list[Progress] = []
    user = User("blue")
    remembered = "" if era == "modern" else "2025-11-25"

    async def body(me: Actor) -> None:
        async with (
            served(agent_runner, transport) as server,
            connect(me, server, environ=os.environ, abilities=OfferedCapabilities(), remembered=remembered) as client,
        ):
            assert (client.modern, client.server.name) == (era == "modern", "callboard")
            assert sorted(tool.name for tool in await client.tools()) == ["asker", "hello", "slow"]
            result = await client.call_tool("hello", {"prompt": "x"}, CallOrigin(me=me, on_progress=told.append))
            assert result["structuredContent"]["output"] == "hello x"
            result = await client.call_tool("asker", {}, CallOrigin(me=me, host=user))
            assert result["structuredContent"]["output"] == "chose blue"
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "slow", {})
                await until(marker.exists)
                nursery.cancel_scope.cancel()
            result = await client.call_tool("hello", {"prompt": "y"})
            assert result["structuredContent"]["output"] == "hello y"

    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        await root.kernel.spawn(body).result()
    assert [each.progress for each in told] == [1, 2, 3]
    assert user.asked == ["Which?"]
