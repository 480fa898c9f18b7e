"""Observability: spans on the console, and middleware that keeps an address from the model."""

import asyncio

import msgspec
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

import callboard


async def redact(request: callboard.chat.ChatRequest, call_next: callboard.CallNext) -> callboard.chat.ChatReply:
    hidden = msgspec.json.encode(request).replace(b"ada@example.com", b"[e-mail]")
    return await call_next(msgspec.json.decode(hidden, type=callboard.chat.ChatRequest))


async def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
    async with callboard.Root(middleware=[redact]) as root:
        with callboard.telemetry(root, tracer_provider=provider):
            print((await root.run(callboard.Agent(name="clerk"), "Write to ada@example.com.")).unwrap())


asyncio.run(main())
