"""An editor that is no process, for tests of ACP: its frames go straight to a connection's peer.

What the peer says is checked against the protocol's official schema, where `make interop` has brought it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
from interop.acp_schema import Judge

from callboard.actors.front.acp.agent import AcpAgent
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.peer import ControlPeer
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.supervisors import Actor
from support.agent_runs import AgentRunner

Json = Any


class Editor:
    """A client that is no process: frames go straight to the peer.

    Attributes:
        updates: the `session/update`s so far.
        asked: what it was asked.
        answers: how it answers, by method; a method that is not there is refused, one that gives None takes its time.
        withdrawn: ids of the requests that it need not answer any more.
        judge: has seen every frame.
    """

    def __init__(self) -> None:
        self.updates: list[Json] = []
        self.asked: list[Json] = []
        self.answers: dict[str, Callable[[Json], Json]] = {}
        self.withdrawn: list[Json] = []
        self.judge = Judge()
        self.peer: ControlPeer
        self._count = 0
        self._results: dict[int, Json] = {}
        self._changed = trio.lowlevel.ParkingLot()

    async def send(self, frame: bytes) -> None:
        """The peer has said something."""
        message = json.loads(frame)
        self.judge.heard(message)
        if message.get("method") == "session/update":
            self.updates.append(message["params"]["update"])
        elif message.get("method") == "$/cancel_request":
            self.withdrawn.append(message["params"]["requestId"])
        elif "method" in message:
            self.asked.append(message)
            self._changed.unpark_all()
            answer = self.answers.get(message["method"])
            reply: Json = {"jsonrpc": "2.0", "id": message["id"]}
            if answer is None:
                reply["error"] = {"code": -32601, "message": "no such method"}
            elif (result := answer(message["params"])) is not None:
                reply["result"] = result
            else:
                return  # it takes its time
            await self.peer.receive(json.dumps(reply).encode())
        else:
            self._results[message["id"]] = message
        self._changed.unpark_all()

    async def until(self, happened: Callable[[], object]) -> None:
        """Wait for something to be heard."""
        while not happened():
            await self._changed.park()

    async def begin(self, method: str, /, **params: Json) -> int:
        """Send a request; its id."""
        self._count += 1
        self.judge.asked(self._count, method)
        frame = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        await self.peer.receive(json.dumps(frame).encode())
        return self._count

    async def end(self, id: int, *, good: bool = False) -> Json:
        """The answer to a request: the whole message; the result of one that must be `good`."""
        await self.until(lambda: id in self._results)
        answer = self._results[id]
        assert not good or "error" not in answer, answer
        return answer["result"] if good else answer

    async def call(self, method: str, /, **params: Json) -> Json:
        """The result of a request."""
        return await self.end(await self.begin(method, **params), good=True)

    async def refused(self, method: str, /, **params: Json) -> int:
        """The number of the error that a request comes to."""
        return int((await self.end(await self.begin(method, **params)))["error"]["code"])

    async def tell(self, method: str, /, **params: Json) -> None:
        """Send a notification."""
        await self.peer.receive(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    async def reply(self, id: Json, result: Json) -> None:
        """Answer what it was asked."""
        await self.peer.receive(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode())

    async def new(self, agent: str | None = None, **more: Json) -> str:
        """A session."""
        meta = {"callboard": {"agent": agent}} if agent else {}
        made = await self.call("session/new", **{"cwd": "/tmp", "mcpServers": [], "_meta": meta, **more})
        return str(made["sessionId"])

    async def say(self, session: str, text: str) -> Json:
        """A prompt, and what it comes to."""
        return await self.end(await self.speak(session, text), good=True)

    async def speak(self, session: str, text: str) -> int:
        """A prompt; its id."""
        return await self.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def text(self, kind: str = "agent_message_chunk") -> str:
        """What was said."""
        return "".join(each["content"]["text"] for each in self.updates if each["sessionUpdate"] == kind)

    def of(self, kind: str) -> list[Json]:
        """The updates of a kind."""
        return [each for each in self.updates if each["sessionUpdate"] == kind]


@pytest.fixture
async def editors(hub: Hub) -> AsyncIterator[Callable[..., Editor]]:
    """Makes connected editors."""
    made: list[Editor] = []
    ready, over = trio.Event(), trio.Event()
    mine: list[Actor] = []

    async def body(me: Actor) -> None:
        mine.append(me)
        ready.set()
        await over.wait()

    hub.root.kernel.spawn(body, name="editors")
    await ready.wait()

    def make(agent: str | None = None, caller: Caller = LOCAL) -> Editor:
        editor = Editor()
        editor.peer = ControlPeer(mine[0], hub, caller, editor.send, methods=lambda peer: AcpAgent(peer, agent).methods)
        made.append(editor)
        return editor

    yield make
    for editor in made:
        editor.peer.close()
    over.set()
    assert not [wrong for editor in made for wrong in editor.judge.wrong]


@pytest.fixture
async def editor(editors: Callable[..., Editor], agent_runner: AgentRunner) -> Editor:
    """One that can show forms and has said hello; its sessions are those of the agent `clerk`."""
    agent_runner.plain("global_tools: [fs_write, fs_ls]", name="clerk")
    editor = editors("clerk")
    await editor.call("initialize", protocolVersion=1, clientCapabilities={"elicitation": {"form": {}}})
    return editor
