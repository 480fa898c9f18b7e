"""State of one model request with all its tries: events, streamed deltas, recording and charging.

`Gateway` decides what happens; `GatewayCall` records it and notifies the listeners. With fallback models one call
asks several models in turn (`asks`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import trio

from ....protocol import events
from ....protocol.chat import (
    AssistantTurn,
    ChatReply,
    ChatRequest,
    Delta,
    FilePart,
    ReasoningDelta,
    Restarted,
    TextDelta,
    TextPart,
    TokenUsage,
    ToolCallDelta,
    parts_of,
)
from ....protocol.errors import CallboardError, UpstreamError
from ...io.secret_redaction import Streamed, anything_handed_out, hidden, hide_in
from ..spending.accounts import NOTHING, Account, Amount, Hold
from .catalog import ModelTarget, PreparedReplies
from .codec import check_reply, is_text
from .limiter import MustWait, Remaining, remaining_in

if TYPE_CHECKING:
    from .client import Endpoint
    from .recorder import Recorder

OnDelta = Callable[[Delta], None]
"""Callback for every piece of a streamed reply, in order. It must not block."""

OnUsage = Callable[[str, TokenUsage, float | None], events.UsageUpdate | None]
"""Callback for every complete reply, with model id, tokens, and cost in USD (None without a price).

It may return the run's totals, which are then emitted as an event. If it raises `BudgetReached`, `chat` raises that.
"""


MOST_TOKENS = 10**12
"""Upper bound of a token count; larger ones are cut to it. Sums of such counts still fit into 64 bits."""

PICTURE_TOKENS = 1_500
"""Estimate of the tokens of a usual image or a page of a document. The size in bytes does not predict it."""


TOKENS_PER_SECOND = 200
"""Speed of fast models: the estimate for a reply that was not streamed and broke off."""


class Emitter(Protocol):
    """Source of events; the kernel's `Actor` is one."""

    @property
    def path(self) -> str:
        """Path in the actor tree. Actors whose paths share the first part belong to one run."""
        ...

    def emit(self, data: events.EventData, *, id: str = "", corr: str = "") -> None:
        """Publish an event."""
        ...


class Busy(UpstreamError):
    """The provider allows no request now, and the call does not permit a wait of that length."""

    transient = False  # another try would have to wait as well


@dataclass(eq=False, repr=False)  # its headers hold the key
class GatewayCall:
    """State of one model request, with all of its tries. It belongs to the caller's task.

    Attributes:
        me: emits the events of this call, under `id`.
        ticket: position among all requests of the process.
        target: the model that is asked now.
        request: the request with all settings filled in.
        stream: True if a streamed answer is requested.
        heard: True if a listener has received a part of the reply.
        answered: True if the model has sent a complete reply, even an empty one.
        patience: seconds that the request may wait in the limiter's queue.
        response_id: the provider's id of the last complete reply.
        remaining: the provider's quota from the headers of a reply.
        account: the account that is charged; None if nothing is limited.
        recorder: stores requests and replies; None if they are not recorded.
        hold: reservation in `account` for the current try.
    """

    me: Emitter
    id: str
    ticket: int
    target: ModelTarget
    request: ChatRequest
    on_delta: OnDelta | None
    on_usage: OnUsage | None
    need_text: bool
    may_stream: bool
    may_wait: bool
    account: Account | None = None
    recorder: Recorder | None = None

    def __post_init__(self) -> None:
        self.asks(self.target, self.request)
        self.heard = False
        self._asked = self._hides = False
        self._began = 0.0
        self.response_id = ""
        self._refusal = ""

    def asks(self, target: ModelTarget, request: ChatRequest, patience: float = math.inf) -> None:
        """Switch the call to a model, and reset the state of its tries."""
        self.target = target
        self.request = request
        self.patience = patience
        self.answered = False
        self.remaining: Remaining | None = None
        wanted = self.on_delta is not None and self.may_stream if request.stream is None else request.stream
        self.stream = wanted and not target.model.no_stream and (target.codec.streams_tools or not request.tools)
        self.hold: Hold | None = None
        self._spoken: dict[type[TextDelta | ReasoningDelta], Streamed] = {}
        self._out = False
        self._replying = False
        self._said = 0

    def emit(self, data: events.EventData) -> None:
        """Emit an event under the id of this call."""
        self.me.emit(data, id=self.id)

    def send(self, endpoint: Endpoint, headers: Mapping[str, str], attempt: int) -> Coroutine[Any, Any, ChatReply]:
        """Emit and record the request of try number `attempt`, and return the coroutine that sends it to the provider.

        The coroutine raises like `Endpoint.stream`, or like `Endpoint.ask` if the call does not stream.
        """
        self._begins(attempt)
        ask = endpoint.stream if self.stream else endpoint.ask
        sends = None if self.recorder is None else partial(self.recorder.sent, self.id)
        return ask(self.target, headers, self.request, self.hears, self.reads, sends)

    def prepared(self, replies: PreparedReplies, attempt: int) -> Coroutine[Any, Any, ChatReply]:
        """Emit and record the request like `send`, and return the coroutine of a reply that needs no provider."""
        self._begins(attempt)
        return replies.reply(self.me.path, self.request, self.hears)

    def reads(self, headers: Mapping[bytes, bytes]) -> None:
        """Store the quota in the headers of a successful answer, and note that the provider charges for this try."""
        self._replying = True  # from here on the provider charges, even if the answer breaks off
        self.remaining = remaining_in(headers)

    def tokens(self) -> int:
        """Return an estimate of the tokens, counted as providers do before they run a request."""
        return about_tokens(self.request)

    def waits(self, waiting: MustWait) -> None:
        """Emit an event about a wait in the queue; raise `Busy` if the call may not wait.

        A wait for the limit of concurrent requests does neither, unless the provider has refused this request before.
        """
        about, self._refusal = self._refusal, ""
        if waiting.why == "concurrency" and not about:
            return
        seconds = waiting.seconds or 0.0
        if not self.may_wait:
            raise busy(about, self.target.id, seconds)
        self.emit(events.LlmWaiting(model=self.target.id, wait=seconds, reason=waiting.why, error=about))

    def busy(self, seconds: float) -> Busy:
        """Return the error for a wait of `seconds` that exceeds `patience`."""
        about, self._refusal = self._refusal, ""
        return busy(about, self.target.id, seconds)

    def is_refused(self, error: UpstreamError) -> None:
        """Prepare to enter the queue again after a rate-limit refusal. Raises `error` if the call may not wait."""
        self._out = False
        self._refusal = str(error)
        if not self.may_wait:
            error.transient = False  # another try would have to wait
            raise error
        if self.recorder is not None:
            self.recorder.made_again(self.id, error, 0.0)

    def _begins(self, attempt: int) -> None:
        self._began = trio.current_time()
        self._asked = self._out = True
        # Redaction delays deltas, so skip it without a listener, and while the vault has issued no secret.
        self._hides = (self.stream or self.on_delta is not None) and anything_handed_out()
        self._replying = False
        self._said = 0
        request = self.request
        self.emit(
            events.LlmRequest(
                model=self.target.id,
                messages=len(request.messages) + bool(request.system),
                tools=[tool.name for tool in request.tools],
                attempt=attempt,
                stream=self.stream,
                server=self.target.server,
            )
        )
        if self.recorder is not None:
            self.recorder.asked(self.id, self.me.path, self.target.id, request, stream=self.stream)

    def hears(self, delta: Delta) -> None:
        """Pass a delta to `on_delta`, and emit its text as an event if the reply is streamed. Secrets are redacted."""
        # `Streamed` holds back the end of a piece that may be the beginning of a secret; `ends` emits the rest.
        if self.hold is not None:
            self._said += len(delta.arguments if isinstance(delta, ToolCallDelta) else getattr(delta, "text", ""))
        if not self._hides or not isinstance(delta, TextDelta | ReasoningDelta):
            self._emit(delta)
        elif told := self._spoken.setdefault(type(delta), Streamed()).next(delta.text):
            self._emit(type(delta)(told))

    def _emit(self, delta: Delta) -> None:
        if self.stream:
            self.heard = True
            if isinstance(delta, TextDelta):
                for text in events.split_text(delta.text):
                    self.emit(events.LlmDelta(text=text))
            elif isinstance(delta, ReasoningDelta):
                for text in events.split_text(delta.text):
                    self.emit(events.LlmReasoning(text=text))
        if self.on_delta is not None:
            self.on_delta(delta)

    def will_retry(self, attempt: int, wait: float, error: CallboardError) -> None:
        """Record and emit that try number `attempt` failed and another follows in `wait` seconds.

        If `on_delta` has received a part of the failed reply, it is called with `Restarted`.
        """
        if self.recorder is not None:
            self.recorder.made_again(self.id, error, wait)
        self.emit(events.LlmRetry(model=self.target.id, attempt=attempt, wait=wait, error=str(error)))
        self._restart()

    def falls_back(self, model: str, error: str, asked: bool, following: str) -> None:
        """Emit an event about a change of the model, after a failure or because a model is skipped."""
        if self.recorder is not None:
            self.recorder.failed(self.id, error)
        self.emit(events.LlmFallback(model=model, next=following, error=error, asked=asked))
        self._restart()

    def _restart(self) -> None:
        self._spoken.clear()
        if self.heard and self.on_delta is not None:
            self.on_delta(Restarted())
        self.heard = False

    def gives_up(self, error: CallboardError) -> None:
        """Record the final error, after secrets are removed from it, and emit it if a request was sent before."""
        hide_in(error)  # providers quote the refused key in their messages
        if self.recorder is not None:
            self.recorder.failed(self.id, str(error))
        if self._asked:  # else no request was sent, and no event announced one
            self.emit(events.LlmFailed(model=self.target.id, error=str(error), code=error.code))

    async def reserve(self, account: Account, file: str) -> None:
        """Wait until the account has room for another try.

        Raises:
            Unpriced: the account is limited in money, and the price of the model is unknown.
            TurnsReached, BudgetReached: the account is exhausted.
        """
        from ..spending.accounts import reserve
        from .request_upper_bound import bound

        if account.asks_for_prices and self.target.price.tariff is None:
            unpriced = account.unpriced(self.target.id, file)
            if unpriced is not None:
                raise unpriced
        self._out = False
        most = bound(self.request, self.target) if account.measures else NOTHING
        self.hold = await reserve(account, most, self._waits_for_account)

    def _waits_for_account(self) -> None:
        self.emit(events.LlmWaiting(model=self.target.id, wait=0.0, reason="budget"))

    def cut_off(self, error: BaseException) -> None:
        """Charge an estimate for a try that ended without a reply, or release the reservation if it cost nothing.

        Providers charge for aborted replies too, but report no token counts for them.
        """
        assert self.hold is not None
        if not self._out or (not self._replying and costs_nothing(error)):
            self.hold.release()
        else:
            self._charge_estimate(self.hold, self._estimated_tokens(), turns=0)

    def _estimated_tokens(self) -> int:
        """Return an estimate of the generated tokens: from the received text, else from the elapsed time."""
        if self.heard:
            return -(-self._said // 4)
        from .request_upper_bound import most_output

        most = most_output(self.request, self.target)
        return min(most, math.ceil((trio.current_time() - self._began) * TOKENS_PER_SECOND))

    def _charge_estimate(self, hold: Hold, output_tokens: int, *, turns: int) -> None:
        request = msgspec.structs.replace(self.request, max_tokens=None)
        usage = TokenUsage(input_tokens=about_tokens(request), output_tokens=output_tokens)
        spent = Amount(usage.input_tokens + usage.output_tokens, self.target.cost(usage) or 0.0)
        hold.spend(spent, turns=turns, estimated=True)

    def ends(self, reply: ChatReply) -> ChatReply:
        """Finish the call with a complete reply: redact it, record it, charge it and emit its events.

        Redaction removes secrets that the vault has issued, which a model may repeat.

        Raises:
            ReplyFiltered, EmptyReply, UpstreamError: see `check_reply`.
            UpstreamError: with `need_text`, the reply has no text and calls tools although none were offered.
            BudgetReached: from `on_usage`.
        """
        self.answered = True
        for kind, streamed in self._spoken.items():
            if held := streamed.rest():
                self._emit(kind(held))
        if self._hides:
            reply = msgspec.structs.replace(reply, text=hidden(reply.text), reasoning=hidden(reply.reasoning))
        if self.recorder is not None:
            self.recorder.answered(self.id, reply)
        if self.hold is not None and (tokens := reply.usage.input_tokens + reply.usage.output_tokens):
            self.hold.spend(Amount(tokens, reply.cost or 0.0))
        elif self.hold is not None:  # some servers report no token counts
            size = len(reply.text) + sum(len(msgspec.json.encode(call)) for call in reply.tool_calls)
            self._charge_estimate(self.hold, -(-size // 4), turns=1)
        self.emit(
            events.LlmResponse(
                model=reply.model,
                seconds=trio.current_time() - self._began,
                input_tokens=reply.usage.input_tokens,
                output_tokens=reply.usage.output_tokens,
                stop=reply.stop,
                cached_tokens=reply.usage.cached_tokens,
                cache_write_tokens=reply.usage.cache_write_tokens,
                reasoning_tokens=reply.usage.reasoning_tokens,
                response_id=self.response_id,
                server=self.target.server,
            )
        )
        totals = self.on_usage(reply.model, reply.usage, reply.cost) if self.on_usage is not None else None
        if totals is not None:
            self.emit(totals)
        check_reply(reply)
        if self.need_text and not reply.text.strip() and not self.request.tools:
            named = ", ".join(f"'{call.name}'" for call in reply.tool_calls)
            raise UpstreamError(f"{reply.model} returned no text and called tools that were not offered: {named}"[:300])
        return reply


def costs_nothing(error: BaseException) -> bool:
    """Return True if a try that ended before its reply cost nothing: it was refused, or never reached the provider.

    A cancelled try, and one whose connection broke after the request was sent, may cost money.
    """
    if isinstance(error, UpstreamError):
        return error.status is not None or not error.sent
    return isinstance(error, CallboardError)


def busy(about: str, model: str, seconds: float) -> Busy:
    """Return the error for a request that may not wait `seconds`; `about` is the text of its refusal, if any."""
    words = about or f"{model}: the rate limit of the provider is reached"
    return Busy(f"{words}; the next request can be sent in {seconds:.1f} s", retry_after=seconds)


def countable(usage: TokenUsage) -> TokenUsage:
    """Return token counts within valid bounds.

    A negative count of a faulty server would refund money to the run's budget. A huge count does not fit into 64 bits.
    """
    counts = msgspec.structs.astuple(usage)
    if min(counts) >= 0 and max(counts) <= MOST_TOKENS:
        return usage
    bounded = (min(max(0, count), MOST_TOKENS) for count in counts)
    return TokenUsage(**dict(zip(usage.__struct_fields__, bounded, strict=True)))


def about_tokens(request: ChatRequest) -> int:
    """Return an estimate of a request's tokens: a quarter of its characters, `PICTURE_TOKENS` for each image or binary
    file, and `max_tokens`.
    """
    characters = len(request.system)
    pictures = 0
    for turn in request.messages:
        if isinstance(turn, AssistantTurn):
            characters += len(turn.text)
            characters += len(msgspec.json.encode(turn.tool_calls)) if turn.tool_calls else 0
            continue
        for part in parts_of(turn.content):
            if isinstance(part, TextPart):
                characters += len(part.text)
            elif isinstance(part, FilePart) and is_text(part):
                characters += len(part.data)
            else:
                pictures += 1
    if request.tools:
        characters += len(msgspec.json.encode(request.tools))
    return characters // 4 + pictures * PICTURE_TOKENS + (request.max_tokens or 0)
