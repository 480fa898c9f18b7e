"""What a run is given to work with: a directory, MCP servers, images."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.agent_runs import AgentRunner
from support.messages import says

from callboard.protocol.chat import ImagePart
from callboard.protocol.errors import UsageError
from callboard.protocol.mcp.config import Server

FLAT = "start: a\nnodes:\n  a: {type: end, output: x}"


async def test_a_directory_that_is_not_there_is_refused(agent_runner: AgentRunner, tmp_path: Path) -> None:
    agent_runner.plain("", name="clerk")
    with pytest.raises(UsageError, match=says("runs.begin._directory", path="…nowhere")):
        await agent_runner.run("hi", target="clerk", cwd=tmp_path / "nowhere")


async def test_only_llm_agents_take_servers_and_images(agent_runner: AgentRunner) -> None:
    agent_runner.agent(FLAT, "flat")
    server = Server(name="x", type="stdio", command="true")
    with pytest.raises(UsageError, match=says("runs.begin.check_fits.2", name="flat", what="…`servers`…")):
        await agent_runner.run("hi", target="flat", servers=[server])
    with pytest.raises(UsageError, match=says("runs.begin.check_fits.2", name="flat", what="…`parts`…")):
        await agent_runner.run("hi", target="flat", parts=[ImagePart(data=b"x")])


async def test_an_image_alone_is_a_prompt(agent_runner: AgentRunner) -> None:
    agent_runner.plain("", name="clerk")
    assert (await agent_runner.run(target="clerk", parts=[ImagePart(data=b"x")])).status == "done"
    (said,) = [each for each in agent_runner.models.requests[0].json["messages"] if each["role"] == "user"]
    assert [part["type"] for part in said["content"]] == ["image_url"]
