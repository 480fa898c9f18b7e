"""A run's questions, put to the client: permissions and choices as `session/request_permission`, others as a form.

a permission, yes/no, a choice        options; `always` is allow_always
a text, several choices               elicitation/create, where the client can show forms
nothing that the client can show      the question's default, or none
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ....protocol.control.acp import text_block
from ....protocol.control.errors import Refused
from ....protocol.errors import NobodyToAsk

if TYPE_CHECKING:
    from ..control.peer import Peer

log = logging.getLogger("callboard.control")

Json = Any
Question = dict[str, Json]

_KINDS = {"yes": "allow_once", "always": "allow_always", "no": "reject_once"}
_NAMES = {"yes": "Allow", "always": "Always allow", "no": "Refuse"}


async def ask(peer: Peer, session: str, question: Question, *, forms: bool) -> str | list[str] | None:
    """The answer; None if the client wants none to be given.

    Args:
        question: in its wire form.
        forms: whether the client can show forms.

    Raises:
        NobodyToAsk: the client can't show it, and it has no default.
    """
    kind = question.get("kind", "text")
    try:
        if question.get("permission") or kind == "confirm" or (kind == "choice" and not forms):
            return await _permission(peer, session, question)
        if forms:
            return await _form(peer, session, question)
    except Refused as refused:  # it can't show that after all, or it is gone
        log.debug("the client did not answer a question: %s", refused)
    if question.get("default") is None:
        raise NobodyToAsk(f"this client can't show a question: {question['text']}")
    return str(question["default"])


async def _permission(peer: Peer, session: str, question: Question) -> str | None:
    options = question.get("options") or ("yes", "no")
    tool = question.get("permission")
    text = str(question["text"])
    answer = await peer.request(
        "session/request_permission",
        {
            "sessionId": session,
            "toolCall": {
                "toolCallId": question["actor"] if tool else question["id"],
                "title": tool or text.partition("\n")[0][:200],
                "status": "pending",
                "content": [{"type": "content", "content": text_block(text)}],
            },
            "options": [
                {"optionId": each, "name": _named(each, tool), "kind": _KINDS.get(each, "allow_once")}
                for each in options
            ],
        },
    )
    outcome = answer.get("outcome") if isinstance(answer, dict) else None
    chosen = outcome.get("optionId") if isinstance(outcome, dict) and outcome.get("outcome") == "selected" else None
    return str(chosen) if chosen in options else None


def _named(option: str, tool: Json) -> str:
    return _NAMES.get(option, option) if tool else option


async def _form(peer: Peer, session: str, question: Question) -> str | list[str] | None:
    answer = await peer.request(
        "elicitation/create",
        {
            "sessionId": session,
            "mode": "form",
            "message": _message(question),
            "requestedSchema": {"type": "object", "properties": {"answer": _schema(question)}, "required": ["answer"]},
        },
    )
    if not isinstance(answer, dict):
        return None
    content = answer.get("content")
    if answer.get("action") == "accept" and isinstance(content, dict):
        value = content.get("answer")
        return [str(each) for each in value] if isinstance(value, list) else None if value is None else str(value)
    default: str | None = question.get("default") if answer.get("action") == "decline" else None
    return default


def _message(question: Question) -> str:
    parts = [str(question["text"]), question.get("rule"), question.get("problem")]
    return "\n".join(part for part in parts if part)


def _schema(question: Question) -> Json:
    options = list(question.get("options") or ())
    if question.get("kind") == "checkbox":
        return {"type": "array", "title": "Answer", "items": {"type": "string", "enum": options}}
    schema: dict[str, Json] = {"type": "string", "title": "Answer"}
    if options and question.get("free") is False:
        schema["enum"] = options
    elif options:
        schema["description"] = "One of: " + ", ".join(options)
    if question.get("default") is not None:
        schema["default"] = question["default"]
    return schema
