"""Answers prepared before a run: used in the order of the questions, or by the id of the asking node.

They are a policy of the run's actor (see `supervisors.escalation`), so they come before any person is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...protocol.questions import Answer, Question
from ...protocol.requests import AnswerText
from ...supervisors.escalation import PASS, Verdict


class Answers:
    """Prepared answers of one run.

    Args:
        given: as a `RunRequest` has them: in order, or per node id one for each of its visits.
    """

    def __init__(self, given: Sequence[AnswerText] | Mapping[str, Sequence[AnswerText]] | None) -> None:
        self._in_order: list[AnswerText] = []
        self._by_node: dict[str, list[AnswerText]] = {}
        if isinstance(given, Mapping):
            self._by_node = {node: list(answers) for node, answers in given.items()}
        elif given is not None:
            self._in_order = list(given)

    def policy(self, question: Question) -> Answer | Verdict:
        """Answers a question if an answer is left for it. Permissions are given otherwise (`--allow`, `--yes`)."""
        if question.permission is not None:
            return PASS
        left = self._by_node.get(question.node or "", []) or self._in_order
        if not left:
            return PASS
        return Answer(question=question.id, value=left.pop(0), by="answers")

    @property
    def left(self) -> list[str]:
        """Those that no question asked for, in words."""
        words = [f"'{node}': {answer}" for node, answers in self._by_node.items() for answer in answers]
        return words + [str(answer) for answer in self._in_order]
