"""Questions of an agent's children, presented to the agent's own model.

A child asks a person, and its question passes its parent on the way to the root. The parent notes it (`children`). Its
model receives the question with the next results and may answer, while the people at the root may answer as well. The
first answer wins. Every agent on the way notes a question, so a grandchild's question has two possible answering
agents.

`Escalations` is plain data of the parent's conversation, which receives a message for each question (`EscalationNoted`)
and for its end (`EscalationClosed`).
"""

from __future__ import annotations

from ....protocol.effects import AnswerChild
from ....protocol.errors import ToolFailed
from ....protocol.kernel.questions import Question, understood
from ....protocol.messages import EscalationNoted
from ..tools.tool import Json
from .tool_families import read_texts, refused

INSTRUCTION = (
    "Children wait for an answer to these questions. Answer with agent__reply_escalation where you know the answer; "
    "otherwise ask the user first. A person may answer before you do."
)

_KINDS = {"choice": "ask", "confirm": "confirm", "text": "input", "checkbox": "checkbox"}


class Escalations:
    """Questions below one agent.

    Attributes:
        pending: the open ones, oldest first, by the id that the model uses.
    """

    def __init__(self) -> None:
        self.pending: dict[str, EscalationNoted] = {}
        self._told: set[str] = set()
        self._in_round: set[str] = set()
        self._gone: dict[str, str] = {}  # For each closed question: the child that has this agent's answer, or "".

    def note(self, noted: EscalationNoted) -> None:
        """Add a question of a child."""
        self.pending[noted.id] = noted

    def close(self, id: str, *, answered: bool) -> None:
        """Remove a closed question; `answered` by this agent, or by another party."""
        noted = self.pending.pop(id, None)
        if noted is not None:
            self._gone[id] = noted.agent if answered else ""

    @property
    def has_news(self) -> bool:
        """True if a question is open that the model has not seen, because it was noted in this round of calls."""
        return any(id not in self._told for id in self.pending)

    def report(self) -> dict[str, Json]:
        """Return all open questions, for a result of this round."""
        self._in_round.update(self.pending)
        shown = [_question_as_json(noted) for noted in self.pending.values()]
        return {"pending_escalations": shown, "instruction": INSTRUCTION}

    def notice(self) -> dict[str, Json] | None:
        """Return the open questions to add to the results of a round of calls, and end the round.

        None if one of the results contains them all. Until the end of the round, all calls that wait for news have
        returned because of the same questions.
        """
        told, self._in_round = self._in_round, set()
        self._told.update(self.pending)
        if all(id in told for id in self.pending):
            return None
        notice = self.report()
        self._in_round = set()
        return notice

    def reply(self, id: str, reply: Json) -> AnswerChild | dict[str, Json]:
        """Return the answer to a question, or the reason why it cannot be answered."""
        noted = self.pending.get(id)
        if noted is None:
            if id in self._gone:
                return _closed(id)
            there = ", ".join(self.pending) or "none"
            return refused(f"Escalation '{id[:100]}' not found; pending: {there}")
        try:
            return AnswerChild(noted.question.id, _checked(noted.question, reply))
        except ToolFailed as problem:
            return refused(str(problem))

    def replied(self, id: str) -> dict[str, Json] | None:
        """Return the result of a reply; None while it is unknown."""
        if id in self.pending:
            return None
        if not self._gone[id]:
            return _closed(id)
        return {"status": "ok", "message": f"'{self._gone[id]}' has your answer and goes on"}


def _question_as_json(noted: EscalationNoted) -> dict[str, Json]:
    question = noted.question
    shown: dict[str, Json] = {
        "escalation_id": noted.id,
        "from": question.actor,
        "agent": noted.agent,
        "question": f"[{_KINDS[question.kind]}] {question.text}",
    }
    if question.options:
        shown["options"] = list(question.options)
    if question.rule:
        shown["rule"] = question.rule
    return shown


def _closed(id: str) -> dict[str, Json]:
    return refused(f"Escalation '{id}' is not open any more: it was answered, withdrawn, or timed out")


def _checked(question: Question, reply: Json) -> str | list[str]:
    """Convert a model's reply to an answer to the question.

    Raises:
        ToolFailed: the reply does not fit the question.
    """
    if question.kind == "checkbox":
        boxes = understood(question, _listed(reply))
        if isinstance(boxes, str):
            # Models list boxes in one text, separated by commas.
            boxes = understood(question, [part.strip() for part in boxes.split(",")])
        return [_option(question, box) for box in boxes]
    if not isinstance(reply, str):
        raise ToolFailed("The reply to this question is one text, not a list")
    value = understood(question, reply)
    assert isinstance(value, str)
    if question.kind == "confirm" and value not in ("yes", "no"):
        raise ToolFailed(f"The reply to a [confirm] question is yes or no, not '{reply[:100]}'")
    return value if question.kind != "choice" or question.free else _option(question, value)


def _listed(reply: Json) -> str | list[str]:
    """Return a list, from a list or its JSON text; any other text unchanged."""
    if isinstance(reply, str) and not reply.lstrip().startswith("["):
        return reply
    return read_texts(reply, "reply")


def _option(question: Question, text: str) -> str:
    if text in question.options:
        return text
    raise ToolFailed(f"'{text[:100]}' is not among the options: {', '.join(question.options)}")
