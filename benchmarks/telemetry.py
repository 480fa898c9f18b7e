"""What being traced costs a run, and that it costs nothing where nobody asks for it.

    python benchmarks/telemetry.py [--rounds N] [--scale F]

A run is that of agents.py: an agent with one tool call, by `callboard.run`, whose model is a fake server in another
process, so many at once, with somebody who listens to their events, as the command line and the server always do. In
one process, by its CPU time, in interleaved rounds: where nobody knows of telemetry; as the command line does it where
the environment asks for nothing; and with OpenTelemetry's SDK, whose thread throws the batches away. What it costs to
send them is the exporter's matter.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parent / "contenders"))

from _clerk import INSTRUCTIONS, lookup, question
from agents import config, server
from harness import options

import callboard
from callboard.actors.front.telemetry.export import exporting

AT_ONCE = 200
OFF, ON = 1.03, 2.0
"""What a run may cost, off and on: off nothing is done, so what is seen is noise; on it is mostly the SDK's."""

CLERK = callboard.Agent(name="clerk", instructions=INSTRUCTIONS, can_ask_user=False)


def somebody(_event: callboard.Event) -> None:
    """Hears everything and does nothing."""


async def agents(count: int) -> float:
    """CPU milliseconds of one of so many."""

    async def one(number: int) -> None:
        outcome = await callboard.run(CLERK, question(number), tools=[lookup])
        assert (outcome.status, outcome.turns, outcome.tool_calls) == ("done", 2, 1), outcome.error

    gc.collect()
    began = time.process_time()
    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(one, number)
    return (time.process_time() - began) / count * 1e3


@asynccontextmanager
async def bare(directory: Path) -> AsyncIterator[None]:
    """Nobody knows of telemetry."""
    async with callboard.Root(config_dir=directory) as root:
        with root.bus.listen(somebody):
            yield


@asynccontextmanager
async def off(directory: Path) -> AsyncIterator[None]:
    """As the command line does it, where nothing is asked for."""
    root = callboard.Root(config_dir=directory)
    async with exporting(root, {}), root:
        with root.bus.listen(somebody):
            yield


@asynccontextmanager
async def on(directory: Path) -> AsyncIterator[None]:
    """Spans and metrics by OpenTelemetry's SDK."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, _spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(Nowhere(), max_queue_size=65_536))
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    async with callboard.Root(config_dir=directory) as root:
        with root.bus.listen(somebody), callboard.telemetry(root, tracer_provider=tracers, meter_provider=meters):
            yield
    tracers.shutdown()
    meters.shutdown()


WAYS = {"bare": bare, "off": off, "on": on}


async def measured(directory: Path, count: int, rounds: int) -> dict[str, list[float]]:
    """Figures of every round, by way."""
    figures: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds):
        order = list(WAYS) if number % 2 else list(reversed(WAYS))
        for way in order:
            async with WAYS[way](directory):
                await agents(max(2, count // 10))
                figures[way].append(await agents(count))
    return figures


def main() -> int:
    """Prints the figures; 1 if a budget was missed."""
    given = options(__doc__, rounds=9)
    count = max(4, int(AT_ONCE * given.scale))
    for variable in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[variable]
    with tempfile.TemporaryDirectory() as name, server(0.05) as (url, _):
        directory = config(Path(name), url)
        with (directory / "config.yaml").open("a") as settings:
            settings.write("stream: false\n")  # the server calls tools in one piece, whatever it is asked for
        figures = trio.run(partial(measured, directory, count, given.rounds))
    bare = figures["bare"]
    missed = 0
    print(f"an agent with a tool call, {count} at once: {statistics.median(bare):.3f} CPU ms")
    for way, limit in (("off", OFF), ("on", ON)):
        ratio = statistics.median(theirs / ours for theirs, ours in zip(figures[way], bare, strict=True))
        missed += ratio > limit
        print(f"  telemetry {way}: × {ratio:.3f}; budget ≤ × {limit:g}: {'met' if ratio <= limit else 'NOT MET'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
