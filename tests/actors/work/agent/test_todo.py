"""The todo list and its tools."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conversation import Talked
from support.messages import fragment, has_message

from callboard.actors.work.agent.todo import MOST, TodoList, refusing_todo_tools, todo_tools
from callboard.supervisors import Actor, Root


@contextlib.asynccontextmanager
async def agent(*, enabled: bool = True) -> AsyncIterator[Talked]:
    """One with a todo list; the test is its model."""
    ready: list[Talked] = []

    async def body(me: Actor) -> None:
        tools = todo_tools() if enabled else refusing_todo_tools().values()
        ready.append(Talked(me, tools, todos=TodoList() if enabled else None))
        me.started()
        await ready[0].play()

    async with Root() as root:
        ref = await root.start(body, name="agent", link=False)
        yield ready[0]
        ref.cancel()
        await ref.wait()


async def test_case_79_items_are_numbered_done_by_number_or_text_and_rendered() -> None:
    async with agent() as model:
        assert (await model.call("todo__init", goal="Ship it"))["status"] == "ok"
        assert await model.call("todo__add", task="write") == {"status": "ok", "id": 1}
        assert await model.call("todo__add", task="test") == {"status": "ok", "id": 2}
        assert (await model.call("todo__done", id="2"))["status"] == "ok"
        assert await model.call("todo__done", id=9) == {"error": "Todo 9 not found"}
        assert model.todos.render() == "Goal: Ship it\nProgress: 1/2 completed\n  ○ 1. write\n  ✓ 2. test"
        assert await model.call("todo__list") == {
            "goal": "Ship it",
            "todos": [{"id": 1, "desc": "write", "done": False}, {"id": 2, "desc": "test", "done": True}],
        }
        assert [item.id for item in model.todos.incomplete] == [1]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("init", {"goal": "g"}), ("add", {"task": "t"}), ("done", {"id": 1}), ("list", {}), ("clear", {})],
)
async def test_case_79_without_auto_continue_each_tool_says_how_to_get_it(tool: str, arguments: dict[str, Any]) -> None:
    async with agent(enabled=False) as model:
        why = fragment("work.agent.todo")
        assert await model.call(f"todo__{tool}", **arguments) == {"tool_call_error": why}


async def test_what_is_no_item_and_what_is_no_number_is_refused() -> None:
    async with agent() as model:
        assert await model.call("todo__add", task="  ") == {"error": "task description is required"}
        for id in ("one", "", "1.5", "१x"):
            assert await model.call("todo__done", id=id) == {"error": fragment("work.agent.todo.TodoList._marked")}


async def test_a_new_goal_drops_the_items_and_clear_the_goal_too() -> None:
    async with agent() as model:
        await model.call("todo__init", goal="a")
        await model.call("todo__add", task="x")
        await model.call("todo__init", goal="b")
        assert await model.call("todo__list") == {"goal": "b", "todos": []}
        await model.call("todo__clear")
        assert await model.call("todo__list") == {"goal": "", "todos": []}
        assert model.todos.render() == ""


async def test_items_that_are_added_in_one_turn_keep_the_order_in_which_the_model_wrote_them() -> None:
    async with agent() as model:
        for _ in range(5):  # trio starts tasks in either order
            added = [("todo__add", {"task": str(n)}) for n in range(12)]
            await model.turn(("todo__init", {"goal": "g"}), *added)
            assert [item.desc for item in model.todos.items] == [str(n) for n in range(12)]


def test_a_list_does_not_grow_for_ever() -> None:
    todos = TodoList()
    for number in range(MOST):
        assert todos.answer("todo__add", {"task": str(number)}) == {"status": "ok", "id": number + 1}
    assert has_message(todos.answer("todo__add", {"task": "one more"})["error"], "work.agent.todo.TodoList._added.2")
    assert len(todos.items) == MOST


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
