"""The task queue: its rules, its tools, and how agents are dispatched from it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from support import messages
from support.messages import fragment, has_message
from support.tool_families import fails, parent, says, works_for_ever
from trio.testing import wait_all_tasks_blocked

from callboard.actors.work.agent.team_state import MOST, TaskQueue, id_of
from callboard.actors.work.context import AgentCall
from callboard.protocol.errors import ToolFailed
from callboard.supervisors import Actor, Root


def statuses(queue: TaskQueue) -> dict[str, str]:
    return {task.id: task.status for task in queue.tasks}


# --- the rules ------------------------------------------------------------------------------------------------


def test_case_84_a_task_is_blocked_until_all_it_waits_for_is_completed() -> None:
    queue = TaskQueue()
    one, _ = queue.create("one")
    two, _ = queue.create("two")
    three, warnings = queue.create("three", blocked_by=["1", "task_2"])
    assert (warnings, three.blocked_by, three.status) == ([], ["task_1", "task_2"], "blocked")
    assert queue.complete(one) == []
    assert queue.complete(two) == [three]
    assert statuses(queue) == {"task_1": "completed", "task_2": "completed", "task_3": "pending"}


def test_case_84_what_can_not_be_waited_for_is_a_warning() -> None:
    queue = TaskQueue()
    task, warnings = queue.create("one", blocked_by=["task_1", "x", "task_7"])
    assert warnings == [
        "A task cannot depend on itself",
        "Dependency task 'x' does not exist",
        "Dependency task 'task_7' does not exist",
    ]
    assert (task.status, task.blocked_by) == ("pending", [])


def test_case_84_dependents_of_a_failed_task_are_told_however_far_behind_it() -> None:
    queue = TaskQueue()
    one, _ = queue.create("one")
    two, _ = queue.create("two", blocked_by=["1"])
    three, _ = queue.create("three", blocked_by=["2"])
    four, _ = queue.create("four")
    assert queue.fail(one, "no compiler") == [two, three]
    assert (two.status, two.reason) == ("blocked", "task_1 failed: no compiler")
    assert (three.status, three.reason) == ("blocked", "task_2 can't be completed (task_1 failed: no compiler)")
    assert four.status == "pending"
    assert queue.fail(one) == []
    five, _ = queue.create("five", blocked_by=["1"])
    assert (five.status, five.reason) == ("blocked", "task_1 failed: no compiler")


def test_a_failed_task_that_is_completed_after_all_frees_its_dependents() -> None:
    queue = TaskQueue()
    one, _ = queue.create("one")
    two, _ = queue.create("two", blocked_by=["1"])
    three, _ = queue.create("three", blocked_by=["2"])
    queue.fail(one)
    assert queue.complete(one) == [two]
    assert (one.reason, two.reason, three.reason) == (None, None, None)
    assert queue.complete(one) == []
    assert queue.fail(one) == []
    assert one.status == "completed"


@pytest.mark.parametrize("id", ["task_3", "3", 3, " #3 ", "03", 3.0, "3.0"])
def test_a_bare_number_means_the_task(id: Any) -> None:
    assert id_of(id) == "task_3"


def test_a_queue_does_not_grow_for_ever() -> None:
    queue = TaskQueue()
    for _ in range(MOST):
        queue.create("x")
    with pytest.raises(ToolFailed, match=messages.says("work.agent.team_state.TaskQueue.create.2")):
        queue.create("x")


def test_a_task_waits_once_for_each_however_often_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = TaskQueue()
    queue.create("one")
    queue.create("two")
    looked: list[TaskQueue] = []
    look = TaskQueue._refresh_waiting
    monkeypatch.setattr(TaskQueue, "_refresh_waiting", lambda self: looked.append(self) or look(self))
    task, warnings = queue.create("three", blocked_by=["task_2", "2", 1.0, "#1", 2] * 20_000)
    assert (task.blocked_by, warnings, looked) == (["task_2", "task_1"], [], [queue])


def test_of_more_dependencies_than_there_can_be_the_first_are_looked_at() -> None:
    queue = TaskQueue()
    queue.create("one")
    task, warnings = queue.create("two", blocked_by=[1, *range(3, 100_000)], agent="explore", prompt="look")
    assert (task.blocked_by, task.held) == (["task_1"], True)
    assert re.fullmatch(messages.says("work.agent.team_state.TaskQueue._block", ids=99998, MOST=1000), warnings[0])
    assert len(warnings) == 1 + (MOST - 1) + 1


STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "complete", "fail"]), st.integers(1, 12), st.integers(1, 12)),
    max_size=40,
)


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_a_task_is_pending_exactly_if_all_it_waits_for_is_completed(steps: list[tuple[str, int, int]]) -> None:
    queue = TaskQueue()
    for step, a, b in steps:
        before = statuses(queue)
        one = queue.find(a)
        if step == "create":
            queue.create("x", blocked_by=[str(b)])
        elif one is not None and step == "complete":
            freed = queue.complete(one)
            assert {task.id for task in freed} == {
                id for id, status in statuses(queue).items() if status == "pending" and before[id] == "blocked"
            }
        elif one is not None:
            queue.fail(one)
        for task in queue.tasks:
            waits_for = [queue.find(id) for id in task.blocked_by]
            if task.status == "pending":
                assert all(other is not None and other.status == "completed" for other in waits_for)
            if task.status == "blocked":
                assert any(other is not None and other.status != "completed" for other in waits_for)
                stuck = any(other is not None and _stuck(queue, other.id) for other in waits_for)
                assert (task.reason is not None) == stuck


def _stuck(queue: TaskQueue, id: str) -> bool:
    task = queue.find(id)
    assert task is not None
    if task.status == "failed":
        return True
    return task.status == "blocked" and any(_stuck(queue, other) for other in task.blocked_by)


# --- the tools ------------------------------------------------------------------------------------------------


async def test_case_84_the_tools_tell_what_became_runnable_and_what_was_dispatched(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def takes_its_time(me: Actor, call: AgentCall) -> str:
        await trio.sleep(1)
        return call.prompt

    async with Root() as root, parent(root, {"says": takes_its_time}) as boss:
        assert await boss.call("agent__task_create", subject="one") == {"status": "ok", "task_id": "task_1"}
        created = await boss.call("agent__task_create", subject="two", blocked_by=["task_1"], agent="says", prompt="hi")
        assert created == {
            "status": "ok",
            "task_id": "task_2",
            "auto_dispatch": False,
            "starts": "by itself, when task_1 is completed",
        }
        completed = await boss.call("agent__task_complete", task_id="1")
        assert completed["newly_runnable"] == ["task_2"]
        [dispatched] = completed["auto_dispatched"]
        assert (dispatched["task_id"], dispatched["agent"]) == ("task_2", "says")
        [_, two] = (await boss.call("agent__task_list"))["tasks"]
        assert (two["status"], two["owner"], two["agent_id"]) == ("in_progress", "auto:says", dispatched["agent_id"])
        collected = await boss.call("agent__collect", id=dispatched["agent_id"])
        assert (collected["output"], collected["task_id"]) == ("hi", "task_2")
        assert statuses(boss.tasks) == {"task_1": "completed", "task_2": "completed"}


async def test_case_84_an_agent_task_without_dependencies_is_dispatched_at_once() -> None:
    async with Root() as root, parent(root, {"says": says}) as boss:
        created = await boss.call("agent__task_create", subject="one", agent="says", prompt="hi")
        assert created["auto_dispatch"] is True
        assert (await boss.call("agent__collect", id=created["agent_id"]))["output"] == "hi"
        assert statuses(boss.tasks) == {"task_1": "completed"}


async def test_case_85_an_agent_needs_a_prompt() -> None:
    async with Root() as root, parent(root, {"says": says}) as boss:
        assert await boss.call("agent__task_create", subject="x", agent="says") == {
            "status": "error",
            "message": "'prompt' is required when 'agent' is set",
        }
        assert boss.tasks.tasks == []


@pytest.mark.parametrize("tool", ["agent__task_complete", "agent__task_fail"])
async def test_an_unknown_task_is_told_with_those_there_are(tool: str) -> None:
    async with Root() as root, parent(root, {}) as boss:
        await boss.call("agent__task_create", subject="x")
        assert await boss.call(tool, task_id="9") == {
            "status": "error",
            "message": "Task 'task_9' not found; there are: task_1",
        }


@pytest.mark.parametrize("blocked_by", ["task_1", "1, 2", '["task_1", 2]', [1, "2"]])
async def test_dependencies_may_be_written_in_many_ways(blocked_by: Any) -> None:
    async with Root() as root, parent(root, {}) as boss:
        for _ in range(2):
            await boss.call("agent__task_create", subject="x")
        created = await boss.call("agent__task_create", subject="y", blocked_by=blocked_by)
        assert "warnings" not in created
        assert boss.tasks.tasks[2].blocked_by[0] == "task_1"


async def test_failing_a_task_tells_whom_it_blocks() -> None:
    async with Root() as root, parent(root, {}) as boss:
        await boss.call("agent__task_create", subject="x")
        await boss.call("agent__task_create", subject="y", blocked_by=[1])
        failed = await boss.call("agent__task_fail", task_id=1, reason="no disk")
        assert failed["blocked_dependents"] == ["task_2"]
        assert (await boss.call("agent__task_list"))["tasks"][1] == {
            "id": "task_2",
            "subject": "y",
            "status": "blocked",
            "blocked_by": ["task_1"],
            "reason": "task_1 failed: no disk",
        }
        late = await boss.call("agent__task_create", subject="z", blocked_by=[1])
        assert late["warnings"] == ["task_3 can't go on: task_1 failed: no disk"]


# --- dispatching ----------------------------------------------------------------------------------------------


async def test_a_pipeline_runs_by_itself_and_hands_on_its_results() -> None:
    async with Root() as root, parent(root, {"says": says}) as boss:
        await boss.call("agent__task_create", subject="first", agent="says", prompt="A")
        await boss.call("agent__task_create", subject="second", agent="says", prompt="B", blocked_by=[1])
        await boss.call("agent__task_create", subject="third", agent="says", prompt="C", blocked_by=[2])
        await wait_all_tasks_blocked()
        assert set(statuses(boss.tasks).values()) == {"completed"}
        assert boss.tasks.tasks[1].output == "B\n\nResult of task_1 (first):\nA"
        inbox = await boss.call("agent__check_inbox")
        assert [one["payload"]["task_id"] for one in inbox["messages"]] == ["task_1", "task_2", "task_3"]
        assert {one["payload"]["type"] for one in inbox["messages"]} == {"task_completed"}


async def test_the_failure_of_an_agent_fails_its_task_and_tells_the_dependents() -> None:
    async with Root() as root, parent(root, {"fails": fails, "says": says}) as boss:
        await boss.call("agent__task_create", subject="x", agent="fails", prompt="p")
        await boss.call("agent__task_create", subject="y", agent="says", prompt="p", blocked_by=[1])
        await wait_all_tasks_blocked()
        one, two = boss.tasks.tasks
        assert (one.status, one.reason) == ("failed", "out of luck")
        assert (two.status, two.reason) == ("blocked", "task_1 failed: out of luck")
        [news] = (await boss.call("agent__check_inbox"))["messages"]
        assert news["payload"] == {"type": "task_completed", "task_id": "task_1", "summary": "failed: out of luck"}


async def test_at_capacity_tasks_wait_and_each_free_place_takes_the_next() -> None:
    doors: dict[str, trio.Event] = {}
    order: list[str] = []

    async def waits(me: Actor, call: AgentCall) -> str:
        order.append(call.prompt)
        await doors.setdefault(call.prompt, trio.Event()).wait()
        return call.prompt

    async with Root() as root, parent(root, {"waits": waits}, max_concurrent_agents=2) as boss:
        results = [await boss.call("agent__task_create", subject=n, agent="waits", prompt=n) for n in "abcd"]
        assert [one["auto_dispatch"] for one in results] == [True, True, False, False]
        waits_for_room = "by itself, when one of the agents at work has ended"
        assert [one.get("starts") for one in results] == [None, None, waits_for_room, waits_for_room]
        await wait_all_tasks_blocked()
        assert list(statuses(boss.tasks).values()) == ["in_progress", "in_progress", "pending", "pending"]
        for name, running in (("b", 2), ("a", 2), ("c", 1), ("d", 0)):
            doors[name].set()
            await wait_all_tasks_blocked()
            assert boss.team.running == running
        assert order == ["a", "b", "c", "d"]
        assert set(statuses(boss.tasks).values()) == {"completed"}


async def test_a_cancelled_agent_fails_its_task_and_frees_its_place() -> None:
    async with Root() as root, parent(root, {"ever": works_for_ever, "says": says}, max_concurrent_agents=1) as boss:
        first = await boss.call("agent__task_create", subject="x", agent="ever", prompt="p")
        await boss.call("agent__task_create", subject="y", agent="says", prompt="done")
        await boss.call("agent__cancel", id=first["agent_id"])
        await wait_all_tasks_blocked()
        one, two = boss.tasks.tasks
        assert (one.status, one.reason) == ("failed", "agent 'ever' was cancelled")
        assert (two.status, two.output) == ("completed", "done")


async def test_what_the_parent_decided_about_a_task_is_not_undone_by_its_agent() -> None:
    async with Root() as root, parent(root, {"ever": works_for_ever}) as boss:
        created = await boss.call("agent__task_create", subject="x", agent="ever", prompt="p")
        await boss.call("agent__task_complete", task_id=1)
        await boss.call("agent__cancel", id=created["agent_id"])
        assert statuses(boss.tasks) == {"task_1": "completed"}


async def test_an_agent_is_not_started_before_what_it_was_to_wait_for() -> None:
    async with Root() as root, parent(root, {"says": says}) as boss:
        created = await boss.call("agent__task_create", subject="x", agent="says", prompt="p", blocked_by=["typo"])
        assert created["auto_dispatch"] is False
        assert "starts" not in created
        warning = messages.says("work.agent.team_state.TaskQueue._block.3", id="typo")
        assert re.fullmatch(warning, created["warnings"][0])
        assert has_message(created["warnings"][1], "work.agent.team_state.TaskQueue.create.3", id_2="task_1")
        id = await boss.spawn("says", task_id="task_1")
        await boss.call("agent__collect", id=id)
        assert statuses(boss.tasks) == {"task_1": "completed"}


@pytest.mark.parametrize(
    ("config", "depth", "message"),
    [
        ({"spawnable_agents": ("oracle",)}, 0, "Agent 'says' may not be spawned; spawnable agents: oracle"),
        ({}, 3, fragment("work.context.RunContext.too_deep", depth="4", most="3")),
    ],
)
async def test_a_task_for_an_agent_that_may_never_run_is_refused_at_once(
    config: dict[str, Any], depth: int, message: str
) -> None:
    async with Root() as root, parent(root, {"says": says}, depth=depth, **config) as boss:
        created = await boss.call("agent__task_create", subject="x", agent="says", prompt="p")
        assert created == {"status": "error", "message": message}
        assert boss.tasks.tasks == []
