"""Team tools: `agent__spawn`, `agent__collect` and others for children, `agent__task_*`, and messages within a team.

`agent__task_*` manage the task queue, and `agent__reply_escalation` answers questions of children.
`engine/conversation/team` decides the results of all these.

With `agent__send_message` and `agent__check_inbox` the agents of a team exchange messages. `post` decides which agents
can reach each other; see `work.team_messages` for addresses and inboxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....protocol.journal import LETTER, Posted
from ....protocol.messages import FamilyCalled, Payload, TeamMessage, Text
from ....supervisors import Actor
from ..journal.actor_journal import noted, was_answered
from ..playback import now
from ..team_messages import PARENT, Address, PostOffice, TeamPosition
from ..tools.tool import Arguments, Json, Tool, shortened
from .tool_families import Schema, ask_decider, family_tool, number, refused, text

if TYPE_CHECKING:
    from .children import Children


_CHILD = {"id": text("Id of the child, as agent__spawn returned it.")}
_TASK = {"task_id": number("Id of the task, such as task_1.")}
_SPAWNED = {"agent": text("Name of the agent."), "prompt": text("What it is to do, with all it has to know.")}
_SPAWNED_ALSO = {
    "task_id": number("A task of your queue that it works on: its end completes or fails that task."),
    "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds it has at most."},
}
_CREATED_ALSO = {
    "description": text("More about it."),
    "blocked_by": {
        "anyOf": [
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
            {"type": "string"},
        ],
        "description": 'Ids of the tasks that have to be completed before, such as ["task_1"].',
    },
    "agent": text("Name of the agent that is to do it."),
    "prompt": text("What that agent is told; required with 'agent'."),
}
_REPLY = {
    "escalation_id": text("Id of the escalation, such as esc_1a2b3c4d."),
    "reply": {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        "description": "The answer: one of the options, yes or no, a text, or for [checkbox] a list of options.",
    },
}


def team_tools(children: Children) -> list[Tool]:
    """Return all team tools for the agent with these children."""

    def tool(
        name: str,
        description: str,
        required: Mapping[str, Schema] | None = None,
        optional: Mapping[str, Schema] | None = None,
        *,
        waits: bool = False,
    ) -> Tool:
        return family_tool(name, description, None, required, optional, decided=children.asks(name), waits=waits)

    return [
        tool(
            "agent__spawn",
            "Start a child agent in the background; returns its id at once. It knows nothing but its prompt.",
            _SPAWNED,
            _SPAWNED_ALSO,
        ),
        tool(
            "agent__check",
            "Look whether a child has ended, without waiting: 'pending', or its result as from agent__collect.",
            _CHILD,
            waits=True,
        ),
        tool(
            "agent__collect",
            "Wait for a child to end and get its output, once. Returns early when children ask you something.",
            _CHILD,
            waits=True,
        ),
        tool("agent__list", "List your children that were not collected, and whether they run."),
        tool("agent__cancel", "End a running child; returns what it had said until then.", _CHILD, waits=True),
        tool(
            "agent__task_create",
            "Add a task to your queue. It may wait for other tasks, and name an agent that is started with the prompt "
            "as soon as nothing blocks the task; that agent's end completes or fails it.",
            {"subject": text("What is to be done, in one line.")},
            _CREATED_ALSO,
        ),
        tool("agent__task_list", "Show all tasks of your queue, with status and dependencies."),
        tool(
            "agent__task_complete",
            "Mark a task as completed. Returns the tasks that can begin now; their agents are started.",
            _TASK,
        ),
        tool(
            "agent__task_fail",
            "Mark a task as failed. Returns the tasks that can't go on because of that.",
            _TASK,
            {"reason": text("Why it failed.")},
        ),
        tool(
            "agent__reply_escalation",
            "Answer a question of a child agent, listed under pending_escalations. The child goes on with your answer.",
            _REPLY,
        ),
    ]


def available_tool(children: Children) -> Tool:
    """Return `agent__list_available` of Loki's successor, which lists the agents that may be spawned."""

    async def show(_: Actor, __: Arguments) -> Json:
        agents = [
            {"name": name, **({"description": description} if description else {})}
            for name, description in await children.available()
        ]
        return {"count": len(agents), "agents": agents}

    return family_tool("agent__list_available", "List the agents that you may spawn.", show)


MAX_MESSAGE = 64_000
"""Maximum characters of one team message."""


def send(me: Actor | None, seat: TeamPosition, below: PostOffice | None, to: str, payload: Payload) -> str | None:
    """Send a team message from the agent at `seat` to its parent, a sibling, or a child (`below`).

    `me` is the sending actor, or None outside of one.

    Returns:
        The reason why the message was not sent, or None.
    """
    return post(me, seat, below, to, payload).problem


def post(me: Actor | None, seat: TeamPosition, below: PostOffice | None, to: str, payload: Payload) -> Posted:
    """Send a team message like `send`. Return the receiver's path and the message, or only the `problem`."""
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
        return _not_sent(f"Agent '{to}' has ended and reads no more messages")
    if address.elsewhere:
        return _not_sent(f"Agent '{to}' runs on another worker of the cluster, which team messages do not reach")
    # The address decides the sender's name: a child knows this agent as its parent, others by its id.
    own_child = to != PARENT and below is not None and to in below.children
    letter = TeamMessage(sender=PARENT if own_child else seat.id, payload=payload, written=now(me))
    if not address.send(letter):
        full = f"The inbox of '{to}' is full ({address.unread} unread messages); the message was not delivered"
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
            return post(me, seat, below, to, Text(shortened(arguments["message"], MAX_MESSAGE)))

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
    return f"You can reach: {', '.join(there[:50])}" if there else "There is no agent that you can send messages to"
