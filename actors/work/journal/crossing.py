"""State between the deciders of a durable run: team messages, questions and answers, MCP servers in use, and spending.

The other rows of a run belong to one path each. This state does not: only the rows of sender and reader together show
whether a team message still has to be delivered.
"""

from __future__ import annotations

import msgspec

from ....protocol.chat import ChatReply
from ....protocol.journal import (
    LETTER,
    Answered,
    AnyRow,
    Asked,
    Intends,
    Noted,
    Posted,
    Told,
    decode_value,
)
from ....protocol.messages import Letter, ServersAnew
from ..spending.meter import PartUsage


class UsedReplies(msgspec.Struct, frozen=True):
    """Usage of model replies.

    One reply to the decider of `path` if `told`, otherwise to work of that path; or `turns` replies of a part of the
    run that another worker executed.
    """

    path: str
    told: bool
    tokens: int
    cost: float
    turns: int = 1


class CrossingReplies(msgspec.Struct):
    """State between deciders, collected from all rows of a run in their order (`see`).

    Attributes:
        letters: team messages that were sent and not delivered, by the path of the reader's decider.
        asked: times of questions in seconds since 1970, by question id.
        answered: authors of answers, by question id.
        servers: MCP servers that a conversation has used and may rely on, by its path.
        spent: all replies of models.
    """

    letters: dict[str, list[Letter]] = {}
    asked: dict[str, float] = {}
    answered: dict[str, str] = {}
    servers: dict[str, dict[str, None]] = {}
    spent: list[UsedReplies] = []

    def see(self, path: str, row: AnyRow) -> None:
        """Process the next row, which belongs to `path`."""
        if isinstance(row, Noted):
            if row.name == LETTER and (letter := (posted := decode_value(row.value, Posted)).letter) is not None:
                self.letters.setdefault(posted.to, []).append(letter)
        elif isinstance(row, Asked):
            self.asked[row.question.id] = row.wall
        elif isinstance(row, Answered):
            self.answered[row.answer.question] = row.answer.by
        elif isinstance(row, Intends):
            # The conversation is the parent of the call's path. A dict keeps the order of use.
            if row.server:
                self.servers.setdefault(path.rpartition("/")[0], {})[row.server] = None
        elif isinstance(row, Told):
            self._count(path, row.message)

    def spends(self, path: str, reply: ChatReply, *, told: bool) -> None:
        """Record a reply of a model; see `UsedReplies`."""
        tokens = reply.usage.input_tokens + reply.usage.output_tokens
        self.spent.append(UsedReplies(path, told, tokens, reply.cost or 0.0))

    def add_remote_spending(self, path: str, part: PartUsage) -> None:
        """Record the usage of a part of the run that another worker executed for this path."""
        amount = part.amount
        self.spent.append(UsedReplies(path, False, amount.tokens, amount.cost, part.turns))

    def below(self, path: str) -> list[UsedReplies]:
        """Return the replies to the decider of this path, and to everything below it."""
        deeper = f"{path}/"
        return [
            each for each in self.spent if not path or (each.told and each.path == path) or each.path.startswith(deeper)
        ]

    def _count(self, path: str, message: object) -> None:
        # Delivery in an earlier incarnation, so the next one must not repeat it.
        if isinstance(message, Letter):
            on_their_way = self.letters.get(path, [])
            if message in on_their_way:
                on_their_way.remove(message)
        elif isinstance(message, ServersAnew):
            known = self.servers.get(path, {})
            for server in message.servers:
                known.pop(server, None)
