"""What it costs to keep a run so that it can go on after a kill: durable beside ephemeral, in one process and round.

    python benchmarks/durable.py [--rounds N] [--scale F]

Nodes do nothing but write one key, as in graph.py, so what is measured is all that is around them. CPU time has the
thread that writes in it. Beside it LangGraph keeps its checkpoints, and DBOS its steps, in SQLite on the same disk.
docs/benchmarks.md explains the rows.
"""

from __future__ import annotations

import sys

from harness import Budget, Case, Contender, options, run_table

RESUME = Budget("≤ 300 ms", 300.0)

CASES = [
    Case("chain", "a no-op node, in a chain of 100", 100),
    Case(
        "chain_durable",
        "the same, durable",
        100,
        budgets=(
            Budget("≤ 1.35 × ephemeral", 1.35, "callboard", "chain"),
            Budget("≤ 1/20 × LangGraph with SQLite", 1 / 20, "langgraph"),
            Budget("≤ 1/20 × DBOS with SQLite", 1 / 20, "dbos"),
        ),
    ),
    Case("row", "the event loop, per row of 600 bytes", 20_000, budgets=(Budget("≤ 15 µs", 15.0),)),
    Case("written", "all of a row, the thread included", 20_000, budgets=(Budget("≤ 45 µs", 45.0),)),
    Case("barrier", "a barrier, 100 a second", 200, unit="wall ms, p50", best=True),
    Case("barrier_99", "the same, p99", 200, unit="wall ms", best=True, budgets=(Budget("≤ 50 ms", 50.0),)),
    Case("resume", "10,000 rows read, claimed and folded", 10_000, unit="CPU ms", budgets=(RESUME,)),
    Case("resume_map", "the same of a map over 10,000 items", 10_000, unit="CPU ms", budgets=(RESUME,)),
    Case("resume_flow", "of a workflow's chain of 5,000 nodes", 5_000, unit="CPU ms", budgets=(RESUME,)),
    Case("resume_units", "of a workflow's map of 5,000 units", 5_000, unit="CPU ms", budgets=(RESUME,)),
    Case("fork", "a fork behind 10,000 rows", 10_000, unit="wall ms", best=True, budgets=(Budget("≤ 300 ms", 300.0),)),
    Case("dormant", "10,000 runs that wait for people alone", 10_000, unit="MB", budgets=(Budget("≤ 60 MB", 60.0),)),
    Case("dormant_each", "Python's objects for each", 1_000, unit="kB", budgets=(Budget("≤ 1 kB", 1.0),)),
    Case("dormant_wake", "from its answer to its end", 200, unit="wall ms, p50", budgets=(Budget("≤ 20 ms", 20.0),)),
    Case("dormant_back", "1,000 of them after a kill", 1_000, unit="wall s", budgets=(Budget("≤ 3 s", 3.0),)),
]


def main() -> int:
    """Prints the table; 1 if a budget was missed."""
    given = options(__doc__, rounds=5)
    contenders = [Contender(name, f"durable_{name}") for name in ("callboard", "langgraph", "dbos")]
    return run_table("durable", contenders, [case.scaled(given.scale, least=5) for case in CASES], given.rounds)


if __name__ == "__main__":
    sys.exit(main())
