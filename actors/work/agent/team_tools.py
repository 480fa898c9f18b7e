"""Team tools: `agent__spawn`, `agent__collect` and others for children, `agent__task_*`, `agent__reply_escalation`.

`agent__task_*` manage the task queue, and `agent__reply_escalation` answers questions of children.
`engine/conversation/team` decides their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....supervisors import Actor
from ..tools.tool import Arguments, Json, Tool
from .tool_families import Schema, family_tool, number, text

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
