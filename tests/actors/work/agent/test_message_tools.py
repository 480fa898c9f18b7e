"""Letters between teammates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.messages import has_message
from support.tool_families import nested, parent
from trio.testing import wait_all_tasks_blocked

from callboard.actors.work.agent.team_tools import mail_tools, send
from callboard.actors.work.context import AgentCall
from callboard.actors.work.team_messages import Address, PostOffice, TeamPosition, UnreadMessages
from callboard.protocol.errors import MailboxFull
from callboard.protocol.messages import Payload, ShutdownApproved, ShutdownRequest, TaskCompleted, TeamMessage, Text
from callboard.supervisors import Actor, Root


def letter(payload: Payload) -> TeamMessage:
    return TeamMessage(sender="x", payload=payload, written=datetime.now(UTC))


class Actors:
    """In place of the refs of actors: what they were told."""

    def __init__(self) -> None:
        self.mail: list[TeamMessage] = []

    def tell_nowait(self, letter: TeamMessage) -> bool:
        self.mail.append(letter)
        return True


def told(address: Address) -> list[tuple[str, Payload]]:
    """What the actor at an address is told when it begins."""
    actor: Any = Actors()
    address.open(actor)
    return [(letter.sender, letter.payload) for letter in actor.mail]


def family(*ids: str) -> tuple[TeamPosition, PostOffice, dict[str, TeamPosition]]:
    boss = TeamPosition()
    office = PostOffice(boss.address)
    return boss, office, {id: office.add_child(id) for id in ids}


def test_case_86_an_inbox_is_drained_shutdown_first_then_ended_tasks_then_texts() -> None:
    inbox = UnreadMessages()
    for payload in (Text("t"), TaskCompleted("task_1", "s"), ShutdownRequest("r")):
        inbox.put(letter(payload))
    assert [type(one.payload) for one in inbox.drain()] == [ShutdownRequest, TaskCompleted, Text]
    assert inbox.drain() == []


PAYLOADS = st.sampled_from([Text("t"), TaskCompleted("1", "s"), ShutdownRequest("r"), ShutdownApproved()])


@given(st.lists(PAYLOADS, max_size=40))
def test_within_a_kind_letters_keep_the_order_of_their_arrival(payloads: list[Payload]) -> None:
    inbox = UnreadMessages()
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
        assert send(None, seats["a"], None, "b", Text("hi")) is None
    problem = send(None, seats["a"], None, "b", Text("hi"))
    assert has_message(problem, "work.agent.team_tools.post.4", to="b", unread=256)
    seats["b"].address.unread -= 1
    assert send(None, seats["a"], None, "b", Text("hi")) is None


async def test_a_parent_reads_of_its_childs_end_however_much_its_children_wrote() -> None:
    async def chatty(me: Actor, call: AgentCall) -> str:
        assert call.seat is not None
        while send(me, call.seat, None, "parent", Text("still here")) is None:
            pass
        return "done"

    async with Root() as root, parent(root, {"chatty": chatty}) as boss:
        id = await boss.spawn("chatty")
        await wait_all_tasks_blocked()
        read = await boss.call("agent__check_inbox")
        assert read["count"] == 256 + 1
        assert (read["messages"][0]["from"], read["messages"][0]["payload"]["type"]) == (id, "task_completed")
        assert boss.seat.address.unread == 0


def test_the_sender_is_named_as_the_reader_can_answer_it() -> None:
    boss, office, seats = family("a", "b")
    assert send(None, boss, office, "a", Text("do")) is None
    assert send(None, seats["b"], None, "a", Text("psst")) is None
    assert send(None, seats["a"], None, "parent", Text("done")) is None
    assert told(seats["a"].address) == [("parent", Text("do")), ("b", Text("psst"))]
    assert told(boss.address) == [("a", Text("done"))]
    for sender in ("parent", "b"):
        assert send(None, seats["a"], None, sender, Text("re")) is None


def test_an_agent_in_the_middle_reaches_parent_siblings_and_its_own_children() -> None:
    boss, _, seats = family("middle", "aunt")
    below = PostOffice(seats["middle"].address)
    leaf = below.add_child("leaf")
    for to in ("parent", "aunt", "leaf"):
        assert send(None, seats["middle"], below, to, Text("x")) is None
    assert [address.unread for address in (boss.address, seats["aunt"].address, leaf.address)] == [1, 1, 1]
    assert "not found" in str(send(None, leaf, None, "aunt", Text("x")))


def test_what_can_not_be_reached_is_told_with_who_can() -> None:
    boss, office, seats = family("a", "b", "c")
    office.children["c"] = None
    assert send(None, seats["a"], None, "d", Text("x")) == "Agent 'd' not found. You can reach: parent, b"
    assert has_message(send(None, seats["a"], None, "c", Text("x")), "work.agent.team_tools.post.2", to="c")
    assert send(None, seats["a"], None, "a", Text("x")) == "'a' is yourself"
    assert has_message(
        send(None, boss, office, "parent", Text("x")), "work.agent.team_tools.post", below="You can reach: a, b"
    )
    assert (
        send(None, TeamPosition(), None, "a", Text("x"))
        == "Agent 'a' not found. There is no agent that you can send messages to"
    )


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
        async with nested(me, call) as model:
            await trio.sleep(1)
            inbox = await model.call("agent__check_inbox")
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
        assert ended == {"status": "error", "message": f"Agent '{reading}' has ended and reads no more messages"}


async def test_letters_and_ends_of_children_are_mail_of_the_parents_actor() -> None:
    door = trio.Event()

    async def writes(me: Actor, call: AgentCall) -> str:
        assert call.seat is not None
        await door.wait()
        assert send(me, call.seat, None, "parent", Text("one")) is None
        return ""

    async with Root() as root, parent(root, {"writes": writes}) as boss:
        await boss.spawn("writes")
        await wait_all_tasks_blocked()
        before = boss.me.mailbox.received
        door.set()
        await wait_all_tasks_blocked()
        assert boss.me.mailbox.received == before + 2


def test_a_letter_that_finds_a_mailbox_full_is_not_sent() -> None:
    class Full:
        def tell_nowait(self, _: TeamMessage) -> bool:
            raise MailboxFull("full")

    boss, _, seats = family("a")
    full: Any = Full()
    boss.address.open(full)
    assert has_message(
        str(send(None, seats["a"], None, "parent", Text("hi"))), "work.agent.team_tools.post.4", unread=0
    )
