"""Model fallback: ask the models of a list in order until one answers.

    model: [openai:gpt-4o, claude:claude-haiku-4-5]

The first model gets all tries of a single model. The next model is asked if the first fails for a reason that is not
in the request. Such reasons are an unreachable, failing or stalled provider, an empty account, and a wait longer than
`PATIENCE` in the limiter's queue. Three failures end the call, the same as with a single model: a wrong key, a reached
limit of the run, and a request that every provider would refuse. Another model would only hide the mistake.

After a failure, all requests of the process skip the model for a while (`FailedModels`). Then one request tries it,
and the others skip it until that request ends. If all models failed recently, they are asked all the same, in the
order in which their pauses end.

A model that makes requests wait is not skipped, since its limiter knows when it can be asked. If no other model
answers, the request waits for the one that is available first, without a time limit.

Models that do not support a request are excluded for it. A request with images excludes models without image input.
A request with tools excludes models without tool calls, unless no model supports them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.chat import ChatReply, ChatRequest
from ....protocol.errors import AccountEmpty, CallboardError, ModelError, ReplyFiltered, Unsupported, UpstreamError
from ...io.secret_redaction import hidden_head
from .call import Busy, GatewayCall
from .catalog import ModelTarget
from .limiter import LimiterGate, MustWait, too_many

if TYPE_CHECKING:
    from ....protocol.settings import Settings
    from ....supervisors import Retry

PATIENCE = 5.0
"""Maximum wait for one model, in its queue or between two tries, in seconds, while there is another model to ask."""

LONGEST = 3600.0
"""Maximum time in seconds that a model is skipped because of a provider's `Retry-After`."""

_SHOWN = 200

Ask = Callable[["Retry"], Awaitable[ChatReply]]
"""Sends the request to the call's current model, with this retry policy."""


class _Failure(msgspec.Struct):
    error: str
    at: float
    until: float
    tried: bool = False  # True while one request tries the model again


class FailedModels:
    """Recently failed models, which requests skip. One instance serves a whole process.

    Args:
        seconds: minimum time to skip a model after a failure.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._failures: dict[str, _Failure] = {}

    def why(self, model: str, now: float) -> str:
        """Return the reason to skip `model` at time `now`; empty if it is not skipped."""
        failure = self._failures.get(model)
        if failure is None or (now >= failure.until and not failure.tried):
            return ""
        return f"failed {now - failure.at:.0f} s ago: {failure.error}"

    def until(self, model: str) -> float:
        """Return the time when `model` is no longer skipped; minus infinity if it has not failed."""
        failure = self._failures.get(model)
        return -math.inf if failure is None else failure.until

    def trying(self, model: str) -> None:
        """Record that a request tries the model, so that no other request does."""
        if model in self._failures:
            self._failures[model].tried = True

    def over(self, model: str) -> None:
        """Record that the request of `trying` has ended, so that another one may try the model.

        Call it after `failed` or `answered`, and if the request was cancelled.
        """
        if model in self._failures:
            self._failures[model].tried = False

    def failed(self, model: str, error: CallboardError, now: float) -> None:
        """Record a failure at time `now`: requests skip the model from then on.

        They skip it for `seconds`, or for the error's `retry_after` (at most `LONGEST`) if that is longer.
        """
        away = min(getattr(error, "retry_after", None) or 0.0, LONGEST)
        self._failures[model] = _Failure(hidden_head(str(error), _SHOWN), now, now + max(self._seconds, away))

    def answered(self, model: str) -> None:
        """Record an answer of the model: it is no longer skipped."""
        self._failures.pop(model, None)


async def first_to_answer(
    call: GatewayCall,
    targets: Sequence[ModelTarget],
    request: ChatRequest,
    settings: Settings,
    down: FailedModels,
    ask: Ask,
    retry: Retry,
) -> ChatReply:
    """Ask the models in order and return the first reply.

    Recently failed models are asked last. If no model answers, wait for the busy one that is available first, unless
    `call.may_wait` is False.

    Args:
        call: state of the request; it is switched to each model in turn.
        ask: sends the request to the model of `call`.
        retry: retry policy for a single model.

    Raises:
        Unsupported: no model supports this request.
        ModelError, AccountEmpty: no model answered; the error of the last one, with the texts of the others.
        ModelError, CredentialsError: a model refused the request for a mistake that is the same with any model.
    """
    waiting, news = _able(targets, request, settings)
    quick = msgspec.structs.replace(retry, patience=min(retry.patience, PATIENCE))
    busy: dict[str, UpstreamError] = {}
    failures: list[ModelError | AccountEmpty] = []
    remaining = dict(waiting)
    while remaining:
        now = trio.current_time()
        model = next((model for model in remaining if not down.why(model, now)), None) or min(remaining, key=down.until)
        first = next(iter(remaining))
        if model != first and news is None:
            news = (first, down.why(first, now), False)
        _turn(call, *remaining.pop(model), news, PATIENCE)
        down.trying(model)
        try:
            reply = await ask(quick if remaining else retry)
        except (ModelError, AccountEmpty) as error:
            if not another_may_take_it(error, call.request):
                raise
            failures.append(error)
            news = (model, str(error), True)
            # The next request may suit the model, so it is not skipped.
            if isinstance(error, ModelError) and error.status in _OF_THE_REQUEST:
                continue
            if isinstance(error, UpstreamError) and (isinstance(error, Busy) or too_many(error)):
                busy[model] = error
            elif not call.answered:  # a model that sent an unusable reply works: only this request failed
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


_OF_THE_REQUEST = frozenset((400, 413, 415, 422))
"""Statuses about one request only: the model is not skipped afterwards."""

_OVERFLOW = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum context|prompt is too long|too many (?:input )?tokens"
    r"|(?:input|prompt|request).{0,40}(?:too long|too large|exceed)|exceeds? .{0,30}(?:tokens|context)",
    re.IGNORECASE,
)
_OPTIONS = {
    "temperature": r"temperature",
    "top_p": r"top_?p",
    "max_tokens": r"max_?(?:completion_|output_)?tokens",
    "stop": r"stop(?:_?sequences)?",
}
"""Options of a request, with patterns of their names in error texts."""


def another_may_take_it(error: ModelError | AccountEmpty, request: ChatRequest) -> bool:
    """Return True if another model may answer a request that one model refused or failed to answer.

    True for an empty account and a failing provider, False for a filtered reply.

    Most refusals concern one provider: a retired model, a context window that is too short, an unsupported schema or
    file, an account without credit. An invalid value of an option is refused by every model. A request that a
    provider's filter stopped is not sent to another provider.
    """
    if isinstance(error, AccountEmpty | UpstreamError):
        return True
    if isinstance(error, ReplyFiltered):
        return False
    text = str(error)
    if error.status not in _OF_THE_REQUEST or _OVERFLOW.search(text) or "support" in text or "deprecated" in text:
        return True
    named = [name for name, words in _OPTIONS.items() if re.search(rf"\b{words}\b", text, re.IGNORECASE)]
    return not any(getattr(request, name) for name in named)


def _able(
    targets: Sequence[ModelTarget], request: ChatRequest, settings: Settings
) -> tuple[dict[str, tuple[ModelTarget, ChatRequest]], tuple[str, str, bool] | None]:
    """Return the models that support the request, with its form for each, and the reason if the first is excluded."""
    able: dict[str, tuple[ModelTarget, ChatRequest]] = {}
    unable: dict[str, Unsupported] = {}
    needs_tools = bool(request.tools) and any(target.model.supports_function_calling for target in targets)
    for target in targets:
        try:
            if needs_tools and not target.model.supports_function_calling:
                raise Unsupported(f"'{target.id}' does not support tools (`supports_function_calling: false`)")
            able[target.id] = (target, target.complete(request, settings))
        except Unsupported as error:
            unable[target.id] = error
    first = targets[0].id
    if not able:
        raise unable[first]
    return able, (first, str(unable[first]), False) if first in unable else None


def _turn(
    call: GatewayCall, target: ModelTarget, asked: ChatRequest, news: tuple[str, str, bool] | None, patience: float
) -> None:
    if news is not None:
        call.falls_back(*news, target.id)
    call.asks(target, asked, patience)


def _all_of(failures: Sequence[ModelError | AccountEmpty]) -> CallboardError:
    *others, error = failures
    if not others:
        return error
    before = "; ".join(hidden_head(str(other), _SHOWN) for other in others)
    failure = type(error)(f"{error} (asked before: {before})")
    failure.__dict__.update(error.__dict__)
    return failure


async def admitted(gate: LimiterGate, call: GatewayCall) -> None:
    """Wait until the limiter admits the call, at most `call.patience` seconds.

    A wait for the limit of concurrent requests has no such bound.

    Raises:
        Busy: the wait is longer, or is known to be longer, or the call may not wait (`GatewayCall.waits`).
    """
    began = trio.current_time()
    with trio.CancelScope() as scope:

        def waits(waiting: MustWait) -> None:
            # The limit of concurrent requests is usually a setting and passes soon; it starts no fallback.
            if waiting.why != "concurrency":
                scope.deadline = began + call.patience
                if (waiting.seconds or 0.0) > call.patience:
                    raise call.busy(waiting.seconds or 0.0)
            call.waits(waiting)

        await gate.admit(call.ticket, call.me.path, call.tokens, waits)
        return
    raise call.busy(call.patience)
