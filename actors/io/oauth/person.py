"""How a person gives the code of a sign-in: through the browser that comes back to this machine, or by hand.

The question stands at the desk (`supervisors.escalation`) for as long as the port listens; the first of the two that
has the code ends the other. What is pasted may be the whole address at which a browser elsewhere has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from ....protocol.errors import CallboardError, NobodyToAsk, OAuthRefused, Saturated, ShuttingDown, UsageError
from ....protocol.kernel.questions import Answer, Question
from ....supervisors import QuestionTimeout
from .authorization import Authorization
from .loopback import WITHIN, Redirect

DECLINE = "/decline"

RULE = f"an address that begins with http, or a code; {DECLINE} to leave it"


Asks = Callable[[Question], Awaitable[Answer]]


async def code_from(ask: Asks, request: Authorization, redirect: Redirect | None, text: str) -> str:
    """The code, from the browser or from a person's hand.

    Args:
        ask: puts a question to a person: `ask_person` of an actor, or a chat's own way.
        redirect: where the browser comes back to; None if that is not on this machine.
        text: shown to the person; the address to open stands in it, or was shown before.

    Raises:
        OAuthRefused: the person, or the authorization server, said no.
        NobodyToAsk: no person is there, or none did it in time.
    """
    ends: list[str | CallboardError] = []

    async def first(way: Callable[[], Awaitable[str]], scope: trio.CancelScope) -> None:
        try:
            ends.append(await way())
        except CallboardError as error:
            ends.append(error)
        scope.cancel()

    with trio.move_on_after(WITHIN):
        async with trio.open_nursery() as nursery:
            if redirect is not None:
                nursery.start_soon(first, partial(redirect.answer, request), nursery.cancel_scope)
            nursery.start_soon(first, partial(_pasted, ask, request, text), nursery.cancel_scope)
    if not ends:
        raise NobodyToAsk(f"no sign-in within {WITHIN:g} s")
    if isinstance(ends[0], CallboardError):
        raise ends[0]
    return ends[0]


async def _pasted(ask: Asks, request: Authorization, text: str) -> str:
    problem: str | None = None
    while True:
        question = Question(
            id="", actor="", text=text, kind="text", rule=RULE, problem=problem, secret=True, people=True
        )
        try:
            answer = await ask(question)
        except (QuestionTimeout, Saturated, ShuttingDown) as error:
            raise NobodyToAsk(f"no person can be asked to sign in: {error}") from error
        said = answer.text.strip()
        if said.casefold() == DECLINE:
            raise OAuthRefused("the person did not want to", error="declined")
        try:
            return request.code_in(said)
        except UsageError as error:
            problem = str(error)
