"""Routes in OpenAI's format: chat completions, responses, and embeddings by the models of knowledge bases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.types import ASGIApp, Send

from .....protocol.agent import Agent
from .....protocol.chat import Part, TextPart, Turn, UserTurn, parts_of
from .....protocol.chat import Tool as ToolSpec
from .....protocol.control.method_structs import StartRun
from .....protocol.control.resources import RunInfo
from .....protocol.errors import ConfigError, CredentialsError, NotFound, ToolFailed, UsageError
from .....protocol.requests import Overrides, RunRequest
from ....io.http.sse import event
from ....runs.loading import NO_HOOKS, RunCallbacks
from ....work.tools.tool import Tool
from ...access.scopes import START
from ...control.logs.files import LoggedEvent
from ..call import SSE, HttpCall, reply, route
from ..shapes.conversation import ClientCalls, ConversationRequest, asked
from ..shapes.openai import (
    ChatCompletionProjection,
    ChatCompletionReply,
    ChatCompletionRequest,
    ChatMessage,
    EmbeddingsReply,
    EmbeddingsRequest,
    ToolOffered,
    reply_of,
)
from ..shapes.responses import ResponseProjection, ResponseReply, ResponsesRequest, messages_of
from ..streams import Performed, Say, run_and_reply

if TYPE_CHECKING:
    from ....runs.root import Root


_route = partial(route, tag="openai")

KINDS = ("agent", "graph", "workflow")
# OpenAI's mark for the end of a stream; it is no JSON.
DONE = event(b"[DONE]")


@_route("POST", "/v1/chat/completions", START, gives=ChatCompletionReply, media=(SSE,), errors=(404, 499, 502))
async def complete(call: HttpCall, body: ChatCompletionRequest) -> ASGIApp:
    """Create a chat completion in OpenAI's format: `model` is agent/NAME, graph/NAME, workflow/NAME, or a model."""
    find = partial(call.api.remembered.find, call.caller.subject)
    prepared = await prepare(call, body, asked(body.messages, tools=body.tools is not None, find=find))

    async def send_events(run: RunInfo, say: Say) -> ChatCompletionProjection:
        usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        told = ChatCompletionProjection(
            run.run, body.model, int(time.time()), usage=usage, calls=lambda: prepared.client_calls.calls(run.run)
        )

        async def each(happened: LoggedEvent) -> None:
            for chunk in told.take(happened):
                await say(event(msgspec.json.encode(chunk)))

        await call.hub.follow(call.caller, run.run, each)
        await say(DONE)
        return told

    return run_and_reply(call, partial(prepared.start, call), send_events, streams=bool(body.stream))


class PreparedChat(msgspec.Struct, frozen=True, kw_only=True):
    """Run of a chat completion, or of an equivalent request.

    Attributes:
        client_calls: calls that the run leaves to its client.
    """

    request: RunRequest
    hooks: RunCallbacks
    client_calls: ClientCalls

    async def start(self, call: HttpCall, *, durable: bool = False) -> RunInfo:
        """Start the run. By default it ends with the request and is never resumed."""
        run = await call.hub.begin(call.caller, self.request, self.hooks, durable=durable)
        if self.hooks.tools:
            # The dictionary is weak: the entry ends with the request, which holds this object.
            call.api.client_calls[run.run] = self.client_calls
        return run


async def prepare(call: HttpCall, body: ChatCompletionRequest, conversation: ConversationRequest) -> PreparedChat:
    """Return the run of a chat completion.

    Raises:
        NotFound, UsageError: see `begin`; tools are offered to a graph or a workflow; `tool_choice` or
            `response_format` is invalid.
    """
    tools = [] if body.tool_choice == "none" else [offered(tool) for tool in body.tools or ()]
    begun = await begin(call, body.model, conversation)
    beside = body.callboard
    request = await begun.request(call, variables=beside.variables, state=beside.state, timeout=beside.timeout)
    choice = body.first_choice
    left = ClientCalls(call.api.remembered, call.caller.subject, request.history, one=body.parallel_tool_calls is False)
    hooks = NO_HOOKS
    if begun.talks:
        overrides = Overrides(sampling=body.sampling, tool_choice=choice)
        request = msgspec.structs.replace(request, overrides=overrides)
        hooks = RunCallbacks(tools=tuple(tools), on_history=left.take) if tools else NO_HOOKS
    elif body.tools:
        raise UsageError(f"tools: {body.model} is neither an agent nor a model; its nodes only use their own tools")
    return PreparedChat(request=request, hooks=hooks, client_calls=left)


def offered(tool: ToolOffered) -> Tool:
    """Return a tool for a function of the client; a call of it ends the run."""
    function = tool.function
    spec = ToolSpec(name=function.name, description=function.description or "")
    if function.parameters:
        spec = msgspec.structs.replace(spec, parameters=function.parameters)

    async def run(*_: Any) -> Any:
        raise ToolFailed(
            f"'{function.name}' can only be called by the agent that the request names, not by its child agents"
        )

    return Tool(spec=spec, run=run, origin="function", elsewhere=True)


class StartedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """Run that a conversation starts.

    Attributes:
        wanted: start request of the caller.
        model: a model by itself, in place of a target.
        talks: True if it continues the conversation; graphs and workflows do not.
    """

    wanted: StartRun
    model: Agent | None = None
    history: tuple[Turn, ...] = ()
    images: tuple[Part, ...] = ()
    talks: bool = True

    async def request(self, call: HttpCall, **beside: Any) -> RunRequest:
        """Return the run request; `beside` are more fields of `wanted`."""
        request = await call.hub.request(call.caller, msgspec.structs.replace(self.wanted, **beside))
        target = self.model or request.target
        return msgspec.structs.replace(request, target=target, history=self.history, parts=self.images)


async def begin(call: HttpCall, model: str, conversation: ConversationRequest) -> StartedConversation:
    """Return the run for a model name: of an agent, `agent/NAME` and similar, or of a model.

    For an agent the system prompt becomes part of the prompt, because its instructions are its own. A graph or a
    workflow gets no conversation.

    Raises:
        NotFound: there is no such agent.
        UsageError: images or tool results are sent to a graph or a workflow.
    """
    kind, _, name = model.partition("/")
    history, images, prompt = tuple(conversation.history), tuple(conversation.images), conversation.prompt
    if kind not in KINDS:
        try:
            call.check_model(model)
        except UsageError as error:
            raise NotFound(str(error)) from None
        alone = model_agent(model, instructions=conversation.system)
        return StartedConversation(
            wanted=StartRun(target="", prompt=prompt), model=alone, history=history, images=images
        )
    found = await call.hub.target(call.caller, name)
    if found is None or found.dialect != kind:
        hint = f"; it is a {found.dialect}: {found.dialect}/{name[:60]}" if found is not None else ""
        raise NotFound(f"there is no {kind} '{name[:60]}'{hint}; list them with GET /v1/models")
    if kind != "agent":
        if images or not prompt:
            raise UsageError(f"messages: a {kind} only accepts the text of the last message")
        return StartedConversation(
            wanted=StartRun(target=name, prompt=_after(conversation.system, prompt)), talks=False
        )
    if prompt or images:
        prompt = _after(conversation.system, prompt)
    elif conversation.system:
        history = _with_system(conversation.system, history)
    return StartedConversation(wanted=StartRun(target=name, prompt=prompt), history=history, images=images)


def _after(system: str, prompt: str) -> str:
    return "\n\n".join(text for text in (system, prompt) if text)


def _with_system(system: str, history: Sequence[Turn]) -> tuple[Turn, ...]:
    """Return the conversation with the system prompt before the user's last message, as the agent received it."""
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
    """Return the target of an AG-UI client, from the query or from the forwarded properties.

    Raises:
        UsageError: no target is named.
    """
    named = name or (forwarded.get("target") if isinstance(forwarded, dict) else None)
    if not isinstance(named, str) or not named:
        raise UsageError("no target is named: use ?target=agent/NAME, or `target` in forwardedProps")
    return named


@route(
    "POST", "/v1/responses", START, tag="openai", gives=ResponseReply, media=(SSE,), errors=(404, 499, 502)
)  # fmt: skip
async def respond(call: HttpCall, body: ResponsesRequest) -> ASGIApp:
    """Create a response in OpenAI's format: `model` is agent/NAME, graph/NAME, workflow/NAME, or a model."""
    stored, subject = call.api.responses, call.caller.subject
    earlier = stored.messages(subject, body.previous_response_id)
    fresh, places = messages_of(body.input, partial(stored.item, subject))
    messages = [*earlier, *fresh]
    places = [*["previous_response_id"] * len(earlier), *places]
    if body.instructions:
        messages.insert(0, ChatMessage(role="system", content=body.instructions))
        places.insert(0, "instructions")
    find = partial(call.api.remembered.find, subject)
    conversation = asked(messages, tools=body.tools is not None, find=find, field="input", places=places)
    prepared = await prepare(call, body.as_chat(messages), conversation)

    async def send_events(run: RunInfo, say: Say) -> ResponseProjection:
        calls = partial(prepared.client_calls.calls, run.run)
        projection = ResponseProjection(run.run, body, int(time.time()), calls=calls)

        async def each(happened: LoggedEvent) -> None:
            sent = projection.take(happened)
            reply = projection.reply
            # Store it before the last event is sent: the client's next request may refer to this response at once.
            if reply.store and reply.status in ("completed", "incomplete"):
                stored.add(subject, reply.id, body.previous_response_id, fresh, reply.output)
            for kind, data in sent:
                await say(event(msgspec.json.encode(data), name=kind))

        await call.hub.follow(call.caller, run.run, each)
        return projection

    return run_and_reply(call, partial(prepared.start, call), send_events, streams=bool(body.stream))


def model_agent(model: str | None, instructions: str = "") -> Agent:
    """Return an agent that is a model by itself: no tools, no questions."""
    return Agent(name="model", model=model, instructions=instructions, can_ask_user=False)


@route("POST", "/v1/embeddings", START, tag="openai", gives=EmbeddingsReply, errors=(404, 502))
async def embed(call: HttpCall, body: EmbeddingsRequest) -> ASGIApp:
    """Create embeddings of texts in OpenAI's format; `model` is an embedding model."""
    root = call.api.root
    model = _full_name(root, body.model)
    try:
        await root.knowledge.embedders.prepare(model)
        root.knowledge.embedders.check(model)
    # Also a `ConfigError`. A missing key is a failure of this server (502), not an unknown model (404).
    except CredentialsError:
        raise
    except ConfigError as error:
        default = root.knowledge.default_model
        raise NotFound(f"model: {error}; the embedding model of this server is {default}") from None

    async def perform(send: Send) -> None:
        rows, tokens = await root.embed(model, body.texts, call.caller.subject, dimensions=body.dimensions)
        sent = reply_of(rows, body, body.model, tokens)
        await reply(sent)(call.request.scope, call.request.receive, send)

    return Performed(perform)


def _full_name(root: Root, model: str) -> str:
    """Return the full model name. Clients of OpenAI send the configured model's name without its provider."""
    default = root.knowledge.default_model
    return default if ":" not in model and model == default.partition(":")[2] else model
