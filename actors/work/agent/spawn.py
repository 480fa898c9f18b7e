"""The tools with which a model has children: `agent__spawn`, `agent__check`, `agent__collect`, `agent__list`,
`agent__cancel`. What they do is in `engine/conversation/team`, and in `children`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tools.tool import Arguments, Json, Tool
from .family import family_tool, number, text

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .children import Children


def spawn_tools(children: Children) -> list[Tool]:
    """`agent__spawn`, `agent__check`, `agent__collect`, `agent__list` and `agent__cancel`."""
    id = text("Id of the child, as agent__spawn returned it.")
    return [
        family_tool(
            "agent__spawn",
            "Start a child agent in the background; returns its id at once. It knows nothing but its prompt.",
            None,
            {"agent": text("Name of the agent."), "prompt": text("What it is to do, with all it has to know.")},
            {
                "task_id": number("A task of your queue that it works on: its end completes or fails that task."),
                "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds it has at most."},
            },
            decided=children.asks("agent__spawn"),
        ),
        family_tool(
            "agent__check",
            "Look whether a child has ended, without waiting: 'pending', or its result as from agent__collect.",
            None,
            {"id": id},
            decided=children.asks("agent__check"),
            waits=True,
        ),
        family_tool(
            "agent__collect",
            "Wait for a child to end and get its output, once. Returns early when children ask you something.",
            None,
            {"id": id},
            decided=children.asks("agent__collect"),
            waits=True,
        ),
        family_tool("agent__list", "List your children that were not collected, and whether they run."),
        family_tool(
            "agent__cancel",
            "End a running child; returns what it had said until then.",
            None,
            {"id": id},
            decided=children.asks("agent__cancel"),
            waits=True,
        ),
    ]


def available_tool(children: Children) -> Tool:
    """`agent__list_available`, which Loki's successor has: who may be spawned."""

    async def show(_: Actor, __: Arguments) -> Json:
        agents = [
            {"name": name, **({"description": description} if description else {})}
            for name, description in await children.available()
        ]
        return {"count": len(agents), "agents": agents}

    return family_tool("agent__list_available", "List the agents that you may spawn.", show)
