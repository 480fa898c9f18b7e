"""Events of runs as a whole."""

from __future__ import annotations

from ..kernel.events import EventData, Json

TERMINAL = frozenset({"run.finished", "run.failed", "run.cancelled"})
"""Exactly one of these ends every run's stream."""


class RunStarted(EventData, frozen=True, kw_only=True):
    """Always the first event. `target` is what the user named, `name` what the file calls itself.

    `model` is what answers wherever no node names its own (None if that is nowhere); where nobody chose it, `why`
    says how it came to be.
    """

    kind = "run.started"
    target: str
    name: str
    dialect: str
    model: str | None = None
    why: str = ""
    prompt: str = ""


class RunFinished(EventData, frozen=True, kw_only=True):
    """The run has its result. `outcome` is the object that `-o json` prints."""

    kind = "run.finished"
    outcome: Json


class RunFailed(EventData, frozen=True, kw_only=True):
    """The run failed; `outcome.error` says why. Its `output` is empty unless it went on over `failures` to its end."""

    kind = "run.failed"
    outcome: Json


class RunCancelled(EventData, frozen=True, kw_only=True):
    """The run was stopped from outside."""

    kind = "run.cancelled"
    outcome: Json


class JournalCheckpoint(EventData, frozen=True, kw_only=True):
    """Everything up to here is on disk."""

    kind = "journal.checkpoint"
    step: int
