"""Authorization code of a user: from the browser that returns to this machine, or pasted.

The question is open (`supervisors.escalation`) while the port listens; the first way that yields the code ends the
other. The pasted text may be the final URL of a browser on another machine.
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
    """Return the code, from the browser or pasted by the user.

    Args:
        ask: asks the user: an actor's `ask_person`, or a chat's equivalent.
        redirect: redirect listener; None if the redirect is not on this machine.
        text: question; the URL to open is in it, or was printed before.

    Raises:
        OAuthRefused: the user or the authorization server refused.
        NobodyToAsk: there is no user, or the sign-in timed out.
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
