"""Observability: spans and metrics by OpenTelemetry, events in `logging`, and middleware around requests to models."""

import asyncio
import logging
import time

import callboard
from callboard.chat import ChatReply, ChatRequest

bot = callboard.Agent(name="bot", instructions="Be brief.")
log = logging.getLogger("app.models")


async def timed(request: ChatRequest, call_next: callboard.CallNext) -> ChatReply:
    began = time.monotonic()
    reply = await call_next(request)
    log.info("%s answered in %.3f s", reply.model, time.monotonic() - began)
    return reply


async def main() -> None:
    # region: peers 1
    async with callboard.Root(middleware=[timed]) as root:
        with callboard.telemetry(root), root.bus.listen(callboard.log_events("app.events")):
            outcome = await root.run(bot, "Who are you?")
    # endregion
    print(outcome.unwrap())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
