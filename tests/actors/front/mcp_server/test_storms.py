"""Calls that begin, ask, are answered, cancelled and forgotten in random order leave nothing behind."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
import trio
from mcp_guest import ASKER, META
from stage import Stage
from waiting import until

from callboard.actors.front.mcp_server.offers import read_agents
from callboard.actors.front.mcp_server.service import Options, Service
from callboard.actors.front.mcp_server.session import Leg, Refused, Session
from callboard.protocol.jsonrpc import Notification, Request, Result, decode, encode_notification, encode_request
from callboard.supervisors import Actor

CALLS = 40
ACTIONS: list[dict[str, Any]] = [
    {"action": "accept", "content": {"answer": "red"}},
    {"action": "decline"},
    {"action": "cancel"},
]


class Storm:
    """One random life of a service with one client of each era."""

    def __init__(self, service: Service, seed: int) -> None:
        self.random = random.Random(seed)
        self.service = service
        self.modern, self.legacy = Session(service), Session(service)
        self.receive(self.legacy, "initialize", 0, {"capabilities": {"elicitation": {}}})
        self.answered = 0
        self.begun = 0

    def receive(self, session: Session, method: str, id: int, params: dict[str, Any]) -> bytes | Leg:
        request = decode(encode_request(id, method, params))
        assert isinstance(request, Request)
        return session.receive(request)

    async def one(self, id: int) -> None:
        """One call from its beginning to one of its ends."""
        modern = self.random.random() < 0.5
        session = self.modern if modern else self.legacy
        params: dict[str, Any] = {"name": "asker", "_meta": {**META, "progressToken": id} if modern else {}}
        while True:
            try:
                leg = self.receive(session, "tools/call", id, params)
            except Refused:
                assert "requestState" in params  # it came back too late
                return
            assert isinstance(leg, Leg)
            self.begun += 1
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.maybe_cancel, session, id)
                answer = await session.play(leg, lambda message, droppable=False: self.hear(session, message))
                nursery.cancel_scope.cancel()
            if answer is None:
                return
            result = decode(answer)
            assert isinstance(result, Result)
            self.answered += 1
            if b'"input_required"' not in bytes(result.result):
                return
            asked = msgspec.json.decode(result.result)
            if self.random.random() < 0.3:
                return  # never comes back
            await trio.sleep(self.random.random() * 0.01)
            answers = {each: self.random.choice(ACTIONS) for each in asked["inputRequests"]}
            params = {**params, "requestState": asked["requestState"], "inputResponses": answers}

    async def maybe_cancel(self, session: Session, id: int) -> None:
        await trio.sleep(self.random.random() * 0.03)
        if self.random.random() < 0.5:
            note = decode(encode_notification("notifications/cancelled", {"requestId": id}))
            assert isinstance(note, Notification)
            session.notified(note)

    def hear(self, session: Session, message: bytes) -> None:
        """Answer what the server asks, or don't."""
        heard = decode(message)
        if isinstance(heard, Request) and self.random.random() < 0.7:
            session.answered(Result(heard.id, msgspec.Raw(msgspec.json.encode(self.random.choice(ACTIONS)))))


async def storm(stage: Stage, seed: int) -> None:
    async def body(me: Actor) -> None:
        service = Service(me, stage.root, read_agents(stage.root)[0], Options(question_timeout=0.02))
        with service.answering():
            run = Storm(service, seed)
            async with trio.open_nursery() as nursery:
                for id in range(1, CALLS + 1):
                    nursery.start_soon(run.one, id)
            assert run.begun >= CALLS
            await until(lambda: not service._parked and not service._calls)
            assert not service._by_run
            assert run.modern.idle
            assert run.legacy.idle
            assert not run.legacy._questions
            await until(lambda: not me.child_count)

    stage.agent(ASKER, name="asker")
    await stage.root.kernel.spawn(body, link=False).result()
    assert stage.root.questions.open == ()
    assert stage.root.kernel.actor.children == ()
    assert stage.root.kernel.actor.policy is None


SEEDS = [pytest.param(seed, marks=[pytest.mark.soak] if seed >= 5 else []) for seed in range(50)]


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_call_leaves_anything_behind_whatever_the_order(stage: Stage, seed: int) -> None:
    await storm(stage, seed)
