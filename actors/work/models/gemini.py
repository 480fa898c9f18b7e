"""Codec of Google's Gemini.

    POST {api_base}/models/{model}:generateContent
    POST {api_base}/models/{model}:streamGenerateContent?alt=sse

Tool calls have no ids: results are matched to calls by name and order, so the results of one turn are sent back
together. A reasoning model signs its calls and some of its texts, and expects the signatures back at their positions
(`ToolCall.signature`, `Thought`). From Gemini 3 on it refuses a call without a signature, unless the request marks the
call as one of another model. The reasoning effort is a number of tokens up to 2.5 (`thinkingBudget`), and a level in
later versions (`thinkingLevel`).
https://ai.google.dev/gemini-api/docs/thought-signatures
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec

from ....protocol import chat
from ....protocol.decoding import json_decoder
from ....protocol.errors import ModelError, UpstreamError
from . import codec, reasoning, stored_reasoning
from .codec import declared

Json = Any

FORM = "gemini"
"""Format name of stored reasoning: signatures of texts."""

_FROM_ELSEWHERE = "skip_thought_signature_validator"
"""Signature for calls of other models."""

_READABLE = ("application/pdf",)
"""Media types of files that the model reads directly, in addition to images, audio and video."""


class GeminiCodec:
    """Translator between provider-neutral chat requests and Gemini's format."""

    streams_tools = True

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the key; empty without a key."""
        return {"x-goog-api-key": key} if key else {}

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request in Gemini's format."""
        body: dict[str, Json] = {"contents": list(_contents(request, model))}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools:
            body["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in request.tools]}]
            if request.tool_choice != "auto":
                body["toolConfig"] = {"functionCallingConfig": _choice(request.tool_choice)}
        options = codec.given(
            temperature=request.temperature,
            topP=request.top_p,
            maxOutputTokens=request.max_tokens,
            stopSequences=request.stop or None,
        )
        if request.response_schema is not None and not request.tools:  # the API refuses both in one request
            options |= {"responseMimeType": "application/json", "responseJsonSchema": request.response_schema}
        if (thinking := _thinking(request, model)) is not None:
            options["thinkingConfig"] = thinking
        own = request.extra.get("generationConfig")
        if options or own:
            body["generationConfig"] = {**own, **options} if isinstance(own, dict) else options
        what = "streamGenerateContent?alt=sse" if stream else "generateContent"
        path = f"/{model if '/' in model else f'models/{model}'}:{what}"
        return codec.Outgoing(path, msgspec.json.encode({**request.extra, **body}), _decoded, GeminiReader)


class GeminiReader(codec.StreamReader):
    """Reader of one streamed answer. Each chunk has the form of a complete answer."""

    form = FORM

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    def take(self, data: str) -> Iterator[chat.Delta]:
        """Yield the deltas of one chunk."""
        answer = codec.read(_decode_answer, data)
        if answer.error is not None:
            raise UpstreamError(codec.error_text(answer.error))
        yield from self.add(answer)

    def add(self, answer: _Answer) -> Iterator[chat.Delta]:
        """Yield the deltas of an answer or a chunk."""
        self.builder.id = self.builder.id or answer.response_id
        if answer.usage_metadata is not None:
            self.builder.usage = _usage(answer.usage_metadata)
        if answer.prompt_feedback is not None and answer.prompt_feedback.block_reason:
            self.builder.ends(answer.prompt_feedback.block_reason, refused=True)
            self.ended = True
        for candidate in answer.candidates or ():
            # `extra` may ask for several candidates; the reply is the first.
            if candidate.index:
                continue
            for part in (candidate.content.parts if candidate.content is not None else None) or ():
                yield from self._part(part)
            if candidate.finish_reason:
                self.ended = True
                self.builder.ends(candidate.finish_reason)

    def _part(self, part: _Part) -> Iterator[chat.Delta]:
        if part.function_call is not None:
            arguments = codec.arguments_text(part.function_call.args)
            name, signature = part.function_call.name, part.thought_signature
            yield from self.builder.call(self._calls, name=name, arguments=arguments, signature=signature)
            self._calls += 1
        elif part.thought:
            yield from self.builder.reasoning(part.text or "")
        else:
            text = part.text or ""
            if part.thought_signature:
                # The signature may arrive with an empty text at the end of the stream; it must keep its position.
                self.builder.thought({stored_reasoning.TEXT: len(text), "thoughtSignature": part.thought_signature})
                yield from self.builder.text(text, woven=False)
            else:
                yield from self.builder.text(text)


# --- out --------------------------------------------------------------------------------------------------


def _thinking(request: chat.ChatRequest, model: str) -> Json:
    """Return the reasoning options: a level or a number of tokens, never both, and a summary of the reasoning."""
    level, tokens = reasoning.level_of(request), reasoning.budget_of(request)
    if level is None or tokens is None:
        return None
    if level == "none":
        return {"thinkingBudget": 0}
    known = reasoning.gemini(model)
    if known is not None and known.version >= (3, 0) and request.thinking_budget is None:
        return {"thinkingLevel": {"xhigh": "high", "max": "high"}.get(level, level), "includeThoughts": True}
    least, most = _BUDGETS.get(known.size if known is not None else "", (0, tokens))
    return {"thinkingBudget": min(max(tokens, least), most), "includeThoughts": True}


_BUDGETS = {"pro": (128, 32768), "flash": (0, 24576), "flash-lite": (512, 24576)}
"""Minimum and maximum token budgets by size of the model."""


def _contents(request: chat.ChatRequest, model: str) -> Iterator[Json]:
    turns = request.messages
    known = reasoning.gemini(model)
    strict = known is not None and known.version >= (3, 0)
    if turns and isinstance(turns[0], chat.AssistantTurn):
        yield {"role": "user", "parts": [{"text": codec.EARLIER}]}
    for are_results, together in groupby(turns, lambda turn: isinstance(turn, chat.ToolTurn)):
        if are_results:
            results = [turn for turn in together if isinstance(turn, chat.ToolTurn)]
            images = [_part(part) for turn in results for part in codec.result_apart(turn)[1]]
            yield {"role": "user", "parts": [*map(_result, results), *images]}
            continue
        for turn in together:
            if isinstance(turn, chat.UserTurn):
                parts = [_part(part) for part in chat.parts_of(turn.content) if not codec.is_blank(part)]
                yield {"role": "user", "parts": parts or [{"text": codec.NOTHING}]}
            elif isinstance(turn, chat.AssistantTurn):
                said = list(_model_parts(turn, request.model, strict))
                yield {"role": "model", "parts": said or [{"text": codec.NOTHING}]}


def _part(part: chat.TextPart | chat.ImagePart | chat.FilePart) -> Json:
    match part:
        case chat.TextPart():
            return {"text": part.text}
        case chat.ImagePart() if part.url:
            return {"fileData": {"mimeType": part.media_type, "fileUri": part.url}}
        case chat.ImagePart():
            return {"inlineData": {"mimeType": codec.media_type_of(part), "data": codec.base64_of(part)}}
        case chat.FilePart(media_type=kind) if kind in _READABLE or kind.startswith(("audio/", "video/", "image/")):
            return {"inlineData": {"mimeType": part.media_type, "data": codec.base64_of(part)}}
        case chat.FilePart():
            return {"text": codec.file_as_text(part)}


def _model_parts(turn: chat.AssistantTurn, model: str, strict: bool) -> Iterator[Json]:
    # Gemini signs only the first of parallel calls, so one signature per turn is enough.
    signed = any(call.signature for call in turn.tool_calls)
    for piece in stored_reasoning.sent(turn, model, FORM):
        if isinstance(piece, str):
            yield {"text": piece}
        elif isinstance(piece, chat.ToolCall):
            part: dict[str, Json] = {"functionCall": {"name": piece.name, "args": piece.arguments}}
            if piece.signature or (strict and not signed):
                part["thoughtSignature"] = piece.signature or _FROM_ELSEWHERE
                signed = True
            yield part
        elif isinstance(piece[0].get("thoughtSignature"), str):
            yield {"text": piece[1], "thoughtSignature": piece[0]["thoughtSignature"]}


def _result(turn: chat.ToolTurn) -> Json:
    key = "error" if turn.error else "result"
    return {"functionResponse": {"name": turn.name, "response": {key: codec.result_apart(turn)[0]}}}


def _declaration(tool: chat.Tool) -> Json:
    found: dict[str, Json] = {"name": tool.name, "description": tool.description}
    parameters = declared(tool.parameters)
    # The API refuses an object schema without properties.
    if parameters.get("properties"):
        found["parametersJsonSchema"] = parameters
    return found


def _choice(choice: str) -> Json:
    if choice in ("none", "required"):
        return {"mode": "NONE" if choice == "none" else "ANY"}
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


# --- in ---------------------------------------------------------------------------------------------------


class _Camel(msgspec.Struct, rename="camel"):
    pass


class _Call(_Camel):
    name: str = ""
    args: Json = None


class _Part(_Camel):
    text: str | None = None
    thought: bool = False
    function_call: _Call | None = None
    thought_signature: str = ""


class _Content(_Camel):
    parts: list[_Part] | None = None


class _Candidate(_Camel):
    content: _Content | None = None
    finish_reason: str | None = None
    index: int = 0


class _Usage(_Camel):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None


class _Feedback(_Camel):
    block_reason: str | None = None


class _Answer(_Camel):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    response_id: Json = None
    error: Json = None


_decode_answer = json_decoder(_Answer).decode


def _decoded(body: bytes) -> chat.ChatReply:
    answer = codec.read(_decode_answer, body)
    if answer.error is not None:
        raise ModelError(codec.error_text(answer.error))
    reader = GeminiReader()
    list(reader.add(answer))
    if not reader.ended:
        raise ModelError("the provider's response has no candidates")
    return reader.finish()


def _usage(usage: _Usage) -> chat.TokenUsage:
    return chat.TokenUsage(
        input_tokens=(usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        output_tokens=(usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
        cached_tokens=usage.cached_content_token_count or 0,
        reasoning_tokens=usage.thoughts_token_count or 0,
    )
