"""Open state between a conversation and its children, collected when `engine/recovery` replays its decider."""

from __future__ import annotations

import msgspec

from ....protocol.effects import AnswerChild, CancelChild, Effect, Spawn
from ....protocol.kernel.messages import Message
from ....protocol.messages import ChildEnded, EscalationClosed, EscalationNoted


class UnfinishedChild(msgspec.Struct):
    """Child that has not ended.

    Attributes:
        spawned: effect with which the conversation requested it.
        at: time of the request, in milliseconds of the run's execution.
        cancelled: True if it is to be interrupted.
    """

    spawned: Spawn
    at: int
    cancelled: bool = False


class UnfinishedFamily(msgspec.Struct):
    """Children and questions of a conversation that are open at the end of the replay.

    Attributes:
        children: by id, in the order of their start; None for one that has ended.
        escalations: questions that the conversation knows and that are not closed, by its own ids for them.
        replies: its answers to some of them, by question id.
    """

    children: dict[str, UnfinishedChild | None] = {}
    escalations: dict[str, EscalationNoted] = {}
    replies: dict[str, str | list[str]] = {}

    def told(self, message: Message) -> None:
        """Process a message to the conversation."""
        if isinstance(message, ChildEnded):
            self.children[message.record.id] = None
        elif isinstance(message, EscalationNoted):
            self.escalations[message.id] = message
        elif isinstance(message, EscalationClosed):
            closed = self.escalations.pop(message.id, None)
            if closed is not None:
                self.replies.pop(closed.question.id, None)

    def wants(self, effect: Effect, at: int) -> bool:
        """Process an effect of the conversation. Return True if it concerns children."""
        if isinstance(effect, Spawn):
            self.children[effect.id] = UnfinishedChild(effect, at)
        elif isinstance(effect, CancelChild):
            begun = self.children.get(effect.id)
            if begun is not None:
                begun.cancelled = True
        elif isinstance(effect, AnswerChild):
            self.replies[effect.question] = effect.value
        else:
            return False
        return True
