"""What agents cost an asyncio program: 1,000 at once, beside the same under trio, and beside other frameworks.

    python benchmarks/embedding.py [--rounds N] [--scale F]

All agents call one tool (two requests). The model is a fake server in a process of its own that answers after 50 ms.
Under asyncio, a `callboard.Root` has a thread of its own; its CPU counts. `loop lag` is the 99th percentile of how late
the program's own loop wakes a task, every 2 ms, while 200 runs are streamed; of a delay the part counts in which this
process used a CPU. The other frameworks are in an environment
that `make bench-rivals` installs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from agents import config, server
from harness import Budget, Case, Contender, options, run_table

PEERS = ("pydantic_ai", "openai_agents", "langgraph")
PEERS_PYTHON = Path(sys.prefix) / "interop/agents/bin/python"

CASES = [
    Case(
        "at_once",
        "an agent, 1,000 at once",
        1_000,
        unit="CPU ms",
        budgets=(
            Budget("≤ 1.25 × under trio", 1.25, "on trio"),
            *(Budget(f"≤ 1/5 × {name}", 1 / 5, name) for name in PEERS),
        ),
    ),
    Case("lag", "loop lag at 200 streams, p99", 200, unit="ms", budgets=(Budget("≤ 50 ms", 50.0),)),
]


def main() -> int:
    """Print the table; 1 if a budget was missed."""
    given = options(__doc__, rounds=3)
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url, _ = stack.enter_context(server(0.05))
        os.environ |= {"BENCH_URL": url, "BENCH_CONFIG": str(config(temporary, url))}
        contenders = [Contender("callboard", "embedding_callboard"), Contender("on trio", "embedding_trio")]
        contenders += [Contender(name, f"embedding_{name}", python=str(PEERS_PYTHON)) for name in PEERS]
        return run_table("embedding", contenders, [case.scaled(given.scale, least=4) for case in CASES], given.rounds)


if __name__ == "__main__":
    sys.exit(main())
