"""`/v1/chat/completions`: agents for programs that speak OpenAI's API."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.types import ASGIApp

from .....protocol.agent import Agent
from .....protocol.chat import Part, TextPart, Turn, UserTurn, parts_of
from .....protocol.chat import Tool as ToolSpec
from .....protocol.control.own import StartRun
from .....protocol.control.things import RunInfo
from .....protocol.errors import NotFound, ToolFailed, UsageError
from .....protocol.requests import Overrides, RunRequest
from ....io.http.sse import event
from ....runs.loading import NO_HOOKS, Hooks
from ....work.tools.tool import Tool
from ...access.scopes import START
from ...control.logs.reading import LoggedEvent
from ..call import SSE, Call, route
from ..shapes.conversation import Asked, HandedOut, asked, handed_out
from ..shapes.openai import Chat, ChatCompletionReply, ChatCompletionRequest, ToolOffered
from ..streams import Say, run_and_reply
from .completions import check_model, plain

_route = partial(route, tag="openai")

KINDS = ("agent", "graph", "workflow")
DONE = event(b"[DONE]")


@_route("POST", "/v1/chat/completions", START, gives=ChatCompletionReply, media=(SSE,), errors=(404, 499, 502))
async def complete(call: Call, body: ChatCompletionRequest) -> ASGIApp:
    """A chat completion as OpenAI's: `model` is agent/NAME, graph/NAME, workflow/NAME, or a model."""
    tools = [] if body.tool_choice == "none" else [_offered(tool) for tool in body.tools or ()]
    conversation = asked(
        body.messages, tools=body.tools is not None, find=partial(call.api.remembered.find, call.caller.subject)
    )
    begun = await begin(call, body.model, conversation)
    beside = body.callboard
    request = await begun.request(call, variables=beside.variables, state=beside.state, timeout=beside.timeout)
    left = _Left(call, request.history, one=body.parallel_tool_calls is False)
    hooks = NO_HOOKS
    if begun.talks:
        request = msgspec.structs.replace(request, overrides=Overrides(sampling=body.sampling))
        hooks = Hooks(tools=tuple(tools), on_history=left.take) if tools else NO_HOOKS
    elif body.tools:
        raise UsageError(f"tools: {body.model} is no agent and no model; the tools of its nodes are its own")

    async def tell(run: RunInfo, say: Say) -> Chat:
        usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        told = Chat(run.run, body.model, int(time.time()), usage=usage, calls=lambda: left.calls(run.run))

        async def each(happened: LoggedEvent) -> None:
            for chunk in told.take(happened):
                await say(event(msgspec.json.encode(chunk)))

        await call.hub.follow(call.caller, run.run, each)
        await say(DONE)
        return told

    return run_and_reply(
        call, lambda: call.hub.begin(call.caller, request, hooks, durable=False), tell, streams=bool(body.stream)
    )


class _Left:
    """What a run leaves to its client: calls of the client's own tools."""

    def __init__(self, call: Call, before: Sequence[Turn], *, one: bool) -> None:
        self._call = call
        self._before = before
        self._one = one
        self._said: Sequence[Turn] = ()
        self._handed: HandedOut | None = None

    def take(self, said: Sequence[Turn]) -> None:
        """All of the conversation, when the agent is done."""
        self._said = said

    def calls(self, run: str) -> tuple[Any, ...]:
        """The calls; the run is remembered until their results come."""
        if self._handed is None:
            self._handed = handed_out(run, self._said, self._before, one=self._one)
            if self._handed is not None:
                self._call.api.remembered.keep(self._call.caller.subject, self._handed)
        return () if self._handed is None else self._handed.calls


def _offered(tool: ToolOffered) -> Tool:
    function = tool.function
    spec = ToolSpec(name=function.name, description=function.description or "")
    if function.parameters:
        spec = msgspec.structs.replace(spec, parameters=function.parameters)

    async def run(*_: Any) -> Any:
        raise ToolFailed(f"'{function.name}' can be called by the agent that was asked only")

    return Tool(spec=spec, run=run, origin="function", elsewhere=True)


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation starts.

    Attributes:
        wanted: as a caller asks for it.
        model: a model by itself, in place of a target.
        talks: whether it goes on with what was said before; graphs and workflows don't.
    """

    wanted: StartRun
    model: Agent | None = None
    history: tuple[Turn, ...] = ()
    images: tuple[Part, ...] = ()
    talks: bool = True

    async def request(self, call: Call, **beside: Any) -> RunRequest:
        """The request of its run; `beside` are more fields of `wanted`."""
        request = await call.hub.request(call.caller, msgspec.structs.replace(self.wanted, **beside))
        target = self.model or request.target
        return msgspec.structs.replace(request, target=target, history=self.history, parts=self.images)


async def begin(call: Call, model: str, conversation: Asked) -> Begun:
    """What to start for a name: one of an agent, `agent/NAME` and the like, or a model's own.

    An agent gets what is said by a system prompt as part of the prompt, since its instructions are its own; a graph
    or a workflow knows nothing of what was said before.

    Raises:
        NotFound: there is no such agent.
        UsageError: a graph or a workflow is shown images, or the results of tools.
    """
    kind, _, name = model.partition("/")
    history, images, prompt = tuple(conversation.history), tuple(conversation.images), conversation.prompt
    if kind not in KINDS:
        try:
            check_model(call, model)
        except UsageError as error:
            raise NotFound(str(error)) from None
        alone = plain(model, instructions=conversation.system)
        return Begun(wanted=StartRun(target="", prompt=prompt), model=alone, history=history, images=images)
    found = await call.hub.target(call.caller, name)
    if found is None or found.dialect != kind:
        hint = f"; it is a {found.dialect}: {found.dialect}/{name[:60]}" if found is not None else ""
        raise NotFound(f"there is no {kind} '{name[:60]}'{hint}; GET /v1/models lists those there are")
    if kind != "agent":
        if images or not prompt:
            raise UsageError(f"messages: a {kind} takes the text of the last message, and nothing else")
        return Begun(wanted=StartRun(target=name, prompt=_after(conversation.system, prompt)), talks=False)
    if prompt or images:
        prompt = _after(conversation.system, prompt)
    elif conversation.system:
        history = _with_system(conversation.system, history)
    return Begun(wanted=StartRun(target=name, prompt=prompt), history=history, images=images)


def _after(system: str, prompt: str) -> str:
    return "\n\n".join(text for text in (system, prompt) if text)


def _with_system(system: str, history: Sequence[Turn]) -> tuple[Turn, ...]:
    """The conversation with the system prompt before the user's last words, as they were told to the agent."""
    turns = list(history)
    for at in range(len(turns) - 1, -1, -1):
        turn = turns[at]
        if isinstance(turn, UserTurn):
            parts = parts_of(turn.content)
            if not (parts and isinstance(parts[0], TextPart) and parts[0].text.startswith(system)):
                turns[at] = UserTurn((TextPart(system), *parts))
            break
    return tuple(turns)


def target_of(name: str | None, forwarded: Any) -> str:
    """What an AG-UI client wants run: said in the query, or in what it passes on.

    Raises:
        UsageError: nothing is named.
    """
    named = name or (forwarded.get("target") if isinstance(forwarded, dict) else None)
    if not isinstance(named, str) or not named:
        raise UsageError("what is to be run? ?target=agent/NAME, or `target` in forwardedProps")
    return named
