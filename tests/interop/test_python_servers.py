"""Servers from PyPI, as their users start them. The first three speak both eras; sqlite knows only the older one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import trio
from interop.calls import reach, text_of, words_of
from interop.environments import LEGACY, MODERN, command, needs

from callboard.protocol.mcp.model import HANDSHAKE
from callboard.protocol.mcp.model import MODERN as NEWEST
from callboard.supervisors import Actor

ERAS = ("auto", pytest.param("legacy", marks=pytest.mark.soak))
VERSION = {"auto": NEWEST, "legacy": HANDSHAKE[0]}
modern, legacy = needs("modern"), needs("legacy")


@modern
@pytest.mark.parametrize("era", ERAS)
async def test_time_tells_the_time_of_a_zone_and_refuses_a_place_that_is_none(me: Actor, era: str) -> None:
    async with reach(me, command("time", MODERN / "mcp-server-time"), era) as client:
        assert (client.version, client.modern) == (VERSION[era], era == "auto")
        assert [tool.name for tool in await client.tools()] == ["get_current_time", "convert_time"]
        zones = {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"}
        converted = json.loads(text_of(await client.call_tool("convert_time", zones)))
        assert converted["target"]["datetime"][11:16] == "21:30"
        refused = await client.call_tool("get_current_time", {"timezone": "Moon/Luna"})
        assert refused["isError"]
        assert "Moon/Luna" in words_of(refused)


@modern
@pytest.mark.parametrize("era", ERAS)
async def test_git_shows_what_was_committed(me: Actor, tmp_path: Path, era: str) -> None:
    def git(*args: str) -> None:
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *args], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "a.txt").write_text("one\n")
    git("add", "a.txt")
    git("commit", "-m", "The first of all")
    (tmp_path / "b.txt").write_text("two\n")
    async with reach(me, command("git", MODERN / "mcp-server-git", "--repository", tmp_path), era) as client:
        assert client.version == VERSION[era]
        assert {"git_status", "git_log", "git_commit"} <= {tool.name for tool in await client.tools()}
        status = text_of(await client.call_tool("git_status", {"repo_path": str(tmp_path)}))
        assert "b.txt" in status
        log = text_of(await client.call_tool("git_log", {"repo_path": str(tmp_path), "max_count": 1}))
        assert "The first of all" in log


@modern
@pytest.mark.parametrize("era", ERAS)
async def test_fetch_gets_a_page_by_its_tool_and_by_its_prompt(me: Actor, nursery: trio.Nursery, era: str) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, page, listeners)
    url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/page"
    server = command("fetch", MODERN / "mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips")
    async with reach(me, server, era) as client:
        assert client.version == VERSION[era]
        assert [tool.name for tool in await client.tools()] == ["fetch"]
        assert "Once upon a time" in text_of(await client.call_tool("fetch", {"url": url}))
        [prompt] = await client.prompts()
        assert [argument.name for argument in prompt.arguments or ()] == ["url"]
        given = await client.request("prompts/get", {"name": "fetch", "arguments": {"url": url}})
        assert "Once upon a time" in given["messages"][0]["content"]["text"]
    nursery.cancel_scope.cancel()


async def page(stream: trio.SocketStream) -> None:
    """Answers one request with a page."""
    request = b""
    while b"\r\n\r\n" not in request:
        request += await stream.receive_some()
    body = b"Once upon a time there was a page."
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    await stream.send_all(head.encode() + body)


@legacy
async def test_sqlite_keeps_rows_and_tells_that_its_memo_has_changed(me: Actor, tmp_path: Path) -> None:
    server = command("sqlite", LEGACY / "mcp-server-sqlite", "--db-path", tmp_path / "test.db")
    changed = trio.Event()
    uris: list[str] = []

    def on_change(what: str) -> None:
        uris.append(what)
        changed.set()

    async with reach(me, server, on_change=on_change) as client:
        assert not client.modern
        assert client.version in HANDSHAKE
        assert {"read_query", "write_query", "append_insight"} <= {tool.name for tool in await client.tools()}
        text_of(await client.call_tool("create_table", {"query": "CREATE TABLE t (a TEXT)"}))
        text_of(await client.call_tool("write_query", {"query": "INSERT INTO t VALUES ('kept')"}))
        assert "kept" in text_of(await client.call_tool("read_query", {"query": "SELECT * FROM t"}))
        assert [resource.uri for resource in await client.resources()] == ["memo://insights"]
        text_of(await client.call_tool("append_insight", {"insight": "Rows are kept."}))
        await changed.wait()
        assert uris == ["memo://insights"]
        memo = await client.request("resources/read", {"uri": "memo://insights"})
        assert "Rows are kept." in memo["contents"][0]["text"]
        assert [prompt.name for prompt in await client.prompts()] == ["mcp-demo"]
        demo = await client.request("prompts/get", {"name": "mcp-demo", "arguments": {"topic": "lighthouses"}})
        assert "lighthouses" in demo["messages"][0]["content"]["text"]
