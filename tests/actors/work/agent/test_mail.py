"""Letters between teammates."""

from __future__ import annotations

from datetime import UTC, datetime

import trio.testing
from family_stage import parent
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.work.agent.mail import mail_tools, send
from callboard.actors.work.context import AgentCall
from callboard.actors.work.letters import (
    Inbox,
    Letter,
    Payload,
    PostOffice,
    Seat,
    ShutdownApproved,
    ShutdownRequest,
    TaskCompleted,
    Text,
)
from callboard.supervisors import Actor, Root


def letter(payload: Payload) -> Letter:
    return Letter(sender="x", payload=payload, written=datetime.now(UTC))


def family(*ids: str) -> tuple[Seat, PostOffice, dict[str, Seat]]:
    boss = Seat()
    office = PostOffice(boss.inbox)
    return boss, office, {id: office.seat(id) for id in ids}


def read(inbox: Inbox) -> list[tuple[str, Payload]]:
    return [(letter.sender, letter.payload) for letter in inbox.drain()]


def test_case_86_an_inbox_is_drained_shutdown_first_then_ended_tasks_then_texts() -> None:
    inbox = Inbox()
    for payload in (Text("t"), TaskCompleted("task_1", "s"), ShutdownRequest("r")):
        assert inbox.put(letter(payload))
    assert [type(one.payload) for one in inbox.drain()] == [ShutdownRequest, TaskCompleted, Text]
    assert inbox.drain() == []


PAYLOADS = st.sampled_from([Text("t"), TaskCompleted("1", "s"), ShutdownRequest("r"), ShutdownApproved()])


@given(st.lists(PAYLOADS, max_size=40))
def test_within_a_kind_letters_keep_the_order_of_their_arrival(payloads: list[Payload]) -> None:
    inbox = Inbox()
    arrived = [letter(payload) for payload in payloads]
    for one in arrived:
        inbox.put(one)
    drained = inbox.drain()
    assert len(drained) == len(arrived)
    for kinds in ((ShutdownRequest, ShutdownApproved), (TaskCompleted,), (Text,)):
        here = [one for one in drained if isinstance(one.payload, kinds)]
        assert all(a is b for a, b in zip(here, [o for o in arrived if isinstance(o.payload, kinds)], strict=True))


def test_a_full_inbox_refuses_and_the_sender_is_told() -> None:
    _, _, seats = family("a", "b")
    for _ in range(256):
        assert send(seats["a"], None, "b", Text("hi")) is None
    problem = send(seats["a"], None, "b", Text("hi"))
    assert problem == "The inbox of 'b' is full (256 unread letters); the message was not delivered"
    seats["b"].inbox.drain()
    assert send(seats["a"], None, "b", Text("hi")) is None


def test_the_end_of_a_child_is_never_lost_to_a_full_inbox() -> None:
    inbox = Inbox(bound=2)
    assert [inbox.put(letter(Text("hi"))) for _ in range(3)] == [True, True, False]
    assert inbox.put(letter(TaskCompleted("task_1", "done")))
    assert not inbox.put(letter(Text("hi")))
    assert read(inbox) == [("x", TaskCompleted("task_1", "done")), ("x", Text("hi")), ("x", Text("hi"))]


async def test_a_parent_reads_of_its_childs_end_however_much_its_children_wrote() -> None:
    async def chatty(me: Actor, call: AgentCall) -> str:
        assert call.seat is not None
        while send(call.seat, None, "parent", Text("still here")) is None:
            pass
        return "done"

    async with Root() as root, parent(root, {"chatty": chatty}) as boss:
        id = await boss.spawn("chatty")
        child = boss.team.find(id)
        assert child is not None
        await boss.team.wait_for_news(child)
        first = (await boss.call("agent__check_inbox"))["messages"][0]
        assert (first["from"], first["payload"]["type"]) == (id, "task_completed")


def test_the_sender_is_named_as_the_reader_can_answer_it() -> None:
    boss, office, seats = family("a", "b")
    assert send(boss, office, "a", Text("do")) is None
    assert send(seats["b"], None, "a", Text("psst")) is None
    assert send(seats["a"], None, "parent", Text("done")) is None
    assert read(seats["a"].inbox) == [("parent", Text("do")), ("b", Text("psst"))]
    assert read(boss.inbox) == [("a", Text("done"))]
    for sender in ("parent", "b"):
        assert send(seats["a"], None, sender, Text("re")) is None


def test_an_agent_in_the_middle_reaches_parent_siblings_and_its_own_children() -> None:
    boss, _, seats = family("middle", "aunt")
    below = PostOffice(seats["middle"].inbox)
    leaf = below.seat("leaf")
    for to in ("parent", "aunt", "leaf"):
        assert send(seats["middle"], below, to, Text("x")) is None
    assert [len(inbox) for inbox in (boss.inbox, seats["aunt"].inbox, leaf.inbox)] == [1, 1, 1]
    assert "not found" in str(send(leaf, None, "aunt", Text("x")))


def test_what_can_not_be_reached_is_told_with_who_can() -> None:
    boss, office, seats = family("a", "b", "c")
    office.leave("c")
    assert send(seats["a"], None, "d", Text("x")) == "Agent 'd' not found. You can reach: parent, b"
    assert send(seats["a"], None, "c", Text("x")) == "Agent 'c' has ended and reads no more letters"
    assert send(seats["a"], None, "a", Text("x")) == "'a' is yourself"
    assert send(boss, office, "parent", Text("x")) == "You have no parent. You can reach: a, b"
    assert send(Seat(), None, "a", Text("x")) == "Agent 'a' not found. There is nobody you could reach"


async def test_children_write_to_siblings_and_parent_while_they_run(autojump_clock: trio.testing.MockClock) -> None:
    async def writer(me: Actor, call: AgentCall) -> str:
        assert call.seat is not None
        tools = {tool.name: tool for tool in mail_tools(call.seat)}
        sent = [
            await tools["agent__send_message"].run(me, {"id": to, "message": f"for {to}"})
            for to in (call.prompt, "parent")
        ]
        return str([one["status"] for one in sent])

    async def reader(me: Actor, call: AgentCall) -> str:
        assert call.seat is not None
        await trio.sleep(1)
        tools = {tool.name: tool for tool in mail_tools(call.seat)}
        inbox = await tools["agent__check_inbox"].run(me, {})
        return f"{inbox['count']} {inbox['messages'][0]['from']} {inbox['messages'][0]['payload']}"

    async with Root() as root, parent(root, {"writer": writer, "reader": reader}) as boss:
        reading = await boss.spawn("reader")
        writing = await boss.spawn("writer", reading)
        assert (await boss.call("agent__collect", id=writing))["output"] == "['ok', 'ok']"
        got = (await boss.call("agent__collect", id=reading))["output"]
        assert got == f"1 {writing} {{'type': 'text', 'content': 'for {reading}'}}"
        inbox = await boss.call("agent__check_inbox")
        assert [(one["from"], one["payload"]["content"]) for one in inbox["messages"]] == [(writing, "for parent")]
        assert datetime.fromisoformat(inbox["messages"][0]["timestamp"]).tzinfo is not None
        assert (await boss.call("agent__check_inbox"))["count"] == 0
        ended = await boss.call("agent__send_message", id=reading, message="hello?")
        assert ended == {"status": "error", "message": f"Agent '{reading}' has ended and reads no more letters"}
