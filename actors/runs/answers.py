"""Answers prepared before the run: given in the order asked, or by the id of the node that asks.

They are a policy of the run's actor (see `supervisors.escalation`), so they come before any person is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...protocol.errors import UsageError
from ...protocol.questions import Answer, Question
from ...supervisors.escalation import PASS, Verdict
from .given import check_unicode

Given = Sequence[Any] | Mapping[str, Any]
"""A list used in order, or node id to an answer or a list of answers used at its visits."""


class Answers:
    """Prepared answers of one run.

    Raises:
        UsageError: an answer is neither text, number, boolean, nor a list of these.
    """

    def __init__(self, given: Given | None) -> None:
        self._in_order: list[str | list[str]] = []
        self._by_node: dict[str, list[str | list[str]]] = {}
        if isinstance(given, Mapping):
            for node, answers in given.items():
                several = answers if isinstance(answers, list | tuple) else [answers]
                self._by_node[str(node)] = [_answer(value, f"the answer for '{node}'") for value in several]
        elif given is not None:
            self._in_order = [_answer(value, f"answer {i}") for i, value in enumerate(given, 1)]

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
        """What nobody asked for, in words."""
        words = [f"'{node}': {answer}" for node, answers in self._by_node.items() for answer in answers]
        return words + [str(answer) for answer in self._in_order]


def _answer(value: Any, what: str) -> str | list[str]:
    answer = _worded(value, what)
    for text in [answer] if isinstance(answer, str) else answer:
        check_unicode(what, text)
    return answer


def _worded(value: Any, what: str) -> str | list[str]:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return [str(item) for item in value]
    raise UsageError(f"{what} must be text, a number, true or false, or a list of texts, not {type(value).__name__}")
