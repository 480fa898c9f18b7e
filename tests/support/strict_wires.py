"""What strict providers refuse in a conversation, for three wire formats: OpenAI's, Anthropic's and Gemini's.

    said_in(request)            the conversation, the same for all three
    objections(request)         why a strict provider refuses it; nothing if it does not

All three: the first message is a user's, and so is the last, or it has the results of tools; none is empty; a call has
its result right behind it, each once, and no result stands without its call. OpenAI: each result names a call of the
assistant's message before it (https://platform.openai.com/docs/guides/function-calling). Anthropic: the results of all
calls stand in the one user message behind them, before any text, and roles alternate
(https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use). Gemini: as many responses as calls, by
the same names, in the turn right behind them (https://ai.google.dev/gemini-api/docs/function-calling).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from support.fake_models import Request

Json = Any


@dataclass
class Said:
    """One message.

    Attributes:
        last: the last of its texts, which are all in `text`.
        calls, results: by id, or by name for Gemini.
        odd: what is wrong within it.
    """

    role: str
    text: str = ""
    calls: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    last: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.calls or self.results)


def wire_of(request: Request) -> str:
    """`openai`, `anthropic` or `gemini`."""
    if "enerateContent" in request.path:
        return "gemini"
    return "anthropic" if request.path.endswith("/messages") else "openai"


def said_in(request: Request) -> list[Said]:
    """The conversation, without the system prompt."""
    body = request.json
    match wire_of(request):
        case "gemini":
            return [_gemini(each) for each in body["contents"]]
        case "anthropic":
            return [_anthropic(each) for each in body["messages"]]
        case _:
            return [_openai(each) for each in body["messages"] if each["role"] not in ("system", "developer")]


def prompt_of(request: Request) -> str:
    """What a user has said last."""
    return next(
        (said.last or said.text for said in reversed(said_in(request)) if said.role == "user" and said.text), ""
    )


def objections(request: Request) -> list[str]:
    """See the module."""
    wire, found, said = wire_of(request), [], said_in(request)
    if not said:
        return ["there are no messages"]
    if said[0].role != "user":
        found.append(f"the first message is the {said[0].role}'s")
    if said[-1].role == "assistant":
        found.append("the last message is the assistant's")
    waiting: list[str] = []
    before = Said("")
    for number, each in enumerate(said):
        where = f"message {number} ({each.role})"
        found += [f"{where}: {odd}" for odd in each.odd]
        if each.is_empty:
            found.append(f"{where} is empty")
        both_users = wire == "anthropic" and "assistant" not in (each.role, before.role) and before.role
        if both_users or each.role == before.role == "assistant":
            found.append(f"{where}: two of one role in a row")
        for result in each.results:
            if result in waiting:
                waiting.remove(result)
            else:
                found.append(f"{where}: result {result} has no call before it")
        if waiting and (each.role != "tool" or number == len(said) - 1):
            found.append(f"{where}: calls {waiting} have no result")
            waiting = []
        if each.calls:
            waiting = list(each.calls)
        before = each
    return [*found, *([f"calls {waiting} have no result"] if waiting else [])]


def _openai(message: Json) -> Said:
    content = message.get("content")
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
    if message["role"] == "tool":
        return Said("tool", text, results=[message["tool_call_id"]])
    said = Said(message["role"], text, [call["id"] for call in message.get("tool_calls") or ()])
    if "tool_calls" in message and not message["tool_calls"]:
        said.odd.append("tool_calls is empty")
    return said


def _anthropic(message: Json) -> Said:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    said = Said(message["role"])
    for block in blocks:
        match block["type"]:
            case "tool_use":
                said.calls.append(block["id"])
            case "tool_result":
                said.results.append(block["tool_use_id"])
                if said.text:
                    said.odd.append("a result behind a text")
            case "text" if not block["text"].strip():
                said.odd.append("a text without a word")
            case "text":
                said.text += block["text"]
                said.last = block["text"]
    if said.results and not said.text:
        said.role = "tool"
    return said


def _gemini(content: Json) -> Said:
    said = Said("assistant" if content["role"] == "model" else "user")
    for part in content["parts"]:
        if "functionCall" in part:
            said.calls.append(part["functionCall"]["name"])
        elif "functionResponse" in part:
            said.results.append(part["functionResponse"]["name"])
        elif not part.get("text"):
            said.odd.append("a text without a word")
        else:
            said.text += part["text"]
    if said.results:
        said.role = "tool"
    return said
