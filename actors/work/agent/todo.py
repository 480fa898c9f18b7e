"""Todo list of an agent, stored outside of its conversation so that no summary can lose it.

A session keeps it from turn to turn. The list belongs to the agent's conversation, which answers its tool calls
(`engine/conversation/decider`). The conversation checks `incomplete` when the model claims to be done, and sends
`render()` when the model continues.
"""

from __future__ import annotations

from functools import cache

import msgspec

from ....protocol.errors import ToolFailed
from ....protocol.messages import Todo, Todos
from ..tools.tool import Arguments, Json, Tool, shortened
from .tool_families import family_tool, number, text, whole_number

MOST = 500
"""Maximum items of one list."""

LONGEST = 2_000
"""Maximum characters of one item, and of the goal."""

_DISABLED = "Auto-continue is not enabled. Set 'auto_continue: true' in your config to use todo tools."


class TodoList:
    """A goal, and the steps towards it.

    Attributes:
        goal: the state to reach; "" before one is set.
        items: in the order of their creation.
    """

    def __init__(self, kept: Todos | None = None) -> None:
        self.become(kept or Todos())

    def become(self, kept: Todos) -> None:
        """Replace the goal and the items by copies, for example of those stored in a session."""
        self.goal: str = kept.goal
        # Copies, because items are mutable and a session holds its own list.
        self.items: list[Todo] = [msgspec.structs.replace(item) for item in kept.items]

    def as_todos(self) -> Todos | None:
        """Return the list for storage in a session; None if it is empty."""
        if not self.goal and not self.items:
            return None
        return Todos(goal=self.goal, items=[msgspec.structs.replace(item) for item in self.items])

    @property
    def incomplete(self) -> list[Todo]:
        """Items that are not marked as done."""
        return [item for item in self.items if not item.done]

    def begin(self, goal: str) -> None:
        """Set a new goal, shortened to `LONGEST`, and drop all items."""
        self.goal = shortened(goal.strip(), LONGEST)
        self.items = []

    def add(self, desc: str) -> Todo:
        """Append a new item, shortened to `LONGEST`. The caller checks `MOST`."""
        # Ids are never reused while the item with the highest id exists.
        last = max((item.id for item in self.items), default=0)
        item = Todo(id=last + 1, desc=shortened(desc, LONGEST))
        self.items.append(item)
        return item

    def done(self, id: int) -> bool:
        """Mark an item as done; return False if the id is unknown."""
        for item in self.items:
            if item.id == id:
                item.done = True
                return True
        return False

    def clear(self) -> None:
        self.goal = ""
        self.items = []

    def render(self) -> str:
        """Return the list as text for the model; "" if it is empty."""
        if not self.goal and not self.items:
            return ""
        complete = len(self.items) - len(self.incomplete)
        head = [f"Goal: {self.goal}"] if self.goal else []
        lines = [f"  {'✓' if item.done else '○'} {item.id}. {item.desc}" for item in self.items]
        return "\n".join([*head, f"Progress: {complete}/{len(self.items)} completed", *lines])

    def answer(self, name: str, arguments: Arguments) -> Json:
        """Execute a call of the tool `name`. Return its result, or an object with `error` for invalid arguments."""
        match name:
            case "todo__init":
                self.begin(arguments["goal"])
                return {"status": "ok", "message": "New todo list; add its items with todo__add"}
            case "todo__add":
                return self._added(arguments["task"].strip())
            case "todo__done":
                return self._marked(whole_number(arguments.get("id")))
            case "todo__clear":
                self.clear()
                return {"status": "ok", "message": "The todo list is empty and has no goal"}
        return {"goal": self.goal, "todos": msgspec.to_builtins(self.items)}

    def _added(self, desc: str) -> Json:
        if not desc:
            return {"error": "task description is required"}
        if len(self.items) >= MOST:
            return {"error": f"the list already has {MOST} items, which is the limit; finish or clear them first"}
        return {"status": "ok", "id": self.add(desc).id}

    def _marked(self, id: int | None) -> Json:
        if id is None:
            return {"error": "id is required and must be a number"}
        if not self.done(id):
            return {"error": f"Todo {id} not found"}
        return {"status": "ok", "message": f"Todo {id} is done; {len(self.incomplete)} left"}


_INIT = {"goal": text("What is reached when every item is done.")}
_DONE = {"id": number("Id of the item, as todo__add returned it.")}


@cache
def todo_tools() -> tuple[Tool, ...]:
    """Return the `todo__*` tools."""
    called_off = "Empty the todo list and forget its goal, when the work was called off or changed."
    begun = "Begin a new todo list with a goal. Drops the items of the list before."
    return (
        family_tool("todo__init", begun, None, _INIT),
        family_tool(
            "todo__add", "Add one item to the todo list; returns its id.", None, {"task": text("What is to be done.")}
        ),
        family_tool("todo__done", "Mark an item of the todo list as done.", None, _DONE),
        family_tool("todo__list", "Show the goal and all items of the todo list."),
        family_tool("todo__clear", called_off),
    )


@cache
def refusing_todo_tools() -> dict[str, Tool]:
    """Return the same tools, by name, for agents without a todo list: each call fails with a hint how to enable it."""
    return {tool.name: msgspec.structs.replace(tool, run=_refuse, decided=None) for tool in todo_tools()}


async def _refuse(_: object, __: Arguments) -> Json:
    raise ToolFailed(_DISABLED)
