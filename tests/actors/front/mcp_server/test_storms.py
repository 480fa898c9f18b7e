"""Calls that begin, ask, are answered, cancelled and forgotten in random order leave nothing behind."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from support.agent_runs import AgentRunner, at_work
from support.mcp_guest import ASKER, META
from support.waiting import until

from callboard.actors.front.mcp_server.service import Service, ServiceOptions, read_agents
from callboard.actors.front.mcp_server.session import McpSession, ReplyChannel
from callboard.protocol.jsonrpc import ErrorResponse, Request, Result, decode, encode_notification, encode_request
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
        self.modern, self.legacy = McpSession(service, self.drop), McpSession(service, self.drop)
        self.answered = 0
        self.begun = 0

    def drop(self, message: bytes, /, *, droppable: bool = False) -> None:
        """What belongs to no request."""

    async def one(self, id: int) -> None:
        """One call from its beginning to one of its ends."""
        modern = self.random.random() < 0.5
        session = self.modern if modern else self.legacy
        params: dict[str, Any] = {"name": "asker", "_meta": {**META, "progressToken": id} if modern else {}}
        while True:
            answers: list[bytes] = []
            way = ReplyChannel(partial(self.hear, session), answers.append)
            ref = await session.take(decode(encode_request(id, "tools/call", params)), way)
            if ref is not None:
                self.begun += 1
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.maybe_cancel, session, id)
                    await ref.wait()
                    nursery.cancel_scope.cancel()
            if not answers:
                return
            result = decode(answers[0])
            if isinstance(result, ErrorResponse):
                assert "requestState" in params  # it came back too late
                return
            assert isinstance(result, Result)
            self.answered += 1
            if b'"input_required"' not in bytes(result.result):
                return
            asked = msgspec.json.decode(result.result)
            if self.random.random() < 0.3:
                return  # never comes back
            await trio.sleep(self.random.random() * 0.01)
            chosen = {each: self.random.choice(ACTIONS) for each in asked["inputRequests"]}
            params = {**params, "requestState": asked["requestState"], "inputResponses": chosen}

    async def maybe_cancel(self, session: McpSession, id: int) -> None:
        await trio.sleep(self.random.random() * 0.03)
        if self.random.random() < 0.5:
            await session.take(decode(encode_notification("notifications/cancelled", {"requestId": id})))

    def hear(self, session: McpSession, message: bytes, /, *, droppable: bool = False) -> None:
        """Answer what the server asks, or don't."""
        heard = decode(message)
        if isinstance(heard, Request) and self.random.random() < 0.7:
            session._settled(Result(heard.id, msgspec.Raw(msgspec.json.encode(self.random.choice(ACTIONS)))))


async def storm(agent_runner: AgentRunner, seed: int) -> None:
    async def body(me: Actor) -> None:
        service = Service(
            me, agent_runner.root, read_agents(agent_runner.root)[0], ServiceOptions(question_timeout=0.02)
        )
        with service.answering():
            run = Storm(service, seed)
            await run.legacy.take(decode(encode_request(0, "initialize", {"capabilities": {"elicitation": {}}})))
            async with trio.open_nursery() as nursery:
                for id in range(1, CALLS + 1):
                    nursery.start_soon(run.one, id)
            assert run.begun >= CALLS
            await until(lambda: not service._parked and not service._calls)
            assert not service._by_run
            assert run.modern.idle
            assert run.legacy.idle
            assert not run.legacy._asked
            await until(lambda: not me.child_count)

    agent_runner.agent(ASKER, name="asker")
    await agent_runner.root.kernel.spawn(body, link=False).result()
    assert agent_runner.root.questions.open == ()
    assert at_work(agent_runner.root) == []
    assert agent_runner.root.kernel.actor.policy is None


SEEDS = [pytest.param(seed, marks=[pytest.mark.soak] if seed >= 5 else []) for seed in range(50)]


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_call_leaves_anything_behind_whatever_the_order(agent_runner: AgentRunner, seed: int) -> None:
    await storm(agent_runner, seed)
