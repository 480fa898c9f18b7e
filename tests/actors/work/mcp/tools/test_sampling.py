"""Sampling: what a server may ask of our model, and what it is told."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.messages import says
from support.tool_families import context_of

from callboard.actors.work.context import RunContext
from callboard.actors.work.mcp.tools.view import ServersView, sample
from callboard.actors.work.spending.accounts import Account
from callboard.actors.work.tools.permissions import Permissions
from callboard.protocol.chat import AssistantTurn, ChatReply, ChatRequest, ImagePart, TextPart, UserTurn
from callboard.protocol.errors import BudgetReached, McpError, UpstreamError
from callboard.protocol.mcp.config import Sampling, Server
from callboard.protocol.requests import Limits
from callboard.supervisors import Actor, Root


class Model:
    """In place of the gateway: answers once, and remembers what it was asked."""

    def __init__(self, answer: ChatReply | Exception) -> None:
        self.answer = answer
        self.asked: list[ChatRequest] = []

    async def chat(self, me: Actor, request: ChatRequest, *, account: Account | None = None, **_: Any) -> ChatReply:
        if account is not None:
            account.check(turn=True)
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
async def me() -> AsyncIterator[Actor]:
    async with Root() as kernel:
        yield kernel.actor


def text(said: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": {"type": "text", "text": said}}


def talk_with(model: Model, **options: Any) -> ServersView:
    context: RunContext = context_of({}, gateway=model, **options)
    return ServersView(scope=None, context=context, model="fake:small")


def server(sampling: Sampling = "on") -> Server:
    return Server(name="srv", type="stdio", command="x", sampling=sampling)


async def test_a_request_becomes_one_of_ours_and_the_reply_the_servers(me: Actor) -> None:
    model = Model(ChatReply(text="in time", model="fake:small", stop="length"))
    image = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(b"png").decode()}
    params = {
        "messages": [
            text("rhyme"),
            text("on what?", "assistant"),
            {"role": "user", "content": [{"type": "text", "text": "this"}, image]},
        ],
        "systemPrompt": "You are a poet.",
        "maxTokens": 20,
        "temperature": 0.5,
        "stopSequences": ["\n"],
        "includeContext": "allServers",
        "modelPreferences": {"hints": [{"name": "gpt-9"}]},
    }
    assert await sample(me, talk_with(model), server(), params) == {
        "role": "assistant",
        "content": {"type": "text", "text": "in time"},
        "model": "fake:small",
        "stopReason": "maxTokens",
    }
    (request,) = model.asked
    assert request.messages == (
        UserTurn("rhyme"),
        AssistantTurn("on what?"),
        UserTurn((TextPart("this"), ImagePart("image/png", b"png"))),
    )
    assert (request.model, request.system, request.max_tokens) == ("fake:small", "You are a poet.", 20)
    assert (request.temperature, request.stop, request.tools) == (0.5, ("\n",), ())


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"messages": []},
        {"messages": "x"},
        {"messages": [None]},
        {"messages": [{"role": "user", "content": {"type": "audio", "data": ""}}]},
        {"messages": [{"role": "user", "content": {"type": "image", "data": "no base64!"}}]},
        {"messages": [text("x")], "tools": [{"name": "rm"}]},
    ],
)
async def test_what_can_not_be_asked_is_refused_before_anybody_pays(me: Actor, params: dict[str, Any]) -> None:
    model = Model(ChatReply())
    with pytest.raises(McpError) as caught:
        await sample(me, talk_with(model), server(), params)
    assert (caught.value.rpc_code, model.asked) == (-32602, [])


async def test_a_server_whose_entry_says_off_asks_nobody(me: Actor) -> None:
    model = Model(ChatReply())
    with pytest.raises(McpError, match=says("work.mcp.tools.view.sample", name="srv")):
        await sample(me, talk_with(model), server("off"), {"messages": [text("x")]})
    assert model.asked == []


async def test_ask_needs_a_persons_yes_as_for_a_tool(me: Actor) -> None:
    model = Model(ChatReply(text="yes"))
    params = {"messages": [text("x")]}
    with pytest.raises(McpError, match=says("work.tools.permissions.Permissions._ask", name="srv__sampling")) as caught:
        await sample(me, talk_with(model), server("ask"), params)
    assert (caught.value.rpc_code, model.asked) == (-1, [])
    for permissions in (
        Permissions(allowed=["srv__sampling"]),
        Permissions({"srv__*": "allow"}),
        Permissions(yes=True),
    ):
        result = await sample(me, talk_with(model, permissions=permissions), server("ask"), params)
        assert result["content"]["text"] == "yes"


@pytest.mark.parametrize("error", [UpstreamError("it is down"), BudgetReached("no money left")])
async def test_a_model_that_can_not_be_had_is_the_servers_error_not_ours(me: Actor, error: Exception) -> None:
    with pytest.raises(McpError, match=says("work.mcp.tools.view.sample.2")):
        await sample(me, talk_with(Model(error)), server(), {"messages": [text("x")]})


async def test_a_server_pays_with_the_runs_turns(me: Actor) -> None:
    model = Model(ChatReply(text="a"))
    talk = talk_with(model)
    talk.context.account = Account("the run", Limits(max_turns=0))
    with pytest.raises(McpError, match=says("work.spending.accounts.Account.check_own", turns="0 model turns")):
        await sample(me, talk, server(), {"messages": [text("x")]})
    assert model.asked == []
