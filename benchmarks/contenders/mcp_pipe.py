"""Pipes without a protocol: the floor."""

from __future__ import annotations

from _mcp import CLOCKS, LINE, raw_call, server, wall
from _serve import serve


def call(n: int) -> float:
    return raw_call(n, CLOCKS["cpu"]) * 1e6


def call_wall(n: int) -> float:
    return raw_call(n, CLOCKS["wall"]) * 1e6


def at_once(n: int) -> float:
    """All requests, then all answers, as far as a pipe holds them."""
    with server() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        began = CLOCKS["cpu"]()
        for _ in range(n // 50):
            process.stdin.write(LINE * 50)
            process.stdin.flush()
            for _ in range(50):
                process.stdout.readline()
        spent = CLOCKS["cpu"]() - began
        process.stdin.close()
    return spent / n * 1e6


def start(n: int) -> float:
    """Each has answered once."""
    began = wall()
    processes = [server() for _ in range(n)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(LINE)
        process.stdin.flush()
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    spent = wall() - began
    for process in processes:
        process.communicate()
    return spent * 1e3


if __name__ == "__main__":
    serve({"call": call, "call_wall": call_wall, "at_once": at_once, "start": start})
