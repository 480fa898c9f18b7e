"""Gateway to language models.

`Gateway.chat` accepts a provider-neutral request and returns a complete reply. It finds the model, sends the request,
retries transient errors, counts tokens and money, and emits events to the run's event stream. Providers are pure
translators (`openai`, `anthropic`, `ollama`, `local`); `client` and the transport below it move the bytes.

One gateway serves a whole process, and thousands of callers share its connections. Each call runs in its caller's
task, so cancelling the caller closes its connection at once. An actor per request would need a second task and a
message for each cancellation.

The order of one try: reserve in the account, wait for the limiter, refresh credentials, send, count, charge. A
rate-limit refusal repeats the try from the limiter without using up an attempt.

**Dry runs** (`dry_run`). No request is sent, and the reply shows the request. The reply to a request with a response
schema is the smallest value that matches it, so that a graph can continue.

**Connections** (`Endpoints`). A process may use any number of base URLs: each start of a local engine has a new port,
and files may describe clients. An endpoint holds connections and, for https, certificates (about a MB), so idle
endpoints are closed. Above `MOST_IDLE` of them, the one that is idle longest is closed at once. Others are closed after
`IDLE` seconds, when the next endpoint becomes idle; there is no timer.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache, partial
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import trio

from ....protocol import events
from ....protocol.chat import AssistantTurn, ChatReply, ChatRequest, TextDelta, TokenUsage, UserTurn, models_of, text_of
from ....protocol.errors import (
    CallboardError,
    ConfigError,
    CredentialsError,
    EmptyReply,
    KeyRefused,
    ModelError,
    Stalled,
    TimedOut,
    UpstreamError,
)
from ....protocol.settings import Settings
from ....supervisors import Backoff, Retry
from ...io.imports import imported
from ...io.vault.vault import NotFetched
from .call import Emitter, GatewayCall, OnDelta, OnUsage, countable
from .catalog import ModelCatalog, ModelChoice, ModelTarget, TokenBearer
from .engines import LocalEngines
from .limiter import Gates, LimiterGate, too_many
from .providers import module_of

if TYPE_CHECKING:
    from ....supervisors.root import Root
    from ...io.vault.vault import Vault
    from ..spending.accounts import Account
    from .client import Endpoint
    from .fallback import FailedModels
    from .python_model import Model
    from .recorder import Recorder

BACKOFF = Backoff(first=0.5, most=30.0, jitter=1.0)
"""Backoff with full jitter: a thousand callers that fail together must not retry together."""

REFUSED_FOR = 120.0
"""Seconds of rate-limit refusals, without one answer from the model, after which a try fails.

A request among many waits as long as others are answered. A provider that answers no request at all may have reached a
quota that it reports as a rate limit. Then `max_attempts` and `fallback` must take effect.
"""


T = TypeVar("T")


class Gateway(AbstractAsyncContextManager["Gateway"]):
    """Gateway to all models of the settings and the environment.

    Use it as an async context manager, or call `aclose` at the end.

    Args:
        root: actor tree under which the limiters run.
        settings: settings from `config.yaml`.
        environ: environment variables with keys, base URLs, proxies, cache directory.
        engines: leases local engines; without it, `local:` models raise ConfigError.
        vault: source of the secrets that clients name.
        rng: source of the jitter of waits.

    Attributes:
        catalog: the known models.
        gates: the limiters of the models.
    """

    def __init__(
        self,
        root: Root,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        engines: LocalEngines | None = None,
        vault: Vault | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self.catalog: ModelCatalog = ModelCatalog(settings, environ, root, vault=vault)
        self._engines = engines
        self._rng = rng if rng is not None else random.Random()  # noqa: S311  (jitter, no secret)
        self._endpoints = Endpoints(environ)
        self.gates: Gates = Gates(root, self._rng.random)
        self._down: FailedModels | None = None
        self._answered: dict[str, float] = {}  # time of the last answer of each model
        self._codecs_are_there = False

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def under(self, settings: Settings) -> Gateway:
        """Return a copy with other default options for requests; clients, models and connections are shared."""
        other = copy.copy(self)
        other._settings = settings  # noqa: SLF001 - a copy of mine
        return other

    def with_models(self, models: Mapping[str, Model]) -> Gateway:
        """Return a copy that also has these Python models, by name; all else is shared."""
        other = copy.copy(self)
        other.catalog = self.catalog.with_models(models)
        return other

    async def aclose(self) -> None:
        """Close every connection. Requests in progress fail."""
        self._endpoints.close()

    async def import_codecs(self) -> None:
        """Import the codecs of the configured models once, in a thread.

        `check` is synchronous and would otherwise block the event loop with these imports.
        """
        if not self._codecs_are_there:
            kinds = {self.choice().model.partition(":")[0], *(client.type for client in self._settings.clients)}
            await imported(*map(module_of, kinds))
            self._codecs_are_there = True

    def choice(self) -> ModelChoice:
        """Return the default model and the reason for it. This needs no key and no weights."""
        return self.catalog.choice()

    def check(self, model: str = "") -> str:
        """Return the full id of `model` (or of the default) after a check of its key, base URL and weights.

        For a comma-separated list of models, check all and return all ids. A dry run checks only that the models exist.
        If a secret takes time to fetch, nothing is checked here: the first request fetches it.

        Raises:
            ConfigError, CredentialsError, Unsupported: the model cannot be used; the text says what to do.
        """
        model = model or self.choice().model
        if self._settings.dry_run:  # a dry run needs no key and no weights
            for name in models_of(model):
                self.catalog.named(name)
            return self.catalog.full(model)
        try:
            targets = self.catalog.targets(model)
        except NotFetched:  # the first request fetches it
            return self.catalog.full(model)
        for target in targets:
            if target.engine is not None and self._engines is None:
                raise ConfigError(f"'{target.id}' can't be used: this process can't start a local engine")
        return ",".join(target.id for target in targets)

    def check_price(self, model: str, account: Account) -> None:
        """Check that the price of each model is known if the account is limited in money. A dry run checks nothing.

        If a secret takes time to fetch, the check is left to the request.

        Raises:
            Unpriced: a price is unknown; the text says what to do.
            ConfigError, CredentialsError, Unsupported: the same as in `check`.
        """
        if self._settings.dry_run:
            return
        try:
            targets = self.catalog.targets(model or self.choice().model)
        except NotFetched:  # `GatewayCall.reserve` checks again with the request
            return
        for target in targets:
            unpriced = account.unpriced(target.id, self._settings.file) if target.price.tariff is None else None
            if unpriced is not None:
                raise unpriced

    def lacks_model(self) -> str | None:
        """Return a message if no model is configured and the small local model is unavailable, else None."""
        choice = self.choice()
        if not choice.is_last_resort:
            return None
        try:
            self.catalog.target(choice.model)
        except ConfigError as error:
            return (
                "no model is configured: run `callboard setup`, or set OPENAI_API_KEY or the key of another provider"
                f"\n    (a very small model could run on this machine; {error})"
            )
        return None

    def known_window(self, model: str = "") -> int | None:
        """Return the context window for display: from the settings, else from the price table if it is loaded.

        This never blocks. Before the table is loaded it returns None; see `load_window`.
        """
        model = model or self.choice().model
        found = self.window(model)
        if found is not None or not self.catalog.prices.is_read:
            return found
        return self.load_window(model)

    def load_window(self, model: str = "") -> int | None:
        """Return the context window in tokens, the smallest of several models; None if unknown.

        The settings take precedence over the price table, which is loaded if needed. This blocks: call it in a thread.
        """
        model = model or self.choice().model
        found = self.window(model)
        if found is not None:
            return found
        from .model_listing import facts_of

        finder, environ = self.catalog.prices.finder, self._environ
        known = [facts_of(finder, *self.catalog.named(name), environ).window for name in models_of(model)]
        return min((each for each in known if each is not None), default=None)

    def window(self, model: str = "") -> int | None:
        """Return the context window in tokens from the settings, the smallest of several; None if not configured."""
        entries = [self.catalog.named(name)[1] for name in models_of(model or self.choice().model)]
        return min((entry.max_input_tokens for entry in entries if entry.max_input_tokens is not None), default=None)

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
        account: Account | None = None,
        recorder: Recorder | None = None,
    ) -> ChatReply:
        """Send a request to a model and wait for its complete reply.

        Cancelling the caller closes the connection at once.

        Args:
            me: emits the events of the request.
            request: the request; missing options come from the settings. For several models see `fallback`.
            on_delta: receives the reply in pieces as well, or in one piece if the model does not stream. With it, the
                answer is streamed unless `request.stream` or the settings forbid that.
            on_usage: receives tokens and cost of every complete reply, also of one that is tried again.
            attempts: maximum number of tries, the first included, if errors are transient. A `Retry` also sets the
                retryable errors and the waits.
            deadline: time on trio's clock at which the call raises TimedOut. No further try starts if its wait would
                pass the deadline.
            need_text: treat a reply that only calls tools, if none were offered, as a transient error. An empty reply
                is then tried as often as `attempts` allows, instead of once more.
            may_wait: if the provider's rate limit is reached, wait as long as it takes without counting a failed try,
                unless no request is answered for `REFUSED_FOR`. If False, raise UpstreamError instead.
            account: account that every try is charged to. A try is sent when the account has room for it.
            recorder: stores the request and the reply.

        A dry run sends nothing and returns `dry_reply`. `attempts` below 1 raises ValueError.

        Raises:
            ConfigError, CredentialsError: the model or its key is missing, or the provider refused the key.
            Unsupported: the model does not support the request.
            AccountEmpty: the provider's account has no credit.
            ModelError: the provider refused the request, or its answer is not in its format.
            ReplyFiltered: the provider's filter stopped the request or the reply.
            EmptyReply: the reply has neither text nor calls, also after another try.
            UpstreamError: all tries failed, or the deadline is before the next one.
            TimedOut: the deadline passed.
            TurnsReached, BudgetReached: the account is exhausted.
            Unpriced: the account is limited in money, and the price of the model is unknown.
        """
        retry = _tries_of(attempts) if isinstance(attempts, int) else attempts
        if retry.most < 1:
            raise ValueError(f"`attempts` must be at least 1, not {retry.most}")
        if self._settings.dry_run:
            return self._dry(me, request, on_delta)
        targets = self.catalog.known(name := request.model or self.choice().model) or await self.catalog.fetched(name)
        target, several = targets[0], len(targets) > 1
        ticket, stream = self.gates.ticket(), self._settings.stream
        asked, id = request if several else target.complete(request, self._settings), f"llm-{ticket}"
        call = GatewayCall(
            me, id, ticket, target, asked, on_delta, on_usage, need_text, stream, may_wait, account, recorder
        )
        try:
            if deadline == math.inf:  # a cancel scope costs a kilobyte for each of thousands of calls
                return await self._answer(call, targets, retry, deadline)
            with trio.move_on_at(deadline):
                return await self._answer(call, targets, retry, deadline)
            raise TimedOut(f"{call.target.id} did not answer in time")
        except CallboardError as error:
            call.gives_up(error)
            raise

    def _dry(self, me: Emitter, request: ChatRequest, on_delta: OnDelta | None) -> ChatReply:

        model = self.catalog.full(request.model or self.choice().model)
        if request.response_schema is not None:  # the reply must match the schema, so it cannot show the request
            me.emit(events.Warned(code="dry_run", message=as_text(request, model)))
        reply = dry_reply(request, model)
        if on_delta is not None:
            on_delta(TextDelta(reply.text))
        return reply

    def _answer(
        self, call: GatewayCall, targets: Sequence[ModelTarget], retry: Retry, deadline: float
    ) -> Coroutine[Any, Any, ChatReply]:
        if len(targets) > 1:
            return self._several(call, targets, retry, deadline)
        return self._tries(call, retry, deadline)

    def _tries(self, call: GatewayCall, retry: Retry, deadline: float) -> Coroutine[Any, Any, ChatReply]:
        once = partial(self._try if call.account is None else self._try_on_account, call)
        return retried(once, retry, on_wait=call.will_retry, rand=self._rng.random, deadline=deadline)

    async def _several(
        self, call: GatewayCall, targets: Sequence[ModelTarget], retry: Retry, deadline: float
    ) -> ChatReply:
        from .fallback import FailedModels, first_to_answer

        if self._down is None:
            self._down = FailedModels(self._settings.fallback_cooldown)

        def ask(retry: Retry) -> Awaitable[ChatReply]:
            return self._tries(call, retry, deadline)

        return await first_to_answer(call, targets, call.request, self._settings, self._down, ask, retry)

    async def _try_on_account(self, call: GatewayCall, attempt: int) -> ChatReply:
        target = call.target
        if self.gates.get(target.id) is None:
            await self._open(target)  # looks up the price, which the reservation needs
        assert call.account is not None
        await call.reserve(call.account, self._settings.file)
        try:
            return await self._try(call, attempt)
        except BaseException as error:  # includes cancellation, which costs money as well
            call.cut_off(error)
            raise

    async def _try(self, call: GatewayCall, attempt: int) -> ChatReply:
        target = call.target
        gate = self.gates.get(target.id) or await self._open(target)
        usage: TokenUsage | None = None
        since: float | None = None
        while usage is None:
            if call.patience == math.inf:
                await gate.admit(call.ticket, call.me.path, call.tokens, call.waits)
            else:
                await self._admitted(gate, call)
            refused: UpstreamError | None = None
            try:
                if target.prepared is not None:
                    reply = await call.prepared(target.prepared, attempt)
                elif target.engine is None:
                    reply = await self._send(call, target.api_base, target.headers, attempt)
                else:
                    reply = await self._send_to_engine(call, target.engine, attempt)
                usage = countable(reply.usage)
            except Stalled as error:
                # One more try at most, since each costs the whole idle timeout. None after streamed text: the listener
                # would receive it a second time.
                error.transient = attempt == 1 and not call.heard
                raise
            except UpstreamError as error:
                if not too_many(error):
                    raise
                refused = error
            finally:  # also after cancellation, else the limiter would count this request as in flight forever
                if refused is not None:
                    gate.refused(call.ticket, refused.retry_after)
                else:
                    used = None if usage is None else usage.input_tokens + usage.output_tokens
                    gate.done(call.ticket, used, call.remaining)
            if refused is not None:
                now = trio.current_time()
                since = max(now if since is None else since, self._answered.get(target.id, -math.inf))
                if now - since >= REFUSED_FOR:
                    refused.args = (f"{refused}; the provider has refused every request for {now - since:.0f} s",)
                    refused.retry_after = None
                    raise refused
                call.is_refused(refused)
        self._answered[target.id] = trio.current_time()
        call.response_id = reply.id  # only events need the provider's id; journals and sessions do not store it
        cost = reply.cost if target.own_cost and reply.cost is not None else target.cost(usage)
        reply = msgspec.structs.replace(reply, id="", model=target.id, usage=usage, cost=cost)
        try:
            return call.ends(reply)
        except EmptyReply as error:  # tried once more, or with `need_text` as often as `attempts` allows
            error.transient = error.transient and (call.need_text or attempt == 1)
            raise

    async def _admitted(self, gate: LimiterGate, call: GatewayCall) -> None:
        from .fallback import admitted

        await admitted(gate, call)

    async def _open(self, target: ModelTarget) -> LimiterGate:
        """Prepare the first request to a model: import the client, look up the price in a thread, start the limiter."""
        await imported(".actors.work.models.client")
        await target.price.load()
        return await self.gates.of(target.id, target.rules, target.account)

    async def _send_to_engine(self, call: GatewayCall, engine: str, attempt: int) -> ChatReply:
        target = call.target
        if self._engines is None:
            raise ConfigError(f"'{target.id}' can't be used: this process can't start a local engine")
        async with self._engines.lease(engine) as served:
            headers = {**target.codec.headers(served.key), "connection": "close"}
            return await self._send(call, f"{served.url}/v1", headers, attempt)

    async def _send(self, call: GatewayCall, api_base: str, headers: Mapping[str, str], attempt: int) -> ChatReply:
        target = call.target
        if target.signed_in is not None:
            return await self._send_signed_in(call, target.signed_in, attempt)
        if target.renew is not None:
            await target.renew()
        with self._endpoints.lease(api_base, target.proxy, target.connect_timeout) as endpoint:
            return await call.send(endpoint, headers, attempt)

    async def _send_signed_in(self, call: GatewayCall, signed_in: TokenBearer, attempt: int) -> ChatReply:
        target, token = call.target, await signed_in.renew()
        with self._endpoints.lease(target.api_base, target.proxy, target.connect_timeout) as endpoint:
            try:
                return await call.send(endpoint, signed_in.headers, attempt)
            except KeyRefused as refused:
                refusal = refused  # Python deletes `refused` at the end of the handler

            def again() -> Coroutine[Any, Any, ChatReply]:
                call.will_retry(attempt, 0.0, CredentialsError(refusal.said))
                return call.send(endpoint, signed_in.headers, attempt)

            return await signed_in.once_more(token, refusal, again)


@lru_cache(maxsize=16)
def _tries_of(attempts: int) -> Retry:
    return Retry(most=attempts, backoff=BACKOFF)


async def retried(
    once: Callable[[int], Awaitable[T]],
    retry: Retry,
    *,
    on_wait: Callable[[int, float, ModelError], None],
    rand: Callable[[], float],
    deadline: float = math.inf,
) -> T:
    """Call `once` until it succeeds or the retry policy ends the tries, and return its result.

    All tries run in the caller's task, not in an actor that a supervisor restarts. So cancelling the caller closes its
    connection at once, and a try costs no task. The kernel's `Retry` decides whether to try again.

    Args:
        once: makes one try; it receives the number of the try, from 1.
        on_wait: called with the number of the failed try, the seconds before the next, and the error.
        rand: source of the jitter, in [0, 1).
        deadline: time on trio's clock after which no further try starts.

    Raises:
        ModelError: the error of the last try. If there were several and it is retryable, its text states their number.
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
    counted = type(error)(f"{error}, after {attempts} tries")
    counted.__dict__.update(error.__dict__)
    return counted


def dry_reply(request: ChatRequest, model: str) -> ChatReply:
    """Return the reply of a dry run."""
    if request.response_schema is not None:
        return ChatReply(text=json.dumps(_emptiest(request.response_schema)), model=model)
    return ChatReply(text=as_text(request, model), model=model)


def as_text(request: ChatRequest, model: str) -> str:
    """Return a request as readable text: model, messages and the names of the tools."""
    lines = [f"(dry run: not sent to {model})"]
    if request.system:
        lines += ["", "system:", request.system]
    for turn in request.messages:
        if isinstance(turn, UserTurn):
            lines += ["", "user:", text_of(turn.content)]
        elif isinstance(turn, AssistantTurn):
            lines += ["", "assistant:", turn.text, *(f"calls {call.name} {call.arguments}" for call in turn.tool_calls)]
        else:
            lines += ["", f"result of {turn.name}:", text_of(turn.content)]
    if request.tools:
        lines += ["", f"tools: {', '.join(tool.name for tool in request.tools)}"]
    return "\n".join(lines)


def _emptiest(schema: dict[str, Any]) -> Any:
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _emptiest(properties.get(name, {})) for name in schema.get("required", properties)}
    if kind == "array":
        return [_emptiest(schema.get("items", {})) for _ in range(schema.get("minItems", 0))]
    return {"string": "", "integer": 0, "number": 0, "boolean": False, "null": None}.get(kind, "")


MOST_IDLE = 64
"""Maximum number of idle endpoints."""

IDLE = 300.0
"""Seconds without a request after which an endpoint may be closed."""

Key = tuple[str, str, float]


class Endpoints:
    """Endpoints by base URL, proxy and connect timeout.

    Args:
        environ: environment with proxies and certificates.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._busy: dict[Key, Endpoint] = {}
        self._idle: OrderedDict[Key, Endpoint] = OrderedDict()

    def __len__(self) -> int:
        return len(self._busy) + len(self._idle)

    def lease(self, api_base: str, proxy: str, connect_timeout: float) -> Endpoint:
        """Return the endpoint of a base URL. Use it as a context manager: it stays open inside the block."""
        key = (api_base, proxy, connect_timeout)
        endpoint = self._busy.get(key)
        if endpoint is None:
            endpoint = self._busy[key] = self._idle.pop(key) if key in self._idle else self._new(key)
        return endpoint

    def _unused(self, key: Key, endpoint: Endpoint) -> None:
        if self._busy.get(key) is endpoint:  # else `close` was called meanwhile
            del self._busy[key]
            endpoint.idle_since = now = trio.current_time()
            self._idle[key] = endpoint
            self._let_go(now - IDLE)

    def close(self) -> None:
        """Close every connection. Requests in progress fail."""
        for endpoint in (*self._busy.values(), *self._idle.values()):
            endpoint.close()
        self._busy.clear()
        self._idle.clear()

    def _new(self, key: Key) -> Endpoint:
        from .client import Endpoint  # imports httpx, which runs without models do not need

        endpoint = Endpoint(*key, self._environ)
        endpoint.when_unused = partial(self._unused, key)
        return endpoint

    def _let_go(self, before: float) -> None:
        while self._idle:
            key, oldest = next(iter(self._idle.items()))
            if len(self._idle) <= MOST_IDLE and oldest.idle_since > before:
                return
            del self._idle[key]
            oldest.close()
