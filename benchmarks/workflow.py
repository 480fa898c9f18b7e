"""What running DevAll workflows costs, beside what their own engine was measured at.

    python benchmarks/workflow.py [--rounds N] [--scale F]

DevAll's figures are those recorded on two cores in May 2026 (0.6 ms per node in sequence without its log, 2.13 s for a
fan-out of 1,000, 2.57 s for the map, 6 of 10 waiting people prompted; it can't run more than 1,000 nodes in a row).
Ours have every event built and delivered. A map of 500 units of 20 ms, 100 at once, takes 100 ms at best; on a busy
machine not even bare trio comes near that, so its sleeps stand beside.
"""

from __future__ import annotations

import sys

from harness import Budget, Case, Contender, options, run_table

CASES = [
    Case("chain", "a literal, in a chain of 10,000", 10_000, budgets=(Budget("≤ 1/4 of DevAll's 600 µs", 150),)),
    Case("chain_work", "a node with an actor, in a chain of 10,000", 10_000),
    Case("fan_out", "1,000 nodes at once", 1_000, unit="ms", budgets=(Budget("≤ 1/5 of DevAll's 2,130 ms", 426),)),
    Case(
        "map_units",
        "a map of 500 × 20 ms, 100 at once",
        500,
        unit="ms",
        best=True,
        budgets=(
            Budget("≤ 1.5 × the ideal (DevAll: 2,570 ms)", 150),
            Budget("≤ 1.5 × bare trio's sleeps", 1.5, "trio"),
        ),
    ),
    Case("parked_seconds", "1,000 runs, until all people are asked", 1_000, unit="s", best=True),
    Case("parked_memory", "a run that waits for a person", 1_000, unit="KB", budgets=(Budget("≤ 60 KB", 60),)),
]


def main() -> int:
    """Prints the table; 1 if a budget was missed."""
    given = options(__doc__, rounds=3)
    cases = [case.scaled(given.scale, least=20) for case in CASES]
    contenders = [Contender(name, f"workflow_{name}") for name in ("callboard", "trio")]
    return run_table("workflow", contenders, cases, given.rounds)


if __name__ == "__main__":
    sys.exit(main())
