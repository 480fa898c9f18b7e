"""What a run is given to work with: a directory, MCP servers, images."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.agent_runs import Stage
from support.messages import says

from callboard.protocol.chat import ImagePart
from callboard.protocol.errors import UsageError
from callboard.protocol.mcp.config import Server

FLAT = "start: a\nnodes:\n  a: {type: end, output: x}"


async def test_a_directory_that_is_not_there_is_refused(stage: Stage, tmp_path: Path) -> None:
    stage.plain("", name="clerk")
    with pytest.raises(UsageError, match=says("runs.begin._directory", path="…nowhere")):
        await stage.run("hi", target="clerk", cwd=tmp_path / "nowhere")


async def test_only_llm_agents_take_servers_and_images(stage: Stage) -> None:
    stage.agent(FLAT, "flat")
    server = Server(name="x", type="stdio", command="true")
    with pytest.raises(UsageError, match=says("runs.begin.check_fits.2", name="flat", what="…`servers`…")):
        await stage.run("hi", target="flat", servers=[server])
    with pytest.raises(UsageError, match=says("runs.begin.check_fits.2", name="flat", what="…`parts`…")):
        await stage.run("hi", target="flat", parts=[ImagePart(data=b"x")])


async def test_an_image_alone_is_a_prompt(stage: Stage) -> None:
    stage.plain("", name="clerk")
    assert (await stage.run(target="clerk", parts=[ImagePart(data=b"x")])).status == "done"
    (said,) = [each for each in stage.models.requests[0].json["messages"] if each["role"] == "user"]
    assert [part["type"] for part in said["content"]] == ["image_url"]
