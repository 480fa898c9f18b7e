"""Letters between teammates: a parent, its children, and the children among themselves.

A letter is a message to the actor of its reader, whose conversation keeps it in an `Inbox` until the model calls
`agent__check_inbox`: a letter interrupts no agent, and no agent waits for one. An `Address` leads to that actor, and
counts what its model has not read: a sender learns at once that there is no room, whatever the reader is at. A parent
and its children share a `PostOffice`; an agent with children stands in two of them, its parent's and its own. A `Seat`
is what a spawned agent gets to know of the office above it.

The sender of a letter is given as the name that its reader can answer to: the id of a child, or `parent`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...protocol.kernel.errors import MailboxFull
from ...protocol.messages import Letter, ShutdownApproved, ShutdownRequest, TaskCompleted, Text
from ...supervisors import Ref

PARENT = "parent"
"""How children call whoever spawned them."""

INBOX_BOUND = 256
"""Letters that may lie unread; its sender reads that there is no room. The end of a child always finds room."""


_RANK: dict[type, int] = {ShutdownRequest: 0, ShutdownApproved: 0, TaskCompleted: 1, Text: 2}


class Inbox:
    """Letters that were not read yet: part of the conversation that gets them."""

    def __init__(self) -> None:
        self._letters: list[Letter] = []

    def put(self, letter: Letter) -> None:
        """Add a letter."""
        self._letters.append(letter)

    def take_back(self, letter: Letter) -> None:
        """Undo `put`, if the letter has not been read."""
        self._letters = [unread for unread in self._letters if unread is not letter]

    @property
    def texts(self) -> int:
        """How many letters that teammates have written are in it."""
        return sum(isinstance(letter.payload, Text) for letter in self._letters)

    def drain(self) -> list[Letter]:
        """All letters, the urgent ones first: shutdowns, ended tasks, texts; each kind in the order of arrival."""
        letters, self._letters = self._letters, []
        return sorted(letters, key=lambda letter: _RANK[type(letter.payload)])


class Address:
    """Where letters to one agent go: to the mailbox of its actor, and until that begins they are kept here.

    Attributes:
        unread: letters that were sent and that its model has not read.
        elsewhere: another worker of a cluster plays it, where no letters come.
        path: of the decider that is told of them, in a durable run (see `protocol/journal`).
    """

    def __init__(self) -> None:
        self.unread = 0
        self.elsewhere = False
        self.path = ""
        self._early: list[Letter] = []
        self._ref: Ref | None = None

    def open(self, ref: Ref, lost: Sequence[Letter] = ()) -> None:
        """The agent reads its mail from now on.

        Args:
            lost: what was on its way to it when an earlier process of the run was killed.
        """
        self._ref = ref
        self.unread += len(lost)
        early, self._early = self._early, []
        for letter in (*lost, *early):
            ref.tell_nowait(letter)

    def send(self, letter: Letter) -> bool:
        """Send it; False if there is no room."""
        if self.unread >= INBOX_BOUND:
            return False
        if self._ref is None:
            self._early.append(letter)
        else:
            try:
                self._ref.tell_nowait(letter)
            except MailboxFull:
                return False
        self.unread += 1
        return True


class PostOffice:
    """The addresses of one parent and its children.

    Attributes:
        parent: that of the parent.
        children: those of the children by id; None for one that has ended and reads nothing any more.
    """

    def __init__(self, parent: Address) -> None:
        self.parent = parent
        self.children: dict[str, Address | None] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the children that work."""
        return tuple(id for id, address in self.children.items() if address is not None)

    def seat(self, id: str) -> Seat:
        """A place for a new child."""
        address = self.children[id] = Address()
        return Seat(id=id, address=address, office=self)


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's place among others. `Seat()` is that of an agent which no agent has spawned.

    Attributes:
        id: what siblings and the parent call it; "" if it has neither.
        address: where its letters go.
        office: where its parent and its siblings are reached, if it has any.
    """

    id: str = ""
    address: Address = msgspec.field(default_factory=Address)
    office: PostOffice | None = None
