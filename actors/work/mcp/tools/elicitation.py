"""Questions of a server to the user in the middle of a call (`elicitation/create`): a form, or a page to open.

The fields of a form become questions on behalf of the call, in their order. They are escalated to the root like any
other question (`supervisors.escalation`), and only people may answer: the requested data is the user's. A user who
refuses chooses `decline`. Without a user, or an answer in time, the server gets `cancel`.

Source: https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from .....protocol.errors import McpError, NobodyToAsk, Saturated, ShuttingDown
from .....protocol.events import Warned
from .....protocol.jsonrpc import INVALID_PARAMS
from .....protocol.kernel.questions import Question, QuestionKind
from .....supervisors import Actor
from .....supervisors.escalation import QuestionTimeout
from ...tools.tool import shortened
from .fields import FormField, Unfit, read_field

Json = Any

MOST_FIELDS = 50
TRIES = 5
"""Repetitions of a field's question after an invalid answer."""

UNANSWERED = "mcp_question"
"""Code of the warning that a server asked and no user was attached."""

DECLINE = "decline"
LEAVE_OUT = "leave this out"
_LONGEST = 4_000


class _Ended(Exception):
    """Incomplete form; the text is the action that the server gets."""


class _NobodyThere(_Ended):
    """No user was attached to answer."""


async def ask(me: Actor, server: str, params: Mapping[str, Json]) -> dict[str, Json]:
    """Return the `ElicitResult`.

    Raises:
        McpError: the server's request is invalid.
    """
    message = shortened(str(params.get("message") or "The server needs to know something."), _LONGEST)
    try:
        if params.get("mode") == "url":
            return await _open_page(me, server, message, str(params.get("url") or ""))
        fields = _fields(server, params.get("requestedSchema"))
        if not fields:
            await _one(me, f"MCP server '{server}' asks: {message}", "choice", options=("accept",))
        content = {}
        for number, field in enumerate(fields):
            head = f"MCP server '{server}' asks: {message}\n" if number == 0 else ""
            value = await _fill(me, head, field)
            if value is not None:
                content[field.name] = value
    except _Ended as end:
        if isinstance(end, _NobodyThere):
            asked = message.strip().partition("\n")[0]
            text = f"MCP server '{server}' asked, and nobody was there to answer: {asked}"
            me.emit(Warned(code=UNANSWERED, message=text))
        return {"action": str(end)}
    return {"action": "accept", "content": content}


async def _fill(me: Actor, head: str, field: FormField) -> Json:
    problem: str | None = None
    # Only choices need an option for leaving out: an empty text already means that.
    optional = field.asked_as == "choice" and not field.required
    for _ in range(TRIES):
        answer = await _one(
            me,
            head + field.label,
            field.asked_as,
            options=(*field.options, LEAVE_OUT) if optional else tuple(field.options),
            default=field.default,
            rule=field.rule or None,
            problem=problem,
        )
        if optional and answer == LEAVE_OUT:
            return None
        try:
            return field.value(answer)
        except Unfit as unfit:
            problem = str(unfit)
    raise _Ended("cancel")


async def _open_page(me: Actor, server: str, message: str, url: str) -> dict[str, Json]:
    host = _host(url)
    # Control characters could hide the real address on a terminal.
    if not host or any(not char.isprintable() for char in url):
        raise McpError("the page to open has to be an http or https URL", rpc_code=INVALID_PARAMS)
    text = (
        f"MCP server '{server}' asks you to open a page of {host}: {message}\n{shortened(url, _LONGEST)}\n"
        "Open it yourself, if you trust it; what you enter there, neither the model nor this program sees."
    )
    await _one(me, text, "choice", options=("opened",))
    return {"action": "accept"}


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets without a valid address
        return None
    return parts.hostname if parts.scheme in ("http", "https") else None


async def _one(
    me: Actor,
    text: str,
    kind: QuestionKind,
    *,
    options: tuple[str, ...],
    default: str | None = None,
    rule: str | None = None,
    problem: str | None = None,
) -> str | list[str]:
    """Ask one question and return the answer.

    Raises:
        _Ended: there is no answer, or the user declines.
    """
    if kind == "text":
        rule = f"{rule}; /decline refuses" if rule else "/decline refuses"
    question = Question(
        id="",
        actor="",
        text=text,
        kind=kind,
        options=(*options, DECLINE) if options else (),
        free=kind == "text",
        default=default,
        rule=rule,
        problem=problem,
        people=True,
    )
    try:
        answer = await me.ask_person(question)
    except NobodyToAsk:
        raise _NobodyThere("cancel") from None
    except (QuestionTimeout, Saturated, ShuttingDown):
        raise _Ended("cancel") from None
    if answer.by == "default":  # no user agreed to it
        raise _NobodyThere("cancel")
    value = answer.value
    said = value if isinstance(value, list) else [value]
    if any(_declines(each, options) for each in said):
        raise _Ended("decline")
    return value


def _declines(said: str, options: tuple[str, ...]) -> bool:
    word = said.strip().casefold()
    # The bare word declines only where it can't be an answer: neither free text nor an option of the field.
    return word == "/decline" or (word == DECLINE and bool(options) and DECLINE not in options)


def _fields(server: str, schema: Json) -> list[FormField]:
    """Return the fields of a form.

    Raises:
        McpError: the schema is not a form.
    """
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(properties) > MOST_FIELDS:
        raise McpError(f"a form is an object of at most {MOST_FIELDS} fields", rpc_code=INVALID_PARAMS)
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    fields = []
    for name, about in properties.items():
        field = read_field(name, about if isinstance(about, dict) else {}, required=name in required)
        if field is None:
            text = f"'{server}' wants a form with the field '{name}', of a type that forms don't have"
            raise McpError(text, rpc_code=INVALID_PARAMS)
        fields.append(field)
    return fields
