"""The gateway to language models.

`Gateway.chat` takes a provider-neutral request and gives back a complete reply. It finds the model, sends the
request, retries what may pass by itself, counts tokens and money, and tells the run's event stream what happens.
Providers are pure translators (`openai`, `anthropic`, `ollama`, `local`); bytes move in `client` and the transport
below it. One gateway serves a whole process: thousands of callers share its connections, yet each call stays in its
caller's task, so cancelling the caller closes its connection at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
import trio

from ....protocol import events
from ....protocol.chat import ChatReply, ChatRequest, Delta, ReasoningDelta, Restarted, TextDelta, TokenUsage
from ....protocol.errors import CallboardError, ConfigError, ModelError, Stalled, TimedOut, Unpriced, UpstreamError
from ....protocol.settings import Settings
from ....supervisors import Backoff, Retry
from ...io.imports import imported
from .allowance import remaining_in
from .catalog import Catalog, Choice, Target
from .endpoints import Endpoints
from .engines import LocalEngines
from .limiter import Gate, Gates, Waiting, too_many

if TYPE_CHECKING:
    import httpx

    from ....supervisors.root import Root
    from .allowance import Remaining
    from .client import Endpoint

OnDelta = Callable[[Delta], None]
"""Told every piece of a streamed reply, in order. It must not block."""

OnUsage = Callable[[str, TokenUsage, float | None], events.UsageUpdate | None]
"""Told model id, tokens and cost in USD (None where there is no price) of every complete reply. It may return the run's
totals, to be announced as an event, and may raise `BudgetReached`, which the caller of `chat` then gets."""


MOST_TOKENS = 10**12
"""No reply has more; sums of this many still fit into 64 bits."""

BACKOFF = Backoff(first=0.5, most=30.0, jitter=1.0)
"""Any wait between nothing and its bound, so that a thousand callers that failed together do not come back together."""

T = TypeVar("T")

_NOTHING = nullcontext()


class Emitter(Protocol):
    """Emits events about itself; the kernel's `Actor` is one."""

    @property
    def path(self) -> str:
        """Where it stands in the tree; actors with the same beginning are of one run."""
        ...

    def emit(self, data: events.EventData, *, id: str = "", corr: str = "") -> None:
        """Publish an event."""
        ...


class Gateway(AbstractAsyncContextManager["Gateway"]):
    """Reaches every model that the settings and the environment know.

    Args:
        root: limiters live under it.
        settings: what `config.yaml` says.
        environ: the environment: keys, base URLs, proxies, cache directory.
        engines: gives out local engines; without it `local:` models are refused.
        rng: where the jitter of the waits comes from.

    Attributes:
        catalog: which models there are.

    Use it as an async context manager, or call `aclose` at the end.
    """

    def __init__(
        self,
        root: Root,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        engines: LocalEngines | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self.catalog = Catalog(settings, environ)
        self._engines = engines
        self._rng = rng if rng is not None else random.Random()  # noqa: S311  (jitter, no secret)
        self._endpoints = Endpoints(environ)
        self._gates = Gates(root, self._rng.random)
        self._calls = 0

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection. Requests that are still under way fail."""
        self._endpoints.close()

    def choice(self) -> Choice:
        """The model that a request without one gets, and why. Wants no key and no weights yet."""
        return self.catalog.choice()

    def check(self, model: str = "") -> str:
        """The full id of `model` (or of the default), if it can be asked: key, base URL and weights are there.

        Raises:
            ConfigError, CredentialsError, Unsupported: it can't; the text says what to do.
        """
        if self._settings.dry_run:  # wants no key and no weights
            self.catalog.named(model or self.choice().model)
            return self.catalog.full(model or self.choice().model)
        target = self.catalog.target(model or self.choice().model)
        if target.engine is not None and self._engines is None:
            raise ConfigError(f"'{target.id}' can't be used here: no local engine can be started")
        return target.id

    def check_price(self, model: str = "") -> None:
        """See that the cost of `model` (or of the default) will be known.

        Raises:
            Unpriced: it won't; the text says what to do.
            ConfigError, CredentialsError, Unsupported: as `check`.
        """
        if self._settings.dry_run:
            return
        target = self.catalog.target(model or self.choice().model)
        if target.price.tariff is None:
            raise Unpriced.of(target.id, self._settings.file)

    def window(self, model: str = "") -> int | None:
        """Tokens that `model` (or the default) takes in, as far as the settings say."""
        return self.catalog.named(model or self.choice().model)[1].max_input_tokens

    async def chat(
        self,
        me: Emitter,
        request: ChatRequest,
        *,
        on_delta: OnDelta | None = None,
        on_usage: OnUsage | None = None,
        attempts: int | Retry = 3,
        deadline: float = math.inf,
        need_text: bool = False,
        may_wait: bool = True,
    ) -> ChatReply:
        """Ask a model and wait for its whole reply.

        Cancelling the caller closes the connection at once.

        Args:
            me: whom the events are about.
            request: what to ask; its gaps are filled from the settings.
            on_delta: gets the reply in pieces as well, in one piece if the model can't stream. With it a stream is
                asked for, unless `request.stream` or the settings say no.
            on_usage: gets tokens and cost of every complete reply, also of one that is tried again.
            attempts: exact number of tries, the first included, where errors may pass by themselves; or which errors
                those are and how long to wait, too.
            deadline: on `trio.current_time()`'s clock.
            need_text: a reply without text and tool calls counts as an error that may pass.
            may_wait: a request that is one too many for the provider waits for its turn, however long that takes, and
                is no failed try. Else it is an UpstreamError.

        Raises:
            ConfigError, CredentialsError: the model or its key is missing.
            ModelError: the provider refused the request, or its answer makes no sense.
            UpstreamError: the tries are spent, or there is no time left for the wait before the next.
            TimedOut: the deadline passed.
        """
        retry = Retry(most=attempts, backoff=BACKOFF) if isinstance(attempts, int) else attempts
        if retry.most < 1:
            raise ValueError(f"attempts must be at least 1, not {retry.most}")
        if self._settings.dry_run:
            return self._dry(me, request, on_delta)
        target = self.catalog.target(request.model or self.choice().model)
        self._calls += 1
        asked, id = target.complete(request, self._settings), f"llm-{self._calls}"
        may_stream = self._settings.stream
        call = _Call(me, id, self._calls, target, asked, on_delta, on_usage, need_text, may_stream, may_wait)
        try:
            with _NOTHING if deadline == math.inf else trio.move_on_at(deadline):  # a scope costs a kilobyte
                return await retried(
                    lambda attempt: self._try(call, attempt),
                    retry,
                    on_wait=call.will_retry,
                    rand=self._rng.random,
                    deadline=deadline,
                )
            raise TimedOut(f"{target.id} did not answer in time")
        except CallboardError as error:
            call.gives_up(error)
            raise

    def _dry(self, me: Emitter, request: ChatRequest, on_delta: OnDelta | None) -> ChatReply:
        from .dry import as_text, dry_reply

        model = self.catalog.full(request.model or self.choice().model)
        if request.response_schema is not None:  # whose reply does not show it
            me.emit(events.Warned(code="dry_run", message=as_text(request, model)))
        reply = dry_reply(request, model)
        if on_delta is not None:
            on_delta(TextDelta(reply.text))
        return reply

    async def _try(self, call: _Call, attempt: int) -> ChatReply:
        target = call.target
        gate = self._gates.get(target) or await self._open(target)
        reply: ChatReply | None = None
        while reply is None:
            await gate.admit(call.ticket, call.me.path, call.tokens, call.waits)
            refused: UpstreamError | None = None
            try:
                if target.engine is None:
                    reply = await self._send(call, target.api_base, target.headers, attempt)
                else:
                    reply = await self._send_to_engine(call, target.engine, attempt)
            except Stalled as error:
                error.transient = attempt == 1 and not call.heard
                raise
            except UpstreamError as error:
                if not too_many(error):
                    raise
                refused = error
            finally:
                if refused is not None:
                    gate.refused(call.ticket, refused.retry_after)
                else:
                    gate.done(call.ticket, None if reply is None else _tokens(reply.usage), call.remaining)
            if refused is not None:
                call.is_refused(refused)
        usage = countable(reply.usage)
        reply = msgspec.structs.replace(reply, model=target.id, usage=usage, cost=target.cost(usage))
        call.ends(reply)
        return reply

    async def _open(self, target: Target) -> Gate:
        """What a model needs when it is first asked: its limiter, and its price, which is looked up in a thread."""
        await target.price.looked_up()
        return await self._gates.of(target)

    async def _send_to_engine(self, call: _Call, engine: str, attempt: int) -> ChatReply:
        target = call.target
        if self._engines is None:
            raise ConfigError(f"'{target.id}' can't be used here: no local engine can be started")
        async with self._engines.lease(engine) as served:
            headers = {**target.codec.headers(served.key), "connection": "close"}
            return await self._send(call, f"{served.url}/v1", headers, attempt)

    async def _send(self, call: _Call, api_base: str, headers: Mapping[str, str], attempt: int) -> ChatReply:
        await imported(".actors.work.models.client")
        if call.target.renew is not None:
            await call.target.renew()
        with self._endpoints.lease(api_base, call.target.proxy, call.target.connect_timeout) as endpoint:
            return await call.send(endpoint, headers, attempt)


@dataclass(eq=False, repr=False)  # its headers hold the key
class _Call:
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

    def __post_init__(self) -> None:
        wanted = self.on_delta is not None and self.may_stream if self.request.stream is None else self.request.stream
        able = not self.target.model.no_stream and (self.target.codec.streams_tools or not self.request.tools)
        self.stream = wanted and able
        self.heard = False
        self._asked = False
        self._began = 0.0
        self._refusal = ""
        self.remaining: Remaining | None = None

    def emit(self, data: events.EventData) -> None:
        self.me.emit(data, id=self.id)

    def send(self, endpoint: Endpoint, headers: Mapping[str, str], attempt: int) -> Coroutine[Any, Any, ChatReply]:
        self._begins(attempt)
        ask = endpoint.stream if self.stream else endpoint.ask
        return ask(self.target, headers, self.request, self.hears, self.reads)

    def reads(self, headers: httpx.Headers) -> None:
        """The headers of a reply."""
        self.remaining = remaining_in(headers)

    def tokens(self) -> int:
        """About how many it takes, as providers count them beforehand: four characters each, and what may be said."""
        request = self.request
        texts = (
            len(request.system) + len(msgspec.json.encode(request.messages)) + len(msgspec.json.encode(request.tools))
        )
        return texts // 4 + (request.max_tokens or 0)

    def waits(self, waiting: Waiting) -> None:
        """It is not its turn yet."""
        about, self._refusal = self._refusal, ""
        if waiting.why == "concurrency" and not about:
            return
        seconds = waiting.seconds or 0.0
        if not self.may_wait:
            words = about or f"{self.target.id}: the provider allows no more requests now"
            error = UpstreamError(f"{words}; the next may go out in {seconds:.1f} s", retry_after=seconds)
            error.transient = False  # another try would have to wait as well
            raise error
        self.emit(events.LlmWaiting(model=self.target.id, wait=seconds, reason=waiting.why, error=about))

    def is_refused(self, error: UpstreamError) -> None:
        """It gets in line again."""
        self._refusal = str(error)
        if not self.may_wait:
            error.transient = False  # another try would have to wait
            raise error

    def _begins(self, attempt: int) -> None:
        self._began = trio.current_time()
        self._asked = True
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

    def hears(self, delta: Delta) -> None:
        if self.stream:
            self.heard = True
            if isinstance(delta, TextDelta):
                self.emit(events.LlmDelta(text=delta.text))
            elif isinstance(delta, ReasoningDelta):
                self.emit(events.LlmReasoning(text=delta.text))
        if self.on_delta is not None:
            self.on_delta(delta)

    def will_retry(self, attempt: int, wait: float, error: ModelError) -> None:
        self.emit(events.LlmRetry(model=self.target.id, attempt=attempt, wait=wait, error=str(error)))
        if self.heard and self.on_delta is not None:
            self.on_delta(Restarted())
        self.heard = False

    def gives_up(self, error: CallboardError) -> None:
        if self._asked:  # else nothing went out
            self.emit(events.LlmFailed(model=self.target.id, error=str(error), code=error.code))

    def ends(self, reply: ChatReply) -> None:
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
        if not self.need_text or reply.text.strip():
            return
        if not reply.tool_calls:
            raise UpstreamError(f"{reply.model} produced no output")
        if not self.request.tools:
            named = ", ".join(f"'{call.name}'" for call in reply.tool_calls)
            raise UpstreamError(f"{reply.model} said nothing and called tools that nobody offered: {named}"[:300])


def _tokens(usage: TokenUsage) -> int:
    counted = countable(usage)
    return counted.input_tokens + counted.output_tokens


def countable(usage: TokenUsage) -> TokenUsage:
    """Token counts as they can be: a negative one would give back what the run has spent, a huge one fits nowhere."""
    counts = {name: min(max(0, getattr(usage, name)), MOST_TOKENS) for name in usage.__struct_fields__}
    return TokenUsage(**counts)


async def retried(
    once: Callable[[int], Awaitable[T]],
    retry: Retry,
    *,
    on_wait: Callable[[int, float, ModelError], None],
    rand: Callable[[], float],
    deadline: float = math.inf,
) -> T:
    """What one of the tries returns.

    Each try is made in the caller's own task, and is no actor that a supervisor starts again: so cancelling the caller
    closes its connection at once, and a try costs no task. What follows from a failure the kernel's policy decides.

    Args:
        once: makes one; gets its number, from 1.
        on_wait: told the number of the try that failed, the seconds before the next, and the error.
        rand: source of the jitter, in [0, 1).
        deadline: when it is too late for another one, on trio's clock.

    Raises:
        ModelError: that of the last try; its text says how many there were, if there was more than one.
    """
    for attempt in count(1):
        try:
            return await once(attempt)
        except ModelError as error:
            wait = retry.wait(attempt, error, left=deadline - trio.current_time(), rand=rand)
            if wait is None:
                if attempt == 1 or not retry.retryable(error):
                    raise
                raise _spent(error, attempt) from error
            on_wait(attempt, wait, error)
            await trio.sleep(wait)
    raise AssertionError("count() has no end")


def _spent(error: ModelError, attempts: int) -> ModelError:
    told = type(error)(f"{error}, after {attempts} tries")
    told.__dict__.update(error.__dict__)
    return told
