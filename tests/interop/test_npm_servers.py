"""Servers from npm, on the TypeScript SDK: all of them know only the revisions that begin with `initialize`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import trio
from interop.calls import give_up, reach, text_of
from interop.conftest import Person
from interop.environments import everything, needs, npm
from support.waiting import PATIENCE

from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.protocol.errors import McpError
from callboard.protocol.mcp.config import Server
from callboard.protocol.mcp.model import HANDSHAKE, Progress, PromptArgument
from callboard.supervisors import Actor

pytestmark = needs("node")


@pytest.fixture(params=["stdio", "http", "sse", "http that is sse"])
async def server(request: pytest.FixtureRequest, me: Actor) -> Any:
    """`server-everything`, once over each transport, and once over the oldest without being told so."""
    if request.param == "stdio":
        yield npm("everything")
        return
    kind, path = ("streamableHttp", "mcp") if request.param == "http" else ("sse", "sse")
    async with everything(me, kind) as port:
        type = "sse" if request.param == "sse" else "http"
        yield Server(name="everything", type=type, url=f"http://127.0.0.1:{port}/{path}")


async def test_everything_is_listed_and_called(me: Actor, server: Server) -> None:
    async with reach(me, server) as client:
        assert (client.modern, client.server.name) == (False, "mcp-servers/everything")
        assert client.version in HANDSHAKE
        assert client.instructions
        tools = {tool.name: tool for tool in await client.tools()}
        assert {"echo", "get-sum", "trigger-elicitation-request", "trigger-sampling-request"} <= set(tools)
        annotations = tools["get-sum"].annotations
        assert annotations is not None
        assert (annotations.read_only_hint, annotations.destructive_hint) == (True, False)
        assert "7" in text_of(await client.call_tool("get-sum", {"a": 3, "b": 4}))
        structured = await client.call_tool("get-structured-content", {"location": "Chicago"})
        assert set(structured["structuredContent"]) >= {"temperature", "conditions"}
        image = await client.call_tool("get-tiny-image", {})
        assert [block["type"] for block in image["content"]] == ["text", "image", "text"]
        refused = await client.call_tool("get-sum", {"a": "three"})
        assert refused["isError"]
        await client.ping()


async def test_a_call_tells_its_progress_and_can_be_cancelled(
    me: Actor, server: Server, progress: list[Progress]
) -> None:
    async with reach(me, server) as client:
        caller = CallOrigin(me=me, on_progress=progress.append)
        short = {"duration": 0.2, "steps": 4}
        assert "Steps: 4" in text_of(await client.call_tool("trigger-long-running-operation", short, caller))
        assert [(each.progress, each.total) for each in progress] == [(1, 4), (2, 4), (3, 4), (4, 4)]
        with trio.fail_after(PATIENCE):
            await give_up(client, me, "trigger-long-running-operation", {"duration": 60, "steps": 600})
        assert "still here" in text_of(await client.call_tool("echo", {"message": "still here"}))
        assert client.pending == 0


async def test_its_questions_reach_whoever_called(me: Actor, server: Server, person: Person) -> None:
    person.content = {"name": "Ada", "integer": 7, "check": True}
    async with reach(me, server) as client:
        caller = CallOrigin(me=me, host=person)
        answered = text_of(await client.call_tool("trigger-elicitation-request", {}, caller))
        assert "- Name: Ada" in answered
        assert "- Favorite Integer: 7" in answered
        person.action = "decline"
        assert "declined" in text_of(await client.call_tool("trigger-elicitation-request", {}, caller))
        thought = text_of(await client.call_tool("trigger-sampling-request", {"prompt": "6 * 7?"}, caller))
        assert '"text": "42"' in thought
        assert ["maxTokens" in params for params in person.asked] == [False, False, True]


@pytest.mark.parametrize("server", ["stdio"], indirect=True)
async def test_a_url_to_open_reaches_whoever_called(me: Actor, server: Server, person: Person) -> None:
    async with reach(me, server) as client:
        caller, url = CallOrigin(me=me, host=person), "https://example.org/consent"
        opened = text_of(await client.call_tool("trigger-url-elicitation", {"url": url}, caller))
        assert "completed" in opened
        assert [(params["mode"], params["url"]) for params in person.asked] == [("url", url)]
        refusing = {"url": url, "errorPath": True}  # until another page was opened; then it asks as before
        opened = text_of(await client.call_tool("trigger-url-elicitation", refusing, caller))
        assert "completed" in opened
        assert [params["url"] for params in person.asked[1:]] == ["https://modelcontextprotocol.io", url]
        person.action = "decline"
        with pytest.raises(McpError) as refused:
            await client.call_tool("trigger-url-elicitation", refusing, caller)
        assert refused.value.rpc_code == -32042


@pytest.mark.parametrize("server", ["http"], indirect=True)  # elsewhere nothing says which call a question is about
async def test_questions_of_concurrent_calls_and_their_answers_keep_apart(me: Actor, server: Server) -> None:
    answers: dict[str, str] = {}

    async def ask(name: str) -> None:
        person = Person()
        person.content = {"name": name}
        result = await client.call_tool("trigger-elicitation-request", {}, CallOrigin(me=me, host=person))
        answers[name] = text_of(result)

    async with reach(me, server) as client, trio.open_nursery() as asking:
        for name in ("Ada", "Alan", "Grace"):
            asking.start_soon(ask, name)
    assert all(f"- Name: {name}" in text for name, text in answers.items())
    assert len(answers) == 3


async def test_its_resources_and_prompts_are_read(me: Actor, server: Server) -> None:
    updated = trio.Event()
    async with reach(me, server, on_change=lambda what: updated.set() if what.startswith("demo:") else None) as client:
        assert len(await client.resources()) > 3
        listed = await client.request("resources/templates/list", {})
        templates = [template["uriTemplate"] for template in listed["resourceTemplates"]]
        assert "demo://resource/dynamic/text/{resourceId}" in templates
        uri = "demo://resource/dynamic/text/7"
        assert (await client.request("resources/read", {"uri": uri}))["contents"][0]["text"].startswith("Resource 7: ")
        with pytest.raises(McpError, match=r"(?i)resource"):
            await client.request("resources/read", {"uri": "demo://nothing/there"})
        await client.subscribe(uri)
        text_of(await client.call_tool("toggle-subscriber-updates", {}))
        await updated.wait()
        prompts = {prompt.name: prompt.arguments for prompt in await client.prompts()}
        assert PromptArgument(name="city", description="Name of the city", required=True) in (
            prompts["args-prompt"] or ()
        )
        prompt = await client.request("prompts/get", {"name": "args-prompt", "arguments": {"city": "Paris"}})
        assert "Paris" in prompt["messages"][0]["content"]["text"]
        reference = {"type": "ref/prompt", "name": "completable-prompt"}
        completed = await client.request(
            "completion/complete", {"ref": reference, "argument": {"name": "department", "value": "S"}}
        )
        assert completed["completion"]["values"] == ["Sales", "Support"]


async def test_it_is_told_our_roots_and_tells_us_what_it_logs(me: Actor, server: Server) -> None:
    logged: list[str] = []
    async with reach(me, server, on_log=lambda message: logged.append(str(message.data))) as client:
        assert "file:///srv/work" in text_of(await client.call_tool("get-roots-list", {}))
        await client.set_level("debug")
        text_of(await client.call_tool("toggle-simulated-logging", {}))
        with trio.fail_after(PATIENCE):
            while not any("Roots updated: 1 root(s)" in text for text in logged):
                await trio.sleep(0.01)
            while not any(re.search("level.message", text) for text in logged):
                await trio.sleep(0.01)


async def test_filesystem_works_where_our_roots_say(me: Actor, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a text")
    async with reach(me, npm("filesystem"), roots=(tmp_path.as_uri(),), place=None) as client:
        with trio.fail_after(PATIENCE):  # it asks for the roots after the handshake
            while str(tmp_path) not in text_of(await client.call_tool("list_allowed_directories", {})):
                await trio.sleep(0.01)
        assert {"read_text_file", "write_file"} <= {tool.name for tool in await client.tools()}
        assert text_of(await client.call_tool("read_text_file", {"path": str(tmp_path / "a.txt")})) == "a text"
        text_of(await client.call_tool("write_file", {"path": str(tmp_path / "b.txt"), "content": "b text"}))
        assert (tmp_path / "b.txt").read_text() == "b text"
        outside = await client.call_tool("read_text_file", {"path": "/etc/passwd"})
        assert outside["isError"]


async def test_memory_remembers_what_it_was_told_the_last_time(me: Actor, tmp_path: Path) -> None:
    server = npm("memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")})
    ada = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}
    async with reach(me, server) as client:
        text_of(await client.call_tool("create_entities", {"entities": [ada]}))
    async with reach(me, server) as client:
        graph = json.loads(text_of(await client.call_tool("read_graph", {})))
        assert graph["entities"] == [ada]
