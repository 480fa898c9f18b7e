"""`_chat/*` on a websocket: what a client sees of a chat, and what it may."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from support.control_fixtures import frames
from support.control_hub import Client
from support.fake_models import FakeModels, Reply
from support.messages import says

import callboard
from callboard.actors.front.chat import chat as chat_module
from callboard.actors.front.chat import clients
from callboard.actors.front.chat.chat import Chats
from callboard.actors.front.chat.clients import MOST, MOST_TEXT, NotificationBacklog
from callboard.actors.front.chat.methods import ChatMethods
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.peer import ControlPeer
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.control.chat import Began, Said
from callboard.protocol.jsonrpc import (
    ErrorResponse,
    Request,
    Result,
    decode,
    encode_notification,
    encode_request,
    encode_result,
)
from callboard.supervisors import Actor

__all__ = ["Client", "frames"]


class Side:
    """A client at the other end of a connection in memory."""

    def __init__(self, peer: ControlPeer) -> None:
        self.peer = peer
        self.told: list[tuple[str, Any]] = []
        self.answers: dict[str, Any] = {}
        self.silent = False
        self.reads: trio.Event | None = None
        self._count = 0
        self._results: dict[Any, Any] = {}

    async def take(self, frame: bytes) -> None:
        import msgspec

        if self.reads is not None:
            await self.reads.wait()
        message = decode(frame)
        if isinstance(message, Result | ErrorResponse):
            self._results[message.id] = message
        elif isinstance(message, Request):
            self.told.append((message.method, msgspec.json.decode(message.params)))
            if self.silent:
                return
            await self.peer.receive(encode_result(message.id, self.answers[message.method]))
        else:
            self.told.append((message.method, msgspec.json.decode(message.params)))

    async def begin(self, method: str, **params: Any) -> str:
        self._count += 1
        id = f"t{self._count}"
        await self.peer.receive(encode_request(id, method, params))
        return id

    async def result(self, id: str) -> Any:
        import msgspec

        with trio.fail_after(60):
            while id not in self._results:
                await trio.sleep(0.005)
        answer = self._results[id]
        if isinstance(answer, ErrorResponse):
            raise RuntimeError(answer.error.message)
        return msgspec.json.decode(answer.result)

    async def call(self, method: str, **params: Any) -> Any:
        return await self.result(await self.begin(method, **params))

    def said(self, method: str) -> list[Any]:
        return [params for name, params in self.told if name == method]


class ChatConnections:
    """Connections to one hub's chats."""

    def __init__(self, root: callboard.Root, hub: Hub) -> None:
        self.chats = Chats(hub)
        self._root = root
        self._hub = hub
        self.ends: list[Any] = []

    async def connect(self, caller: Caller = LOCAL) -> tuple[Side, Any]:
        made: list[Side] = []
        ready = trio.Event()

        async def connection(me: Actor) -> None:
            async def send(frame: bytes) -> None:
                await made[0].take(frame)

            peer = ControlPeer(me, self._hub, caller, send, methods=lambda peer: ChatMethods(peer, self.chats).methods)
            made.append(Side(peer))
            ready.set()
            try:
                async for _ in me:
                    pass
            finally:
                peer.close()

        ref = self._root.kernel.spawn(connection, link=False)
        self.ends.append(ref)
        await ready.wait()
        return made[0], ref

    async def close(self) -> None:
        for ref in self.ends:
            ref.cancel()
            await ref.wait()


@pytest.fixture
async def chat_connections(root: callboard.Root, hub: Hub) -> AsyncIterator[ChatConnections]:
    chat_connections = ChatConnections(root, hub)
    yield chat_connections
    with trio.move_on_after(5, shield=True):
        await chat_connections.close()


async def test_a_chat_from_its_opening_to_exit(chat_connections: ChatConnections, fake_model: FakeModels) -> None:
    fake_model.script("hello you")
    side, _ = await chat_connections.connect()
    chat = (await side.call("_chat/open"))["chat"]["chat"]
    done = await side.call("_chat/line", chat=chat, line="hello")
    assert done["status"] == "done"
    assert [each["prompt"] for each in side.said("_chat/began")] == ["hello"]
    assert side.said("_chat/changed")[-1]["chat"]["turns"] == 1
    assert [each["chat"] for each in (await side.call("_chat/list"))["chats"]] == [chat]
    items = (await side.call("_chat/complete", chat=chat, line=".he"))["items"]
    assert [(each["text"], each["start"]) for each in items] == [(".help", 0)]
    assert (await side.call("_chat/line", chat=chat, line=".exit"))["leave"] is True
    with pytest.raises(RuntimeError, match=says("front.chat.methods.ChatMethods._of")):
        await side.call("_chat/get", chat=chat)


async def test_a_command_asks_the_client_that_has_sent_it(
    chat_connections: ChatConnections, fake_model: FakeModels
) -> None:
    side, _ = await chat_connections.connect()
    side.answers["_chat/ask"] = {"value": "no"}
    chat = (await side.call("_chat/open", session=""))["chat"]["chat"]
    await side.call("_chat/line", chat=chat, line="hello")
    await side.call("_chat/line", chat=chat, line=".exit session")
    assert [each["text"] for each in side.said("_chat/ask")] == ["Save session?"]


async def test_who_watches_is_told_and_a_stranger_is_not(
    chat_connections: ChatConnections, fake_model: FakeModels
) -> None:
    first, _ = await chat_connections.connect()
    second, _ = await chat_connections.connect()
    stranger, _ = await chat_connections.connect(Caller("eve", frozenset({"run:agents", "read:runs", "write:runs"})))
    chat = (await first.call("_chat/open"))["chat"]["chat"]
    await second.call("_chat/watch", chat=chat)
    await first.call("_chat/line", chat=chat, line="hello")
    await first.call("_chat/line", chat=chat, line=".help")
    with trio.fail_after(60):
        while not second.said("_chat/said"):
            await trio.sleep(0.01)
    assert second.said("_chat/began") == first.said("_chat/began")
    assert len(second.said("_chat/said")) == len(first.said("_chat/said")) == 1
    assert (await stranger.call("_chat/list"))["chats"] == []
    for method in ("_chat/get", "_chat/watch", "_chat/close", "_chat/interrupt"):
        with pytest.raises(RuntimeError):
            await stranger.call(method, chat=chat)


async def test_a_chat_ends_with_its_connection_and_its_run_with_it(
    chat_connections: ChatConnections, hub: Hub, fake_model: FakeModels
) -> None:
    fake_model.script(Reply("x", hold=trio.Event()))
    side, ref = await chat_connections.connect()
    chat = (await side.call("_chat/open"))["chat"]["chat"]
    await side.begin("_chat/line", chat=chat, line="hello")
    await fake_model.arrived(1)
    (run,) = hub.list(LOCAL)
    ref.cancel()
    await ref.wait()
    with trio.fail_after(60):
        await hub.wait(LOCAL, run.run)
    assert not chat_connections.chats.open


async def test_a_chat_that_is_kept_goes_on_with_its_run(
    chat_connections: ChatConnections, fake_model: FakeModels
) -> None:
    hold = trio.Event()
    fake_model.script(Reply("the answer", hold=hold))
    side, ref = await chat_connections.connect()
    chat = (await side.call("_chat/open", keep=True))["chat"]["chat"]
    await side.begin("_chat/line", chat=chat, line="hello")
    await fake_model.arrived(1)
    ref.cancel()
    await ref.wait()
    again, _ = await chat_connections.connect()
    assert (await again.call("_chat/get", chat=chat))["chat"]["run"] is not None
    hold.set()
    with trio.fail_after(60):
        while (await again.call("_chat/get", chat=chat))["chat"]["run"] is not None:
            await trio.sleep(0.01)
    await again.call("_chat/line", chat=chat, line="and now?")
    assert [each["content"] for each in fake_model.requests[1].json["messages"]] == ["hello", "the answer", "and now?"]


@pytest.mark.parametrize(
    ("prelude", "role", "session", "notes"),
    [
        ("role:pirate", "pirate", None, 0),
        ("session:daily", None, "daily", 0),
        ("daily:pirate", "pirate", "daily", 0),
        ("role:nobody", None, None, 1),
        ("nonsense", None, None, 1),
    ],
)
async def test_9_5_and_9_6_preludes(
    chat_connections: ChatConnections,
    root: callboard.Root,
    prelude: str,
    role: str | None,
    session: str | None,
    notes: int,
) -> None:
    (root.config_dir / "roles").mkdir()
    (root.config_dir / "roles" / "pirate.md").write_text("Talk like a pirate.")
    root.settings.other["repl_prelude"] = prelude
    side, _ = await chat_connections.connect()
    opened = await side.call("_chat/open")
    assert (opened["chat"].get("role"), opened["chat"].get("session")) == (role, session)
    assert len(opened.get("notes", [])) == notes
    plain = await side.call("_chat/open", preludes=False)
    assert plain["chat"].get("role") is None


async def test_it_opens_in_what_is_wanted(
    chat_connections: ChatConnections, fake_model: FakeModels, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("the sky is green")
    side, _ = await chat_connections.connect()
    opened = await side.call("_chat/open", role_prompt="Be brief.", session="work", files=[f"{tmp_path}/notes.txt"])
    assert opened["chat"]["session"] == "work"
    await side.call("_chat/line", chat=opened["chat"]["chat"], line="hello")
    assert fake_model.requests[0].json["messages"][0]["content"] == "Be brief."
    assert "the sky is green" in fake_model.requests[0].prompt
    for wrong in ({"role": "nobody"}, {"agent": "nobody"}, {"role": "code", "role_prompt": "x"}, {"model": "no:model"}):
        with pytest.raises(RuntimeError):
            await side.call("_chat/open", **wrong)
    assert len(chat_connections.chats.open) == 1


async def test_a_chat_begins_with_a_macro_whose_arguments_are_taken_as_they_are(
    chat_connections: ChatConnections, hub: Hub, fake_model: FakeModels
) -> None:
    folder = hub.root.config_dir / "macros"
    folder.mkdir()
    (folder / "say it.yaml").write_text("variables:\n  - name: what\nsteps:\n  - 'say {{what}}'\n")
    side, _ = await chat_connections.connect()
    await side.call("_chat/open", macro="say it", macro_arguments=['it\'s `odd` "so"\nand more'])
    assert fake_model.requests[-1].prompt.endswith('say it\'s `odd` "so"\nand more')


async def test_lines_are_played_in_the_order_in_which_they_came(
    chat_connections: ChatConnections, fake_model: FakeModels
) -> None:
    side, _ = await chat_connections.connect()
    for _ in range(15):
        chat = (await side.call("_chat/open"))["chat"]["chat"]
        asked = len(fake_model.requests)
        lines = [await side.begin("_chat/line", chat=chat, line=line) for line in ("one", "two")]
        for each in lines:
            await side.result(each)
        assert [each.prompt for each in fake_model.requests[asked:]] == ["one", "two"]


async def test_a_line_that_is_taken_back_before_it_begins_holds_none_up(
    chat_connections: ChatConnections, fake_model: FakeModels
) -> None:
    side, _ = await chat_connections.connect()
    chat = (await side.call("_chat/open"))["chat"]["chat"]
    first = await side.begin("_chat/line", chat=chat, line="one")
    second = await side.begin("_chat/line", chat=chat, line="two")
    await side.peer.receive(encode_notification("$/cancel_request", {"requestId": first}))
    await side.result(second)
    assert fake_model.requests[-1].prompt == "two"


async def test_a_line_that_waits_for_the_end_of_the_one_before_keeps_its_place(
    chat_connections: ChatConnections, fake_model: FakeModels
) -> None:
    hold = trio.Event()
    fake_model.script("word " * 200, Reply("a summary", hold=hold), "second answer", "a summary", "third answer")
    side, _ = await chat_connections.connect()
    chat = (await side.call("_chat/open", session="s"))["chat"]["chat"]
    await side.call("_chat/line", chat=chat, line=".set compression_threshold 100")
    lines = [await side.begin("_chat/line", chat=chat, line="one")]
    await fake_model.arrived(2)
    for line in ("two", ".set compression_threshold null", ".copy"):
        lines.append(await side.begin("_chat/line", chat=chat, line=line))
        await trio.sleep(0.02)
    await side.call("_chat/line", chat=chat, line=".help")  # which only looks
    side.answers["_chat/copy"] = {}
    hold.set()
    for each in lines:
        with contextlib.suppress(RuntimeError):
            await side.result(each)
    assert fake_model.requests[2].prompt == "two"


async def test_a_closed_chat_plays_no_line_that_waited(
    chat_connections: ChatConnections, hub: Hub, fake_model: FakeModels
) -> None:
    fake_model.script("word " * 200, Reply("a summary", hold=trio.Event()))
    side, _ = await chat_connections.connect()
    chat = (await side.call("_chat/open", session="s"))["chat"]["chat"]
    await side.call("_chat/line", chat=chat, line=".set compression_threshold 100")
    await side.begin("_chat/line", chat=chat, line="one")
    await fake_model.arrived(2)
    waiting = [await side.begin("_chat/line", chat=chat, line=line) for line in ("two", "three")]
    await trio.sleep(0.05)
    await side.call("_chat/close", chat=chat)
    for each in waiting:
        with pytest.raises(RuntimeError, match=says("front.chat.chat.Chat.check_open")):
            await side.result(each)
    assert len(hub.list(LOCAL)) == 1


async def test_a_chat_that_is_closed_before_its_line_begins_plays_it_not(
    chat_connections: ChatConnections, hub: Hub, fake_model: FakeModels
) -> None:
    side, _ = await chat_connections.connect()
    chat = (await side.call("_chat/open"))["chat"]["chat"]
    line = await side.begin("_chat/line", chat=chat, line="one")
    await side.call("_chat/close", chat=chat)
    with contextlib.suppress(RuntimeError):
        assert (await side.result(line))["status"] == "cancelled"
    assert not [each for each in hub.list(LOCAL) if each.status == "done"]


async def test_a_subject_has_so_many_chats_and_others_have_room(
    chat_connections: ChatConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_module, "MOST_OF_ONE", 3)
    bob = Caller("bob", frozenset({"run:agents", "read:runs", "write:runs"}))
    side, ref = await chat_connections.connect(bob)
    for _ in range(3):
        await side.call("_chat/open", keep=True)
    with pytest.raises(RuntimeError, match=says("front.chat.chat.Chats.new", owner="bob", own=3)):
        await side.call("_chat/open")
    ref.cancel()
    await ref.wait()
    other, _ = await chat_connections.connect()
    await other.call("_chat/open")
    for chat in chat_connections.chats.open.values():
        chat.touched -= chat_module.KEPT_FOR + 1
    again, _ = await chat_connections.connect(bob)
    await again.call("_chat/open")
    assert [chat.owner for chat in chat_connections.chats.open.values()] == ["local", "bob"]


async def test_a_kept_chat_that_is_at_work_is_not_closed_for_its_age(
    chat_connections: ChatConnections, fake_model: FakeModels
) -> None:
    hold = trio.Event()
    fake_model.script(Reply("x", hold=hold))
    side, _ = await chat_connections.connect()
    chat = (await side.call("_chat/open", keep=True))["chat"]["chat"]
    line = await side.begin("_chat/line", chat=chat, line="hello")
    await fake_model.arrived(1)
    chat_connections.chats.open[chat].touched -= chat_module.KEPT_FOR + 1
    await side.call("_chat/open")
    assert chat in chat_connections.chats.open
    hold.set()
    await side.result(line)


@pytest.mark.parametrize("ending", ["_chat/close", "gone", "lagged"])
async def test_who_watches_is_told_that_a_chat_has_ended(
    chat_connections: ChatConnections, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    if ending == "lagged":
        monkeypatch.setattr(clients, "MOST_BEHIND", 300)
    first, ref = await chat_connections.connect()
    second, _ = await chat_connections.connect()
    chat = (await first.call("_chat/open"))["chat"]["chat"]
    await second.call("_chat/watch", chat=chat)
    if ending == "gone":
        ref.cancel()
    elif ending == "lagged":
        for _ in range(3):
            chat_connections.chats.open[chat].watched("_chat/said", Said(chat=chat, kind="text", text="x"))
    else:
        await first.call("_chat/close", chat=chat)
    with trio.fail_after(60):
        while not second.said("_chat/closed"):
            await trio.sleep(0.01)
    assert second.said("_chat/closed") == [{"chat": chat, "lagged": ending == "lagged"}]
    assert not [each for each in second.peer.me.children if each.name.startswith("watch-")]


@pytest.mark.parametrize(("length", "count"), [(200, 6_000), (40_000, 2_500)])
async def test_who_reads_nothing_of_a_chat_costs_so_many_bytes_at_most(
    chat_connections: ChatConnections, hub: Hub, length: int, count: int
) -> None:
    """100 MB of output in long frames, and many short ones; who reads them meanwhile gets them all."""
    slow, _ = await chat_connections.connect()
    reader, _ = await chat_connections.connect()
    id = (await reader.call("_chat/open"))["chat"]["chat"]
    for side in (slow, reader):
        await side.call("_chat/watch", chat=id)
    chat, slow.reads, got, most = chat_connections.chats.open[id], trio.Event(), 0, 0
    with hub.unread.of("local") as unread:
        tracemalloc.start()
        for number in range(1, count + 1):
            chat.watched("_chat/said", Said(chat=id, kind="shell", text="x" * length))
            most = max(most, unread.bytes)
            if number % 10 == 0:
                with trio.fail_after(60):
                    while len(reader.said("_chat/said")) < 10:
                        await trio.lowlevel.checkpoint()
                got += 10
                reader.told.clear()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (got, len(chat.watchers)) == (count, 1)
        assert clients.MOST_BEHIND // 2 < most <= clients.MOST_BEHIND + 10 * (length + 200)
        assert peak < 4 * clients.MOST_BEHIND
        assert unread.bytes == 0
    slow.reads.set()
    with trio.fail_after(60):
        while not slow.said("_chat/closed"):
            await trio.lowlevel.checkpoint()
    assert slow.said("_chat/closed") == [{"chat": id, "lagged": True}]
    assert len(slow.said("_chat/said")) == 1, "that which was on its way"


async def test_all_watchers_of_a_key_share_its_bytes(
    chat_connections: ChatConnections, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MOST_BYTES", 10_000)
    sides = [(await chat_connections.connect())[0] for _ in range(4)]
    id = (await sides[0].call("_chat/open"))["chat"]["chat"]
    for side in sides:
        await side.call("_chat/watch", chat=id)
        side.reads = trio.Event()
    with hub.unread.of("local") as unread:
        for _ in range(20):
            chat_connections.chats.open[id].watched("_chat/said", Said(chat=id, kind="text", text="x" * 1_000))
            assert unread.bytes <= 10_000
        for ref in chat_connections.ends:
            ref.cancel()
            await ref.wait()
        assert unread.bytes == 0


async def test_who_comes_later_is_told_what_was_said_before_once_and_only_what_they_may_see(
    chat_connections: ChatConnections, fake_model: FakeModels
) -> None:
    first, _ = await chat_connections.connect()
    chat = (await first.call("_chat/open"))["chat"]["chat"]
    await first.call("_chat/line", chat=chat, line="hello")
    await first.call("_chat/line", chat=chat, line=".help")
    await first.call("_chat/line", chat=chat, line="!echo from the shell")
    assert (await first.call("_chat/watch", chat=chat))["told"] == []
    second, _ = await chat_connections.connect()
    watching = await second.call("_chat/watch", chat=chat, after=0)
    told = [each.get("began") or each["said"] for each in watching["told"]]
    assert [each["seq"] for each in told] == [1, 2, 3]
    assert (told[0]["prompt"], told[2]["kind"], told[2]["text"].strip()) == ("hello", "shell", "from the shell")
    assert [each["seq"] for each in first.said("_chat/began") + first.said("_chat/said")] == [1, 2, 3]
    rest = await second.call("_chat/watch", chat=chat, after=2)
    assert [each["said"]["seq"] for each in rest["told"]] == [3]
    reader, _ = await chat_connections.connect(Caller("local", frozenset({"read:runs"})))
    seen = (await reader.call("_chat/watch", chat=chat, after=0))["told"]
    assert [(each.get("began") or each["said"])["seq"] for each in seen] == [1, 2]
    await first.call("_chat/line", chat=chat, line="!echo again")
    await first.call("_chat/line", chat=chat, line=".help")
    with trio.fail_after(60):
        while not reader.said("_chat/said"):
            await trio.sleep(0.01)
    assert [each["seq"] for each in reader.said("_chat/said")] == [5]


def test_what_is_kept_for_those_who_come_later_is_bounded() -> None:
    kept = NotificationBacklog()
    for _ in range(3):
        kept.keep(Said(chat="c", kind="text", text="x" * (MOST_TEXT // 2)), ())
    assert [each.said.seq for each in kept.after(0, lambda _: True) if each.said] == [2, 3]
    for _ in range(MOST + 5):
        kept.keep(Began(chat="c", run="r", prompt="p"), ())
    assert len(kept.after(0, lambda _: True)) == MOST


async def test_who_watches_no_more_hears_nothing_not_even_its_end_and_may_watch_again(
    chat_connections: ChatConnections,
) -> None:
    first, _ = await chat_connections.connect()
    second, _ = await chat_connections.connect()
    chat = (await first.call("_chat/open"))["chat"]["chat"]
    await second.call("_chat/unwatch", chat=chat)
    for _ in range(2):
        await second.call("_chat/watch", chat=chat)
        await second.call("_chat/unwatch", chat=chat)
    await first.call("_chat/line", chat=chat, line=".help")
    await second.call("_chat/watch", chat=chat)
    await first.call("_chat/line", chat=chat, line=".ps")
    await first.call("_chat/close", chat=chat)
    with trio.fail_after(60):
        while not second.said("_chat/closed"):
            await trio.sleep(0.01)
    assert [each["text"] for each in second.said("_chat/said")] == ["Nothing runs."]
    assert len(second.said("_chat/closed")) == 1


async def test_a_question_that_ends_with_its_connection_is_no_answer(
    chat_connections: ChatConnections, fake_model: FakeModels
) -> None:
    first, ref = await chat_connections.connect()
    first.silent = True
    chat = (await first.call("_chat/open", session="", keep=True))["chat"]["chat"]
    await first.call("_chat/line", chat=chat, line="hello")
    await first.begin("_chat/line", chat=chat, line=".exit session")
    with trio.fail_after(60):
        while not first.said("_chat/ask"):
            await trio.sleep(0.01)
    ref.cancel()
    await ref.wait()
    second, _ = await chat_connections.connect()
    info = (await second.call("_chat/get", chat=chat))["chat"]
    assert (info["session"], info["turns"]) == ("temp", 1)


async def test_a_client_that_may_read_nothing_learns_not_whether_a_chat_is_there(
    chat_connections: ChatConnections,
) -> None:
    first, _ = await chat_connections.connect()
    chat = (await first.call("_chat/open"))["chat"]["chat"]
    stranger, _ = await chat_connections.connect(Caller("eve", frozenset({"run:agents"})))
    told = []
    for id in (chat, "chat-00000000"):
        with pytest.raises(RuntimeError) as refused:
            await stranger.call("_chat/interrupt", chat=id)
        told.append(str(refused.value).replace(id, "ID"))
    assert told[0] == told[1]
