"""Images, documents and links in results of servers: what of them reaches the model."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_mcp_http import INITIALIZED, Legacy, Talk, failure, fake_mcp, result
from support.fake_models import Request
from support.mcp_processes import McpProcesses
from support.tool_families import context_of

from callboard.actors.work.mcp.tools.direct import direct_tool
from callboard.actors.work.mcp.tools.tool_list import meta_tools
from callboard.actors.work.mcp.tools.view import ServersView as Conversation
from callboard.actors.work.mcp.tools.view import ServerView
from callboard.actors.work.tools.tool import VisibleResult, text_of
from callboard.protocol.chat import ImagePart
from callboard.protocol.mcp.config import Server
from callboard.protocol.mcp.model import McpTool
from callboard.supervisors import Root

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
TEXT = base64.b64encode(b"the words of it").decode()
LINKED = {"memo://one": [{"uri": "memo://one", "mimeType": "text/plain", "text": "about one"}]}


@pytest.fixture
async def mcp_processes(tmp_path: Path) -> AsyncIterator[McpProcesses]:
    async with Root() as root:
        yield McpProcesses(root, tmp_path)


async def told(mcp_processes: McpProcesses, nursery: trio.Nursery, content: list[Any], *, invoke: bool = False) -> Any:
    """What the model gets of a call whose result is this content."""

    async def answer(request: Request, talk: Talk) -> None:
        method, params = request.json.get("method"), request.json.get("params", {})
        if method == "initialize":
            said = {**INITIALIZED, "capabilities": {"tools": {}, "resources": {}}}
            await talk.json(result(request, said), mcp_session_id="s-1")
        elif method == "tools/list":
            await talk.json(result(request, {"tools": [{"name": "t", "inputSchema": {}}]}))
        elif method == "tools/call":
            await talk.json(result(request, {"content": content}))
        elif method == "resources/read" and params.get("uri") in LINKED:
            await talk.json(result(request, {"contents": LINKED[params["uri"]]}))
        elif method == "resources/read":
            await talk.json(failure(request, -32002, "no such resource"))
        else:
            await Legacy()(request, talk)

    server = Server(name="web", type="http", url=(await fake_mcp(nursery, answer)).url)
    mcp_processes.build(server)
    with mcp_processes.scope() as scope, trio.fail_after(60):
        view = ServerView(talk=Conversation(scope=scope, context=context_of({})), server=server)
        if invoke:
            return await meta_tools(view)[2].run(mcp_processes.root.actor, {"tool": "t"})
        return await direct_tool(view, McpTool(name="t")).run(mcp_processes.root.actor, {})


IMAGES = {
    "an image": {"type": "image", "mimeType": "image/jpeg", "data": PNG},
    "a blob": {"type": "resource", "resource": {"uri": "x://a", "mimeType": "image/png", "blob": PNG}},
}


@pytest.mark.parametrize("invoke", [False, True])
@pytest.mark.parametrize("block", IMAGES.values(), ids=IMAGES)
async def test_images_reach_the_model(
    mcp_processes: McpProcesses, nursery: trio.Nursery, block: Any, invoke: bool
) -> None:
    value = await told(mcp_processes, nursery, [{"type": "text", "text": "here"}, block], invoke=invoke)
    assert isinstance(value, VisibleResult)
    assert "here" in text_of(value)
    assert PNG not in text_of(value)
    assert [part.media_type for part in value.parts if isinstance(part, ImagePart)] == ["image/png"]


@pytest.mark.parametrize(
    "data", ["!!", base64.b64encode(b"<svg/>").decode(), base64.b64encode(b"\x89PNG\r\n\x1a\n" * 10**6).decode()]
)
async def test_what_is_no_image_or_too_large_is_named(
    mcp_processes: McpProcesses, nursery: trio.Nursery, data: str
) -> None:
    value = await told(mcp_processes, nursery, [{"type": "image", "mimeType": "image/png", "data": data}])
    assert isinstance(value, str)
    assert value.startswith("[image image/png")


async def test_documents_and_linked_resources_are_read_as_texts(
    mcp_processes: McpProcesses, nursery: trio.Nursery
) -> None:
    value = await told(
        mcp_processes,
        nursery,
        [
            {"type": "resource", "resource": {"uri": "x://a.txt", "mimeType": "text/plain", "blob": TEXT}},
            {"type": "resource_link", "uri": "memo://one", "name": "one"},
            {"type": "resource_link", "uri": "memo://gone", "name": "gone"},
            {"type": "resource_link", "uri": "https://example.com/page", "name": "page"},
        ],
    )
    assert isinstance(value, str)
    for words in ("the words of it", "about one", "memo://gone", "https://example.com/page"):
        assert words in value
