"""The floor: what one would write by hand for exactly this, on trio and httptools, without any error handling."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import httptools
import trio
from _serve import Idle, clock, in_a_fresh_process, resident, serve

FAST, SLOW = os.environ["BENCH_URL"], os.environ["BENCH_URL_SLOW"]


class Client:
    """Keeps connections; one request at a time on each."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._host, self._port = where.hostname or "", where.port or 80
        self._idle: list[trio.SocketStream] = []

    async def chat(self, prompt: str) -> str:
        request = {"model": "fake", "messages": [{"role": "user", "content": prompt}]}
        body = json.dumps(request).encode()
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
        text: str = json.loads(answer.body)["choices"][0]["message"]["content"]
        return text


class Answer:
    """A response as it is parsed."""

    def __init__(self) -> None:
        self.body = b""
        self.done = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.done = True


async def agents(client: Client, n: int, steps: int = 2) -> None:
    async def one(number: int) -> None:
        text = f"agent {number}"
        for _ in range(steps):
            text = await client.chat(f"Say something about: {text}")
        assert text

    async with trio.open_nursery() as nursery:
        for number in range(n):
            nursery.start_soon(one, number)


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


async def chain(client: Client, n: int) -> float:
    await agents(client, 1, n)
    began = time.perf_counter()
    await agents(client, 1, n)
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
            "chain": run(chain),
            "memory": in_a_fresh_process("waiting"),
            "waiting": run(waiting, SLOW),
        }
    )
