"""Questions for people, answered from outside."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from .....protocol.errors import Conflict
from ..call import Call, reply
from ..shapes.api import AnswerBody, AnswerReply, QuestionsPage, RunQuery
from ..table import Route


async def listed(call: Call, query: RunQuery) -> Response:
    """All that wait, of all runs the caller may see."""
    return reply(QuestionsPage(questions=[msgspec.to_builtins(q) for q in call.hub.questions(call.caller, query.run)]))


async def answer(call: Call, body: AnswerBody) -> Response:
    """The first answer counts."""
    question = call.path("question")
    if not call.hub.answer(call.caller, question, body.value):
        raise Conflict(f"question {question} does not wait any more")
    return reply(AnswerReply(question=question, answered=True))


ROUTES = (
    Route(
        method="GET",
        path="/v1/questions",
        handler=listed,
        summary="Every question that waits for an answer",
        tag="questions",
        query=RunQuery,
        gives=QuestionsPage,
        errors=(404,),
    ),
    Route(
        method="POST",
        path="/v1/questions/{question}/answer",
        handler=answer,
        summary="Answer a question; the first answer counts",
        tag="questions",
        body=AnswerBody,
        gives=AnswerReply,
        errors=(404, 409),
    ),
)
