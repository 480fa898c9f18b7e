"""What goes wrong on a pipe: junk, long lines, clients that don't read; and the process that `serve_stdio` is for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agent_runs import AgentRunner
from support.mcp_guest import ASKER, HELLO, META, SLOW, SOON, Serve
from support.messages import has_message
from support.waiting import until

import callboard.actors.io.outbox as stdio
from callboard.actors.front.mcp_server.service import McpToolCall

VERSION = "io.modelcontextprotocol/protocolVersion"
LINES = {
    "no json": (b"hello?", -32700),
    "no message": (b"[1]", -32600),
    "nothing in it": (b'{"jsonrpc":"2.0"}', -32600),
    "no text": (b"\xff\xfe", -32700),
    "a list as params": (b'{"id":1,"method":"tools/list","params":[]}', -32602),
    "neither handshake nor version": (b'{"id":1,"method":"tools/list"}', -32602),
    "text that is none, inside": (b'{"id":1,"method":"tools/list","params":{"a":"\xff"}}', -32602),
    "deeper than can be read": (
        b'{"id":1,"method":"ping","params":{"a":%b%b}}' % (b"[" * 100_000, b"]" * 100_000),
        -32600,
    ),
    "a version alone": (
        b'{"id":1,"method":"tools/list","params":{"_meta":{"%b":"2026-07-28"}}}' % VERSION.encode(),
        -32602,
    ),
}


@pytest.mark.parametrize(("line", "code"), LINES.values(), ids=LINES)
async def test_what_can_not_be_answered_is_refused_and_the_next_request_is_answered(
    agent_runner: AgentRunner, serve: Serve, line: bytes, code: int
) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with serve() as client:
        await client.writing.send_all(line + b"\n\n")
        assert (await client.hear())["error"]["code"] == code
        assert len((await client.request("tools/list"))["tools"]) == 1


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("resources/list", {}, -32601),
        ("initialize", {}, -32601),
        ("ping", {}, -32601),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": {}}, -32602),
        ("tools/call", {"name": "hello", "arguments": "x"}, -32602),
        ("tools/call", {"name": "hello", "requestState": "made up"}, -32602),
        ("tools/call", {"name": "hello", "requestState": {}}, -32602),
    ],
)
async def test_requests_of_the_newer_era_that_make_no_sense_are_refused(
    agent_runner: AgentRunner, serve: Serve, method: str, params: dict[str, Any], code: int
) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with serve() as client:
        answer = await client.request(method, **params)
        assert answer["error"]["code"] == code


async def test_an_unknown_version_is_told_which_one_is_spoken(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with serve() as client:
        client.meta = {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
        answer = await client.request("server/discover")
    assert answer["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


async def test_an_id_that_is_in_use_is_refused(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(SLOW, name="slow", work="sleep 60; echo {}")
    async with serve() as client:
        for _ in range(2):
            await client.say(id="one", method="tools/call", params={"name": "slow", "_meta": META})
        answer = await client.hear()
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


async def test_a_result_that_can_not_be_written_is_still_an_answer(
    agent_runner: AgentRunner, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    monkeypatch.setattr(McpToolCall, "to_wire", lambda call: {"content": object()})
    async with serve() as client:
        answer = await client.call("hello")
    assert answer["error"]["code"] == -32603


async def test_an_answer_that_can_not_be_read_is_none(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(ASKER, name="asker")
    async with serve() as client:
        await client.initialize()
        call = await client.ask("tools/call", name="asker")
        id = (await client.hear())["id"]
        await client.writing.send_all(b'{"id":"%b","result":{"action":"\xff"}}\n' % id.encode())
        result = (await client.answer(call))["result"]
    assert result["structuredContent"]["error"]["code"] == "nobody_to_ask"


async def test_a_batch_is_answered_message_by_message(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with serve() as client:
        await client.initialize(protocolVersion="2025-03-26")
        ping = {"jsonrpc": "2.0", "method": "ping"}
        await client.writing.send_all(json.dumps([{**ping, "id": "a"}, {**ping, "id": "b"}]).encode() + b"\n")
        assert [(await client.hear())["id"] for _ in range(2)] == ["a", "b"]


async def test_a_line_that_is_too_long_is_skipped_without_being_kept(
    agent_runner: AgentRunner, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "MAX_LINE", 100_000)
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with serve() as client:
        await client.writing.send_all(b"x" * 5_000_000 + b"\n")
        assert has_message((await client.hear())["error"]["message"], "io.outbox._messages", MAX_LINE=100000)
        assert len((await client.request("tools/list"))["tools"]) == 1


async def test_lines_arrive_in_whatever_pieces(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with serve() as client:
        params = {"name": "hello", "arguments": {"prompt": "wörld"}, "_meta": META}
        for byte in json.dumps({"id": 1, "method": "tools/call", "params": params}, ensure_ascii=False).encode():
            await client.writing.send_all(bytes([byte]))
        await client.writing.send_all(b"\n")
        assert (await client.hear())["result"]["content"][0]["text"] == "hello wörld"


async def test_a_client_that_does_not_read_is_not_read_either_and_catches_up(
    agent_runner: AgentRunner, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "BEHIND", 10_000)
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    async with serve() as client:
        request = json.dumps({"id": 1, "method": "tools/list", "params": {"_meta": META}}).encode() + b"\n"
        sent = 0
        while True:
            with trio.move_on_after(0.2) as scope:
                await client.writing.send_all(request)
            if scope.cancelled_caught:
                break  # it takes no more: its own input is full
            sent += 1
            assert sent * len(request) < 10_000_000
        answers = [await client.hear() for _ in range(sent)]
        assert {answer["id"] for answer in answers} == {1}


async def test_a_client_that_hangs_up_in_the_middle_ends_the_server(agent_runner: AgentRunner, serve: Serve) -> None:
    agent_runner.agent(SLOW, name="slow", work=f"touch {agent_runner.config_dir}/started; sleep 60; echo {{}}")
    async with serve() as client:
        await client.ask("tools/call", name="slow")
        await until(lambda: (agent_runner.config_dir / "started").exists())
        await client.reading.aclose()
        await client.ask("tools/list")  # whose answer nobody can read


@settings(max_examples=30, deadline=None)
@given(junk=st.lists(st.binary(max_size=200), max_size=10))
def test_no_bytes_stop_the_server_from_answering(junk: list[bytes]) -> None:
    async def main() -> None:
        out: list[bytes] = []

        class Pipe(trio.abc.ReceiveStream):
            async def receive_some(self, max_bytes: int | None = None) -> bytes:
                await trio.lowlevel.checkpoint()
                return junk.pop(0) or b"\n" if junk else b""

            async def aclose(self) -> None:
                pass

        async for line in stdio.lines(Pipe()):
            assert line is not None
            assert b"\n" not in line
            out.append(line)
        whole = b"".join(kept).rpartition(b"\n")[0]
        assert b"\n".join(out) == whole

    kept = [data or b"\n" for data in junk]
    trio.run(main)


PROGRAM = """
import os, sys, threading, trio, callboard
from callboard.actors.front.mcp_server.service import read_agents
from callboard.actors.front.mcp_server.serving import serve_stdio

async def main():
    async with callboard.Root(config_dir=sys.argv[1], signals=True) as root:
        offers, _ = read_agents(root)
        root.kernel.spawn(noise, link=False)
        await serve_stdio(root, offers)
    print("afterwards")

async def noise(me):
    print("a print from inside")
    os.write(1, b"a write past Python\\n")
    os.system("echo a child; cat")

trio.run(main)
"""


@contextmanager
def program(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that serves the agents of a directory, and is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def call(process: subprocess.Popen[bytes], **params: Any) -> None:
    assert process.stdin is not None
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"_meta": META, **params}}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


async def test_nothing_but_the_protocol_is_written_to_stdout_while_serving(agent_runner: AgentRunner) -> None:
    agent_runner.agent(HELLO, name="hello", think="echo {}")
    with program(agent_runner.config_dir) as process:
        call(process, name="hello", arguments={"prompt": "x"})
        assert process.stdout is not None
        answer = json.loads(await trio.to_thread.run_sync(process.stdout.readline))
        assert answer["result"]["content"][0]["text"] == "hello x"
        out, err = await trio.to_thread.run_sync(lambda: process.communicate(timeout=SOON))
    assert process.returncode == 0
    assert out == b"afterwards\n"  # stdout is itself again
    assert b"a print from inside\n" in err
    assert b"a write past Python\n" in err
    assert b"a child\n" in err


@pytest.mark.parametrize("ending", ["eof", "SIGTERM", "SIGINT"])
@pytest.mark.sample(1)
async def test_a_served_run_ends_with_its_server(agent_runner: AgentRunner, ending: str) -> None:
    agent_runner.agent(SLOW, name="slow", work=f"touch {agent_runner.config_dir}/started; sleep 60; echo {{}}")
    with program(agent_runner.config_dir) as process:
        call(process, name="slow")
        await until(lambda: (agent_runner.config_dir / "started").exists())
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
        if ending == "eof":
            assert process.stdin is not None
            process.stdin.close()
        else:
            os.kill(process.pid, getattr(signal, ending))
        await trio.to_thread.run_sync(lambda: process.wait(timeout=SOON))
        _, alive = await trio.to_thread.run_sync(lambda: psutil.wait_procs(family, timeout=SOON))
    assert alive == []
