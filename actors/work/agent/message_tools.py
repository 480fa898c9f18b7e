"""Messages within a team: the tools `agent__send_message` and `agent__check_inbox`.

`post` decides which agents can reach each other; see `work.team_messages` for addresses and inboxes.
"""

from __future__ import annotations

from ....protocol.journal import LETTER, Posted
from ....protocol.messages import FamilyCalled, Letter, Payload, Text
from ....supervisors import Actor
from ..journal.actor_journal import noted, was_answered
from ..playback import now
from ..team_messages import PARENT, Address, PostOffice, TeamPosition
from ..tools.tool import Arguments, Json, Tool, shortened
from .tool_families import ask_decider, family_tool, refused, text

LONGEST = 64_000
"""Maximum characters of one team message."""


def send(me: Actor | None, seat: TeamPosition, below: PostOffice | None, to: str, payload: Payload) -> str | None:
    """Send a team message from the agent at `seat` to its parent, a sibling, or a child (`below`).

    `me` is the sending actor, or None outside of one.

    Returns:
        The reason why the message was not sent, or None.
    """
    return post(me, seat, below, to, payload).problem


def post(me: Actor | None, seat: TeamPosition, below: PostOffice | None, to: str, payload: Payload) -> Posted:
    """Send a team message like `send`, and return where it went."""
    above = seat.office
    if to == seat.id and to:
        return _not_sent(f"'{to}' is yourself")
    if to == PARENT:
        if above is None:
            return _not_sent(f"You have no parent. {_reachable(seat, below)}")
        address: Address | None = above.parent
    elif below is not None and to in below.children:
        address = below.children[to]
    elif above is not None and to in above.children:
        address = above.children[to]
    else:
        return _not_sent(f"Agent '{shortened(to, 100)}' not found. {_reachable(seat, below)}")
    # An ended child remains known, so that its sender gets a precise error.
    if address is None:
        return _not_sent(f"Agent '{to}' has ended and reads no more letters")
    if address.elsewhere:
        return _not_sent(f"Agent '{to}' runs on another worker of the cluster, which team messages do not reach")
    # The address decides the sender's name: a child knows this agent as its parent, others by its id.
    own_child = to != PARENT and below is not None and to in below.children
    letter = Letter(sender=PARENT if own_child else seat.id, payload=payload, written=now(me))
    if not address.send(letter):
        full = f"The inbox of '{to}' is full ({address.unread} unread letters); the message was not delivered"
        return _not_sent(full)
    return Posted(address.path, letter)


def _not_sent(problem: str) -> Posted:
    return Posted("", None, problem)


def mail_tools(seat: TeamPosition, below: PostOffice | None = None) -> list[Tool]:
    """Return `agent__send_message` and `agent__check_inbox` for the agent at this seat.

    Args:
        below: the post office of its own children, if it may have any.
    """

    async def send_message(me: Actor, arguments: Arguments) -> Json:
        to = arguments["id"].strip()

        # No checkpoint inside: the journal must contain the sending before its reader can process the message.
        async def sent() -> Posted:
            return post(me, seat, below, to, Text(shortened(arguments["message"], LONGEST)))

        problem = (await noted(me, LETTER, Posted, sent)).problem
        return refused(problem) if problem else {"status": "ok", "message": f"Message sent to '{to}'"}

    async def check_inbox(me: Actor, key: int, arguments: Arguments) -> Json:
        # False if an earlier incarnation of the run has read the inbox: its messages no longer count as unread.
        counted = not was_answered(me)
        read = await ask_decider(me, FamilyCalled(key=key, name="agent__check_inbox", arguments=arguments))
        if counted:
            seat.address.unread -= sum(letter["payload"]["type"] != "task_completed" for letter in read["messages"])
        return read

    return [
        family_tool(
            "agent__send_message",
            "Send a text message to a teammate: a sibling or a child of yours by its id, or your parent as 'parent'. "
            "It is read when the teammate checks its inbox.",
            send_message,
            {"id": text("Id of the teammate, or 'parent'."), "message": text("What to tell it.")},
        ),
        family_tool(
            "agent__check_inbox", "Read and remove all messages that teammates have sent you.", decided=check_inbox
        ),
    ]


def _reachable(seat: TeamPosition, below: PostOffice | None) -> str:
    there = list(below.ids) if below is not None else []
    if seat.office is not None:
        there += [PARENT, *(id for id in seat.office.ids if id != seat.id)]
    return f"You can reach: {', '.join(there[:50])}" if there else "There is no agent that you could reach"
