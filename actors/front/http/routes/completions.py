"""Route `/v1/completions`: one prompt, one answer; in a session or without.

Event names follow Loki's plan. The stream is a projection of the run's own events (`/v1/runs/{run}/events`), and uses
their numbers as ids. The last events are sent after all work: a long session has been compressed, and is on disk.

OpenAI's old completions have the same path. A request with a `model` and no key that only Callboard defines counts as
one of them. Its reply has OpenAI's fields in addition to Callboard's, and its stream is OpenAI's unless `Accept` asks
for events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.types import ASGIApp

from .....protocol import events as ev
from .....protocol.control.method_structs import MOST, Json, Name, Path, StartRun, Text, Value
from .....protocol.control.resources import RunInfo
from .....protocol.errors import CallboardError, UsageError
from .....protocol.events import TERMINAL, Event, decode
from .....protocol.requests import Overrides
from ....io.http.sse import event
from ....views.run_view import Activity, RunView
from ...access.scopes import PROMPT, START
from ...control.logs.files import LoggedEvent
from ...control.sessions import SessionTurn
from ..call import SSE, HttpCall, route
from ..shapes.conversation import ConversationRequest
from ..shapes.openai import Finish, Limit, StreamOptions, Words, finish_of
from ..streams import Say, run_and_reply, say_all
from .openai import DONE, KINDS, begin, model_agent
from .roles import check_role

Told = tuple[str, dict[str, Json]]
"""The name of an event, and its data."""

Prompt = Annotated[Text, Meta(description="What is said.")]


class FileGiven(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """File to insert before the prompt: an absolute `path` on the server (scope `run:files`), or a `url`."""

    path: Path | None = None
    url: Path | None = None


class CompletionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a prompt.

    Attributes:
        temperature: takes precedence over that of the agent's file.
        auto_continue: True if an agent continues by itself while its todo list has open items; by default as its file
            says.
        timeout: seconds after which the run is ended.
    """

    model: Path | None = None
    files: Annotated[list[FileGiven], Meta(max_length=MOST)] = []
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    auto_continue: bool | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = None


class SessionCompletionRequest(CompletionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prompt in a session.

    Attributes:
        stream: tell what happens as it happens (SSE), not only what came of it; so does `Accept: text/event-stream`.
    """

    prompt: Prompt
    stream: bool = False

    @property
    def text(self) -> str:
        """The prompt."""
        return self.prompt


class CompletionRequest(CompletionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prompt without a session: for `agent`, or else for the model itself, in a `role` if one is named.

    The fields from `max_tokens` on are those of OpenAI's old completions; those from `seed` on change nothing.

    Attributes:
        prompt: in OpenAI's shape also a list of one text.
        echo: the prompt is put before the answer.
    """

    prompt: Prompt | Annotated[list[Text], Meta(min_length=1, max_length=1)]
    stream: bool | None = False
    agent: Name | None = None
    role: Name | None = None
    max_tokens: Limit | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop: Value | Words | None = None
    n: Annotated[int, Meta(ge=1, le=1, description="Only one answer is supported.")] | None = None
    best_of: Annotated[int, Meta(ge=1, le=1, description="Only one answer is supported.")] | None = None
    echo: bool | None = False
    logprobs: Annotated[int, Meta(ge=0, le=0, description="There are none.")] | None = None
    suffix: (
        Annotated[str, Meta(max_length=0, description="Inserting text before a suffix is not supported.")] | None
    ) = None
    stream_options: StreamOptions | None = None
    seed: Json = None
    user: Json = None
    presence_penalty: Json = None
    frequency_penalty: Json = None
    logit_bias: Json = None

    @property
    def is_openais(self) -> bool:
        """True if the request is an old OpenAI completion: a model, and no key that only Callboard defines."""
        ours = self.agent, self.role, self.auto_continue, self.timeout
        return self.model is not None and not self.files and all(key is None for key in ours)

    @property
    def text(self) -> str:
        """The prompt."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]

    @property
    def sampling(self) -> dict[str, Json]:
        """The requested fields of a `ChatRequest`."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        wanted = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "stop": stop or None,
        }
        return {name: value for name, value in wanted.items() if value is not None}


class ToolCallTold(msgspec.Struct, kw_only=True):
    """Tool call: its arguments and its result as text; the middle of long ones is left out."""

    id: str
    name: str
    args: str = ""
    result: str = ""
    is_error: bool = False


class UsageTold(msgspec.Struct, kw_only=True):
    """Tokens as counted by the providers; `cost` in USD. `priced` is false if the price of a model is not known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    priced: bool = True


class CompletionReply(msgspec.Struct, kw_only=True):
    """Answer to a prompt, with its tool calls and usage."""

    request_id: str
    run: str
    session_id: str | None = None
    final_message: str = ""
    tool_calls: list[ToolCallTold] = []
    turns: int = 0
    compressed: bool = False
    autonamed: str | None = None
    auto_continued: int = 0
    usage: UsageTold = msgspec.field(default_factory=UsageTold)


class TextChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The only choice of an OpenAI `text_completion`."""

    text: str
    index: int = 0
    finish_reason: Finish = "stop"
    logprobs: None = None


class TextUsage(UsageTold, kw_only=True):
    """Number of tokens under Callboard's names and under OpenAI's."""

    prompt_tokens: int | msgspec.UnsetType = msgspec.UNSET
    completion_tokens: int | msgspec.UnsetType = msgspec.UNSET
    total_tokens: int | msgspec.UnsetType = msgspec.UNSET


class OneShotReply(CompletionReply, kw_only=True):
    """Answer to a prompt without a session; for a request in OpenAI's format also with the fields of a
    `text_completion`.
    """

    usage: TextUsage = msgspec.field(default_factory=TextUsage)
    id: str | msgspec.UnsetType = msgspec.UNSET
    object: Literal["text_completion"] | msgspec.UnsetType = msgspec.UNSET
    created: int | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType = msgspec.UNSET
    choices: list[TextChoice] | msgspec.UnsetType = msgspec.UNSET


class CompletionProjection:
    """Folds a run's events into a reply, and projects each of them to the stream.

    Attributes:
        reply: the reply so far.
        error: `code` and `message`, once the run has failed.
    """

    def __init__(self, request_id: str, run: str, session: str | None) -> None:
        self.reply = CompletionReply(request_id=request_id, run=run, session_id=session)
        self.error: tuple[str, str] | None = None
        self._view = RunView()
        self._calls: dict[Activity, ToolCallTold] = {}
        self._said = ""
        self._spoke = False
        self._finish: Finish = "stop"

    def take(self, logged: LoggedEvent) -> list[Told]:
        """Return the events of the stream for an event of the run."""
        event = decode(logged.data)
        if event is None:
            return []
        told = list(self._project(event, self._view.see(event).about))
        if isinstance(event.data, ev.LlmResponse) and self._view.speaks(event):
            self._finish = finish_of(event.data.stop)
        return told

    def rounded_off(self, *, compressed: bool, autonamed: str | None) -> list[Told]:
        """Return the events for a session that was compressed or named after the run, and update the reply."""
        told: list[Told] = []
        if compressed:
            self.reply.compressed = True
            told += [("session_compressing", {}), ("session_compressed", {})]
        if autonamed is not None:
            self.reply.autonamed = autonamed
            told.append(("session_autonamed", {"name": autonamed}))
        return told

    def _project(self, event: Event, about: Activity | None) -> Iterator[Told]:
        reply, speaks = self.reply, self._view.speaks(event)
        match event.data:
            case ev.RunStarted():
                yield "started", {"request_id": reply.request_id, "session_id": reply.session_id, "run": reply.run}
            case ev.LlmDelta(text=text) if speaks:
                self._said += text
                self._spoke = True
                yield "assistant_delta", {"text": text}
            case ev.LlmResponse() if speaks and self._said:
                yield "assistant_message_end", {"full_text": self._said}
                self._said = ""
            case ev.ToolStarted(tool=tool, arguments=arguments) if about is not None and self._view.calls_itself(event):
                call = self._calls[about] = ToolCallTold(id=event.id, name=tool, args=arguments)
                reply.tool_calls.append(call)
                yield "tool_call", {"id": call.id, "name": call.name, "args": call.args}
            case ev.ToolFinished(error=error, result=result) if about in self._calls:
                call = self._calls.pop(about)
                call.is_error, call.result = error is not None, error or result
                told = {"id": call.id, "name": call.name, "result": call.result, "is_error": call.is_error}
                yield "tool_result", told
            case ev.AgentContinued(count=count, most=most, open=open):
                reply.auto_continued += 1
                yield "auto_continue_triggered", {"count": count, "max": most, "remaining_todos": open}
            case ev.HistoryCompacted(tokens=tokens, tokens_now=now) if speaks:
                reply.compressed = True
                yield "session_compressing", {}
                yield "session_compressed", {"tokens_saved": tokens - now}
            case ev.Warned(message=message, code=code):
                yield "warning", {"message": message, "code": code}
            case ev.QuestionAsked(question=question):
                message = f"the run waits for the answer to a question: {question['text']}"
                yield "info", {"message": message, "question": question}
            case ev.RunFinished() | ev.RunFailed() | ev.RunCancelled():
                yield from self._ended(event.kind, self._view.outcome or {})

    def _ended(self, kind: str, outcome: dict[str, Json]) -> Iterator[Told]:
        reply, view = self.reply, self._view
        reply.turns = outcome["turns"]
        reply.usage = UsageTold(
            input_tokens=view.input_tokens, output_tokens=view.output_tokens, cost=view.cost, priced=view.priced
        )
        if kind != "run.cancelled":  # a failed run may have an output too
            reply.final_message = outcome["output"]
            if reply.final_message and not (view.is_agent and self._spoke):  # pieces of a worker's run may be lost
                yield "assistant_delta", {"text": reply.final_message}
                yield "assistant_message_end", {"full_text": reply.final_message}
        if kind == "run.failed":
            self.error = outcome["error"]["code"], outcome["error"]["message"]
        elif kind == "run.cancelled":
            self.error = "cancelled", "the run was cancelled"
        if self.error is not None:
            yield "error", {"code": self.error[0], "message": self.error[1]}
        yield "finished", {"outcome": self._finished(outcome["status"])}

    def _finished(self, status: str) -> dict[str, Json]:
        reply = self.reply
        return {
            "status": status,
            "final_message": reply.final_message,
            "turns": reply.turns,
            "tool_calls": len(reply.tool_calls),
            "compressed": reply.compressed,
            "auto_continued": reply.auto_continued,
            "usage": msgspec.to_builtins(reply.usage),
        }


class TextCompletion(CompletionProjection):
    """Folds a run into a `text_completion`, and its events into chunks of one.

    Args:
        before: text before the answer (`echo`).
        usage: True sends the usage at the end of a stream.
    """

    def __init__(
        self, request_id: str, run: str, model: str, created: int, *, before: str = "", usage: bool = False
    ) -> None:
        super().__init__(request_id, run, None)
        self._model, self._created = model, created
        self._before, self._wants_usage = before, usage
        self._between = before

    def chunks(self, logged: LoggedEvent) -> list[dict[str, Json]]:
        """Return the chunks for an event."""
        return [chunk for name, data in self.take(logged) for chunk in self._chunks(name, data)]

    def _chunks(self, name: str, data: dict[str, Json]) -> Iterator[dict[str, Json]]:
        match name:
            case "assistant_delta":
                text, self._between = self._between + data["text"], ""
                yield self._chunk(text)
            case "assistant_message_end":
                self._between = "\n"  # the separator in `final_message`
            case "error":
                yield {"error": {**data, "type": "run_failed", "param": None}}
            case "finished" if self.error is None:
                yield self._chunk("", self._finish)
                if self._wants_usage:
                    usage = msgspec.to_builtins(self._usage())
                    # OpenAI's `include_usage`: a further chunk without choices.
                    yield {**self._chunk(""), "choices": [], "usage": usage}

    def _chunk(self, text: str, finish: Finish | None = None) -> dict[str, Json]:
        return {
            "id": f"cmpl-{self.reply.run}",
            "object": "text_completion",
            "created": self._created,
            "model": self._model,
            "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": finish}],
        }

    def _usage(self) -> TextUsage:
        used = self.reply.usage
        return TextUsage(
            **msgspec.structs.asdict(used),
            prompt_tokens=used.input_tokens,
            completion_tokens=used.output_tokens,
            total_tokens=used.input_tokens + used.output_tokens,
        )

    def whole(self) -> OneShotReply:
        """Return the reply of a run that is over."""
        fields = msgspec.structs.asdict(self.reply) | {"usage": self._usage()}
        choice = TextChoice(text=self._before + self.reply.final_message, finish_reason=self._finish)
        return OneShotReply(
            **fields,
            id=f"cmpl-{self.reply.run}",
            object="text_completion",
            created=self._created,
            model=self._model,
            choices=[choice],
        )


_route = partial(route, tag="completions", media=(SSE,), errors=(404, 409, 499, 502))


@_route("POST", "/v1/completions", START, gives=OneShotReply)
async def one_shot(call: HttpCall, body: CompletionRequest) -> ASGIApp:
    """Send one prompt to an agent or a model; nothing is stored. With a `model` alone, the format is also OpenAI's."""
    if body.is_openais and not call.accepts(SSE):
        return await _as_openai(call, body)
    if body.echo or body.stream_options or not isinstance(body.prompt, str):
        raise UsageError(
            "echo, stream_options and a list as `prompt` are only supported in OpenAI's format: a `model`, and "
            "no keys of Callboard"
        )
    await check_role(call, body.role, body.model)
    call.check_model(body.model)
    asked = await call.hub.request(call.caller, asked_for(body, body.agent or ""))
    request = msgspec.structs.replace(
        asked,
        target=body.agent or model_agent(None if body.role else body.model),
        role=body.role,
        overrides=overrides(body, agent=body.agent is not None),
    )
    return run_and_reply(
        call,
        lambda: call.hub.begin(call.caller, request, durable=False),
        partial(_stream_run, call, ()),
        streams=bool(body.stream) or call.accepts(SSE),
    )


async def _as_openai(call: HttpCall, body: CompletionRequest) -> ASGIApp:
    assert body.model is not None
    if body.model.partition("/")[0] not in KINDS:
        call.check_model(body.model)
    begun = await begin(call, body.model, ConversationRequest(system="", history=(), prompt=body.text))
    request = await begun.request(call)
    if begun.talks:
        request = msgspec.structs.replace(request, overrides=Overrides(sampling=body.sampling))
    usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    before = body.text if body.echo else ""

    async def send_events(run: RunInfo, say: Say) -> _Whole:
        told = TextCompletion(call.id, run.run, body.model or "", int(time.time()), before=before, usage=usage)

        async def each(happened: LoggedEvent) -> None:
            for chunk in told.chunks(happened):
                await say(event(msgspec.json.encode(chunk)))

        await call.hub.follow(call.caller, run.run, each)
        await say(DONE)
        return _Whole(told)

    return run_and_reply(
        call, lambda: call.hub.begin(call.caller, request, durable=False), send_events, streams=bool(body.stream)
    )


class _Whole:
    """Text completion with a finished run."""

    def __init__(self, told: TextCompletion) -> None:
        self.error = told.error
        self.reply = told.whole()


@_route("POST", "/v1/sessions/{id}/completions", PROMPT, gives=CompletionReply)
async def in_session(call: HttpCall, body: SessionCompletionRequest) -> ASGIApp:
    """Send one prompt to a session."""
    call.check_model(body.model)
    stored = await call.api.root.sessions.get(call.caller, call.path("id"))
    asked = await call.hub.request(call.caller, asked_for(body, stored.agent or ""))
    request = msgspec.structs.replace(asked, target="", overrides=overrides(body, agent=stored.agent is not None))
    turns: list[SessionTurn] = []

    async def start() -> RunInfo:
        turns.append(await call.hub.sessions.begin(call.caller, stored.id, request))
        return turns[0].info

    return run_and_reply(call, start, partial(_stream_run, call, turns), streams=body.stream or call.accepts(SSE))


def overrides(body: SessionCompletionRequest | CompletionRequest, *, agent: bool) -> Overrides:
    """Return the request's settings for the agent; a model by itself has no todo list to continue."""
    if isinstance(body, CompletionRequest):
        sampling = body.sampling
    else:
        sampling = {} if body.temperature is None else {"temperature": body.temperature}
    return Overrides(sampling=sampling, auto_continue=body.auto_continue if agent else None)


def asked_for(body: SessionCompletionRequest | CompletionRequest, target: str) -> StartRun:
    """Return the start request for the prompt, its files and its options.

    Raises:
        UsageError: a file has neither or both of `path` and `url`, or its `url` is not http(s).
    """
    files = [given.path or given.url or "" for given in body.files]
    if "" in files or any(given.path and given.url for given in body.files):
        raise UsageError("files: each entry must have either a `path` or a `url`")
    if any(given.url and not given.url.startswith(("http://", "https://")) for given in body.files):
        raise UsageError("files: a `url` must begin with http:// or https://")
    return StartRun(
        target=target,
        prompt=body.text,
        model=body.model,
        files=files,
        timeout=body.timeout,
    )


async def _stream_run(call: HttpCall, turns: Sequence[SessionTurn], run: RunInfo, say: Say) -> CompletionProjection:
    """Stream a run. Its last events wait until its session is on disk: `turns` has its session turn, if any."""
    told = CompletionProjection(call.id, run.run, run.session)
    last: list[tuple[list[Told], int]] = []

    async def each(happened: LoggedEvent) -> None:
        events = told.take(happened)
        if happened.kind in TERMINAL:
            last.append((events, happened.seq))
        else:
            await say_all(say, happened.seq, events)

    await call.hub.follow(call.caller, run.run, each)
    more: list[Told] = []
    for turn in turns:
        await turn.over.wait()
        if isinstance(turn.error, CallboardError):  # the answer is sent anyway
            more = [
                (
                    "warning",
                    {"code": turn.error.code, "message": f"this turn was not saved in the session: {turn.error}"},
                )
            ]
        elif turn.error is not None:
            raise turn.error
        more += told.rounded_off(compressed=turn.rounded.compressed, autonamed=turn.rounded.autonamed)
    for events, seq in last:
        await say_all(say, seq, [*more, *events])
    return told
