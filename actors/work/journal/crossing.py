"""What goes on between the deciders of a durable run: letters, questions and their answers, MCP servers in use.

The rest of a run's past belongs to one path. This does not: whether a letter still has to be told to its reader, its
sender's rows say together with the reader's.
"""

from __future__ import annotations

import msgspec

from ....protocol.journal import LETTER, Answered, AnyRow, Asked, Intends, Noted, Posted, Told, decode_value
from ....protocol.messages import Letter, ServersAnew


class Crossing(msgspec.Struct):
    """See the module. `see` takes all rows of a run, in their order.

    Attributes:
        letters: that were sent, and that their reader was not told of; by the path of its decider.
        asked: when questions were asked, in seconds since 1970; by their ids.
        answered: who has answered them; by their ids.
        servers: MCP servers that a conversation has used, and may rely on; by its path.
    """

    letters: dict[str, list[Letter]] = {}
    asked: dict[str, float] = {}
    answered: dict[str, str] = {}
    servers: dict[str, dict[str, None]] = {}

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

    def _told(self, path: str, message: object) -> None:
        if isinstance(message, Letter):
            on_their_way = self.letters.get(path, [])
            if message in on_their_way:
                on_their_way.remove(message)
        elif isinstance(message, ServersAnew):
            known = self.servers.get(path, {})
            for server in message.servers:
                known.pop(server, None)
