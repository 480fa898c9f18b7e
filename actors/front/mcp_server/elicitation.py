"""Mapping of a run's question to a form for the client's user, and of the form's result to an answer.

Forms are flat objects of a few simple types. A question with options and free text becomes two fields, the options and
`other`. The protocol forbids forms for passwords, so `can_be_asked` excludes them: such a question is treated as if the
client had no forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....protocol.kernel.questions import Question, yes_or_no

Json = Any

LISTS_SINCE = "2025-11-25"
"""First revision with form fields for several options; dates compare as text."""


def can_be_asked(question: Question) -> bool:
    """Return True if a form may ask the question."""
    return not question.secret


def takes_forms(capabilities: Mapping[str, Json]) -> bool:
    """Return True if a client with these capabilities shows forms; one that only opens URLs does not."""
    elicitation = capabilities.get("elicitation")
    return isinstance(elicitation, dict) and ("form" in elicitation or "url" not in elicitation)


def form(question: Question, version: str) -> dict[str, Json]:
    """Return the parameters of `elicitation/create`."""
    lines = [question.text, question.problem, question.rule]
    fields: dict[str, Json] = {"answer": _field(question, version)}
    required = ["answer"]
    if question.kind == "choice" and question.free and question.permission is None:
        fields["other"] = {"type": "string", "title": "In your own words", "description": "If none of them fits."}
        required = []
    return {
        "mode": "form",
        "message": "\n".join(line for line in lines if line),
        "requestedSchema": {"type": "object", "properties": fields, "required": required},
    }


def _field(question: Question, version: str) -> dict[str, Json]:
    options, default = list(question.options), question.default
    if question.permission is not None and "no" in options:
        default = "no"  # a form submitted without reading allows nothing
    if question.kind == "confirm":
        return {"type": "boolean"} | ({} if default is None else {"default": yes_or_no(default) == "yes"})
    if question.kind == "choice" and options:
        return {"type": "string", "enum": options} | ({"default": default} if default in options else {})
    if question.kind == "checkbox" and version >= LISTS_SINCE:
        return {"type": "array", "items": {"type": "string", "enum": options}}
    if question.kind == "checkbox":
        return {"type": "string", "description": f"Any of these, separated by commas: {', '.join(options)}"}
    return {"type": "string"} | ({} if default is None else {"default": default})


def answer(question: Question, result: Mapping[str, Json]) -> str | list[str] | None:
    """Return the answer in an `ElicitResult`; None if the user gave none.

    Declining a question that can be answered with no means no.
    """
    content = result.get("content")
    if result.get("action") != "accept":
        can_say_no = question.kind == "confirm" or question.permission is not None
        return "no" if can_say_no and result.get("action") == "decline" else None
    if not isinstance(content, dict):
        return None
    value = content.get("other") or content.get("answer")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if question.kind == "checkbox" and isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list):
        return [str(item) for item in value]
    if isinstance(value, str | int | float):
        return str(value)
    return "" if value is None else None
