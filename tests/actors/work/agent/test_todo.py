"""The todo list and its tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.engine.conversation.calls import Calls
from callboard.actors.work.agent.todo import MOST, TodoList, todo_tools
from callboard.actors.work.tools.guard import RepeatGuard
from callboard.actors.work.tools.permissions import Permissions
from callboard.protocol.chat import ToolCall
from callboard.supervisors import Actor, Root


class Model:
    """Plays todo tools through the dispatcher, as a model's turns would."""

    def __init__(self, root: Root, *, enabled: bool = True) -> None:
        self.todos = TodoList()
        self._root = root
        self._calls = Calls(todo_tools(self.todos, enabled=enabled), Permissions(), guard=RepeatGuard(10_000, 1))

    async def __call__(self, name: str, **arguments: Any) -> Any:
        async def body(me: Actor) -> Any:
            turns = await self._calls.play(me, [ToolCall(id="c", name=f"todo__{name}", arguments=arguments)])
            return json.loads(str(turns[0].content))

        return await self._root.spawn(body).result()


async def test_case_79_items_are_numbered_done_by_number_or_text_and_rendered() -> None:
    async with Root() as root:
        model = Model(root)
        assert (await model("init", goal="Ship it"))["status"] == "ok"
        assert await model("add", task="write") == {"status": "ok", "id": 1}
        assert await model("add", task="test") == {"status": "ok", "id": 2}
        assert (await model("done", id="2"))["status"] == "ok"
        assert await model("done", id=9) == {"error": "Todo 9 not found"}
        assert model.todos.render() == "Goal: Ship it\nProgress: 1/2 completed\n  ○ 1. write\n  ✓ 2. test"
        assert await model("list") == {
            "goal": "Ship it",
            "todos": [{"id": 1, "desc": "write", "done": False}, {"id": 2, "desc": "test", "done": True}],
        }
        assert [item.id for item in model.todos.incomplete] == [1]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("init", {"goal": "g"}), ("add", {"task": "t"}), ("done", {"id": 1}), ("list", {}), ("clear", {})],
)
async def test_case_79_without_auto_continue_each_tool_says_how_to_get_it(tool: str, arguments: dict[str, Any]) -> None:
    async with Root() as root:
        model = Model(root, enabled=False)
        why = "Auto-continue is not enabled. Set 'auto_continue: true' in your config to use todo tools."
        assert await model(tool, **arguments) == {"tool_call_error": why}
        assert model.todos.render() == ""


async def test_what_is_no_item_and_what_is_no_number_is_refused() -> None:
    async with Root() as root:
        model = Model(root)
        assert await model("add", task="  ") == {"error": "task description is required"}
        for id in ("one", "", "1.5", "१x"):
            assert await model("done", id=id) == {"error": "id is required and must be a number"}


async def test_a_new_goal_drops_the_items_and_clear_the_goal_too() -> None:
    async with Root() as root:
        model = Model(root)
        await model("init", goal="a")
        await model("add", task="x")
        await model("init", goal="b")
        assert await model("list") == {"goal": "b", "todos": []}
        await model("clear")
        assert await model("list") == {"goal": "", "todos": []}
        assert model.todos.render() == ""


async def test_items_that_are_added_in_one_turn_keep_the_order_in_which_the_model_wrote_them() -> None:
    todos = TodoList()
    calls = Calls(todo_tools(todos, enabled=True), Permissions())

    async def body(me: Actor) -> None:
        names = [("todo__init", {"goal": "g"}), *(("todo__add", {"task": str(n)}) for n in range(12))]
        await calls.play(me, [ToolCall(id=str(i), name=name, arguments=given) for i, (name, given) in enumerate(names)])

    async with Root() as root:
        for _ in range(5):  # trio starts tasks in either order
            await root.spawn(body).result()
            assert [item.desc for item in todos.items] == [str(n) for n in range(12)]


async def test_a_list_does_not_grow_for_ever() -> None:
    async with Root() as root:
        model = Model(root)
        for number in range(MOST):
            model.todos.add(str(number))
        assert "as many as it may" in (await model("add", task="one more"))["error"]
        assert len(model.todos.items) == MOST


def test_an_id_is_never_given_twice_and_the_next_is_one_more_than_the_highest() -> None:
    todos = TodoList()
    assert [todos.add("x").id for _ in range(3)] == [1, 2, 3]
    todos.clear()
    assert todos.add("y").id == 1


@given(st.lists(st.booleans(), max_size=30))
def test_the_rendered_progress_counts_what_is_done(done: list[bool]) -> None:
    todos = TodoList()
    todos.begin("g")
    for is_done in done:
        item = todos.add("step")
        if is_done:
            assert todos.done(item.id)
    lines = todos.render().splitlines()
    assert lines[1] == f"Progress: {sum(done)}/{len(done)} completed"
    assert [line.startswith("  ✓") for line in lines[2:]] == done
    assert len(todos.incomplete) == done.count(False)
