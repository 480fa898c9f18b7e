"""What the kernel costs, beside bare trio, asyncio and three actor libraries.

    python benchmarks/kernel.py [--rounds N] [--scale F]

`--scale 0.01` does a hundredth of everything: enough to see that it works, too little to judge by. The rivals need
`make bench-rivals`; one that is not installed is left out, and the output says so. docs/benchmarks.md explains
the rows.
"""

from __future__ import annotations

import sys

from harness import Budget, Case, Contender, options, run_table

SIZES = (0.5, 0.7, 1.0, 1.4, 2.0)

SLOW = {"pykka": 20_000, "autogen": 500, "xoscar": 2_000}

CASES = [
    Case(
        "spawn",
        "spawn an actor",
        10_000,
        sizes=SIZES,
        budgets=(Budget("≤ 1.0 × a task with a memory channel", 1.0, "trio"),),
        slow={"pykka": 300, "autogen": 1_000, "xoscar": 1_000},
    ),
    Case(
        "spawn_bytes",
        "size of an idle actor",
        2_000,
        unit="bytes",
        budgets=(Budget("≤ 4.5 KiB", 4.5 * 1024), Budget("≤ 1.0 × a task with a memory channel", 1.0, "trio")),
    ),
    Case("stop", "stop an actor", 10_000, slow={"pykka": 300, "xoscar": 1_000}),
    Case(
        "tell",
        "tell, 1 → 1",
        100_000,
        budgets=(
            Budget("≤ 1/10 × a memory channel", 0.1, "trio"),
            Budget("≤ 1 × asyncio.Queue", 1.0, "asyncio"),
        ),
        slow=SLOW,
    ),
    Case(
        "tell_bounded",
        "tell, 100 → 1, 256 at most",
        50_000,
        budgets=(Budget("≤ 1/5 × a memory channel, none lost", 0.2, "trio"),),
    ),
    Case(
        "ask",
        "ask",
        10_000,
        budgets=(Budget("≤ 0.6 × two memory channels", 0.6, "trio"),),
        slow={"autogen": 500, "xoscar": 1_000},
    ),
    Case(
        "ask_timeout",
        "ask with a timeout",
        10_000,
        budgets=(
            Budget("≤ 1.0 × bare parking in `fail_after`", 1.0, "trio", "ask_lowlevel_timeout"),
            Budget("≤ 1.0 × two channels in `fail_after`", 1.0, "trio"),
        ),
    ),
    Case("ask_lowlevel", "(bare parking on trio.lowlevel)", 10_000),
    Case("ask_lowlevel_timeout", "(the same in `fail_after`)", 10_000),
    Case(
        "cancel_tree",
        "cancel a tree of 10,000, each",
        10_000,
        budgets=(Budget("≤ 70 µs, all clean-ups, in order", 70.0),),
    ),
    Case("cancel_cleanup", "the same, each clean-up awaits", 10_000),
    Case(
        "control",
        "signal behind 100,000, p99",
        100_000,
        budgets=(Budget("≤ 2 ms", 2_000.0),),
    ),
    Case("lease", "warm lease from a pool", 20_000, budgets=(Budget("≤ 60 µs", 60.0),)),
]

CONTENDERS = ("callboard", "trio", "asyncio", "pykka", "autogen", "xoscar")


def main() -> int:
    """Prints the table; 1 if a budget was missed."""
    given = options(__doc__, rounds=5)
    contenders = [Contender(name, f"kernel_{name}") for name in CONTENDERS]
    return run_table("kernel", contenders, [case.scaled(given.scale) for case in CASES], given.rounds)


if __name__ == "__main__":
    sys.exit(main())
