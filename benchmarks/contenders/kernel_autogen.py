"""autogen-core: one queue for the whole runtime, a new asyncio task per message. Idle agents have no task."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from _serve import absent, clock, micro, serve

os.environ.setdefault("AUTOGEN_DISABLE_RUNTIME_TRACING", "true")

try:
    from autogen_core import AgentId, MessageContext, RoutedAgent, SingleThreadedAgentRuntime, message_handler
except ImportError as error:
    absent(error)


@dataclass
class Number:
    n: int


class Echo(RoutedAgent):
    @message_handler
    async def handle(self, message: Number, ctx: MessageContext) -> Number:
        del ctx  # the handler has to name it
        return message


Case = Callable[[SingleThreadedAgentRuntime, int], Coroutine[Any, Any, float]]


def run(case: Case) -> Callable[[int], float]:
    """The case in a runtime of its own."""

    async def main(n: int) -> float:
        runtime = SingleThreadedAgentRuntime()
        await Echo.register(runtime, "echo", lambda: Echo(""))
        runtime.start()
        try:
            return await case(runtime, n)
        finally:
            await runtime.stop()

    return functools.wraps(case)(lambda n: asyncio.run(main(n)))


async def spawn(runtime: SingleThreadedAgentRuntime, n: int) -> float:
    """An agent is made when its first message arrives, or when it is looked for; this looks for it."""
    began = clock()
    for number in range(n):
        await runtime.try_get_underlying_agent_instance(AgentId("echo", f"a{number}"))
    return micro(began, n)


async def tell(runtime: SingleThreadedAgentRuntime, n: int) -> float:
    """A message nobody awaits is still a future each; waiting for the last is waiting for all."""
    to = AgentId("echo", "default")
    began = clock()
    await asyncio.gather(*(runtime.send_message(Number(number), to) for number in range(n)))
    return micro(began, n)


async def ask(runtime: SingleThreadedAgentRuntime, n: int) -> float:
    to = AgentId("echo", "default")
    await runtime.send_message(Number(0), to)
    began = clock()
    for number in range(n):
        await runtime.send_message(Number(number), to)
    return micro(began, n)


if __name__ == "__main__":
    serve({case.__name__: run(case) for case in (spawn, tell, ask)})
