"""Rounds, medians, ratios and verdicts.

In every round every contender measures every case once, one after another, so that a busy minute weighs on all of
them. A cell shows the median of the rounds (of wall time the best). A ratio is the median of the rounds' own ratios,
ours to theirs in the same round; most budgets are ratios, the others have room for a slower machine.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib import metadata

from .contender import Contender

OURS = "callboard"


@dataclass(frozen=True)
class Budget:
    """What a figure of ours may be.

    Attributes:
        words: the budget as people read it.
        limit: at most this many times `against`; without `against`, this many units.
        against: whose figure of the same case is the measure.
        case: if it is another case than one's own, which.
        goal: what we would like it to be.
    """

    words: str
    limit: float
    against: str = ""
    case: str = ""
    goal: float | None = None


@dataclass(frozen=True)
class Case:
    """One row: `name` is the contenders' function, `n` how often it is to do it."""

    name: str
    title: str
    n: int
    unit: str = "µs"
    budgets: tuple[Budget, ...] = ()
    slow: dict[str, int] = field(default_factory=dict)
    """Contenders for whom `n` would take too long, and their own n."""
    sizes: tuple[float, ...] = (1.0,)
    """A figure is the mean over `n` times each of these. A full garbage collection comes whenever the heap has grown by
    a quarter, so what one size costs depends on whether it lies just before that or just after."""
    best: bool = False
    """Take the best round in place of the median: for wall time, which others on the machine can only lengthen."""

    def typical(self, figures: Sequence[float]) -> float:
        """The one figure that stands for all rounds; not a number if every round failed."""
        measured = [figure for figure in figures if not math.isnan(figure)]
        if not measured:
            return math.nan
        return min(measured) if self.best else statistics.median(measured)

    def scaled(self, scale: float, least: int = 100) -> Case:
        """The same, smaller or larger."""
        slow = {name: max(least, round(n * scale)) for name, n in self.slow.items()}
        return replace(self, n=max(least, round(self.n * scale)), slow=slow)


Figures = dict[tuple[str, str], list[float]]
"""Case and contender to one figure per round."""


def options(text: str | None, rounds: int) -> argparse.Namespace:
    """`--rounds` and `--scale` of a benchmark whose docstring is `text`."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N")
    parser.add_argument("--scale", type=float, default=1.0, metavar="F")
    return parser.parse_args()


def run_table(title: str, contenders: Sequence[Contender], cases: Sequence[Case], rounds: int) -> int:
    """Measure and print; 1 if a budget was missed, else 0."""
    with ExitStack() as stack:
        present = [contender for contender in map(stack.enter_context, contenders) if not contender.missing]
        for contender in contenders:
            if contender.missing:
                print(f"!!! {contender.name} IS NOT MEASURED: {contender.missing} (`{contender.made_by}`)\n")
        figures: Figures = {}
        for number in range(rounds):
            for case in cases:
                for contender in present:
                    if case.name in contender.cases:
                        _progress(f"round {number + 1}/{rounds}: {case.name}, {contender.name}")
                        figures.setdefault((case.name, contender.name), []).append(_measure(contender, case))
    _progress("")
    print(f"{title}\n{setting(rounds)}\n")
    _print_figures(present, cases, figures)
    return judge(cases, figures)


def _measure(contender: Contender, case: Case) -> float:
    """One figure; not a number if a rival fails at it, which must not cost us the others."""
    try:
        n = case.slow.get(contender.name, case.n)
        figure = statistics.mean([contender.measure(case.name, round(n * size)) for size in case.sizes])
    except RuntimeError as error:
        if contender.name == OURS:
            raise
        print(f"!!! {error}\n")
        return math.nan
    return figure


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


def setting(rounds: int) -> str:
    """How it was measured, in a line."""
    trio = metadata.version("trio")
    return f"CPU clock, medians of {rounds} interleaved rounds; CPython {platform.python_version()}, trio {trio}"


def _print_figures(contenders: Sequence[Contender], cases: Sequence[Case], figures: Figures) -> None:
    width = max(len(case.title) + len(case.unit) for case in cases) + 4
    print(" " * width + "".join(f"{contender.name:>12}" for contender in contenders))
    for case in cases:
        cells = [figures.get((case.name, contender.name)) for contender in contenders]
        line = "".join(f"{_short(case.typical(cell)) if cell else '-':>12}" for cell in cells)
        print(f"{case.title + ', ' + case.unit:{width}}{line}")


def judge(cases: Sequence[Case], figures: Figures) -> int:
    """Print a verdict per budget; 1 if one was missed."""
    missed = 0
    print("\nbudget" + " " * 58 + "measured")
    for case in cases:
        ours = figures.get((case.name, OURS))
        for budget in case.budgets if ours else ():
            theirs = figures.get((budget.case or case.name, budget.against))
            assert ours is not None
            ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)] if theirs else ours
            value = case.typical(ratios)
            if math.isnan(value) or (budget.against and not theirs):
                print(f"  {case.title + ': ' + budget.words:62}{'-':>8}  not judged: no figure of {budget.against}")
                continue
            missed += value > budget.limit
            measured = f"{value:.3f} x" if theirs else _short(value)
            print(f"  {case.title + ': ' + budget.words:62}{measured:>8}  {_verdict(value, budget)}")
    return 1 if missed else 0


def _verdict(value: float, budget: Budget) -> str:
    if value > budget.limit:
        return f"NOT MET, by {(value / budget.limit - 1) * 100:.0f} %"
    if budget.goal is not None:
        return "met, and the goal" if value <= budget.goal else f"met; the goal is {budget.goal:.3g} x"
    return "met"


def _short(value: float) -> str:
    if math.isnan(value):
        return "failed"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 1 or 10 <= value < 100 else f"{value:.2f}" if value < 10 else f"{value:.0f}"
