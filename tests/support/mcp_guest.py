"""A client that speaks raw JSON-RPC with a server of ours over pipes, and agents to serve."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

from support.waiting import PATIENCE

MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
LEGACY = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "t", "version": "1"},
}
SOON = PATIENCE
"""Seconds within which whatever should come has come."""

ASKER = """
start: choose
nodes:
  choose: {type: approval, question: "Which?", options: [red, blue], routes: {red: done, blue: done}, on_other: done,
           state_updates: {colour: "{{choice}}"}}
  done: {type: end, output: "chose {{colour}}"}
"""
HELLO = """
description: Says hello.
start: think
nodes:
  think: {type: script, script: think.sh, next: done}
  done: {type: end, output: "hello {{initial_prompt}}"}
"""
SLOW = """
start: work
nodes:
  work: {type: script, script: work.sh, timeout: 120, next: done}
  done: {type: end, output: done}
"""


class Client:
    """The other end of a server's pipes.

    Attributes:
        heard: what the server said by itself while answers were waited for.
    """

    def __init__(self, reading: trio.lowlevel.FdStream, writing: trio.lowlevel.FdStream) -> None:
        self.heard: list[dict[str, Any]] = []
        self.meta: dict[str, Any] | None = META
        self.reading = reading
        self.writing = writing
        self._buffer = b""
        self._id = 0

    async def say(self, **message: Any) -> None:
        await self.writing.send_all(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        """The next message; {} at the end."""
        with trio.fail_after(SOON):
            while b"\n" not in self._buffer:
                data = await self.reading.receive_some(65_536)
                if not data:
                    return {}
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    async def ask(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        self._id += 1
        if self.meta is not None:
            params["_meta"] = {**self.meta, **params.get("_meta", {})}
        await self.say(id=self._id, method=method, params=params)
        return self._id

    async def answer(self, id: int) -> dict[str, Any]:
        """The answer to a request of ours; what comes before it is kept in `heard`."""
        while "method" in (message := await self.hear()) or not message:
            assert message, "the server has gone"
            self.heard.append(message)
        assert message["id"] == id
        return message

    async def request(self, method: str, **params: Any) -> Any:
        """Ask and wait for the result; an error is the answer's `error`."""
        message = await self.answer(await self.ask(method, **params))
        return message.get("result", message)

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, **params: Any) -> Any:
        return await self.request("tools/call", name=tool, arguments=arguments or {}, **params)

    async def initialize(self, **changes: Any) -> Any:
        """Begin as clients did before 2026-07-28."""
        self.meta = None
        result = await self.request("initialize", **{**LEGACY, **changes})
        await self.say(method="notifications/initialized")
        return result


Serve = Callable[..., AbstractAsyncContextManager[Client]]


async def begin(client: Client, era: str) -> None:
    """Do what a client of that era does first."""
    if era == "legacy":
        await client.initialize()
