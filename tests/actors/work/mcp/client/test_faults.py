"""Servers that break, lie, flood and hang; each test by the name that the complaint has in the wild."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from support.messages import says
from support.waiting import PATIENCE, until

from callboard.actors.work.mcp.links import stdio
from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.protocol.errors import McpError, McpLost, McpUnsent

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _errors_wait_for_the_end_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "DIES_WITHIN", PATIENCE)
    monkeypatch.setattr(stdio, "REPORTS_WITHIN", PATIENCE)


def text_of(result: dict[str, Any]) -> Any:
    return result["content"][0]["text"]


async def seen_by(client: Any) -> list[dict[str, Any]]:
    return json.loads(text_of(await client.call_tool("seen", {})))


async def test_what_a_model_made_up_makes_no_error_longer_than_it_may_be(connector: Any, era: str) -> None:
    async with connector.connected(era) as client:
        with pytest.raises(McpError, match="refused tools/call 'xxx") as caught:
            await client.call_tool("x" * 100_000, {})
        assert len(str(caught.value)) < 3_000


# --- servers that hear nothing any more -----------------------------------------------------------------------


async def test_a_server_that_closed_its_input_and_lives_on_is_given_up(
    connector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "DEAF_FOR", 0.05)
    async with connector.connected("--legacy") as client:
        assert text_of(await client.call_tool("deafen", {})) == "deaf"
        what = "closed its stdin before it had read tools/call 'echo'"
        with pytest.raises(McpLost, match=what):
            await client.call_tool("echo", {"text": "hello?"})


# --- cancelled calls ------------------------------------------------------------------------------------------


async def test_cancel_in_flight(connector: Any, era: str) -> None:
    """The server is told, and the session is usable."""
    async with connector.connected(era) as client:
        before = client.pending
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "slow", {"seconds": 3600})
            await until(lambda: client.pending == before + 1)
            nursery.cancel_scope.cancel()
        assert client.pending == before
        seen = await seen_by(client)
        [call] = [m for m in seen if m["method"] == "tools/call" and m["params"]["name"] == "slow"]
        [cancelled] = [m["params"]["requestId"] for m in seen if m["method"] == "notifications/cancelled"]
        assert cancelled == call["id"]
        assert text_of(await client.call_tool("echo", {"text": "on"})) == "on"


async def test_a_cancelled_call_that_is_answered_all_the_same_disturbs_nobody(connector: Any) -> None:
    async with connector.connected("--legacy") as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "slow", {"seconds": 1.0, "stubborn": True})
            await until(lambda: client.pending)
            nursery.cancel_scope.cancel()
        await until(lambda: client.link.stray == 1)
        assert text_of(await client.call_tool("late", {})) == "late"
        assert client.link.stray == 2
        assert client.dropped == 1
        assert not client.link.waiting


# --- death ----------------------------------------------------------------------------------------------------


async def test_dead_server_mid_call(connector: Any, era: str) -> None:
    """All callers get an error with the server's last words, though their calls have no timeout."""
    async with connector.connected(era) as client:
        errors: list[McpLost] = []

        async def call() -> None:
            with pytest.raises(McpLost) as caught:
                await client.call_tool("slow", {"seconds": 3600})
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call)
            await until(lambda: client.pending == 5)
            with pytest.raises(
                McpLost, match=r"'play' exited with status 3 during tools/call 'die' \(.*stderr: goodbye"
            ):
                await client.call_tool("die", {"words": "goodbye"})
        known = (
            r"tools/call 'slow' \(sent \d+\.\d s before, while 5 other calls of it were running\); .*stderr: goodbye"
        )
        assert all(re.search(known, str(error)) for error in errors)
        with pytest.raises(McpLost, match=says("work.mcp.links.stdio.StdioLink._report_end.3", status="3; it wrote…")):
            await client.call_tool("echo", {"text": "anybody?"})
        with trio.fail_after(60):
            end = await connector.owner.ref.wait()
        assert end.reason == "crashed"  # whoever owns the connection learns of it


async def test_a_call_that_a_dead_server_had_not_read_was_not_begun(connector: Any) -> None:
    async with connector.connected() as client:
        errors: dict[str, McpLost] = {}

        async def call(tool: str, arguments: dict[str, Any]) -> None:
            with pytest.raises(McpLost) as caught:
                await client.call_tool(tool, arguments)
            errors[tool] = caught.value

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "slow", {"seconds": 3600})
            await until(lambda: client.pending == 1)
            await client.call_tool("echo", {"text": "it has read all that came before this"})
            os.kill(client.pid, signal.SIGSTOP)
            await until(lambda: psutil.Process(client.pid).status() == psutil.STATUS_STOPPED)
            nursery.start_soon(call, "echo", {"text": "in the pipe"})
            nursery.start_soon(call, "big", {"bytes": 1, "more": "in the outbox" * MIB})
            await until(lambda: client.pending == 3)
            os.kill(client.pid, signal.SIGKILL)
    assert type(errors["slow"]) is McpLost
    assert re.search(r"signal 9 during tools/call 'slow' \(sent \d+\.\d s before\)$", str(errors["slow"]))
    for tool in ("echo", "big"):
        assert isinstance(errors[tool], McpUnsent)
        assert str(errors[tool]) == f"MCP server 'play' was killed by signal 9 before it had read tools/call '{tool}'"


async def test_a_server_that_is_killed_is_told_with_the_signal(connector: Any) -> None:
    async with connector.connected() as client:
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(McpLost, match=says("work.mcp.links.stdio.StdioLink._report_end.2", signal="9…")):
            await client.call_tool("slow", {"seconds": 3600})


async def test_a_server_that_closes_its_stdout_only_is_ended(connector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "DIES_WITHIN", 0.05)
    async with connector.connected() as client:
        pid = client.pid
        with pytest.raises(McpLost, match="'play' closed its stdout during tools/call 'closes'"):
            await client.call_tool("closes", {})
        with trio.fail_after(60):
            await connector.owner.ref.wait()
        assert not psutil.pid_exists(pid)


async def test_half_a_line_and_then_nothing_holds_up_nobody_for_ever(connector: Any) -> None:
    async with connector.connected() as client:
        with trio.move_on_after(0.1) as scope:
            await client.call_tool("half", {})
        assert scope.cancelled_caught
        pid = client.pid
    assert not psutil.pid_exists(pid)


async def test_a_server_that_ignores_the_end_of_its_input_and_sigterm_is_killed(connector: Any) -> None:
    async with connector.connected("--ignore-eof", "--deaf") as client:
        pid = client.pid
    assert not psutil.pid_exists(pid)


async def test_a_polite_server_leaves_no_grandchild(
    connector: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRANDCHILD", str(tmp_path / "pid"))
    async with connector.connected("--grandchild"):
        grandchild = int((tmp_path / "pid").read_text())
        assert psutil.pid_exists(grandchild)
    assert not psutil.pid_exists(grandchild)


# --- strange output -------------------------------------------------------------------------------------------


async def test_floods_stderr(connector: Any) -> None:
    async with connector.connected() as client:
        with trio.fail_after(60):
            assert text_of(await client.call_tool("flood", {"bytes": 4 * MIB})) == "flooded"


async def test_junk_on_stdout_is_skipped_and_logged_within_bounds(connector: Any) -> None:
    async with connector.connected("--junk", "100") as client:
        assert text_of(await client.call_tool("junk", {"bytes": 100_000})) == "junk written"
        assert client.link.junk > 200
    assert [message.level for message in connector.logged] == ["warning"] * 20
    assert re.fullmatch(
        says("work.mcp.client.connect._Attempt._on_junk", text="Welcome! line 0"), connector.logged[0].data
    )


async def test_a_server_that_writes_nothing_but_junk_is_given_up(connector: Any) -> None:
    async with connector.connected() as client:
        with pytest.raises(McpLost, match=says("work.mcp.links.stdio.StdioLink._take_odd", line="'not a message…")):
            await client.call_tool("junk", {"bytes": 2 * MIB})


@pytest.mark.parametrize("begin", ["", '{"jsonrpc": "2.0", "id": 7, "result": {"text": "'])
async def test_a_line_without_an_end_is_given_up_though_the_call_was_cancelled(connector: Any, begin: str) -> None:
    """Else it would be read for as long as the pool keeps the server."""
    async with connector.connected() as client:
        pid = client.pid
        with trio.move_on_after(0) as scope:
            await client.call_tool("endless", {"begin": begin})
        assert scope.cancelled_caught
        with trio.fail_after(60):  # it takes less than a second
            await connector.owner.ref.wait()
        assert not psutil.pid_exists(pid)
        with pytest.raises(McpLost, match=r"'play' wrote too long a line to its stdout; .*\('.*x', \.\.\.\)"):
            await client.call_tool("echo", {"text": "anybody?"})


async def test_a_line_without_an_end_fails_the_calls_under_way(connector: Any) -> None:
    async with connector.connected() as client:
        with pytest.raises(McpLost, match=r"'play' wrote too long a line .*during tools/call 'endless'"):
            await client.call_tool("endless", {"begin": "Welcome! "})


async def test_sends_a_100_mb_line(connector: Any, era: str) -> None:
    """It is not held, it costs the call that it answers, and the session is usable."""
    async with connector.connected(era) as client:
        await client.call_tool("echo", {"text": "warm"})
        before = psutil.Process().memory_info().rss
        with pytest.raises(
            McpError, match=says("work.mcp.links.stdio.StdioLink._too_long.2", outgoing="…'long'")
        ) as caught:
            await client.call_tool("long", {"bytes": 100_000_000})
        assert not isinstance(caught.value, McpLost)
        assert psutil.Process().memory_info().rss - before < 40 * MIB
        assert text_of(await client.call_tool("echo", {"text": "on"})) == "on"


async def test_the_bound_of_a_message_is_the_servers_own(connector: Any) -> None:
    async with connector.connected(max_message_bytes=100_000) as client:
        assert len(text_of(await client.call_tool("big", {"bytes": 90_000}))) == 90_000
        with pytest.raises(McpError, match=says("work.mcp.links.stdio.StdioLink._too_long", limit="100,000")):
            await client.call_tool("big", {"bytes": 110_000})


async def test_a_big_answer_arrives_whole(connector: Any) -> None:
    async with connector.connected() as client:
        assert text_of(await client.call_tool("big", {"bytes": 8 * MIB})) == "x" * (8 * MIB)


async def test_batches_are_understood(connector: Any) -> None:
    async with connector.connected("--legacy", "--revision", "2025-03-26") as client:
        assert text_of(await client.call_tool("batch", {"text": "one of many"})) == "one of many"
    assert [message.data for message in connector.logged] == ["in a batch"]


async def test_characters_cut_in_the_middle_arrive_whole(connector: Any) -> None:
    async with connector.connected() as client:
        assert text_of(await client.call_tool("utf8", {})) == "žluťoučký kůň 🐎"


# --- what is sent ---------------------------------------------------------------------------------------------


async def test_a_big_request_is_read_whole(connector: Any) -> None:
    async with connector.connected() as client:
        text = "y" * (2 * MIB)
        assert text_of(await client.call_tool("echo", {"text": text})) == text


async def test_a_server_that_does_not_read_holds_up_only_its_callers(
    connector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "OUTBOX", 3 * MIB)
    async with connector.connected() as client, trio.open_nursery() as nursery:
        os.kill(client.pid, signal.SIGSTOP)
        for _ in range(2):
            nursery.start_soon(client.call_tool, "echo", {"text": "z" * MIB})
        await trio.testing.wait_all_tasks_blocked(0.01)
        with pytest.raises(McpError, match=says("work.mcp.links.stdio.StdioLink._send")):
            await client.call_tool("echo", {"text": "z" * 2 * MIB})
        os.kill(client.pid, signal.SIGCONT)


async def test_bytes_that_are_no_utf_8_are_replaced(connector: Any, era: str) -> None:
    async with connector.connected(era) as client:
        assert (await client.call_tool("odd", {"how": "bytes"}))["content"] == "\ufffd\ufffd"


@pytest.mark.parametrize(("how", "why"), [("deep", says("protocol.jsonrpc.decode"))])
async def test_an_answer_that_can_t_be_read_costs_that_call_alone(connector: Any, era: str, how: str, why: str) -> None:
    async with connector.connected(era) as client:
        with pytest.raises(McpError, match=why):
            await client.call_tool("odd", {"how": how})
        assert text_of(await client.call_tool("echo", {"text": "still here"})) == "still here"


async def test_what_a_chatty_program_prints_instead_of_an_answer_is_told(connector: Any) -> None:
    program = {"command": "sh", "args": ("-c", "echo Welcome to me; cat >/dev/null")}
    with pytest.raises(McpLost, match=r"not ready within 4 s.*to its stdout: 'Welcome to me'"):
        async with connector.connected(**program, start_timeout_seconds=4):
            pass


async def test_the_line_that_says_why_is_quoted_though_others_follow(connector: Any) -> None:
    said = "\n".join(["Error: Cannot find module '/nope/index.js'", *(f"    at frame {n}" for n in range(8)), "v20"])
    quoted = r"Cannot find module '/nope/index\.js'\n\.\.\.\nat frame 4\n(.*\n)*v20$"
    with pytest.raises(McpLost, match=quoted) as caught:
        async with connector.connected("--complain", said, "--exit", "1"):
            pass
    assert "frame 1" not in str(caught.value)


async def test_a_command_below_the_home_directory_is_found(
    connector: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "serve").write_text(f"#!/bin/sh\nexec {sys.executable} -S {connector.server().args[1]}\n")
    (tmp_path / "serve").chmod(0o755)
    async with connector.connected(command="~/serve", args=()) as client:
        assert await client.tools()


async def test_a_server_that_dies_while_it_waits_for_an_answer_was_under_way(connector: Any) -> None:
    """It is not `McpUnsent`: the pool would make the call again from its beginning."""
    connector.host.hold = trio.Event()
    async with trio.open_nursery() as nursery:
        errors: list[McpError] = []
        async with connector.connected("--modern") as client:

            async def ask() -> None:
                try:
                    await client.call_tool(
                        "ask", {"question": "which?"}, CallOrigin(me=connector.root.actor, host=connector.host)
                    )
                except McpError as error:
                    errors.append(error)

            nursery.start_soon(ask)
            await until(lambda: connector.host.asked)
            os.kill(client.pid, signal.SIGKILL)
            await until(lambda: client.link.lost is not None)
            connector.host.hold.set()
            await until(lambda: errors)
    assert [type(error) for error in errors] == [McpLost]
