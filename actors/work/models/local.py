"""Codec of local models: prompts, schemas and bounds that make small models usable.

Problem: the engine (`engines.py`, `local_server.py`) uses OpenAI's format, but its native tools do not work. The chat
templates of small models have no place for tools, and the engine then drops them silently. It does enforce a JSON
Schema reliably.

So the tools become one schema, `anyOf {"tool": <name>, "args": {...}}`, with `answer` as a further tool for plain text.
The prompt shows one example of each. The reply is converted back into a tool call.

Small models also need these rules:

- They never end a JSON string by themselves, so strings and lists without a bound get one.
- They repeat a tool after seeing its result, so a used tool is not offered again until the next user turn.
- At temperature 0 they repeat one sentence, so plain text has a repeat penalty and a token limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ....protocol import chat
from ....protocol.decoding import json_decoder
from ....protocol.errors import ModelError
from ....protocol.json_values import UNREADABLE
from .codec import Outgoing, file_as_text, without_files
from .openai import OpenAiCodec

Json = Any

ANSWER = "answer"
MAX_TOKENS, MAX_TOKENS_OF_JSON = 256, 512
"""Token limits of a reply if the request has none: a small model may never stop."""

REPEAT_PENALTY = 1.1
"""Penalty of recent tokens. At 1.0 the small model repeats whole sentences; from 1.2 on it loses the topic.

JSON replies have no penalty: the prompt contains the tool names and enum values, which would become less likely.
"""

MAX_TEXT = 300
MAX_ITEMS = 8

_TALK = (
    'You choose a tool. Reply with JSON {"tool": name, "args": {...}}.\nTools:\n',
    f"- {ANSWER}: Answer in words, when no tool is needed. args: text",
)


class LocalCodec:
    """Translator between provider-neutral chat requests and those of the local engine."""

    streams_tools = False  # only the complete reply shows whether it is a call or an answer

    def __init__(self) -> None:
        self._inner = OpenAiCodec(own=False)

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the engine's random key, which keeps web pages from using the engine."""
        return self._inner.headers(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> Outgoing:
        """Return the request in plain turns, with the tools as a schema.

        If unset, the temperature is 0, and the reply has a token limit.
        """
        changes: dict[str, Json] = {
            "messages": tuple(_plain(request.messages)),
            "tools": (),
            "max_tokens": request.max_tokens or (MAX_TOKENS_OF_JSON if _wants_json(request) else MAX_TOKENS),
            "temperature": 0.0 if request.temperature is None else request.temperature,
            "extra": request.extra if _wants_json(request) else {"repeat_penalty": REPEAT_PENALTY, **request.extra},
        }
        if _offers(request):
            tools = list(_offered(request))
            changes["system"] = _instructions(request.system, tools)
            changes["messages"] = (*_examples(tools), *changes["messages"])
            changes["response_schema"] = _choice_schema(tools)
        elif request.response_schema is not None:
            changes["response_schema"] = bounded(request.response_schema)
        outgoing = self._inner.encode(msgspec.structs.replace(request, **changes), model, stream=stream)
        if not _offers(request):
            return outgoing
        return msgspec.structs.replace(outgoing, decode=lambda body: _chosen(outgoing.decode(body), request))


def _wants_json(request: chat.ChatRequest) -> bool:
    return _offers(request) or request.response_schema is not None


# --- tools as a schema ------------------------------------------------------------------------------------


def _offers(request: chat.ChatRequest) -> bool:
    return bool(request.tools) and request.tool_choice != "none"


def _offered(request: chat.ChatRequest) -> Iterator[chat.Tool]:
    """Yield the tools that may be called now, and `answer` if plain text is allowed."""
    if request.tool_choice not in ("auto", "required"):
        yield from (tool for tool in request.tools if tool.name == request.tool_choice)
        return
    if request.tool_choice == "required":
        yield from request.tools
        return
    done = _done_since_the_user_spoke(request.messages)
    yield from (tool for tool in request.tools if tool.name not in done)
    text = {"text": {"type": "string", "maxLength": MAX_TEXT}}
    yield chat.Tool(name=ANSWER, parameters={"type": "object", "properties": text, "required": ["text"]})


def _done_since_the_user_spoke(turns: tuple[chat.Turn, ...]) -> set[str]:
    done: set[str] = set()
    for turn in reversed(turns):
        if isinstance(turn, chat.UserTurn):
            break
        if isinstance(turn, chat.ToolTurn):
            done.add(turn.name)
    return done


def _instructions(system: str, tools: list[chat.Tool]) -> str:
    head, answer = _TALK
    lines = [
        f"- {tool.name}: {tool.description}. args: {', '.join(_properties(tool))}"
        for tool in tools
        if tool.name != ANSWER
    ]
    if any(tool.name == ANSWER for tool in tools):
        lines.append(answer)
    return "\n\n".join(part for part in (system, head + "\n".join(lines)) if part)


def _examples(tools: list[chat.Tool]) -> Iterator[chat.Turn]:
    """Yield one example of each tool. `answer` is first, since a small model copies the last example."""
    if any(tool.name == ANSWER for tool in tools):
        yield chat.UserTurn("Hello")
        yield chat.AssistantTurn(_written(ANSWER, {"text": "Hello! How can I help?"}))
    # Six examples at most, to leave room in the small context.
    for tool in tools[:6]:
        if tool.name != ANSWER:
            yield chat.UserTurn(tool.description or tool.name)
            arguments = {name: _example(name, schema) for name, schema in _properties(tool).items()}
            yield chat.AssistantTurn(_written(tool.name, arguments))


def _example(name: str, schema: Json) -> Json:
    if not isinstance(schema, dict):
        return name.upper()
    if schema.get("enum"):
        return schema["enum"][0]
    values = {"number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}
    return values.get(str(schema.get("type")), name.upper())


def _properties(tool: chat.Tool) -> dict[str, Json]:
    properties = tool.parameters.get("properties")
    return properties if isinstance(properties, dict) else {}


def _choice_schema(tools: list[chat.Tool]) -> dict[str, Json]:
    return {
        "anyOf": [
            {
                "type": "object",
                "properties": {"tool": {"const": tool.name}, "args": bounded(tool.parameters)},
                "required": ["tool", "args"],
                "additionalProperties": False,
            }
            for tool in tools
        ]
    }


def bounded(schema: Json) -> Json:
    """Return a copy of `schema` in which lists and strings have an upper bound.

    A string with `enum`, `const`, `pattern` or `format` gets none.
    """
    if isinstance(schema, list):
        return [bounded(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    # Values of these keys are data, even if they look like a schema.
    copy = {key: value if key in ("enum", "const", "default") else bounded(value) for key, value in schema.items()}
    if copy.get("type") == "string" and not copy.keys() & {"maxLength", "enum", "const", "pattern", "format"}:
        copy["maxLength"] = max(MAX_TEXT, copy.get("minLength", 0))
    if copy.get("type") == "array" and "maxItems" not in copy:
        copy["maxItems"] = max(MAX_ITEMS, copy.get("minItems", 0))
    return copy


def _chosen(reply: chat.ChatReply, request: chat.ChatRequest) -> chat.ChatReply:
    try:
        choice = _decode_choice(reply.text)
    except UNREADABLE as error:
        # Cut off inside the JSON: the caller handles the stop reason `length`.
        if reply.stop == "length":
            return reply
        raise ModelError(f"the local model did not choose a tool and answered {reply.text[:200]!r}") from error
    # A real tool may have the name `answer`; then the reply is a call.
    if choice.tool == ANSWER and not any(tool.name == ANSWER for tool in request.tools):
        return msgspec.structs.replace(reply, text=str(choice.args.get("text", "")))
    number = sum(isinstance(turn, chat.ToolTurn) for turn in request.messages)
    call = chat.ToolCall(id=f"call_{number}", name=choice.tool, arguments=choice.args)
    return msgspec.structs.replace(reply, text="", tool_calls=(call,), stop="tools")


class _Choice(msgspec.Struct):
    tool: str
    args: dict[str, Json]


_decode_choice = json_decoder(_Choice).decode


# --- plain turns ------------------------------------------------------------------------------------------


def _plain(turns: tuple[chat.Turn, ...]) -> Iterator[chat.Turn]:
    """Yield the turns without tool roles, which the chat templates of small models do not support."""
    for turn in turns:
        match turn:
            case chat.UserTurn():
                yield chat.UserTurn(_text(turn.content))
            case chat.AssistantTurn():
                calls = [_written(call.name, call.arguments) for call in turn.tool_calls]
                yield chat.AssistantTurn("\n".join(part for part in (turn.text, *calls) if part))
            case chat.ToolTurn():
                yield chat.UserTurn(f"Result of {turn.name}: {_text(without_files(turn.content))}")


def _text(content: chat.Content) -> str:
    texts: list[str] = []
    for part in chat.parts_of(content):
        match part:
            case chat.TextPart():
                texts.append(part.text)
            case chat.FilePart():
                texts.append(file_as_text(part))
            case chat.ImagePart():
                raise ModelError("local models do not accept images")
    return "\n".join(texts)


def _written(tool: str, arguments: dict[str, Json]) -> str:
    return msgspec.json.encode({"tool": tool, "args": arguments}).decode()
