"""Relay of a worker's questions to the cluster: a front end of the root's question registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from ....supervisors.cluster.store import ASKED, CLOSED

if TYPE_CHECKING:
    from ....protocol.kernel.questions import Question
    from ...work.journal.of_run import JournaledRun


class ClusterAsking:
    """Writes opened and closed questions into the database, in the transaction of the run's rows.

    Args:
        kept: durable runs of this process, by id.
    """

    name = "cluster"

    def __init__(self, kept: Mapping[str, JournaledRun]) -> None:
        self._kept = kept
        self._runs: dict[str, str] = {}

    def asked(self, question: Question) -> None:
        """Store an opened question."""
        kept = self._kept.get(question.run)
        if kept is not None:
            self._runs[question.id] = question.run
            kept.rows.attach(ASKED, question.id, msgspec.json.encode(question))
            kept.rows.hurry()

    def closed(self, question_id: str, by: str) -> None:
        """Store that a question is closed."""
        kept = self._kept.get(self._runs.pop(question_id, ""))
        if kept is not None:
            kept.rows.attach(CLOSED, question_id, by.encode())
            kept.rows.hurry()
