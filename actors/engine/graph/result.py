"""Result of an agent's run, and its errors on their way up to the run: from the node that failed to the graph, its
parents, and the run.

Every run imports this module, also one without a graph, so it must not import the rest of the package.

Code that passes an error on can add its location, but must never change its class, `code` or `exit_code`. The class
decides whether a fallback catches it and whether a retry can help. Callers' programs read `code` and `exit_code`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from ....protocol.errors import (
    BudgetReached,
    CallboardError,
    GraphMistake,
    InvalidFile,
    JournalError,
    NobodyToAsk,
    NodeFailed,
    ShuttingDown,
    TurnsReached,
    Unsupported,
    UsageError,
)
from ....protocol.outcome import NodeTime


class GraphResult(msgspec.Struct, kw_only=True):
    """Output or error of a graph, with the state after the last complete super-step.

    Attributes:
        order: ids of the nodes, in the order of their start.
        nodes: visits and seconds by node id.
        timing: visits, seconds, and seconds of the longest visit, by node id.
        failures: tolerated failures that the author has not accepted.
    """

    output: str = ""
    state: dict[str, Any] = {}
    order: list[str] = []
    nodes: dict[str, NodeTime] = {}
    timing: dict[str, tuple[int, float, float]] = {}
    failures: list[CallboardError] = []
    error: CallboardError | None = None


NEVER_TOLERATED = (
    GraphMistake,
    InvalidFile,
    UsageError,
    Unsupported,
    NobodyToAsk,
    BudgetReached,
    TurnsReached,
    ShuttingDown,
    JournalError,
)
"""Errors that no `fallback`, `next` or `on_error` catches.

They are the author's mistakes (also in the files of a child agent), a question without a user to answer it, exhausted
budgets of the run, the shutdown of the root, and a journal that cannot store the next step.
"""

PARTIAL_RESULTS = "kept"
"""Name of an attribute of errors: results of a failed map, by the state key that they were meant for."""

MOST_LISTED = 20
"""Most failures that one error lists; a map of thousands can fail in all of them."""

E = TypeVar("E", bound=CallboardError)


class ExtractionFailed(NodeFailed):
    """Text that could not be converted to the node's `output_schema`."""


def reworded(error: E, text: str) -> E:
    """Return an error of the same class and attributes with another text; its `__cause__` is the original."""
    # bypasses `__init__`, whose further arguments are unknown; their attributes are copied instead
    copy = type(error).__new__(type(error), text)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error
    return copy


def detached(error: CallboardError) -> CallboardError:
    """Return a plain `CallboardError` with the text, `code`, `exit_code` and node of a tolerated failure.

    It has no traceback and no cause, which would keep frames and their variables in memory.
    """
    copy = CallboardError(str(error))
    copy.code, copy.exit_code, copy.node = error.code, error.exit_code, error.node
    return copy


def run_error(failures: Sequence[CallboardError], later: CallboardError | None) -> CallboardError | None:
    """Return the error of a graph, agent or run that continued after `failures`; `later` is the error that ended it,
    if any.

    The result has the class of `later`, which decides what may catch it. Its text, code, exit code and node come from
    the first failure, because a later failure mostly results from the missing output of the first.
    """
    if later is None or not failures:
        return failures[0] if failures else later
    first, text = failures[0], str(later)
    if str(first) not in text:
        where = f" at node '{later.node}'" if later.node is not None and f"'{later.node}'" not in text else ""
        text = f"{first} (the run continued, and failed later{where}: {text})"
    error = reworded(later, text)
    error.code, error.exit_code, error.node = first.code, first.exit_code, first.node
    return error


def combined(failures: Sequence[tuple[str, CallboardError]]) -> CallboardError:
    """Return one error for all failures of a step, given as pairs of a sentence and the error that it describes.

    The result has the class and attributes of one of them: of the first `GraphMistake`, else of the first error whose
    exit code is neither 1 nor 6, else of the first. Its text has at most `MOST_LISTED` of the sentences.
    """
    text = "; ".join(sentence for sentence, _ in failures[:MOST_LISTED])
    if len(failures) > MOST_LISTED:
        text += f"; and {len(failures) - MOST_LISTED} more"
    errors = [error for _, error in failures]
    mistakes = [error for error in errors if isinstance(error, GraphMistake)]
    # 1 is any failure, and 6 a temporary one of an upstream service. The other codes need something of the user:
    # configuration, a higher limit, an answer.
    special = [error for error in errors if error.exit_code not in (1, 6)]
    return reworded([*mistakes, *special, *errors][0], text)
