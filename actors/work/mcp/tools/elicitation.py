"""Questions of a server to the user in the middle of a call (`elicitation/create`): a form, or a page to open.

The fields of a form become questions on behalf of the call, in their order. They are escalated to the root like any
other question (`supervisors.escalation`), and only people may answer: the requested data is the user's. A user who
refuses chooses `decline`. Without a user, or an answer in time, the server gets `cancel`.

MCP's forms are flat: texts, numbers, yes or no, one of several, some of several. Answers are free text, so `12` is
parsed as a number and `ja` is not a yes. An invalid answer is asked again, with the reason.

Source: https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from .....protocol.errors import McpError, NobodyToAsk, Saturated, ShuttingDown
from .....protocol.events import Warned
from .....protocol.jsonrpc import INVALID_PARAMS
from .....protocol.kernel.questions import Question, QuestionKind, yes_or_no
from .....supervisors import Actor
from .....supervisors.escalation import QuestionTimeout
from ....io.json_schema import errors_by, validator
from ...tools.tool import shortened

Json: TypeAlias = Any

MOST_FIELDS = 50
TRIES = 5
"""Times that a field's question is asked; after as many invalid answers the form is cancelled."""

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
    """Ask the user the questions of an elicitation request, and return the `ElicitResult`.

    Its action is `decline` if the user refuses. It is `cancel` without a user, without an answer in time, and after
    `TRIES` invalid answers to one field.

    Raises:
        McpError: the server's request is invalid.
    """
    message = shortened(str(params.get("message") or "The server asks for input."), _LONGEST)
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
            text = f"MCP server '{server}' asked a question, and no user was attached to answer it: {asked}"
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
        raise McpError("the URL of the page to open must begin with http:// or https://", rpc_code=INVALID_PARAMS)
    text = (
        f"MCP server '{server}' asks you to open a page of {host}: {message}\n{shortened(url, _LONGEST)}\n"
        "Open it in a browser if you trust it. Neither the model nor this program sees what you enter there."
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
    answers = value if isinstance(value, list) else [value]
    if any(_declines(each, options) for each in answers):
        raise _Ended("decline")
    return value


def _declines(answer: str, options: tuple[str, ...]) -> bool:
    word = answer.strip().casefold()
    # The bare word declines only where it can't be an answer: neither free text nor an option of the field.
    return word == "/decline" or (word == DECLINE and bool(options) and DECLINE not in options)


def _fields(server: str, schema: Json) -> list[FormField]:
    """Return the fields of a form.

    Raises:
        McpError: the schema is not a form.
    """
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(properties) > MOST_FIELDS:
        raise McpError(
            f"the schema of a form must be an object with at most {MOST_FIELDS} fields", rpc_code=INVALID_PARAMS
        )
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    fields = []
    for name, about in properties.items():
        field = read_field(name, about if isinstance(about, dict) else {}, required=name in required)
        if field is None:
            text = f"the field '{name}' that '{server}' asks for has a type that forms do not support"
            raise McpError(text, rpc_code=INVALID_PARAMS)
        fields.append(field)
    return fields


Kind: TypeAlias = Literal["text", "number", "integer", "yes or no", "one of", "some of"]

MOST_OPTIONS = 500
_LONGEST_FIELD = 2_000
_LONGEST_OPTION = 200
_MOST_DIGITS = 300
"""Digits of a whole number at most; a float can represent the magnitude of any such number."""

_FORMATS = {
    "email": "an e-mail address",
    "uri": "an address such as https://example.org/",
    "date": "a date such as 2026-01-31",
    "date-time": "a time such as 2026-01-31T12:00:00Z",
}


class Unfit(Exception):
    """Invalid answer to a field; the text has the valid form."""


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """Field of a form.

    Attributes:
        name: its key in the form.
        label: text for the user.
        kind: kind of its value.
        schema: its JSON Schema.
        options: options as shown, with their values.
        required: True if the form is incomplete without it.
    """

    name: str
    label: str
    kind: Kind
    schema: Mapping[str, Json]
    options: Mapping[str, str] = {}
    required: bool = False

    @property
    def asked_as(self) -> QuestionKind:
        """Kind of the question for the field: `checkbox` for some of several, `choice` for one or for yes and no, else
        `text`.
        """
        if self.kind == "some of":
            return "checkbox"
        return "choice" if self.kind in ("one of", "yes or no") else "text"

    @property
    def default(self) -> str | None:
        """Meaning of an empty answer, as shown; None without a default, for a list, and for one too long to show."""
        value = self.schema.get("default")
        if value is None or isinstance(value, list):
            return None
        if isinstance(value, bool):
            return "yes" if value else "no"
        label = next((label for label, option in self.options.items() if option == value), str(value))
        return label if len(label) <= _LONGEST_FIELD else None  # too long to show

    @property
    def rule(self) -> str:
        """Description of a valid answer; "" if any answer is valid."""
        form = _FORMATS.get(str(self.schema.get("format")))
        parts = [form] if form else ["a number"] if self.kind == "number" else []
        parts += ["a whole number"] if self.kind == "integer" else []
        for key, words in _BOUNDS.items():
            if _is_number(self.schema.get(key)):
                parts.append(f"{words} {self.schema[key]:g}{_UNITS.get(key, '')}")
        if not self.required and self.asked_as != "choice":
            parts.append("may be left empty")
        return ", ".join(parts)

    def value(self, given: str | list[str]) -> Json:
        """Return the value of an answer; None for a field that is left out.

        Raises:
            Unfit: the answer is invalid.
        """
        if self.kind == "some of":
            parts = given if isinstance(given, list) else [part.strip() for part in given.split(",")]
            value = list(dict.fromkeys(self._option(text) for text in parts if text))
            if not value and not self.required:
                return None
        else:
            text = (given if isinstance(given, str) else ", ".join(given)).strip() or self.default or ""
            if not text and not self.required:
                return None
            value = self._read(text)
        bounds = {key: self.schema[key] for key in _BOUNDS if _is_number(self.schema.get(key))}
        wrong = errors_by(validator(json.dumps(bounds)), value)
        if wrong:
            raise Unfit(wrong[0].removeprefix("$: "))
        return value

    def _read(self, text: str) -> Json:
        if self.kind == "yes or no":
            answer = yes_or_no(text)
            if answer is None:
                raise Unfit("answer yes or no")
            return answer == "yes"
        if self.kind == "one of":
            return self._option(text)
        if self.kind in ("number", "integer"):
            # int() takes quadratic time for long texts, so the text is cut first.
            try:
                number = int(text[: _MOST_DIGITS + 1]) if self.kind == "integer" else float(text)
            except ValueError:
                number = math.nan
            if len(text) > _MOST_DIGITS or not math.isfinite(number):
                raise Unfit(f"{shortened(text, 40)!r} is not {self.rule.partition(',')[0]}")
            return number
        form = str(self.schema.get("format"))
        if form in _FORMATS and not _has_format(text, form):
            raise Unfit(f"{shortened(text, 40)!r} is not {_FORMATS[form]}")
        return text

    def _option(self, text: str) -> str:
        if text in self.options:
            return self.options[text]
        for label, option in self.options.items():
            if text.casefold() in (label.casefold(), option.casefold()):
                return option
        raise Unfit(f"{shortened(text, 40)!r} is not among the options")


_BOUNDS = {
    "minimum": "at least",
    "maximum": "at most",
    "minLength": "at least",
    "maxLength": "at most",
    "minItems": "at least",
    "maxItems": "at most",
}
_UNITS = {"minLength": " characters", "maxLength": " characters", "minItems": " chosen", "maxItems": " chosen"}


def read_field(name: str, schema: Mapping[str, Json], *, required: bool) -> FormField | None:
    """Return a field of a form's schema; None for a type that forms do not have, such as an array without options."""
    options = _options(schema.get("items") if schema.get("type") == "array" else schema)
    kind: Kind
    match schema.get("type"):
        case "boolean":
            kind, options = "yes or no", {"yes": "yes", "no": "no"}
        case "integer":
            kind = "integer"
        case "number":
            kind = "number"
        case "array" if options:
            kind = "some of"
        case "string" | None:
            kind = "one of" if options else "text"
        case _:
            return None
    title, description = str(schema.get("title") or name), str(schema.get("description") or "")
    label = shortened(f"{title}: {description}" if description else title, _LONGEST_FIELD)
    return FormField(name=name, label=label, kind=kind, schema=schema, options=options, required=required)


def _options(schema: Json) -> dict[str, str]:
    if not isinstance(schema, dict):
        return {}
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list):
        pairs = [(each.get("title"), each.get("const")) for each in titled if isinstance(each, dict)]
    else:
        values = schema.get("enum")
        values = values if isinstance(values, list) else []
        names = schema.get("enumNames")
        names = names if isinstance(names, list) and len(names) == len(values) else values
        pairs = list(zip(names, values, strict=True))
    options: dict[str, str] = {}
    for title, value in pairs[:MOST_OPTIONS]:
        label = shortened(str(title or value), _LONGEST_OPTION)
        # Two options may have the same title; the second is shown with its value.
        options[label if label not in options else f"{label} ({shortened(str(value), _LONGEST_OPTION)})"] = str(value)
    return options


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 10**_MOST_DIGITS


def _has_format(text: str, form: str) -> bool:
    try:
        match form:
            case "date":
                return date.fromisoformat(text).isoformat() == text  # `fromisoformat` also accepts `20260131` and weeks
            case "date-time":
                return "T" in text.upper() and bool(datetime.fromisoformat(text))
            case "uri":
                return bool(urlsplit(text).scheme) and " " not in text
            case "email":
                name, at, host = text.rpartition("@")
                return bool(at and name and host) and " " not in text
    except ValueError:
        return False
    return True
