"""The floor: what one would write by hand for exactly this, on trio and httptools, without any error handling."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import httptools
import trio
from _clerk import INSTRUCTIONS, TOOL, lookup, question
from _serve import Idle, clock, in_a_fresh_process, resident, serve

FAST, SLOW = os.environ["BENCH_URL"], os.environ["BENCH_URL_SLOW"]
TOOLS_FILE = os.environ["BENCH_TOOLS"]

Tool = Callable[..., Awaitable[str]]


class Client:
    """Keeps connections; one request at a time on each."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._host, self._port = where.hostname or "", where.port or 80
        self._idle: list[trio.SocketStream] = []

    async def chat(self, messages: list[Any], **more: Any) -> dict[str, Any]:
        body = json.dumps({"model": "fake", "messages": messages, **more}).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._host}:{self._port}\r\nauthorization: Bearer x\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        stream = self._idle.pop() if self._idle else await trio.open_tcp_stream(self._host, self._port)
        await stream.send_all(head.encode() + body)
        answer = Answer()
        parser = httptools.HttpResponseParser(answer)
        while not answer.done:
            parser.feed_data(await stream.receive_some(65536))
        self._idle.append(stream)
        message: dict[str, Any] = json.loads(answer.body)["choices"][0]["message"]
        return message


class Answer:
    """A response as it is parsed."""

    def __init__(self) -> None:
        self.body = b""
        self.done = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.done = True


async def agents(client: Client, n: int, tool: Tool = lookup) -> None:
    async def one(number: int) -> None:
        messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": question(number)}]
        message = await client.chat(messages, tools=[TOOL])
        messages.append(message)
        for call in message["tool_calls"]:
            result = await tool(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        assert (await client.chat(messages, tools=[TOOL]))["content"]

    async with trio.open_nursery() as nursery:
        for number in range(n):
            nursery.start_soon(one, number)


async def lookup_in_a_process(order: int) -> str:
    """The function in the agent's tools file, by the interpreter that it is written for."""
    environ = {**os.environ, "argc_order": str(order), "LLM_OUTPUT": "/dev/stdout"}
    command = ["bash", "-c", '. "$0"; lookup', TOOLS_FILE]
    done = await trio.run_process(command, env=environ, capture_stdout=True, capture_stderr=True)
    return done.stdout.decode()


def run(case: Callable[[Client, int], Awaitable[float]], url: str = FAST) -> Callable[[int], float]:
    return lambda n: trio.run(case, Client(url), n)


async def at_once(client: Client, n: int) -> float:
    await agents(client, 20)
    began = clock()
    await agents(client, n)
    return (clock() - began) / n * 1e3


async def few(client: Client, n: int) -> float:
    await agents(client, n)
    began = clock()
    for _ in range(10):
        await agents(client, n)
    return (clock() - began) / n / 10 * 1e3


async def processes(client: Client, n: int) -> float:
    await agents(client, 5, lookup_in_a_process)
    began = time.perf_counter()
    await agents(client, n, lookup_in_a_process)
    return (time.perf_counter() - began) / n * 1e3


async def in_a_row(client: Client, n: int) -> None:
    text = "it"
    for _ in range(n):
        answer = await client.chat([{"role": "user", "content": f"Say something about: {text}"}])
        text = answer["content"]


async def chain(client: Client, n: int) -> float:
    await in_a_row(client, n)
    began = time.perf_counter()
    await in_a_row(client, n)
    return time.perf_counter() - began


async def parked(client: Client, n: int) -> float:
    """KB of this process when all of them wait."""
    idle = Idle()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agents, client, n)
        await trio.sleep(0.2)
        while not idle():
            await trio.sleep(0.2)
        size = resident()
        nursery.cancel_scope.cancel()
    return size


async def waiting(client: Client, n: int) -> float:
    await parked(client, 20)
    before = resident()
    return (await parked(client, n) - before) / n


if __name__ == "__main__":
    serve(
        {
            "at_once": run(at_once),
            "twice_as_many": run(at_once),
            "few": run(few),
            "processes": run(processes),
            "chain": run(chain),
            "memory": in_a_fresh_process("waiting"),
            "waiting": run(waiting, SLOW),
        }
    )
