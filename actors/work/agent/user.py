"""The tools with which a model asks the user: `user__ask`, `user__confirm`, `user__input`, `user__checkbox`.

A call puts its question on the way to the root (see `supervisors.escalation`) and waits there. It does not know who
answers: a person at a terminal or a browser, a prepared answer, or an agent above that knows (see `escalations`). When
nobody does, the model is told so, and to go by its own judgment: no agent fails because a person is out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....protocol.errors import NobodyToAsk, Saturated, ToolFailed
from ....protocol.questions import Question
from ....supervisors.escalation import QuestionTimeout
from ..tools.tool import Arguments, Json, Tool
from .family import family_tool, read_texts, text, texts

if TYPE_CHECKING:
    from ....protocol.questions import Answer
    from ....supervisors import Actor

FALLBACK = "Make your best judgment and proceed"


class _UserCalls:
    """Bodies of the `user__*` calls; a question waits for `timeout` seconds."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout

    async def put(self, me: Actor, **about: Any) -> Answer | dict[str, Json]:
        question = Question(id="", actor="", timeout=self._timeout, **about)
        try:
            answer = await me.ask_person(question)
        except QuestionTimeout:
            seconds = f"{self._timeout or 0:g} seconds"
            return unanswered(f"Escalation timed out after {seconds} waiting for user response")
        except NobodyToAsk:
            return unanswered("The question was not asked: nobody is there to answer it")
        except Saturated as error:
            return unanswered(f"The question was not asked: {error}")
        return answer

    async def ask(self, me: Actor, arguments: Arguments) -> Json:
        options = _options(arguments)
        answer = await self.put(me, kind="choice", text=arguments["question"], options=options)
        return answer if isinstance(answer, dict) else {"answer": answer.text}

    async def confirm(self, me: Actor, arguments: Arguments) -> Json:
        answer = await self.put(me, kind="confirm", text=arguments["question"])
        if isinstance(answer, dict):
            return answer
        return {"answer": answer.text}

    async def ask_text(self, me: Actor, arguments: Arguments) -> Json:
        answer = await self.put(me, kind="text", text=arguments["question"])
        return answer if isinstance(answer, dict) else {"answer": answer.text}

    async def checkbox(self, me: Actor, arguments: Arguments) -> Json:
        options = _options(arguments)
        answer = await self.put(me, kind="checkbox", text=arguments["question"], options=options, free=False)
        return answer if isinstance(answer, dict) else {"answers": _several(answer)}


def user_tools(*, timeout: float | None) -> list[Tool]:
    """The `user__*` tools.

    Args:
        timeout: seconds a question waits for its answer; None for as long as it takes.
    """
    calls = _UserCalls(timeout)
    question = text("The question, as the user reads it.")
    return [
        family_tool(
            "user__ask",
            "Ask the user to choose one of several options. The answer may also be a text of the user's own.",
            calls.ask,
            {"question": question, "options": texts("What may be chosen, two or more.")},
            waits=True,
        ),
        family_tool(
            "user__confirm", "Ask the user a question of yes or no.", calls.confirm, {"question": question}, waits=True
        ),
        family_tool("user__input", "Ask the user for a text.", calls.ask_text, {"question": question}, waits=True),
        family_tool(
            "user__checkbox",
            "Ask the user to choose any number of options.",
            calls.checkbox,
            {"question": question, "options": texts("What may be chosen.")},
            waits=True,
        ),
    ]


def unanswered(why: str) -> dict[str, Json]:
    """What the model is told when no answer came."""
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
