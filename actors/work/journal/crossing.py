"""What is between the deciders of a durable run: letters, questions and answers, MCP servers in use, what models cost.

The rest of a run's past belongs to one path. This does not: whether a letter still has to be told to its reader, its
sender's rows say together with the reader's.
"""

from __future__ import annotations

import msgspec

from ....protocol.chat import ChatReply
from ....protocol.journal import LETTER, Answered, AnyRow, Asked, Intends, Noted, Posted, Told, decode_value
from ....protocol.messages import Letter, ServersAnew
from ..spending.parts import PartUsage


class Spent(msgspec.Struct, frozen=True):
    """A reply of a model, to a decider of this path or, if it is not `told`, to what works there; or so many replies,
    of a part of the run that was played elsewhere."""

    path: str
    told: bool
    tokens: int
    cost: float
    turns: int = 1


class Crossing(msgspec.Struct):
    """See the module. `see` takes all rows of a run, in their order.

    Attributes:
        letters: that were sent, and that their reader was not told of; by the path of its decider.
        asked: when questions were asked, in seconds since 1970; by their ids.
        answered: who has answered them; by their ids.
        servers: MCP servers that a conversation has used, and may rely on; by its path.
        spent: all replies of models.
    """

    letters: dict[str, list[Letter]] = {}
    asked: dict[str, float] = {}
    answered: dict[str, str] = {}
    servers: dict[str, dict[str, None]] = {}
    spent: list[Spent] = []

    def see(self, path: str, row: AnyRow) -> None:
        """The next row, of this path."""
        if isinstance(row, Noted):
            if row.name == LETTER and (letter := (posted := decode_value(row.value, Posted)).letter) is not None:
                self.letters.setdefault(posted.to, []).append(letter)
        elif isinstance(row, Asked):
            self.asked[row.question.id] = row.wall
        elif isinstance(row, Answered):
            self.answered[row.answer.question] = row.answer.by
        elif isinstance(row, Intends):
            if row.server:
                self.servers.setdefault(path.rpartition("/")[0], {})[row.server] = None
        elif isinstance(row, Told):
            self._told(path, row.message)

    def spends(self, path: str, reply: ChatReply, *, told: bool) -> None:
        """The reply of a model; see `Spent`."""
        tokens = reply.usage.input_tokens + reply.usage.output_tokens
        self.spent.append(Spent(path, told, tokens, reply.cost or 0.0))

    def spends_elsewhere(self, path: str, part: PartUsage) -> None:
        """What a part has used that was played elsewhere for this path."""
        amount = part.amount
        self.spent.append(Spent(path, False, amount.tokens, amount.cost, part.turns))

    def below(self, path: str) -> list[Spent]:
        """The replies to a decider of this path, and to all that works below it."""
        deeper = f"{path}/"
        return [
            each for each in self.spent if not path or (each.told and each.path == path) or each.path.startswith(deeper)
        ]

    def _told(self, path: str, message: object) -> None:
        if isinstance(message, Letter):
            on_their_way = self.letters.get(path, [])
            if message in on_their_way:
                on_their_way.remove(message)
        elif isinstance(message, ServersAnew):
            known = self.servers.get(path, {})
            for server in message.servers:
                known.pop(server, None)
