"""One request to a model as the gateway keeps account of it: what its events tell, and what its listeners hear."""

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
from ...io.handed_out import Streamed, anything_handed_out, hidden, hide_in
from ..spending.accounts import NOTHING, Account, Amount, Hold
from .allowance import Remaining, remaining_in
from .codec import check_reply, is_text
from .limiter import Waiting
from .target import Target

if TYPE_CHECKING:
    import httpx

    from .client import Endpoint
    from .recorder import Recorder

OnDelta = Callable[[Delta], None]
"""Told every piece of a streamed reply, in order. It must not block."""

OnUsage = Callable[[str, TokenUsage, float | None], events.UsageUpdate | None]
"""Told model id, tokens and cost in USD (None where there is no price) of every complete reply. It may return the run's
totals, to be announced as an event, and may raise `BudgetReached`, which the caller of `chat` then gets."""


MOST_TOKENS = 10**12
"""No reply has more; sums of this many still fit into 64 bits."""

PICTURE_TOKENS = 1_500
"""About what providers count for an image of usual size, and a page of a document; their bytes tell nothing of it."""


TOKENS_PER_SECOND = 200
"""About what fast models make: counted where a reply was not heard until it broke off."""


class Emitter(Protocol):
    """Emits events about itself; the kernel's `Actor` is one."""

    @property
    def path(self) -> str:
        """Where it stands in the tree; actors with the same beginning are of one run."""
        ...

    def emit(self, data: events.EventData, *, id: str = "", corr: str = "") -> None:
        """Publish an event."""
        ...


class Busy(UpstreamError):
    """The provider allows no request now, and this one is not to wait, or not for so long."""

    transient = False  # another try would have to wait as well


@dataclass(eq=False, repr=False)  # its headers hold the key
class Call:
    """One request to a model, with all of its tries.

    Attributes:
        me: whom its events are about, under this `id`.
        ticket: its place among all requests of the process.
        request: what is asked, complete.
        stream: whether a stream is asked for.
        heard: whether the reply has begun to come in.
        answered: whether the model has given a whole reply, and be it empty.
        patience: seconds that it may wait for its turn.
        remaining: what the headers of a reply have said of the provider's limits.
        account: what it is charged to; None where nothing is limited.
        recorder: keeps what is asked and said; None where nothing is kept.
        hold: what is reserved there for the try under way.
    """

    me: Emitter
    id: str
    ticket: int
    target: Target
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
        self._refusal = ""

    def asks(self, target: Target, request: ChatRequest, patience: float = math.inf) -> None:
        """It is this model that is asked from now on."""
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
        self.me.emit(data, id=self.id)

    def send(self, endpoint: Endpoint, headers: Mapping[str, str], attempt: int) -> Coroutine[Any, Any, ChatReply]:
        self._begins(attempt)
        ask = endpoint.stream if self.stream else endpoint.ask
        sends = None if self.recorder is None else partial(self.recorder.sent, self.id)
        return ask(self.target, headers, self.request, self.hears, self.reads, sends)

    def reads(self, headers: httpx.Headers) -> None:
        """The headers of a good reply."""
        self._replying = True
        self.remaining = remaining_in(headers)

    def tokens(self) -> int:
        """About how many it takes, as providers count them beforehand."""
        return about_tokens(self.request)

    def waits(self, waiting: Waiting) -> None:
        """It is not its turn yet."""
        about, self._refusal = self._refusal, ""
        if waiting.why == "concurrency" and not about:
            return
        seconds = waiting.seconds or 0.0
        if not self.may_wait:
            raise busy(about, self.target.id, seconds)
        self.emit(events.LlmWaiting(model=self.target.id, wait=seconds, reason=waiting.why, error=about))

    def busy(self, seconds: float) -> Busy:
        """The error if it is not to wait that long."""
        about, self._refusal = self._refusal, ""
        return busy(about, self.target.id, seconds)

    def is_refused(self, error: UpstreamError) -> None:
        """It gets in line again."""
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
        self._hides = anything_handed_out()
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
            )
        )
        if self.recorder is not None:
            self.recorder.asked(self.id, self.me.path, self.target.id, request, stream=self.stream)

    def hears(self, delta: Delta) -> None:
        if self.hold is not None:
            self._said += len(delta.arguments if isinstance(delta, ToolCallDelta) else getattr(delta, "text", ""))
        if not self._hides or not isinstance(delta, TextDelta | ReasoningDelta):
            self._tells(delta)
        elif told := self._spoken.setdefault(type(delta), Streamed()).next(delta.text):
            self._tells(type(delta)(told))

    def _tells(self, delta: Delta) -> None:
        if self.stream:
            self.heard = True
            if isinstance(delta, TextDelta):
                self.emit(events.LlmDelta(text=delta.text))
            elif isinstance(delta, ReasoningDelta):
                self.emit(events.LlmReasoning(text=delta.text))
        if self.on_delta is not None:
            self.on_delta(delta)

    def will_retry(self, attempt: int, wait: float, error: CallboardError) -> None:
        if self.recorder is not None:
            self.recorder.made_again(self.id, error, wait)
        self.emit(events.LlmRetry(model=self.target.id, attempt=attempt, wait=wait, error=str(error)))
        self._begins_anew()

    def falls_back(self, model: str, error: str, asked: bool, following: str) -> None:
        """Another model is asked than the one that did not answer, or was passed over."""
        if self.recorder is not None:
            self.recorder.failed(self.id, error)
        self.emit(events.LlmFallback(model=model, next=following, error=error, asked=asked))
        self._begins_anew()

    def _begins_anew(self) -> None:
        self._spoken.clear()
        if self.heard and self.on_delta is not None:
            self.on_delta(Restarted())
        self.heard = False

    def gives_up(self, error: CallboardError) -> None:
        hide_in(error)  # providers quote the key that they refuse
        if self.recorder is not None:
            self.recorder.failed(self.id, str(error))
        if self._asked:  # else nothing went out
            self.emit(events.LlmFailed(model=self.target.id, error=str(error), code=error.code))

    async def reserve(self, account: Account, file: str) -> None:
        """Wait until the account has room for another try.

        Raises:
            Unpriced: money is limited, and the price of the model is not known.
            TurnsReached, BudgetReached: the account is at its end.
        """
        from ..spending.reserve import reserve
        from .bounds import bound

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
        """A try has ended without a reply: what it has cost all the same is estimated, unless it was refused."""
        assert self.hold is not None
        if not self._out or (not self._replying and costs_nothing(error)):
            self.hold.release()
        else:
            self._settle_about(self.hold, self._said_so_far(), turns=0)

    def _said_so_far(self) -> int:
        """About how many tokens the model has made: those that were heard, else what it can in the time."""
        if self.heard:
            return -(-self._said // 4)
        from .bounds import most_output

        most = most_output(self.request, self.target)
        return min(most, math.ceil((trio.current_time() - self._began) * TOKENS_PER_SECOND))

    def _settle_about(self, hold: Hold, output_tokens: int, *, turns: int) -> None:
        request = msgspec.structs.replace(self.request, max_tokens=None)
        usage = TokenUsage(input_tokens=about_tokens(request), output_tokens=output_tokens)
        spent = Amount(usage.input_tokens + usage.output_tokens, self.target.cost(usage) or 0.0)
        hold.settle(spent, turns=turns, estimated=True)

    def ends(self, reply: ChatReply) -> ChatReply:
        """The reply as all get it: without what the vault has handed out, which a model may have repeated."""
        self.answered = True
        for kind, streamed in self._spoken.items():
            if held := streamed.rest():
                self._tells(kind(held))
        if self._hides:
            reply = msgspec.structs.replace(reply, text=hidden(reply.text), reasoning=hidden(reply.reasoning))
        if self.recorder is not None:
            self.recorder.answered(self.id, reply)
        if self.hold is not None and (tokens := reply.usage.input_tokens + reply.usage.output_tokens):
            self.hold.settle(Amount(tokens, reply.cost or 0.0))
        elif self.hold is not None:  # some servers tell no figures
            said = len(reply.text) + sum(len(msgspec.json.encode(call)) for call in reply.tool_calls)
            self._settle_about(self.hold, -(-said // 4), turns=1)
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
            )
        )
        totals = self.on_usage(reply.model, reply.usage, reply.cost) if self.on_usage is not None else None
        if totals is not None:
            self.emit(totals)
        check_reply(reply)
        if self.need_text and not reply.text.strip() and not self.request.tools:
            named = ", ".join(f"'{call.name}'" for call in reply.tool_calls)
            raise UpstreamError(f"{reply.model} said nothing and called tools that were not offered: {named}"[:300])
        return reply


def costs_nothing(error: BaseException) -> bool:
    """Whether a try that ended before its reply began was refused, or did not reach the provider."""
    if isinstance(error, UpstreamError):
        return error.status is not None or not error.sent
    return isinstance(error, CallboardError)


def busy(about: str, model: str, seconds: float) -> Busy:
    """The error for a request that is not to wait that long for its turn; `about`: how it was refused, if it was."""
    words = about or f"{model}: the provider allows no more requests now"
    return Busy(f"{words}; the next may go out in {seconds:.1f} s", retry_after=seconds)


def countable(usage: TokenUsage) -> TokenUsage:
    """Token counts as they can be: a negative one would give back what the run has spent, a huge one fits nowhere."""
    counts = msgspec.structs.astuple(usage)
    if min(counts) >= 0 and max(counts) <= MOST_TOKENS:
        return usage
    bounded = (min(max(0, count), MOST_TOKENS) for count in counts)
    return TokenUsage(**dict(zip(usage.__struct_fields__, bounded, strict=True)))


def about_tokens(request: ChatRequest) -> int:
    """About how many tokens a request takes: four characters each, what images count, and what the reply may have."""
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
