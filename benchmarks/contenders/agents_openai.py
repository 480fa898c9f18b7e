"""The plain openai SDK on asyncio, one client for all, retries off: no framework at all."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

from _clerk import INSTRUCTIONS, TOOL, lookup, question
from _serve import Idle, absent, clock, in_a_fresh_process, resident, serve

try:
    from openai import AsyncOpenAI
except ImportError as error:
    absent(error)

FAST, SLOW = os.environ["BENCH_URL"], os.environ["BENCH_URL_SLOW"]


async def agents(client: AsyncOpenAI, n: int) -> None:
    async def one(number: int) -> None:
        messages: list[Any] = [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": question(number)},
        ]
        tools: list[Any] = [TOOL]
        reply = await client.chat.completions.create(model="fake", messages=messages, tools=tools)
        message = reply.choices[0].message
        messages.append(message)
        for call in message.tool_calls or ():
            assert call.type == "function"
            result = await lookup(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        assert len(messages) == 4
        reply = await client.chat.completions.create(model="fake", messages=messages, tools=tools)
        assert reply.choices[0].message.content

    await asyncio.gather(*(one(number) for number in range(n)))


def run(case: Callable[[AsyncOpenAI, int], Coroutine[Any, Any, float]], url: str = FAST) -> Callable[[int], float]:
    async def main(n: int) -> float:
        async with AsyncOpenAI(api_key="x", base_url=url + "/v1", max_retries=0, timeout=3600) as client:
            return await case(client, n)

    return lambda n: asyncio.run(main(n))


async def at_once(client: AsyncOpenAI, n: int) -> float:
    await agents(client, 20)
    began = clock()
    await agents(client, n)
    return (clock() - began) / n * 1e3


async def few(client: AsyncOpenAI, n: int) -> float:
    await agents(client, n)
    began = clock()
    for _ in range(10):
        await agents(client, n)
    return (clock() - began) / n / 10 * 1e3


async def in_a_row(client: AsyncOpenAI, n: int) -> None:
    text = "it"
    for _ in range(n):
        reply = await client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": f"Say something about: {text}"}]
        )
        text = reply.choices[0].message.content or ""


async def chain(client: AsyncOpenAI, n: int) -> float:
    await in_a_row(client, n)
    began = time.perf_counter()
    await in_a_row(client, n)
    return time.perf_counter() - began


async def parked(client: AsyncOpenAI, n: int) -> float:
    """KB of this process when all of them wait."""
    idle = Idle()
    task = asyncio.create_task(agents(client, n))
    await asyncio.sleep(0.2)
    while not idle():
        await asyncio.sleep(0.2)
    size = resident()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return size


async def waiting(client: AsyncOpenAI, n: int) -> float:
    await parked(client, 20)
    before = resident()
    return (await parked(client, n) - before) / n


if __name__ == "__main__":
    serve(
        {
            "at_once": run(at_once),
            "few": run(few),
            "chain": run(chain),
            "memory": in_a_fresh_process("waiting"),
            "waiting": run(waiting, SLOW),
        }
    )
