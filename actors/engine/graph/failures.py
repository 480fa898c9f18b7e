"""Errors on their way up, from the node they happened at to the run they end.

Whoever passes an error on may add where it was, and never changes what it is: the class decides whether a fallback
may catch it and whether another try may help, and `code` and `exit_code` are what the user's programs read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

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
"""Errors that no fallback and no tolerance catches: the author's mistakes (also in the files of a child agent), a want
of a person, the run's budgets, the end of the root, and that nothing may be done as it can't be kept."""

KEPT = "kept"
"""Attribute of an error: what was done before it, by the key of the state that it would have gone to."""

MOST_TOLD = 20
"""Failures that one error tells of; a map of thousands may fail in all of them."""

E = TypeVar("E", bound=CallboardError)


class ExtractionFailed(NodeFailed):
    """A text could not be brought into the shape of its `output_schema`."""


def retold(error: E, text: str) -> E:
    """The same error in other words; `__cause__` is the one it was."""
    told = type(error).__new__(type(error), text)  # what its `__init__` wants beside the text is copied instead
    told.__dict__.update(error.__dict__)
    told.__cause__ = error
    return told


def noted(error: CallboardError) -> CallboardError:
    """What is kept of a failure that a run goes on over: no frames and no causes, which would stay in memory."""
    kept = CallboardError(str(error))
    kept.code, kept.exit_code, kept.node = error.code, error.exit_code, error.node
    return kept


def ended_with(failures: Sequence[CallboardError], later: CallboardError | None) -> CallboardError | None:
    """The error of a graph, an agent or a run that has gone on over `failures`, and that `later` ended if anything did.

    It is of the class of `later`, which decides what may catch it. Its text, code, exit code and node tell of the first
    failure: what failed afterwards, mostly failed for want of what the first node should have given.
    """
    if later is None or not failures:
        return failures[0] if failures else later
    first, text = failures[0], str(later)
    if str(first) not in text:
        where = f" at node '{later.node}'" if later.node is not None and f"'{later.node}'" not in text else ""
        text = f"{first} (the run went on, and failed later{where}: {text})"
    told = retold(later, text)
    told.code, told.exit_code, told.node = first.code, first.exit_code, first.node
    return told


def together(failures: Sequence[tuple[str, CallboardError]]) -> CallboardError:
    """One error for everything that failed at once: sentences, each with the error it tells of.

    It is of the kind of the gravest: a mistake of the graph, else one with an exit code of its own, else the first.
    """
    text = "; ".join(sentence for sentence, _ in failures[:MOST_TOLD])
    if len(failures) > MOST_TOLD:
        text += f"; and {len(failures) - MOST_TOLD} more"
    errors = [error for _, error in failures]
    mistakes = [error for error in errors if isinstance(error, GraphMistake)]
    special = [error for error in errors if error.exit_code not in (1, 6)]
    return retold([*mistakes, *special, *errors][0], text)
