"""What the contenders of `../mcp.py` share: the server, and a raw round trip through its pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _serve import clock

SERVER = [sys.executable, "-S", str(Path(__file__).parent.parent / "harness/mcp_server.py")]
TEXT = "a text of a few words"
META = "io.modelcontextprotocol/"
REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "echo",
        "arguments": {"text": TEXT},
        "_meta": {
            META + "protocolVersion": "2026-07-28",
            META + "clientCapabilities": {"elicitation": {"form": {}, "url": {}}},
            META + "clientInfo": {"name": "raw", "version": "1"},
        },
    },
}
LINE = json.dumps(REQUEST).encode() + b"\n"
wall = time.perf_counter
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"cpu": clock, "wall": wall}


def server() -> subprocess.Popen[bytes]:
    """The server, bare. Close its stdin to end it."""
    return subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@contextmanager
def raw() -> Iterator[Callable[[], None]]:
    """A function that sends a request as a line and reads a line: the least that a call can be."""
    with server() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        into, out = process.stdin.fileno(), process.stdout.fileno()

        def round_trip() -> None:
            os.write(into, LINE)
            while not os.read(out, 65536).endswith(b"\n"):
                pass

        round_trip()
        yield round_trip
        process.stdin.close()


def raw_call(n: int, now: Clock) -> float:
    """Seconds per raw round trip."""
    with raw() as round_trip:
        began = now()
        for _ in range(n):
            round_trip()
        return (now() - began) / n


def above_raw(call: Callable[[int, Clock], float], clock: str) -> Callable[[int], Any]:
    """A case: microseconds by which a call takes longer than a raw round trip just before and after it."""
    now = CLOCKS[clock]

    def case(n: int) -> float:
        before = raw_call(n, now)
        spent = call(n, now)
        return (spent - (before + raw_call(n, now)) / 2) * 1e6

    return case
