"""What a chat that others can see, too, needs at the terminal: what was seen, which lines are under way.

A connection may break, and others may send lines. So what is told is taken in by its number, once; and a line of ours
whose answer did not come is known to have begun a run, or may have to be sent again.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.ages import age, seconds_since
from ...protocol.control import chat
from ...protocol.errors import NotFound, UsageError
from ..control.client import beginning
from ..render.text import one_line, table

_LISTED = 20
"""Chats that are listed where it is not clear which is meant."""

GOODBYE = "goodbye"
"""Id of the last request of a connection."""


class Presence:
    """See the module.

    Args:
        place: the address of the server; "" for a hub in this process.
        attach: the beginning of the id of a chat that is there already; "" for the only one.

    Attributes:
        place, attach: as given; `attach` is None in the chat that was opened here.
        opened: the id of that.
        last: number of the newest that was taken in.
    """

    def __init__(self, place: str = "", attach: str | None = None) -> None:
        self.place = place
        self.attach = attach
        self.opened: str | None = None
        self.last = 0
        self._seen: set[int] = set()
        self._under_way: list[str] = []
        self._unsure: list[str] = []

    def is_new(self, seq: int) -> bool:
        """Whether this was not taken in yet; from now on it was. What has no number is always new."""
        if seq in self._seen:
            return False
        if seq:
            self._seen.add(seq)
            self.last = max(self.last, seq)
        return True

    def forget(self) -> None:
        """Another chat begins, with numbers of its own."""
        self.last = 0
        self._seen.clear()

    def go_over(self, id: str) -> None:
        """The person is in another chat from now on: what is under way in the one they leave is not its."""
        self.attach = None if id == self.opened else id
        self.forget()
        self._under_way.clear()
        self._unsure.clear()

    def sends(self, text: str) -> str:
        """A line is sent; what to tell `answered` and `unanswered`."""
        line = text.strip("\n")
        self._under_way.append(line)
        return line

    def answered(self, line: str) -> None:
        """It was played, or refused."""
        if line in self._under_way:
            self._under_way.remove(line)

    def unanswered(self, line: str) -> None:
        """The connection was lost before its answer came. What has begun a run by then is seen by that run's end."""
        if line in self._under_way:
            self._under_way.remove(line)
            self._unsure.append(line)

    def is_ours(self, prompt: str) -> bool:
        """Whether a run that has begun answers a line of ours, which stands at the terminal already."""
        for lines in (self._under_way, self._unsure):
            if prompt in lines:
                lines.remove(prompt)
                return True
        return bool(self._under_way)  # a command, which asks in words of its own

    def left_over(self) -> list[str]:
        """Lines whose answer did not come and that have begun no run, as far as is known; each once."""
        lines, self._unsure = self._unsure, []
        return lines

    def meant(self, chats: Iterable[chat.ChatInfo]) -> str:
        """The id of the chat that is there already.

        Raises:
            UsageError: several ids begin so.
            NotFound: none does.
        """
        assert self.attach is not None
        known, word = list(chats), one_line(self.attach, 60)
        ids = beginning(self.attach, [each.chat for each in known], "chat")
        if not known and not word:
            raise NotFound(f"there is no chat to attach to: none is open at {self.place}")
        if not known:
            raise NotFound(f"there is no chat '{word}': none is open at {self.place}")
        if not ids:
            raise NotFound(f"there is no chat '{word}'; open at {self.place} are\n{_listed(known)}")
        if len(ids) > 1 and not word:
            raise UsageError(f"several chats are open at {self.place}; --attach takes the id of one\n{_listed(known)}")
        if len(ids) > 1:
            several = [each for each in known if each.chat in ids]
            raise UsageError(f"'{word}' begins the ids of several chats:\n{_listed(several)}")
        return ids[0]


def _listed(chats: list[chat.ChatInfo]) -> str:
    """What each of them is, the newest first."""
    newest = sorted(chats, key=lambda each: each.started, reverse=True)
    rows = [("CHAT", "SINCE", "WITH", "SESSION", "TITLE")]
    rows += [
        (
            one_line(each.chat, 40),
            age(seconds_since(each.started)),
            one_line(each.agent or each.role or each.model, 40),
            one_line(each.session or "", 30),
            one_line(each.title or "", 60),
        )
        for each in newest[:_LISTED]
    ]
    more = f"and {len(newest) - _LISTED} more" if len(newest) > _LISTED else ""
    return (table(rows) + more).rstrip("\n")


def opening_again(info: chat.ChatInfo) -> dict[str, object]:
    """Parameters of `_chat/open` for a chat like one that is no more."""
    session = info.session if info.session_id is not None else ("" if info.session is not None else None)
    if session is None and info.session_id is not None:  # a stored chat without a name
        return {"reopen": info.session_id, "preludes": False, "keep": True, "store": True}
    return {
        "agent": info.agent,
        "role": info.role,
        "session": session,
        "rag": info.rag,
        "model": info.model if info.agent is None and info.model else None,
        "preludes": False,
        "keep": True,
    }
