"""Team messages between agents: a parent, its children, and the children among themselves.

A team message is sent to the actor of its reader. The reader's conversation stores it in a `UnreadMessages` until the
model calls `agent__check_inbox`: a message interrupts no agent, and no agent waits for one. An `Address` leads to that
actor and counts the messages that its model has not read. So a sender learns at once if there is no room, regardless of
the state of the reader. A parent and its children share a `PostOffice`. An agent with children belongs to two of them,
its parent's and its own. A `TeamPosition` is a spawned agent's view of its parent's office.

The sender of a message is given under the name to which its reader can answer: the id of a child, or `parent`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...protocol.kernel.errors import MailboxFull
from ...protocol.messages import ShutdownApproved, ShutdownRequest, TaskCompleted, TeamMessage, Text
from ...supervisors import Ref

PARENT = "parent"
"""Name under which children address their parent."""

INBOX_BOUND = 256
"""Most unread messages; above it, the sender gets an error. The message about the end of a child is always accepted."""


_RANK: dict[type, int] = {ShutdownRequest: 0, ShutdownApproved: 0, TaskCompleted: 1, Text: 2}


class UnreadMessages:
    """Unread team messages of a conversation."""

    def __init__(self) -> None:
        self._letters: list[TeamMessage] = []

    def put(self, letter: TeamMessage) -> None:
        self._letters.append(letter)

    def take_back(self, letter: TeamMessage) -> None:
        """Undo `put`, if the message has not been read."""
        self._letters = [unread for unread in self._letters if unread is not letter]

    @property
    def texts(self) -> int:
        """Number of messages written by teammates."""
        return sum(isinstance(letter.payload, Text) for letter in self._letters)

    def drain(self) -> list[TeamMessage]:
        """Remove and return all messages, the urgent ones first.

        Shutdowns come first, then ended tasks, then texts; each kind in order of arrival.
        """
        letters, self._letters = self._letters, []
        return sorted(letters, key=lambda letter: _RANK[type(letter.payload)])


class Address:
    """Address of one agent: the mailbox of its actor, or a buffer until the actor starts.

    Attributes:
        unread: sent messages that its model has not read.
        elsewhere: another worker of a cluster executes the agent; team messages do not reach it.
        path: path of the decider that receives the messages in a durable run (see `protocol/journal`).
    """

    def __init__(self) -> None:
        self.unread = 0
        self.elsewhere = False
        self.path = ""
        self._early: list[TeamMessage] = []
        self._ref: Ref | None = None

    def open(self, ref: Ref, lost: Sequence[TeamMessage] = ()) -> None:
        """Connect the address to the agent's mailbox, and deliver the buffered messages.

        Args:
            lost: messages that were in transit when an earlier process of the run was killed.
        """
        self._ref = ref
        # The buffered messages were counted by `send`.
        self.unread += len(lost)
        early, self._early = self._early, []
        # Lost messages first: they are older.
        for letter in (*lost, *early):
            ref.tell_nowait(letter)

    def send(self, letter: TeamMessage) -> bool:
        """Send a message. Return False if `INBOX_BOUND` messages are unread, or the mailbox is full."""
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
    """Addresses of one parent and its children.

    Attributes:
        parent: address of the parent.
        children: addresses of the children by id; None for an ended child, which reads nothing any more.
    """

    def __init__(self, parent: Address) -> None:
        self.parent = parent
        self.children: dict[str, Address | None] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the children that are running."""
        return tuple(id for id, address in self.children.items() if address is not None)

    def add_child(self, id: str) -> TeamPosition:
        """Create the address of a new child, and return the position of that child."""
        address = self.children[id] = Address()
        return TeamPosition(id=id, address=address, office=self)


class TeamPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Position of an agent among others. `TeamPosition()` is for an agent that no agent has spawned.

    Attributes:
        id: its name for siblings and parent; "" if it has neither.
        address: its address.
        office: addresses of its parent and siblings, if it has any.
    """

    id: str = ""
    address: Address = msgspec.field(default_factory=Address)
    office: PostOffice | None = None
