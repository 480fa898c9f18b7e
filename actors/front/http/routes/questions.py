"""Questions for people, answered from outside."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.responses import Response

from .....protocol.errors import Conflict
from ...access.scopes import ANSWER, QUESTIONS
from ..call import Call, reply
from ..shapes.api import AnswerBody, AnswerReply, QuestionsPage, RunQuery
from ..table import route

_route = partial(route, tag="questions")


@_route("GET", "/v1/questions", QUESTIONS, gives=QuestionsPage, errors=(404,))
async def listed(call: Call, query: RunQuery) -> Response:
    """Every question that waits for an answer."""
    return reply(QuestionsPage(questions=[msgspec.to_builtins(q) for q in call.hub.questions(call.caller, query.run)]))


@_route("POST", "/v1/questions/{question}/answer", ANSWER, gives=AnswerReply, errors=(404, 409))
async def answer(call: Call, body: AnswerBody) -> Response:
    """Answer a question; the first answer counts."""
    question = call.path("question")
    if not call.hub.answer(call.caller, question, body.value):
        raise Conflict(f"question {question} does not wait any more")
    return reply(AnswerReply(question=question, answered=True))
