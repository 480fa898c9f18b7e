"""What a graph's machinery costs per node, beside LangGraph and a floor of bare trio.

    python benchmarks/graph.py [--rounds N] [--scale F]

Nodes do nothing but write one key, so what is measured is everything around them: for us an actor per node, routing,
visits, timing, the merge of the state, and all events with a listener attached. LangGraph runs without checkpoints,
tracing and streaming. docs/benchmarks.md explains the rows.
"""

from __future__ import annotations

import sys

from harness import Budget, Case, Contender, options, run_table

CASES = [
    Case(
        "chain",
        "a no-op node, in a chain of 100",
        100,
        budgets=(Budget("≤ 1/9 × LangGraph", 1 / 9, "langgraph", goal=1 / 10),),
    ),
    Case(
        "fan_map",
        "1,000-way map",
        1_000,
        unit="ms",
        budgets=(Budget("≤ 1/12 × LangGraph's Send", 1 / 12, "langgraph", goal=1 / 15),),
    ),
    Case(
        "fan_nodes",
        "1,000 parallel nodes",
        1_000,
        unit="ms",
        budgets=(
            Budget("≤ 1/12 × LangGraph's Send", 1 / 12, "langgraph", "fan_map", goal=1 / 15),
            Budget("≤ 1/12 × LangGraph's own", 1 / 12, "langgraph", goal=1 / 15),
        ),
    ),
]

CONTENDERS = ("callboard", "trio", "langgraph")


def main() -> int:
    """Prints the table; 1 if a budget was missed."""
    given = options(__doc__, rounds=5)
    contenders = [Contender(name, f"graph_{name}") for name in CONTENDERS]
    return run_table("graph", contenders, [case.scaled(given.scale, least=5) for case in CASES], given.rounds)


if __name__ == "__main__":
    sys.exit(main())
