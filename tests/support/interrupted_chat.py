"""A chat that is interrupted at a moment: a hub, a client's frames, a strict provider; and what comes of it, measured.

    async with scene_of(directory, "openai", moment) as scene:
        measured = await scene.play(moment)

A `Moment` says how to get there: its `reach` sends a line and returns when the moment has come. Then the interrupt
frame is sent, and the clock runs until the answer to the line is there, which is when clients show their prompt again.
Then follow another prompt, `.undo` twice and a last prompt, all before a provider that refuses what strict ones refuse.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil
import trio
from trio.testing import wait_all_tasks_blocked

import callboard
from callboard.actors.front.chat.chat import Chats
from callboard.actors.front.chat.methods import ChatMethods
from callboard.actors.front.control.peer import ControlPeer
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.jsonrpc import ErrorResponse, Result, decode, encode_request, encode_result
from callboard.protocol.jsonrpc import Request as Asked
from callboard.supervisors import Actor
from support.control_hub import hub_of
from support.descendants import HELPERS, name_of
from support.fake_models import FakeModels, Reply, Request, listening
from support.strict_wires import objections, prompt_of, said_in
from support.waiting import PATIENCE

WIRES = {"openai": "openai-compatible", "anthropic": "anthropic", "gemini": "gemini"}

VAIN = "The last prompt added no messages, so nothing was removed"
ANYTHING = "*"


@dataclass(frozen=True)
class Moment:
    """A moment.

    Attributes:
        kind: of what is interrupted.
        point: where in it.
        reach: gets there.
        keeps: what of it stands in the next request; nothing: not even the prompt does.
        undone: what `.undo` says of it, if not that it is taken back.
        files: written into the configuration directory before, by path.
        settings: in `config.yaml`.
        wires: of which it makes sense.
    """

    kind: str
    point: str
    reach: Callable[[Scene], Awaitable[None]]
    keeps: tuple[str, ...] = ()
    undone: str = ""
    files: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    wires: tuple[str, ...] = tuple(WIRES)

    def __str__(self) -> str:
        return f"{self.kind}: {self.point}"


@dataclass(frozen=True)
class Measured:
    """What came of it.

    Attributes:
        prompt: seconds from the interrupt frame until the prompt was back.
        gone: seconds from then until no process was left.
    """

    prompt: float
    gone: float


class RefusedLine(Exception):
    """A line was not played; why."""


class Client:
    """A client at the other end of a connection in memory: frames there, frames back."""

    def __init__(self, peer: ControlPeer) -> None:
        self.peer = peer
        self.said: list[str] = []
        self._count = 0
        self._results: dict[Any, Any] = {}
        self._come: dict[Any, trio.Event] = {}

    async def take(self, frame: bytes) -> None:
        """A frame of the hub's. Whatever a command asks is answered with yes."""
        message = decode(frame)
        if isinstance(message, Result | ErrorResponse):
            self._results[message.id] = message
            self._come[message.id].set()
        elif isinstance(message, Asked):
            await self.peer.receive(encode_result(message.id, {"value": "yes"}))
        elif message.method == "_chat/said":
            self.said.append(msgspec.json.decode(message.params)["text"])

    async def begin(self, method: str, **params: Any) -> str:
        self._count += 1
        id = f"t{self._count}"
        self._come[id] = trio.Event()
        await self.peer.receive(encode_request(id, method, params))
        return id

    async def ended(self, id: str) -> None:
        """Wait for the answer to this request."""
        await self._come[id].wait()

    async def result(self, id: str) -> Any:
        await self.ended(id)
        answer = self._results[id]
        if isinstance(answer, ErrorResponse):
            raise RefusedLine(answer.error.message)
        return msgspec.json.decode(answer.result)

    async def call(self, method: str, **params: Any) -> Any:
        with trio.fail_after(PATIENCE):
            return await self.result(await self.begin(method, **params))


class Scene:
    """See the module. Attributes: `script` is what the model answers to each prompt, in order; then it says ok."""

    def __init__(self, directory: Path, models: FakeModels, root: callboard.Root, chats: Chats, client: Client) -> None:
        self.directory = directory
        self.models = models
        self.root = root
        self.hub = chats.hub
        self.chats = chats
        self.client = client
        self.chat = ""
        self.script: dict[str, deque[Reply]] = {}
        self.refused: list[str] = []
        self.taken: list[Reply] = []
        self._pending = ""
        self._before = [each.pid for each in psutil.Process().children(recursive=True)]
        models.answer_with(self._answer)

    # --- for moments ------------------------------------------------------------------------------------------

    def on(self, prompt: str, *replies: Reply | str) -> None:
        """What the model answers to this prompt; `ANYTHING` for those that have no answer of their own."""
        given = [Reply(each) if isinstance(each, str) else each for each in replies]
        self.script.setdefault(prompt, deque()).extend(given)

    async def line(self, text: str) -> Any:
        """Send a line, and wait for its end."""
        return await self.client.call("_chat/line", chat=self.chat, line=text)

    async def begin(self, text: str = "tell me") -> None:
        """Send the line that is interrupted."""
        self._pending = await self.client.begin("_chat/line", chat=self.chat, line=text)

    async def until(self, happened: Callable[[], object]) -> None:
        with trio.fail_after(PATIENCE):
            while not happened():
                await trio.sleep(0.005)

    async def stalled(self, *replies: Reply) -> None:
        """What these replies hold was sent, and taken in by us."""
        with trio.fail_after(PATIENCE):
            for reply in replies:
                await reply.stalled.wait()
        await self.settled()

    async def held(self, reply: Reply) -> None:
        """The request that this reply answers has come."""
        with trio.fail_after(PATIENCE):
            while reply not in self.taken:
                await self.models.arrived(len(self.models.requests) + 1)
        await self.settled()

    async def settled(self) -> None:
        """Until we have done with what has come."""
        with trio.fail_after(PATIENCE):
            await wait_all_tasks_blocked(0.05)

    def questions(self) -> int:
        return len(self.hub.questions(LOCAL))

    def file(self, name: str) -> Path:
        return self.directory / name

    def well(self, is_well: bool) -> None:
        """Whether MCP servers that start now work."""
        (self.file("well").touch if is_well else self.file("well").unlink)()

    # --- what the provider does -------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Reply | str:
        if found := objections(request):
            self.refused += found
            return Reply(status=400, error="; ".join(found))
        prompt = prompt_of(request)
        replies = self.script.get(prompt) or self.script.get(ANYTHING)
        if not replies or prompt in ("go on", "and now"):
            return "ok"
        reply = replies.popleft()
        self.taken.append(reply)
        return reply

    # --- the moment -------------------------------------------------------------------------------------------

    async def play(self, moment: Moment) -> Measured:
        """Interrupt at this moment, and go on; fails if anything of it is not as it should be."""
        assert (await self.line("hello"))["status"] == "done"
        await moment.reach(self)
        began = trio.current_time()
        told = await self.client.begin("_chat/interrupt", chat=self.chat)
        with trio.fail_after(PATIENCE):
            done = await self.client.result(self._pending)
        prompt = trio.current_time() - began
        assert (await self.client.result(told))["interrupted"], f"{moment}: nothing was under way"
        gone = await self._gone()
        assert done["chat"]["run"] is None
        assert not self.questions()
        assert not [actor for actor in self.hub.actors.tree(LOCAL) if actor.run]
        await self._go_on(moment)
        assert not self.refused, self.refused
        return Measured(prompt, gone)

    async def _gone(self) -> float:
        """Seconds until no process is left but the guardian and idle reapers."""
        began = trio.current_time()
        with trio.move_on_after(PATIENCE):
            while left := self._left():
                await trio.sleep(0.01)
        assert not left, left
        return trio.current_time() - began

    def _left(self) -> list[psutil.Process]:
        guardian = self.root.kernel.processes.link.pid
        return [
            each
            for each in psutil.Process().children(recursive=True)
            if each.pid not in (*self._before, guardian) and _runs(each)
        ]

    async def _go_on(self, moment: Moment) -> None:
        self.script.clear()
        self.well(True)
        if moment.kind == "compression":
            await self.line(".set compression_threshold null")
        assert (await self.line("go on"))["status"] == "done", self.refused
        request = next(each for each in self.models.requests if prompt_of(each) == "go on")
        whole = json.dumps([[each.role, each.text, each.calls] for each in said_in(request)]) + str(request.json)
        for words in moment.keeps or ():
            assert words in whole, f"{words!r} is not kept: {whole[:2000]}"
        if not moment.keeps:
            assert "tell me" not in whole
        assert await self.undone() == "Taken back: go on"
        undone = await self.undone()
        assert undone == (moment.undone or ("Taken back: tell me" if moment.keeps else VAIN)), undone
        assert (await self.line("and now"))["status"] == "done", self.refused
        request = next(each for each in self.models.requests if prompt_of(each) == "and now")
        texts = [each.text for each in said_in(request)]
        assert not any("tell me" in each or "go on" in each for each in texts), texts

    async def undone(self) -> str:
        """What `.undo` says."""
        self.client.said.clear()
        try:
            await self.line(".undo")
        except RefusedLine as error:
            return str(error)
        return self.client.said[0].partition(";")[0]


def _runs(process: psutil.Process) -> bool:
    return name_of(process) not in ("", *HELPERS)


@contextlib.asynccontextmanager
async def scene_of(directory: Path, wire: str, moment: Moment) -> AsyncIterator[Scene]:
    """A hub of its own for this moment, with a chat open on it."""
    listener, port = listening()
    models = FakeModels(port)
    config = directory / "config"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(models.serve, listener)
        _write(config, models, wire, moment)
        async with (
            _working_in(directory),
            callboard.Root(config_dir=config, wait_for_front_end=True) as root,
            hub_of(root, directory / "state") as hub,
            _connected(root, chats := Chats(hub)) as client,
        ):
            scene = Scene(directory, models, root, chats, client)
            scene.well(True)
            more = {"agent": "lead"} if "agents/lead/config.yaml" in moment.files else {}
            scene.chat = (await client.call("_chat/open", **more))["chat"]["chat"]
            yield scene
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def _working_in(directory: Path) -> AsyncIterator[None]:
    """Tools may write there."""
    with contextlib.chdir(directory):
        yield


def _write(config: Path, models: FakeModels, wire: str, moment: Moment) -> None:
    base = models.url if wire == "gemini" else models.openai_base
    client = {"type": WIRES[wire], "name": "fake", "api_base": base, "api_key": "sk-test"}
    settings = {"model": "fake:model", "clients": [{**client, **moment.settings.get("client", {})}]}
    config.mkdir(parents=True, exist_ok=True)
    more = {key: value for key, value in moment.settings.items() if key != "client"}
    (config / "config.yaml").write_text(json.dumps({**settings, **more}))
    for name, text in moment.files.items():
        path = config / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("DIRECTORY", str(config.parent)))
        if path.suffix in (".sh", ".py"):
            path.chmod(0o755)


@contextlib.asynccontextmanager
async def _connected(root: callboard.Root, chats: Chats) -> AsyncIterator[Client]:
    made: list[Client] = []
    ready = trio.Event()

    async def connection(me: Actor) -> None:
        async def send(frame: bytes) -> None:
            await made[0].take(frame)

        peer = ControlPeer(me, chats.hub, LOCAL, send, methods=lambda peer: ChatMethods(peer, chats).methods)
        made.append(Client(peer))
        ready.set()
        try:
            async for _ in me:
                pass
        finally:
            peer.close()

    ref = root.kernel.spawn(connection, link=False)
    await ready.wait()
    try:
        yield made[0]
    finally:
        ref.cancel()
        with trio.move_on_after(PATIENCE, shield=True):
            await ref.wait()
