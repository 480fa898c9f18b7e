"""The tools with which a model has children: `agent__spawn`, `agent__check`, `agent__collect`, `agent__list`,
`agent__cancel`. What they do is in `children`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tools.rendering import shortened
from ..tools.tool import Arguments, Json, Tool
from .child import Refused
from .family import family_tool, number, refused, text
from .tasks import Task

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .children import Children


class _ChildCalls:
    """Bodies of the calls with which a model has children."""

    def __init__(self, team: Children) -> None:
        self._team = team

    async def spawn(self, _: Actor, arguments: Arguments) -> Json:
        task, warnings = _task_of(self._team, arguments.get("task_id"))
        name = arguments["agent"].strip()
        try:
            child = await self._team.spawn(name, arguments["prompt"], timeout=arguments.get("timeout"), task=task)
        except Refused as problem:
            return refused(str(problem))
        result: dict[str, Json] = {
            "status": "ok",
            "id": child.id,
            "agent": name,
            "message": f"'{name}' works in the background. Go on, and get its result with agent__collect.",
        }
        if warnings:
            result["warnings"] = warnings
        return result

    async def check(self, me: Actor, arguments: Arguments) -> Json:
        child = self._team.find(arguments["id"])
        if child is None:
            return _not_found(self._team, arguments["id"])
        if not child.running:
            return await self._team.take(me, child)
        record = child.record
        return {
            "status": "pending",
            "id": record.id,
            "agent": record.agent,
            "turns": record.turns,
            "tool_calls": record.tool_calls,
            "message": "It is still running. agent__collect waits for its end.",
        }

    async def collect(self, me: Actor, arguments: Arguments) -> Json:
        child = self._team.find(arguments["id"])
        if child is None:
            return _not_found(self._team, arguments["id"])
        await self._team.wait_for_news(child)
        if child.running:
            told = self._team.escalations.tell()
            return {"status": "pending", "id": child.id, "agent": child.record.agent, **told}
        if self._team.find(child.id) is None:  # another call of this turn was faster
            return _not_found(self._team, child.id)
        return await self._team.take(me, child)

    async def show(self, _: Actor, __: Arguments) -> Json:
        agents = [
            {"id": child.id, "agent": child.record.agent, "status": "running" if child.running else "finished"}
            for child in self._team.uncollected
        ]
        return {
            "active_count": self._team.running,
            "max_concurrent": self._team.agent.max_concurrent_agents,
            "agents": agents,
        }

    async def cancel(self, me: Actor, arguments: Arguments) -> Json:
        child = self._team.find(arguments["id"])
        if child is None:
            return _not_found(self._team, arguments["id"])
        if not child.running:
            return {"status": "ok", "id": child.id, "message": "It had ended already; agent__collect has its result."}
        if not await self._team.cancel(child):
            return refused(f"'{child.id}' was told to end and has not done so yet")
        if self._team.find(child.id) is None:
            return _not_found(self._team, child.id)
        result = await self._team.take(me, child)
        return {**result, "status": "ok", "message": "It was cancelled; `output` is what it had said until then."}


def spawn_tools(team: Children) -> list[Tool]:
    """`agent__spawn`, `agent__check`, `agent__collect`, `agent__list` and `agent__cancel`."""
    calls = _ChildCalls(team)
    id = text("Id of the child, as agent__spawn returned it.")
    return [
        family_tool(
            "agent__spawn",
            "Start a child agent in the background; returns its id at once. It knows nothing but its prompt.",
            calls.spawn,
            {"agent": text("Name of the agent."), "prompt": text("What it is to do, with all it has to know.")},
            {
                "task_id": number("A task of your queue that it works on: its end completes or fails that task."),
                "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds it has at most."},
            },
        ),
        family_tool(
            "agent__check",
            "Look whether a child has ended, without waiting: 'pending', or its result as from agent__collect.",
            calls.check,
            {"id": id},
            waits=True,
        ),
        family_tool(
            "agent__collect",
            "Wait for a child to end and get its output, once. Returns early when children ask you something.",
            calls.collect,
            {"id": id},
            waits=True,
        ),
        family_tool("agent__list", "List your children that were not collected, and whether they run.", calls.show),
        family_tool(
            "agent__cancel",
            "End a running child; returns what it had said until then.",
            calls.cancel,
            {"id": id},
            waits=True,
        ),
    ]


def available_tool(team: Children) -> Tool:
    """`agent__list_available`, which Loki's successor has: who may be spawned."""

    async def show(_: Actor, __: Arguments) -> Json:
        agents = [
            {"name": name, **({"description": description} if description else {})}
            for name, description in await team.available()
        ]
        return {"count": len(agents), "agents": agents}

    return family_tool("agent__list_available", "List the agents that you may spawn.", show)


def _task_of(team: Children, id: Json) -> tuple[Task | None, list[str]]:
    """The task that a spawned agent is to work on, and what is wrong with that."""
    if id is None or team.tasks is None:
        return None, []
    task = team.tasks.find(id)
    if task is None:
        return None, [f"there is no task '{shortened(str(id), 100)}'; the agent works without one"]
    if task.status in ("in_progress", "completed"):
        return None, [f"{task.id} is {task.status.replace('_', ' ')} already; the agent works without a task"]
    return task, []


def _not_found(team: Children, id: str) -> dict[str, Json]:
    there = ", ".join(child.id for child in team.uncollected) or "none"
    why = "it was collected already" if team.office.knows(id.strip()) else "there is no such child"
    return refused(f"Agent '{shortened(id, 100)}' not found: {why}. To be collected: {there}")
