"""A fake OpenAI server in a process of its own, cheap enough never to be what is measured.

    python benchmarks/harness/fake_openai.py [delay in seconds [n]]     prints its port, serves until stdin ends

Every POST is answered after the delay with a short chat completion, as a stream if that was asked for. A request that
offers tools and brings no result of one is answered with a call, `lookup(order=7)`, never as a stream. It prints a
line when `n` requests are open at once for the first time. When stdin ends it prints how many requests it got, how many
were open at most, and how many were given up by their client.
"""

from __future__ import annotations

import asyncio
import json
import sys

USAGE = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
COMMON = {"id": "chatcmpl-1", "created": 1, "model": "fake"}


def _whole(message: dict[str, object], finish: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, "logprobs": None}
    body = json.dumps({**COMMON, "object": "chat.completion", "choices": [choice], "usage": USAGE}).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _streamed() -> bytes:
    def chunk(choices: list[dict[str, object]], **more: object) -> bytes:
        data = json.dumps({**COMMON, "object": "chat.completion.chunk", "choices": choices, **more})
        return b"data: " + data.encode() + b"\n\n"

    words = ["A ", "short ", "answer."]
    parts = [chunk([{"index": 0, "delta": {"role": "assistant", "content": word}}]) for word in words]
    parts.append(chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]))
    body = b"".join([*parts, chunk([], usage=USAGE), b"data: [DONE]\n\n"])
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


LOOKUP = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": '{"order": 7}'}}

WHOLE, STREAMED = _whole({"content": "A short answer."}, "stop"), _streamed()
CALL = _whole({"content": None, "tool_calls": [LOOKUP]}, "tool_calls")


class Server(asyncio.Protocol):
    """One connection; one request at a time, as HTTP/1.1 clients without pipelining send them."""

    delay = 0.05
    announce = requests = open = most = given_up = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._data = b""
        self._answer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end:
            return
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        if len(body) < length:
            return
        self._data = body[length:]
        flat = body[:length].replace(b" ", b"")
        cls = type(self)
        cls.requests += 1
        cls.open += 1
        if cls.open > cls.most:
            cls.most = cls.open
            if cls.most == cls.announce:
                print("full", flush=True)
        answer = STREAMED if b'"stream":true' in flat else WHOLE
        if b'"tools":[' in flat and b'"role":"tool"' not in flat:
            answer = CALL
        self._answer = asyncio.get_running_loop().call_later(cls.delay, self._send, answer)

    def _send(self, answer: bytes) -> None:
        self._answer = None
        type(self).open -= 1
        self._transport.write(answer)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._answer is not None:
            self._answer.cancel()
            type(self).open -= 1
            type(self).given_up += 1


async def main() -> None:
    """Serve until stdin ends."""
    if len(sys.argv) > 1:
        Server.delay = float(sys.argv[1])
    if len(sys.argv) > 2:
        Server.announce = int(sys.argv[2])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    counts = {"requests": Server.requests, "open": Server.open, "most": Server.most, "given_up": Server.given_up}
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
