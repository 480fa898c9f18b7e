"""`/v1/chat/completions`: agents for programs that speak OpenAI's API."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.types import ASGIApp, Send

from .....protocol.control.own import StartRun
from .....protocol.errors import NotFound, UsageError
from ..call import Call, reply
from ..following import Failed, Performed, Running, follow
from ..shapes.openai import Asked, Chat, ChatCompletionReply, ChatCompletionRequest, asked
from ..shapes.wire import Wire
from ..sse import EventStream, Say, event
from ..table import SSE, Route
from .completions import check_model, plain

KINDS = ("agent", "graph", "workflow")
DONE = event(b"[DONE]")


async def complete(call: Call, body: ChatCompletionRequest) -> ASGIApp:
    """The conversation goes to what `model` names; what is said comes back."""
    conversation = asked(body.messages)
    wanted, more = begun(call, body.model, conversation)
    beside = body.callboard
    wanted = msgspec.structs.replace(wanted, variables=beside.variables, state=beside.state, timeout=beside.timeout)
    if "target" in more:
        more["target"] = msgspec.structs.replace(more["target"], temperature=body.temperature, top_p=body.top_p)

    async def perform(send: Send) -> None:
        async with Running(call, lambda: call.begin(wanted, **more)) as running:
            run = running.info
            usage = body.stream_options is not None and body.stream_options.include_usage
            told = Chat(run.run, body.model, int(time.time()), usage=usage)

            async def stream(say: Say) -> None:
                async def each(happened: Wire, _: bytes) -> None:
                    for chunk in told.take(happened):
                        await say(event(msgspec.json.encode(chunk)))

                await follow(call, run.run, each)
                await say(DONE)

            async def quietly(happened: Wire, _: bytes) -> None:
                told.take(happened)

            if body.stream:
                await EventStream(stream).run(send)
                return
            await follow(call, run.run, quietly)
        if told.error is not None:
            raise Failed(*told.error)
        await reply(told.reply())(call.request.scope, call.request.receive, send)

    return Performed(perform)


def begun(call: Call, model: str, conversation: Asked) -> tuple[StartRun, dict[str, Any]]:
    """What to start for a name: one of an agent, `agent/NAME` and the like, or a model's own.

    An agent gets what is said by a system prompt as part of the prompt, since its instructions are its own; a graph
    or a workflow knows nothing of what was said before.

    Raises:
        NotFound: there is no such agent.
    """
    kind, _, name = model.partition("/")
    if kind not in KINDS:
        try:
            check_model(call, model)
        except UsageError as error:
            raise NotFound(str(error)) from None
        model_alone = plain(model, instructions=conversation.system)
        return StartRun(target="", prompt=conversation.prompt), {
            "target": model_alone,
            "history": conversation.history,
        }
    found = next((target for target in call.hub.targets(call.caller) if target.name == name), None)
    if found is None or found.dialect != kind:
        hint = f"; it is a {found.dialect}: {found.dialect}/{name[:60]}" if found is not None else ""
        raise NotFound(f"there is no {kind} '{name[:60]}'{hint}; GET /v1/models lists those there are")
    prompt = "\n\n".join(text for text in (conversation.system, conversation.prompt) if text)
    more = {"history": conversation.history} if kind == "agent" else {}
    return StartRun(target=name, prompt=prompt), more


def target_of(name: str | None, forwarded: Any) -> str:
    """What an AG-UI client wants run: said in the query, or in what it passes on.

    Raises:
        UsageError: nothing is named.
    """
    named = name or (forwarded.get("target") if isinstance(forwarded, dict) else None)
    if not isinstance(named, str) or not named:
        raise UsageError("what is to be run? ?target=agent/NAME, or `target` in forwardedProps")
    return named


ROUTES = (
    Route(
        method="POST",
        path="/v1/chat/completions",
        handler=complete,
        summary="A chat completion as OpenAI's: `model` is agent/NAME, graph/NAME, workflow/NAME, or a model",
        tag="openai",
        body=ChatCompletionRequest,
        gives=ChatCompletionReply,
        media=(SSE,),
        errors=(404, 499, 502),
    ),
)
