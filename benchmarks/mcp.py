"""What a call of an MCP tool costs, beside the official SDK and bare pipes.

    python benchmarks/mcp.py [--rounds N] [--scale F] [--sdk PYTHON]

All talk to the same server over stdio, which gives a text back. The SDK lives in an environment of its own, made by
`make interop`; `--sdk` names the Python of another one. docs/benchmarks.md explains the rows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness import Budget, Case, Contender, run_table

FIFTH = Budget("≤ 1/5 × the SDK's", 0.2, "sdk")

CASES = [
    Case("call", "a warm call", 2_000),
    Case("overhead", "the same, above a raw round trip", 2_000, budgets=(FIFTH,)),
    Case("overhead_legacy", "the same, in the era of `initialize`", 2_000, budgets=(FIFTH,)),
    Case("call_wall", "a warm call", 2_000, unit="wall µs", best=True),
    Case("overhead_wall", "the same, above a raw round trip", 2_000, unit="wall µs", best=True),
    Case("at_once", "a call of 1,000 at once, one server", 1_000, budgets=(FIFTH,)),
    Case("pooled", "a warm call, leased for it", 2_000),
    Case("lease", "the lease alone", 20_000, budgets=(Budget("≤ 60 µs", 60.0),)),
    Case("start", "8 servers started at once", 8, unit="wall ms", best=True),
]
SDK = Path(sys.prefix) / "interop/modern/bin/python"


def main() -> int:
    """Prints the table; 1 if a budget was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--scale", type=float, default=1.0, metavar="F")
    parser.add_argument("--sdk", default=str(SDK), metavar="PYTHON")
    given = parser.parse_args()
    contenders = [
        Contender("callboard", "mcp_callboard"),
        Contender("sdk", "mcp_sdk", python=given.sdk, made_by="make interop"),
        Contender("pipe", "mcp_pipe"),
    ]
    cases = [case if case.name == "start" else case.scaled(given.scale) for case in CASES]
    return run_table("mcp", contenders, cases, given.rounds)


if __name__ == "__main__":
    sys.exit(main())
