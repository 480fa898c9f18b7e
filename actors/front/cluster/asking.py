"""Questions of a worker's runs, told to the whole cluster: a front end of the desk at the root."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from ....supervisors.cluster.store import ASKED, CLOSED

if TYPE_CHECKING:
    from ....protocol.kernel.questions import Question
    from ...work.journal.of_run import OfRun


class Asking:
    """See the module.

    Args:
        kept: the runs that this process plays, by id.
    """

    name = "cluster"

    def __init__(self, kept: Mapping[str, OfRun]) -> None:
        self._kept = kept
        self._runs: dict[str, str] = {}

    def asked(self, question: Question) -> None:
        """The desk shows a question."""
        kept = self._kept.get(question.run)
        if kept is not None:
            self._runs[question.id] = question.run
            kept.rows.beside(ASKED, question.id, msgspec.json.encode(question))
            kept.rows.hurry()

    def closed(self, question_id: str, by: str) -> None:
        """The desk closes one."""
        kept = self._kept.get(self._runs.pop(question_id, ""))
        if kept is not None:
            kept.rows.beside(CLOSED, question_id, by.encode())
            kept.rows.hurry()
