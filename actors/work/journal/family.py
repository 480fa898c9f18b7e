"""What is open between a conversation and its children when its decider has been told its past (`engine/past`)."""

from __future__ import annotations

import msgspec

from ....protocol.effects import AnswerQuestion, CancelChild, Effect, Spawn
from ....protocol.kernel.messages import Message
from ....protocol.messages import ChildEnded, EscalationClosed, EscalationNoted


class Begun(msgspec.Struct):
    """A child that has not ended.

    Attributes:
        spawned: as the conversation has wanted it.
        at: when, in milliseconds that the run had been played.
        cancelled: it is to be interrupted.
    """

    spawned: Spawn
    at: int
    cancelled: bool = False


class FamilyLeft(msgspec.Struct):
    """See the module.

    Attributes:
        children: by id, in the order of their start; None for one that has ended.
        escalations: the questions that it was told of, and not that they are closed; by the ids it knows them by.
        replies: what it has answered to some of them; by the ids of the questions.
    """

    children: dict[str, Begun | None] = {}
    escalations: dict[str, EscalationNoted] = {}
    replies: dict[str, str | list[str]] = {}

    def told(self, message: Message) -> None:
        """The conversation was told this."""
        if isinstance(message, ChildEnded):
            self.children[message.record.id] = None
        elif isinstance(message, EscalationNoted):
            self.escalations[message.id] = message
        elif isinstance(message, EscalationClosed):
            closed = self.escalations.pop(message.id, None)
            if closed is not None:
                self.replies.pop(closed.question.id, None)

    def wants(self, effect: Effect, at: int) -> bool:
        """The conversation wanted this; whether it has to do with children."""
        if isinstance(effect, Spawn):
            self.children[effect.id] = Begun(effect, at)
        elif isinstance(effect, CancelChild):
            begun = self.children.get(effect.id)
            if begun is not None:
                begun.cancelled = True
        elif isinstance(effect, AnswerQuestion):
            self.replies[effect.question] = effect.value
        else:
            return False
        return True
