"""Route `/v1/responses`: OpenAI's Responses API over the same runs as chat completions."""

from __future__ import annotations

import time
from functools import partial

import msgspec
from starlette.types import ASGIApp

from .....protocol.control.things import RunInfo
from ....io.http.sse import event
from ...access.scopes import START
from ...control.logs.reading import LoggedEvent
from ..call import SSE, HttpCall, route
from ..shapes.conversation import asked
from ..shapes.openai import ChatMessage
from ..shapes.responses import ResponseProjection, ResponseReply, ResponsesRequest, messages_of
from ..streams import Say, run_and_reply
from .chat import prepare


@route(
    "POST", "/v1/responses", START, tag="openai", gives=ResponseReply, media=(SSE,), errors=(404, 499, 502)
)  # fmt: skip
async def respond(call: HttpCall, body: ResponsesRequest) -> ASGIApp:
    """A response as OpenAI's: `model` is agent/NAME, graph/NAME, workflow/NAME, or a model."""
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

    async def tell(run: RunInfo, say: Say) -> ResponseProjection:
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

    return run_and_reply(call, partial(prepared.start, call), tell, streams=bool(body.stream))
