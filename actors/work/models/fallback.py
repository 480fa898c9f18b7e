"""Several models of which one has to answer: which is asked, and when the next one is.

    model: [openai:gpt-4o, claude:claude-haiku-4-5]

The first is asked, with all the tries that one model gets. The next is asked when that came to nothing for a reason
that does not lie in the request: the provider can't be reached, fails, stands still, or its account is empty; or the
request would wait for its turn for longer than `PATIENCE`. A request that is refused for what it says, a wrong key and
a reached limit of the run end the call, as they do with a single model: another model would hide a mistake.

A model that has failed is passed over for a while by all requests of the process (`Down`). Then one request tries it,
and the others pass it over until that has been answered. If all have failed lately, they are asked all the same, first
the one whose time is over first. A model that lets requests wait is not passed over, since its limiter knows when it
can be asked; if no other has answered, the request waits for the one whose turn comes first, however long that takes.

Models that can't take a request are left out for it: those that take no images if it has some, those that call no tools
if it offers some and another can call them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.chat import ChatReply, ChatRequest
from ....protocol.errors import AccountEmpty, CallboardError, Unsupported, UpstreamError
from .call import Busy, Call
from .limiter import Gate, Waiting, too_many
from .target import Target

if TYPE_CHECKING:
    from ....protocol.settings import Settings
    from ....supervisors import Retry

PATIENCE = 5.0
"""Seconds that a request waits for its turn with one model, or between two tries, while there is another to ask."""

LONGEST = 3600.0
"""Seconds that a model is passed over at most, if its provider has said how long it will be away."""

_SHOWN = 200

Ask = Callable[["Retry"], Awaitable[ChatReply]]
"""Asks the model that the call is set to, with these tries."""


class _Failure(msgspec.Struct):
    error: str
    at: float
    until: float
    tried: bool = False  # just now, by one request


class Down:
    """Models that have failed lately, and are passed over.

    Args:
        seconds: for how long.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._failures: dict[str, _Failure] = {}

    def why(self, model: str, now: float) -> str:
        """Why it is passed over; empty if it is not."""
        failure = self._failures.get(model)
        if failure is None or (now >= failure.until and not failure.tried):
            return ""
        return f"failed {now - failure.at:.0f} s ago: {failure.error}"

    def until(self, model: str) -> float:
        """When that is over."""
        failure = self._failures.get(model)
        return -math.inf if failure is None else failure.until

    def trying(self, model: str) -> None:
        """A request asks it."""
        if model in self._failures:
            self._failures[model].tried = True

    def over(self, model: str) -> None:
        """The request has ended, in whichever way."""
        if model in self._failures:
            self._failures[model].tried = False

    def failed(self, model: str, error: CallboardError, now: float) -> None:
        """It has not answered."""
        away = min(getattr(error, "retry_after", None) or 0.0, LONGEST)
        self._failures[model] = _Failure(str(error)[:_SHOWN], now, now + max(self._seconds, away))

    def answered(self, model: str) -> None:
        """It works."""
        self._failures.pop(model, None)


async def first_to_answer(
    call: Call,
    targets: Sequence[Target],
    request: ChatRequest,
    settings: Settings,
    down: Down,
    ask: Ask,
    retry: Retry,
) -> ChatReply:
    """The reply of the first model that gives one.

    Raises:
        Unsupported: none of them can take this request.
        UpstreamError, AccountEmpty: none has answered; that of the last one, which tells of the others.
    """
    waiting, news = _able(targets, request, settings)
    quick = msgspec.structs.replace(retry, patience=min(retry.patience, PATIENCE))
    busy: dict[str, UpstreamError] = {}
    failures: list[UpstreamError | AccountEmpty] = []
    left = dict(waiting)
    while left:
        now = trio.current_time()
        model = next((model for model in left if not down.why(model, now)), None) or min(left, key=down.until)
        first = next(iter(left))
        if model != first and news is None:
            news = (first, down.why(first, now), False)
        _turn(call, *left.pop(model), news, PATIENCE)
        down.trying(model)
        try:
            reply = await ask(quick if left else retry)
        except (UpstreamError, AccountEmpty) as error:
            failures.append(error)
            news = (model, str(error), True)
            if isinstance(error, UpstreamError) and (isinstance(error, Busy) or too_many(error)):
                busy[model] = error
            elif not call.answered:
                down.failed(model, error, trio.current_time())
        else:
            down.answered(model)
            return reply
        finally:
            down.over(model)
    if busy and call.may_wait:
        model = min(busy, key=lambda model: busy[model].retry_after or 0.0)
        _turn(call, *waiting[model], news if model != call.target.id else None, math.inf)
        return await ask(retry)
    raise _all_of(failures)


def _able(
    targets: Sequence[Target], request: ChatRequest, settings: Settings
) -> tuple[dict[str, tuple[Target, ChatRequest]], tuple[str, str, bool] | None]:
    """The models that can take the request, with what each is asked; and why the first is not among them."""
    able: dict[str, tuple[Target, ChatRequest]] = {}
    unable: dict[str, Unsupported] = {}
    needs_tools = bool(request.tools) and any(target.model.supports_function_calling for target in targets)
    for target in targets:
        try:
            if needs_tools and not target.model.supports_function_calling:
                raise Unsupported(f"'{target.id}' calls no tools (`supports_function_calling: false`)")
            able[target.id] = (target, target.complete(request, settings))
        except Unsupported as error:
            unable[target.id] = error
    first = targets[0].id
    if not able:
        raise unable[first]
    return able, (first, str(unable[first]), False) if first in unable else None


def _turn(call: Call, target: Target, asked: ChatRequest, news: tuple[str, str, bool] | None, patience: float) -> None:
    if news is not None:
        call.falls_back(*news, target.id)
    call.asks(target, asked, patience)


def _all_of(failures: Sequence[UpstreamError | AccountEmpty]) -> CallboardError:
    *others, error = failures
    if not others:
        return error
    before = "; ".join(str(other)[:_SHOWN] for other in others)
    told = type(error)(f"{error} (asked before: {before})")
    told.__dict__.update(error.__dict__)
    return told


async def admitted(gate: Gate, call: Call) -> None:
    """Wait for the call's turn, as long as it has patience.

    Raises:
        Busy: it comes too late.
    """
    began = trio.current_time()
    with trio.CancelScope() as scope:

        def waits(waiting: Waiting) -> None:
            if waiting.why != "concurrency":  # that one is of our own settings: all models may have such
                scope.deadline = began + call.patience
                if (waiting.seconds or 0.0) > call.patience:
                    raise call.busy(waiting.seconds or 0.0)
            call.waits(waiting)

        await gate.admit(call.ticket, call.me.path, call.tokens, waits)
        return
    raise call.busy(call.patience)
