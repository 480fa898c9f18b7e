"""Letters between teammates: a parent, its children, and the children among themselves.

Every agent has an `Inbox`, which its model empties with `agent__check_inbox` whenever it pleases: a letter
interrupts no agent, and no agent waits for one. A parent and its children share a `PostOffice`; an agent with children
stands in two of them, its parent's and its own. A `Seat` is what a spawned agent gets to know of the office above it.

The sender of a letter is given as the name that its reader can answer to: the id of a child, or `parent`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

PARENT = "parent"
"""How children call whoever spawned them."""

INBOX_BOUND = 256
"""Letters that may lie unread; a sender is told when there is no room. The end of a child finds room always."""


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Words of a teammate."""

    content: str


class TaskCompleted(msgspec.Struct, frozen=True, tag="task_completed"):
    """A child has ended; `task_id` is its task in the queue, or its own id if it has none."""

    task_id: str
    summary: str


class ShutdownRequest(msgspec.Struct, frozen=True, tag="shutdown_request"):
    """Please come to an end."""

    reason: str


class ShutdownApproved(msgspec.Struct, frozen=True, tag="shutdown_approved"):
    """The answer to that."""


Payload = Text | TaskCompleted | ShutdownRequest | ShutdownApproved

_RANK: dict[type, int] = {ShutdownRequest: 0, ShutdownApproved: 0, TaskCompleted: 1, Text: 2}


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """One letter.

    Attributes:
        sender: what its reader calls whoever wrote it.
        payload: what it says.
        written: when.
    """

    sender: str
    payload: Payload
    written: datetime

    def shown(self) -> dict[str, Any]:
        """As a model reads it."""
        return {
            "from": self.sender,
            "payload": msgspec.to_builtins(self.payload),
            "timestamp": self.written.isoformat(timespec="seconds"),
        }


class Inbox:
    """Letters that were not read yet."""

    def __init__(self, bound: int = INBOX_BOUND) -> None:
        self._bound = bound
        self._letters: list[Letter] = []

    def __len__(self) -> int:
        return len(self._letters)

    def put(self, letter: Letter) -> bool:
        """Add a letter; False if there is no room. That a child has ended nobody would write again: it always fits."""
        if len(self._letters) >= self._bound and not isinstance(letter.payload, TaskCompleted):
            return False
        self._letters.append(letter)
        return True

    def take_back(self, letter: Letter) -> None:
        """Undo `put`, if the letter has not been read."""
        self._letters = [unread for unread in self._letters if unread is not letter]

    def drain(self) -> list[Letter]:
        """All letters, the urgent ones first: shutdowns, ended tasks, texts; each kind in the order of arrival."""
        letters, self._letters = self._letters, []
        return sorted(letters, key=lambda letter: _RANK[type(letter.payload)])


class PostOffice:
    """The inboxes of one parent and its children.

    Attributes:
        parent: the inbox of the parent.
    """

    def __init__(self, parent: Inbox) -> None:
        self.parent = parent
        self._inboxes: dict[str, Inbox] = {}
        self._gone: set[str] = set()

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the children that work."""
        return tuple(self._inboxes)

    def seat(self, id: str) -> Seat:
        """A place for a new child."""
        inbox = self._inboxes[id] = Inbox()
        return Seat(id=id, inbox=inbox, office=self)

    def leave(self, id: str) -> None:
        """This child has ended and reads nothing any more."""
        if self._inboxes.pop(id, None) is not None:
            self._gone.add(id)

    def knows(self, id: str) -> bool:
        """Whether there is or was such a child."""
        return id in self._inboxes or id in self._gone

    def inbox(self, id: str) -> Inbox | None:
        """A child's inbox; None if it has ended or was never there."""
        return self._inboxes.get(id)


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's place among others. `Seat()` is that of an agent nobody has spawned.

    Attributes:
        id: what siblings and the parent call it; "" if it has neither.
        inbox: its letters.
        office: where its parent and its siblings are reached, if it has any.
    """

    id: str = ""
    inbox: Inbox = msgspec.field(default_factory=Inbox)
    office: PostOffice | None = None
