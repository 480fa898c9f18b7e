"""Fields of a form that a server requests: each becomes one question, and its answer a value.

MCP's forms are flat: texts, numbers, yes or no, one of several, some of several. Answers are free text, so `12` is
parsed as a number and `ja` is not a yes. An invalid answer is asked again, with the reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from .....protocol.kernel.questions import QuestionKind, yes_or_no
from ....io.json_schema import errors_by, validator
from ...tools.tool import shortened

Json: TypeAlias = Any
Kind: TypeAlias = Literal["text", "number", "integer", "yes or no", "one of", "some of"]

MOST_OPTIONS = 500
_LONGEST = 2_000
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
        """Kind of the question."""
        if self.kind == "some of":
            return "checkbox"
        return "choice" if self.kind in ("one of", "yes or no") else "text"

    @property
    def default(self) -> str | None:
        """Meaning of an empty answer, in the form that is shown."""
        value = self.schema.get("default")
        if value is None or isinstance(value, list):
            return None
        if isinstance(value, bool):
            return "yes" if value else "no"
        shown = next((shown for shown, meant in self.options.items() if meant == value), str(value))
        return shown if len(shown) <= _LONGEST else None  # too long to show

    @property
    def rule(self) -> str:
        """Description of a valid answer."""
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
            said = yes_or_no(text)
            if said is None:
                raise Unfit("answer yes or no")
            return said == "yes"
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
        for shown, meant in self.options.items():
            if text.casefold() in (shown.casefold(), meant.casefold()):
                return meant
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
    """Return a field of a form's schema; None for a type that forms do not have."""
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
    label = shortened(f"{title}: {description}" if description else title, _LONGEST)
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
        shown = shortened(str(title or value), _LONGEST_OPTION)
        # Two options may have the same title; the second is shown with its value.
        options[shown if shown not in options else f"{shown} ({shortened(str(value), _LONGEST_OPTION)})"] = str(value)
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
