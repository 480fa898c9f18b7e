"""Models that run on this machine: what a small model needs to be told.

The engine (`engines.py`, `local_server.py`) speaks OpenAI's format, but its native tools are no use: the
chat templates of small models have no place for them, and the engine then drops them without a word. What it does
well is to keep a reply within a JSON Schema. So tools become a schema here, `anyOf {"tool": <name>, "args": {...}}`
with `answer` as one more tool for plain words, shown by one example each; the reply is turned back into a tool call.

Three more lessons built in: a small model never stops by itself inside a JSON string, so strings and lists
get bounds where the schema has none; it repeats a tool whose result it has just seen, so such a tool is not
offered again until the next user turn; and at temperature 0 it says one sentence again and again, so in a reply in
words what was said costs a penalty, and such a reply has a bound.
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
"""Bounds of a reply when the request has none: a small model may well go on for ever."""

REPEAT_PENALTY = 1.1
"""What a token that was said lately costs. At 1.0 the small model repeats whole sentences; from 1.2 on it strays.

Not in JSON: the names of tools, and words to choose from, stand in the prompt, and those named would lose for it.
"""

MAX_TEXT = 300
MAX_ITEMS = 8

_TALK = (
    'You choose a tool. Reply with JSON {"tool": name, "args": {...}}.\nTools:\n',
    f"- {ANSWER}: Answer in words, when no tool is needed. args: text",
)


class LocalCodec:
    """Translates for our own engine."""

    streams_tools = False  # whether a reply is a call or an answer is known only at its end

    def __init__(self) -> None:
        self._inner = OpenAiCodec(own=False)

    def headers(self, key: str) -> dict[str, str]:
        """The engine's key, made up at its start, so that no web page can use it."""
        return self._inner.headers(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> Outgoing:
        """The request in plain turns, with tools as a schema."""
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
    """The tools to choose from now, `answer` included where words are allowed."""
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
    """One example each; words first, since a small model copies the last one it saw."""
    if any(tool.name == ANSWER for tool in tools):
        yield chat.UserTurn("Hello")
        yield chat.AssistantTurn(_written(ANSWER, {"text": "Hello! How can I help?"}))
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
    """A copy of `schema` in which every text and list has an upper bound."""
    if isinstance(schema, list):
        return [bounded(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
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
        if reply.stop == "length":
            return reply
        raise ModelError(f"the local model chose no tool, it said {reply.text[:200]!r}") from error
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
    """The turns without tool roles, which a small model's chat template does not know."""
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
                raise ModelError("local models take no images")
    return "\n".join(texts)


def _written(tool: str, arguments: dict[str, Json]) -> str:
    return msgspec.json.encode({"tool": tool, "args": arguments}).decode()
