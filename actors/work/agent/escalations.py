"""Questions of an agent's children, as the agent's own model sees them.

A child asks a person, and its question passes its parent on the way to the root. The parent notes it (`NOTED`): its
model is shown the question with the next results and may answer, while the people at the root may do so as well. The
first answer wins. Every agent on the way notes a question, so that of a grandchild has two that may know.

What only a person may answer is let pass: permissions, what was asked of `people`, and secrets, which no model should
hold. A question that is noted has an end: without a `timeout` of its own it expires after the agent's, since nobody
may be there but a model that does not answer.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.errors import ShuttingDown, ToolFailed
from ....protocol.questions import Question, understood
from ....supervisors.escalation import NOTED, PASS, Verdict
from ..tools.tool import Arguments, Json, Tool
from .family import family_tool, read_texts, refused, text

if TYPE_CHECKING:
    from ....supervisors import Actor

INSTRUCTION = (
    "Children wait for an answer to these questions. Answer with agent__reply_escalation where you know the answer; "
    "otherwise ask the user first. A person may answer before you do."
)

_KINDS = {"choice": "ask", "confirm": "confirm", "text": "input", "checkbox": "checkbox"}


class Escalation(msgspec.Struct, frozen=True, kw_only=True):
    """A question that was noted: `id` is how the model calls it, `agent` the child it came from (or came by)."""

    id: str
    agent: str
    question: Question

    def shown(self) -> dict[str, Json]:
        """As the model reads it."""
        question = self.question
        shown: dict[str, Json] = {
            "escalation_id": self.id,
            "from": question.actor,
            "agent": self.agent,
            "question": f"[{_KINDS[question.kind]}] {question.text}",
        }
        if question.options:
            shown["options"] = list(question.options)
        if question.rule:
            shown["rule"] = question.rule
        return shown


class Escalations:
    """The open questions below one agent.

    Args:
        me: the agent's actor; its `policy` is to be this object's.
        timeout: seconds after which a noted question expires that has no `timeout` of its own.
    """

    def __init__(self, me: Actor, timeout: float = 300.0) -> None:
        self._me = me
        self._timeout = timeout
        self._child_at: Callable[[str], str | None] = lambda path: None  # noqa: ARG005 - until `attach`
        self._on_news: Callable[[], None] = lambda: None
        self._noted: dict[str, Escalation] = {}
        self._told: set[str] = set()
        self._in_round: set[str] = set()
        self._gone: set[str] = set()

    def attach(self, child_at: Callable[[str], str | None], on_news: Callable[[], None]) -> None:
        """Whose questions are noted.

        Args:
            child_at: id of the child that the actor of this path belongs to, or None if it is not below any.
            on_news: called when a question was noted.
        """
        self._child_at = child_at
        self._on_news = on_news

    def policy(self, question: Question) -> Verdict:
        """Note what a child asks; the agent's own questions pass."""
        agent = self._child_at(question.actor)
        if agent is None or question.permission is not None or question.people or question.secret:
            return PASS
        id = f"esc_{secrets.token_hex(4)}"
        self._noted[id] = Escalation(id=id, agent=agent, question=question)
        self._on_news()
        if question.timeout is None:
            with contextlib.suppress(ShuttingDown):
                self._me.spawn(self._expire, question.id, name="expiry", link=False)
        return NOTED

    async def _expire(self, me: Actor, id: str) -> None:
        """Body of an actor that ends a question in time."""
        await trio.sleep(self._timeout)
        me.root.questions.expire(id, self._timeout)

    @property
    def pending(self) -> list[Escalation]:
        """The questions that nobody has answered yet, oldest first."""
        self._forget_closed()
        return list(self._noted.values())

    @property
    def has_news(self) -> bool:
        """Whether one is open that the model has not read, since it was noted in this round of its calls."""
        return any(escalation.id not in self._told for escalation in self.pending)

    def tell(self) -> dict[str, Json]:
        """All open ones, for a result of this round."""
        pending = self.pending
        self._in_round.update(escalation.id for escalation in pending)
        return {"pending_escalations": [escalation.shown() for escalation in pending], "instruction": INSTRUCTION}

    def notice(self) -> dict[str, Json] | None:
        """What to add to the results of a round of calls: what is open, unless one of them tells it all already.

        Ends the round: until now, all calls that wait for news have returned for the same ones.
        """
        told = self._in_round
        self._in_round = set()
        pending = self.pending
        self._told.update(escalation.id for escalation in pending)
        if all(escalation.id in told for escalation in pending):
            return None
        notice = self.tell()
        self._in_round = set()
        return notice

    def reply(self, id: str, reply: Json) -> dict[str, Json]:
        """Answer one; what the model is told of that."""
        self._forget_closed()
        escalation = self._noted.get(id)
        if escalation is None:
            if id in self._gone:
                return refused(f"Escalation '{id}' is not open any more: it was answered, withdrawn, or timed out")
            there = ", ".join(self._noted) or "none"
            return refused(f"Escalation '{id[:100]}' not found; pending: {there}")
        question = escalation.question
        try:
            value = _checked(question, reply)
        except ToolFailed as problem:
            return refused(str(problem))
        del self._noted[id]
        self._gone.add(id)
        self._me.root.questions.answer(question.id, value, by=self._me.path)
        return {"status": "ok", "message": f"'{escalation.agent}' has your answer and goes on"}

    def _forget_closed(self) -> None:
        if self._noted:
            still_open = {question.id for question in self._me.root.questions.open}
            closed = [id for id, escalation in self._noted.items() if escalation.question.id not in still_open]
            for id in closed:
                del self._noted[id]
            self._gone.update(closed)


def escalation_tools(escalations: Escalations) -> list[Tool]:
    """`agent__reply_escalation`."""

    async def reply_escalation(_: Actor, arguments: Arguments) -> Json:
        return escalations.reply(arguments["escalation_id"].strip(), arguments["reply"])

    reply: dict[str, Json] = {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        "description": "The answer: one of the options, yes or no, a text, or for [checkbox] a list of options.",
    }
    return [
        family_tool(
            "agent__reply_escalation",
            "Answer a question of a child agent, listed under pending_escalations. The child goes on with your answer.",
            reply_escalation,
            {"escalation_id": text("Id of the escalation, such as esc_1a2b3c4d."), "reply": reply},
        )
    ]


def _checked(question: Question, reply: Json) -> str | list[str]:
    """The reply as an answer to the question.

    Raises:
        ToolFailed: it is none.
    """
    if question.kind == "checkbox":
        boxes = understood(question, _listed(reply))
        if isinstance(boxes, str):
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
    """A list as a list, whether it is one or the JSON text of one; a text that lists boxes, as it is."""
    if isinstance(reply, str) and not reply.lstrip().startswith("["):
        return reply
    return read_texts(reply, "reply")


def _option(question: Question, text: str) -> str:
    if text in question.options:
        return text
    raise ToolFailed(f"'{text[:100]}' is not among the options: {', '.join(question.options)}")
