"""The tools with which a model asks the user: `user__ask`, `user__confirm`, `user__input`, `user__checkbox`.

A call sends its question towards the root (see `supervisors.escalation`) and waits. The answer may come from a person
at a terminal or a browser, a prepared answer, or an agent above (see `escalations`). Without an answer, the model
receives a note to use its own judgment: no agent fails because a person is away.
"""

from __future__ import annotations

from functools import partial

from ....protocol.errors import NobodyToAsk, Saturated, ToolFailed
from ....protocol.kernel.questions import Answer, Question, QuestionKind
from ....supervisors import Actor
from ....supervisors.escalation import QuestionTimeout
from ..tools.tool import Arguments, Json, Tool
from .tool_families import Schema, family_tool, read_texts, text, texts

FALLBACK = "Make your best judgment and proceed"

_BOXES = "Ask the user to choose any number of options."
_SEVERAL = "Ask the user to choose one of several options. The answer may also be a text of the user's own."
_TOOLS: tuple[tuple[str, QuestionKind, str, dict[str, Schema]], ...] = (
    ("ask", "choice", _SEVERAL, {"options": texts("What may be chosen, two or more.")}),
    ("confirm", "confirm", "Ask the user a question of yes or no.", {}),
    ("input", "text", "Ask the user for a text.", {}),
    ("checkbox", "checkbox", _BOXES, {"options": texts("What may be chosen.")}),
)
"""Names, kinds of questions, descriptions, and further parameters."""


async def _ask(kind: QuestionKind, timeout: float | None, me: Actor, arguments: Arguments) -> Json:
    options = _options(arguments) if kind in ("choice", "checkbox") else ()
    free = kind != "checkbox"
    question = Question(
        id="", actor="", timeout=timeout, kind=kind, text=arguments["question"], options=options, free=free
    )
    try:
        answer = await me.ask_person(question)
    except QuestionTimeout:
        return unanswered(f"Escalation timed out after {timeout or 0:g} seconds waiting for user response")
    except NobodyToAsk:
        return unanswered("The question was not asked: no user can be reached to answer it")
    except Saturated as error:
        return unanswered(f"The question was not asked: {error}")
    return {"answer": answer.text} if free else {"answers": _several(answer)}


def user_tools(*, timeout: float | None) -> list[Tool]:
    """Return the `user__*` tools.

    Args:
        timeout: seconds that a question waits for its answer; None for no limit.
    """

    question = text("The question, as the user reads it.")
    return [
        family_tool(f"user__{name}", about, partial(_ask, kind, timeout), {"question": question, **more}, waits=True)
        for name, kind, about, more in _TOOLS
    ]


def unanswered(why: str) -> dict[str, Json]:
    """Return the result for the model when no answer came."""
    return {"error": why, "fallback": FALLBACK}


def _options(arguments: Arguments) -> tuple[str, ...]:
    options = tuple(dict.fromkeys(read_texts(arguments["options"], "options")))
    if not options:
        raise ToolFailed("'options' is empty: name what may be chosen, or use user__input")
    return options


def _several(answer: Answer) -> list[str]:
    if isinstance(answer.value, list):
        return answer.value
    return [answer.value] if answer.value else []
