"""Contenders side by side: each in a process of its own, in turn, by the CPU clock.

`contender` starts and asks them, `table` runs the rounds, judges the budget and prints. What is measured is in
`../contenders/`, one file per contender and benchmark: plain functions that do something `n` times.
"""

from .contender import Contender
from .table import Budget, Case, options, run_table

__all__ = ["Budget", "Case", "Contender", "options", "run_table"]
