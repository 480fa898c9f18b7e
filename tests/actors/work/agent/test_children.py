"""Children: started, watched, collected, cancelled; and what is left of them when they fail."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from support.fake_models import FakeModels, Reply
from support.messages import fragment, has_message
from support.tool_families import Parent, context_of, fails, nested, parent, says, works_for_ever
from trio.testing import wait_all_tasks_blocked

from callboard.actors.work.agent.children import is_long
from callboard.actors.work.context import AgentCall
from callboard.actors.work.models.gateway import Gateway
from callboard.protocol.errors import ShuttingDown
from callboard.protocol.events import Event
from callboard.protocol.requests import Limits
from callboard.protocol.settings import ClientSettings, Settings
from callboard.supervisors import Actor, Root

# --- starting -------------------------------------------------------------------------------------------------


async def test_case_81_only_running_children_count_for_the_capacity() -> None:
    async with Root() as root, parent(root, {"says": says, "ever": works_for_ever}) as boss:
        running = [await boss.spawn("ever") for _ in range(4)]
        fifth = await boss.call("agent__spawn", agent="says", prompt="x")
        assert fifth == {
            "status": "error",
            "message": fragment("engine.conversation.team.Team._spawn_called", running="4", most="4"),
        }
        await boss.call("agent__cancel", id=running[0])
        await boss.spawn("says")
        await wait_all_tasks_blocked()
        await boss.spawn("says")  # the one before has ended and was not collected
        await wait_all_tasks_blocked()
        listed = await boss.call("agent__list")
        assert (listed["active_count"], listed["max_concurrent"]) == (3, 4)
        assert [one["status"] for one in listed["agents"]] == ["running"] * 3 + ["finished"] * 2
        assert [one["id"] for one in listed["agents"][:3]] == running[1:]


async def test_case_81_calls_of_one_turn_do_not_race_for_the_last_place() -> None:
    async with Root() as root, parent(root, {"ever": works_for_ever}) as boss:
        results = await boss.turn(*[("agent__spawn", {"agent": "ever", "prompt": str(n)}) for n in range(8)])
        assert [one["status"] for one in results] == ["ok"] * 4 + ["error"] * 4
        assert boss.team.running == 4


async def test_case_82_agents_go_only_so_deep() -> None:
    async with Root() as root, parent(root, {"says": says}, depth=3) as boss:
        result = await boss.call("agent__spawn", agent="says", prompt="x")
        assert result == {
            "status": "error",
            "message": fragment("work.context.RunContext.too_deep", depth="4", most="3"),
        }
    async with Root() as root, parent(root, {"says": says}, depth=2) as boss:
        await boss.spawn("says")


async def test_only_spawnable_agents_are_spawned() -> None:
    async with Root() as root, parent(root, {"says": says}, spawnable_agents=("says", "b")) as boss:
        await boss.spawn("says")
        result = await boss.call("agent__spawn", agent="oracle", prompt="x")
        assert has_message(result["message"], "engine.conversation.team.Team._refusal", agent="oracle", there="says, b")


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", ".", "..", "a" * 10_000, "a\nb"])
async def test_what_is_no_name_of_an_agent_is_refused(name: str) -> None:
    async with Root() as root, parent(root, {}) as boss:
        result = await boss.call("agent__spawn", agent=name, prompt="x")
        assert result["status"] == "error"
        assert has_message(result["message"], "engine.conversation.team.Team._refusal.2")
        assert boss.record.children == []


async def test_a_child_is_told_where_it_stands() -> None:
    calls: list[tuple[str, AgentCall]] = []

    async def keeps(me: Actor, call: AgentCall) -> str:
        calls.append((me.path, call))
        return ""

    async with Root() as root, parent(root, {"keeps": keeps}, depth=1, escalation_timeout=7) as boss:
        id = await boss.spawn("keeps", "do it")
        await boss.call("agent__collect", id=id)
        [(path, call)] = calls
        assert id.startswith("agent_keeps_")
        assert len(id) == len("agent_keeps_") + 8
        assert path == f"/boss/children/{id}/keeps"
        assert (call.name, call.prompt, call.depth, call.near) == ("keeps", "do it", 2, Path("/nowhere"))
        assert call.seat is not None
        assert (call.seat.id, call.escalation_timeout) == (id, 7)


# --- results --------------------------------------------------------------------------------------------------


async def test_case_83_check_and_collect() -> None:
    door = trio.Event()

    async def waits(me: Actor, call: AgentCall) -> str:
        assert call.record is not None
        call.record.turns = 2
        await door.wait()
        return "found it"

    async with Root() as root, parent(root, {"waits": waits}) as boss:
        id = await boss.spawn("waits")
        await wait_all_tasks_blocked()
        checked = await boss.call("agent__check", id=id)
        assert (checked["status"], checked["id"], checked["agent"], checked["turns"]) == ("pending", id, "waits", 2)
        door.set()
        await wait_all_tasks_blocked()
        assert await boss.call("agent__check", id=id) == {
            "status": "completed",
            "id": id,
            "agent": "waits",
            "exit_status": "Completed",
            "output": "found it",
        }
        again = await boss.call("agent__collect", id=id)
        assert again["status"] == "error"
        assert has_message(again["message"], "engine.conversation.team.Team._not_found.3")
        unknown = await boss.call("agent__collect", id="agent_x_00000000")
        assert has_message(unknown["message"], "engine.conversation.team.Team._not_found.3")
        assert boss.record.children[0].turns == 2


async def test_collect_returns_the_moment_the_child_ends(autojump_clock: trio.testing.MockClock) -> None:
    async def sleeps(me: Actor, call: AgentCall) -> str:
        await trio.sleep(5.03)
        return "done"

    async with Root() as root, parent(root, {"sleeps": sleeps}) as boss:
        id = await boss.spawn("sleeps")
        assert (await boss.call("agent__collect", id=id))["output"] == "done"
        assert trio.current_time() == pytest.approx(5.03)


async def test_two_collects_of_one_turn_get_one_result() -> None:
    async with Root() as root, parent(root, {"says": says}) as boss:
        id = await boss.spawn("says", "once")
        results = await boss.turn(*[("agent__collect", {"id": id})] * 3)
        assert sorted(one["status"] for one in results) == ["completed", "error", "error"]


async def test_what_a_failed_child_had_said_is_kept() -> None:
    async with Root() as root, parent(root, {"fails": fails}) as boss:
        id = await boss.spawn("fails")
        result = await boss.call("agent__collect", id=id)
        assert (result["status"], result["exit_status"]) == ("completed", 'Failed("out of luck")')
        assert result["output"] == "half of it"
        [record] = boss.record.children
        assert (record.status, record.output, record.error) == ("failed", "half of it", "out of luck")


async def test_what_a_cancelled_child_had_said_is_kept(events: list[Event]) -> None:
    async with Root() as root, parent(root, {"ever": works_for_ever}) as boss:
        with root.bus.listen(events.append):
            id = await boss.spawn("ever")
            await wait_all_tasks_blocked()
            result = await boss.call("agent__cancel", id=id)
            assert (result["status"], result["output"], result["exit_status"]) == ("ok", "this far", "Cancelled")
            assert has_message(
                (await boss.call("agent__collect", id=id))["message"], "engine.conversation.team.Team._not_found.3"
            )
            [record] = boss.record.children
            assert (record.status, record.output, record.turns) == ("cancelled", "this far", 1)
            ended = [event.actor for event in events if event.kind == "actor.stopped" and id in event.actor]
            assert sorted(ended) == [f"/boss/children/{id}", f"/boss/children/{id}/ever"]


@pytest.fixture
def events() -> list[Event]:
    return []


async def test_cancelling_a_child_that_has_ended_leaves_its_result() -> None:
    async with Root() as root, parent(root, {"says": says}) as boss:
        id = await boss.spawn("says", "kept")
        await wait_all_tasks_blocked()
        assert (await boss.call("agent__cancel", id=id))["message"].startswith("It had ended already")
        assert (await boss.call("agent__collect", id=id))["output"] == "kept"


async def test_a_child_has_the_time_it_was_given(autojump_clock: trio.testing.MockClock) -> None:
    async with Root() as root, parent(root, {"ever": works_for_ever}) as boss:
        id = await boss.spawn("ever", timeout=2.5)
        result = await boss.call("agent__collect", id=id)
        assert trio.current_time() == pytest.approx(2.5)
        assert (
            result["exit_status"]
            == "Failed(\"Agent 'ever' was stopped: it did not finish within its timeout of 2.5 s\")"
        )
        assert result["output"] == "this far"
        refused = await boss.call("agent__spawn", agent="ever", prompt="x", timeout=0)
        assert "invalid arguments" in refused["tool_call_error"]


async def test_the_end_of_a_child_is_in_the_inbox_until_it_was_collected() -> None:
    async with Root() as root, parent(root, {"says": says}) as boss:
        one, two = await boss.spawn("says", "one"), await boss.spawn("says", "two")
        await wait_all_tasks_blocked()
        await boss.call("agent__collect", id=one)
        [letter] = (await boss.call("agent__check_inbox"))["messages"]
        assert (letter["from"], letter["payload"]["task_id"], letter["payload"]["summary"]) == (two, two, "two")


async def test_the_records_of_grandchildren_are_in_those_of_the_children() -> None:
    async def nests(me: Actor, call: AgentCall) -> str:
        assert call.record is not None
        async with nested(me, call, call.record) as below:
            id = await below.spawn("says", "deep")
            return str((await below.call("agent__collect", id=id))["output"])

    async with Root() as root, parent(root, {"nests": nests, "says": says}) as boss:
        id = await boss.spawn("nests")
        assert (await boss.call("agent__collect", id=id))["output"] == "deep"
        [record] = boss.record.children
        assert [(one.agent, one.output) for one in record.children] == [("says", "deep")]


# --- the end of the parent ------------------------------------------------------------------------------------


async def test_the_end_of_the_parent_ends_its_children() -> None:
    async with Root() as root:
        async with parent(root, {"ever": works_for_ever}) as boss:
            for _ in range(3):
                await boss.spawn("ever")
            await wait_all_tasks_blocked()
        assert [ref.path for ref in root.actor.children] == []
        assert [(one.status, one.output) for one in boss.record.children] == [("cancelled", "this far")] * 3


MOMENTS = [pytest.param(seed, marks=[pytest.mark.soak] if seed >= 10 else []) for seed in range(100)]


@pytest.mark.parametrize("seed", MOMENTS)
async def test_a_parent_that_ends_at_any_moment_leaves_nothing(
    seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    rng = random.Random(seed)
    events: list[Event] = []

    async def busy(me: Actor, call: AgentCall) -> str:
        assert call.record is not None
        for step in range(20):
            call.record.texts.append(str(step))
            await trio.sleep(rng.random())
        if rng.random() < 0.3:
            raise ValueError("bad luck")
        return "done"

    async def model(boss: Parent) -> None:
        while boss.me.end is None:
            known = list(boss.team.children) or ["nobody"]
            with contextlib.suppress(ShuttingDown):
                await boss.turn(
                    ("agent__spawn", {"agent": "busy", "prompt": "x"}),
                    ("agent__task_create", {"subject": "x", "agent": "busy", "prompt": "x"}),
                    (rng.choice(["agent__collect", "agent__cancel", "agent__check"]), {"id": rng.choice(known)}),
                )
            await trio.sleep(rng.random())

    async with Root() as root:
        with root.bus.listen(events.append):
            async with trio.open_nursery() as nursery, parent(root, {"busy": busy}) as boss:
                nursery.start_soon(model, boss)
                if seed % 3:
                    await trio.sleep(rng.random() * 30)
                else:  # in the middle of the start of things
                    for _ in range(rng.randrange(40)):
                        await trio.lowlevel.checkpoint()
            assert root.actor.child_count == 0
    spawned = [event.actor for event in events if event.kind == "actor.spawned"]
    ended = [event.actor for event in events if event.kind in ("actor.stopped", "actor.failed")]
    assert sorted(spawned) == sorted(ended)
    assert all(record.status != "running" for record in boss.record.children)


# --- long output ----------------------------------------------------------------------------------------------


def gateway(root: Root, server: FakeModels) -> Gateway:
    client = ClientSettings(type="openai-compatible", name="fake", api_base=server.openai_base, api_key="k")
    return Gateway(root, Settings(model="fake:big", clients=(client,)), {}, rng=random.Random(1))


async def collected(server: FakeModels, output: str, **config: Any) -> str:
    async with Root() as root:
        context = context_of({"says": says}, gateway=gateway(root, server), limits=Limits())
        async with parent(root, {}, context=context, **config) as boss:
            id = await boss.spawn("says", output)
            result = await boss.call("agent__collect", id=id)
            assert boss.record.children[0].output == output, "the record keeps all of it"
            await context.gateway.aclose()
    return str(result["output"])


async def test_case_88_4000_bytes_are_summarized_and_3999_are_not(fake_model: FakeModels) -> None:
    fake_model.script(Reply("short"))
    assert await collected(fake_model, "x" * 3999) == "x" * 3999
    assert fake_model.requests == []
    assert await collected(fake_model, "x" * 4000) == "short"
    assert "x" * 4000 in fake_model.requests[0].prompt


async def test_case_88_bytes_are_counted_not_characters(fake_model: FakeModels) -> None:
    fake_model.script(Reply("short"))
    assert await collected(fake_model, "é" * 2000) == "short"
    assert not is_long("é" * 1999 + "x", 4000)
    assert is_long("🙂" * 1000, 4000)
    assert not is_long("", 0)


async def test_a_summary_is_made_by_the_model_that_was_named_for_it(fake_model: FakeModels) -> None:
    fake_model.script(Reply("short"), Reply("short"), Reply("short"))
    await collected(fake_model, "x" * 9, summarization_threshold=9, summarization_model="fake:small", model="fake:own")
    await collected(fake_model, "x" * 9, summarization_threshold=9, model="fake:own")
    await collected(fake_model, "x" * 9, summarization_threshold=9)
    assert [request.json["model"] for request in fake_model.requests] == ["small", "own", "big"]


async def test_without_a_summary_the_parent_gets_the_text_cut_and_is_told(fake_model: FakeModels) -> None:
    fake_model.script(Reply(status=400, error="too long for me"))
    output = await collected(fake_model, "begin " + "xxx " * 5_000 + " end")
    assert output.startswith("begin xxx xxx")
    assert "16010 characters left out" in output
    assert has_message(output, "work.agent.children.shorten_report.2")
    assert "too long for me" in output


async def test_a_summary_that_is_interrupted_does_not_lose_the_result(fake_model: FakeModels) -> None:
    fake_model.script(Reply(hold=trio.Event()))
    async with Root() as root:
        context = context_of({"says": says}, gateway=gateway(root, fake_model))
        async with parent(root, {}, context=context) as boss:
            id = await boss.spawn("says", "x" * 5000)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: boss.call("agent__collect", id=id))
                while not fake_model.requests:
                    await trio.sleep(0.001)
                assert boss.team.children == {}
                collecting = boss.me.child("agent__collect")
                assert collecting is not None
                collecting.interrupt()
            assert boss.team.children[id].record.output == "x" * 5000
            await context.gateway.aclose()
