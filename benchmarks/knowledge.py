"""What a large knowledge base costs, beside two stores in memory.

    python benchmarks/knowledge.py [--rounds N] [--chunks N] [--rivals PYTHON]

100,000 chunks of 100 words, made from a seed, with vectors of 256 numbers that everybody is given. The rivals need
`make bench-rivals`; `--rivals` names the Python of another environment that has them. docs/benchmarks.md explains the
rows.
"""

from __future__ import annotations

import argparse
import sys

from harness import Budget, Case, Contender, run_table

CHUNKS = 100_000


def cases(n: int) -> list[Case]:
    """All of them, with so many chunks."""
    return [
        Case("build", "build", n, unit="CPU s"),
        Case("disk", "on disk", n, unit="MB"),
        Case("reopen", "open again", n, unit="wall ms", best=True, budgets=(Budget("< 200 ms", 200.0),)),
        Case("hybrid_p50", "a query, words and vectors, p50", n, unit="wall ms", best=True),
        Case("hybrid_p95", "the same, p95", n, unit="wall ms", best=True, budgets=(Budget("< 20 ms", 20.0),)),
        Case("vector_p50", "a query, vectors alone, p50", n, unit="wall ms", best=True),
        Case("vector_p95", "the same, p95", n, unit="wall ms", best=True),
        Case("recall", "of the 10 nearest, found", n, unit="%"),
        Case("memory", "resident, opened and asked", n, unit="MB"),
        Case("again", "build again, 1 % of the sources changed", n, unit="CPU s"),
        Case("again_embedded", "embedded by that", n, unit="%", budgets=(Budget("≤ 1 %", 1.0),)),
    ]


def main() -> int:
    """Prints the table; 1 if a budget was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, metavar="N")
    parser.add_argument("--chunks", type=int, default=CHUNKS, metavar="N")
    parser.add_argument("--rivals", metavar="PYTHON")
    given = parser.parse_args()
    contenders = [
        Contender("callboard", "knowledge_callboard"),
        Contender("langchain", "knowledge_langchain", python=given.rivals),
        Contender("haystack", "knowledge_haystack", python=given.rivals),
    ]
    return run_table("knowledge", contenders, cases(given.chunks), given.rounds)


if __name__ == "__main__":
    sys.exit(main())
