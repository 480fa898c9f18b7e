"""OpenAI's shapes of a chat completion: what is taken, and how a run is told in them.

What has no word there stands beside, under `callboard`: the run's id, its status, tokens' cost, the nodes it passes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .....protocol.chat import AssistantTurn, ImagePart, Part, TextPart, Turn, UserTurn
from .....protocol.errors import UsageError
from .speaker import Speaker
from .wire import Wire

Json = Any


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message: `content` is text, or parts of the types `text` and `image_url`."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Json]] | None = None


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream has beside its text."""

    include_usage: bool = False


class CallboardOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What OpenAI has no word for.

    Attributes:
        variables: values of the agent's variables.
        state: replaces keys of a graph's `initial_state`.
        timeout: seconds after which the run is ended.
    """

    variables: dict[str, str] = {}
    state: dict[str, Json] = {}
    timeout: Annotated[float, Meta(gt=0)] | None = None


class ChatCompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """As OpenAI's. Fields that are not listed are taken and left alone."""

    model: Annotated[str, Meta(min_length=1, description="`agent/NAME`, `graph/NAME`, `workflow/NAME`, or a model.")]
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=10_000)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    n: Annotated[int, Meta(ge=1, le=1, description="One answer is what there is.")] | None = None
    tools: Annotated[list[Json], Meta(max_length=0, description="Tools are the agent's own.")] | None = None
    callboard: CallboardOptions = CallboardOptions()


class ChatUsage(msgspec.Struct, kw_only=True):
    """Tokens as OpenAI counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The message that answers."""

    content: str
    role: Literal["assistant"] = "assistant"
    refusal: str | None = None


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The one answer."""

    message: Said
    index: int = 0
    finish_reason: str = "stop"
    logprobs: None = None


class ChatCompletionReply(msgspec.Struct, frozen=True, kw_only=True):
    """A chat completion."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    callboard: dict[str, Json]
    object: Literal["chat.completion"] = "chat.completion"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of messages asks for: system prompt, the conversation so far, and what is said now."""

    system: str
    history: tuple[Turn, ...]
    prompt: str


def asked(messages: list[ChatMessage]) -> Asked:
    """The messages in our words. Tool calls and results of other conversations are left out.

    Raises:
        UsageError: the last thing said is not the user's, or a part is of a kind nobody here reads.
    """
    system = "\n\n".join(_text(each) for each in messages if each.role in ("system", "developer"))
    turns: list[Turn] = []
    for number, message in enumerate(messages):
        if message.role == "user":
            turns.append(UserTurn(_content(message, number)))
        elif message.role == "assistant" and _text(message):
            turns.append(AssistantTurn(text=_text(message)))
    if not turns or not isinstance(turns[-1], UserTurn):
        raise UsageError("messages: the last one has to be the user's")
    last = turns[-1].content
    if not isinstance(last, str) and any(not isinstance(part, TextPart) for part in last):
        raise UsageError("messages: images can be part of what was said before, but not of the prompt yet")
    prompt = last if isinstance(last, str) else "\n".join(part.text for part in last if isinstance(part, TextPart))
    return Asked(system=system, history=tuple(turns[:-1]), prompt=prompt)


def _text(message: ChatMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(str(part.get("text", "")) for part in message.content or () if part.get("type") == "text")


def _content(message: ChatMessage, number: int) -> str | tuple[Part, ...]:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    parts: list[Part] = []
    for part in message.content:
        kind, image = part.get("type"), part.get("image_url")
        if kind == "text" and isinstance(part.get("text"), str):
            parts.append(TextPart(part["text"]))
        elif kind == "image_url" and isinstance(image, dict) and isinstance(image.get("url"), str):
            parts.append(ImagePart(url=image["url"]))
        else:
            raise UsageError(f"messages[{number}].content: parts are of type text or image_url, not {kind!r}")
    if all(isinstance(part, TextPart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(parts)


class Chat:
    """Tells a run as a chat completion.

    Attributes:
        error: what the run failed with, once it has: `code` and `message`.
    """

    def __init__(self, run: str, model: str, created: int, *, usage: bool = False) -> None:
        self.error: tuple[str, str] | None = None
        self._run, self._model, self._created = run, model, created
        self._wants_usage = usage
        self._speaker = Speaker()
        self._said = ""
        self._turn_said = False
        self._outcome: dict[str, Json] = {}

    def take(self, event: Wire) -> list[dict[str, Json]]:
        """The chunks that an event is told with."""
        self._speaker.notice(event)
        data = event.data
        if event.kind == "run.started":
            return [self._chunk({"role": "assistant", "content": ""}, callboard={"run": self._run})]
        if event.kind == "llm.delta" and self._speaker.says(event):
            between = "\n" if self._said and not self._turn_said else ""
            self._turn_said = True
            self._said += between + data["text"]
            return [self._chunk({"content": between + data["text"]})]
        if event.kind == "llm.response" and self._speaker.says(event):
            self._turn_said = False
        elif event.kind in ("node.entered", "node.exited", "question.asked"):
            return [self._chunk({}, callboard={"event": {"kind": event.kind, "seq": event.seq, **data}})]
        elif event.kind in ("run.finished", "run.failed", "run.cancelled"):
            return self._ended(event)
        return []

    def _ended(self, event: Wire) -> list[dict[str, Json]]:
        outcome = self._outcome = event.data["outcome"]
        if event.kind != "run.finished":
            error = outcome["error"] or {"code": "cancelled", "message": "the run was cancelled"}
            self.error = error["code"], error["message"]
            return [{"error": {"code": error["code"], "message": error["message"], "type": "run_failed"}}]
        chunks = []
        if not self._said and outcome["output"]:
            chunks.append(self._chunk({"content": outcome["output"]}))
        chunks.append(self._chunk({}, finish="stop", callboard=self._beside()))
        if self._wants_usage:
            last = self._chunk({})
            chunks.append({**last, "choices": [], "usage": msgspec.to_builtins(self._usage())})
        return chunks

    def reply(self) -> ChatCompletionReply:
        """The whole, of a run that is done."""
        return ChatCompletionReply(
            id=f"chatcmpl-{self._run}",
            created=self._created,
            model=self._model,
            choices=[ChatChoice(message=Said(content=self._outcome["output"]))],
            usage=self._usage(),
            callboard=self._beside(),
        )

    def _usage(self) -> ChatUsage:
        used = self._outcome["usage"].values()
        prompt, completion = sum(u["input_tokens"] for u in used), sum(u["output_tokens"] for u in used)
        return ChatUsage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)

    def _beside(self) -> dict[str, Json]:
        outcome = self._outcome
        cost = sum(used["cost"] for used in outcome["usage"].values())
        told = {"run": self._run, "status": outcome["status"], "turns": outcome["turns"], "cost": cost}
        return told | ({"state": outcome["state"]} if outcome["state"] else {})

    def _chunk(
        self, delta: dict[str, Json], *, finish: str | None = None, callboard: dict[str, Json] | None = None
    ) -> dict[str, Json]:
        chunk = {
            "id": f"chatcmpl-{self._run}",
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}],
        }
        return chunk if callboard is None else {**chunk, "callboard": callboard}
