"""The gateway to language models.

`Gateway.chat` takes a provider-neutral request and gives back a complete reply. It finds the model, sends the
request, retries what may pass by itself, counts tokens and money, and tells the run's event stream what happens.
Providers are pure translators (`openai`, `anthropic`, `ollama`, `local`); bytes move in `client` and the transport
below it. One gateway serves a whole process: thousands of callers share its connections, yet each call stays in its
caller's task, so cancelling the caller closes its connection at once.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol import events
from ....protocol.chat import ChatReply, ChatRequest, TextDelta, TokenUsage
from ....protocol.errors import (
    CallboardError,
    ConfigError,
    CredentialsError,
    EmptyReply,
    KeyRefused,
    Stalled,
    TimedOut,
    UpstreamError,
)
from ....protocol.model_names import models_of
from ....protocol.settings import Settings
from ....supervisors import Retry
from ...io.imports import imported
from ...io.vault.vault import NotFetched
from .call import Call, Emitter, OnDelta, OnUsage, countable
from .catalog import Catalog
from .codecs import module_of
from .endpoints import Endpoints
from .engines import LocalEngines
from .limiter import Gate, Gates, too_many
from .retrying import BACKOFF, retried
from .target import Choice, Target, TokenBearer

if TYPE_CHECKING:
    from ....supervisors.root import Root
    from ...io.vault.vault import Vault
    from ..spending.accounts import Account
    from .fallback import Down
    from .recorder import Recorder


class Gateway(AbstractAsyncContextManager["Gateway"]):
    """Reaches every model that the settings and the environment know.

    Args:
        root: limiters live under it.
        settings: what `config.yaml` says.
        environ: the environment: keys, base URLs, proxies, cache directory.
        engines: gives out local engines; without it `local:` models are refused.
        vault: has the secrets that clients name.
        rng: where the jitter of the waits comes from.

    Attributes:
        catalog: which models there are.
        gates: their limiters.

    Use it as an async context manager, or call `aclose` at the end.
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
        self.catalog = Catalog(settings, environ, root, vault=vault)
        self._engines = engines
        self._rng = rng if rng is not None else random.Random()  # noqa: S311  (jitter, no secret)
        self._endpoints = Endpoints(environ)
        self.gates = Gates(root, self._rng.random)
        self._down: Down | None = None
        self._codecs_are_there = False

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def under(self, settings: Settings) -> Gateway:
        """This gateway with other settings for what requests leave open; clients and models stay as they are."""
        other = copy.copy(self)
        other._settings = settings  # noqa: SLF001 - a copy of mine
        return other

    async def aclose(self) -> None:
        """Close every connection. Requests that are still under way fail."""
        self._endpoints.close()

    async def import_codecs(self) -> None:
        """Import what speaks to the models of the settings, once, in a thread: `check` must not do so on the loop."""
        if not self._codecs_are_there:
            kinds = {self.choice().model.partition(":")[0], *(client.type for client in self._settings.clients)}
            await imported(*map(module_of, kinds))
            self._codecs_are_there = True

    def choice(self) -> Choice:
        """The model that a request without one gets, and why. Wants no key and no weights yet."""
        return self.catalog.choice()

    def check(self, model: str = "") -> str:
        """The full id of `model` (or of the default), if it can be asked: key, base URL and weights are there.

        Where several models are named, all have to be there, and the text has the ids of all.

        Raises:
            ConfigError, CredentialsError, Unsupported: it can't; the text says what to do.
        """
        model = model or self.choice().model
        if self._settings.dry_run:  # wants no key and no weights
            for name in models_of(model):
                self.catalog.named(name)
            return self.catalog.full(model)
        try:
            targets = self.catalog.targets(model)
        except NotFetched:  # the request that needs it fetches it
            return self.catalog.full(model)
        for target in targets:
            if target.engine is not None and self._engines is None:
                raise ConfigError(f"'{target.id}' can't be used here: no local engine can be started")
        return ",".join(target.id for target in targets)

    def check_price(self, model: str, account: Account) -> None:
        """See that the cost of `model` (or of the default) will be known if that matters, of several that of each.

        Raises:
            Unpriced: it won't; the text says what to do.
            ConfigError, CredentialsError, Unsupported: as `check`.
        """
        if self._settings.dry_run:
            return
        try:
            targets = self.catalog.targets(model or self.choice().model)
        except NotFetched:  # the request itself sees to it
            return
        for target in targets:
            unpriced = account.unpriced(target.id, self._settings.file) if target.price.tariff is None else None
            if unpriced is not None:
                raise unpriced

    def lacks_model(self) -> str | None:
        """What to say where neither settings nor keys name a model, and the one of last resort can't be asked; else
        None.
        """
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
        """The same as `window`; of a model whose window no settings say that of the table of prices, once it was read:
        for what people are shown.
        """
        model = model or self.choice().model
        found = self.window(model)
        if found is not None or not self.catalog.prices.is_read:
            return found
        return self.looked_up_window(model)

    def looked_up_window(self, model: str = "") -> int | None:
        """The same as `known_window`. Blocks if the table was not read yet: call it in a thread."""
        model = model or self.choice().model
        found = self.window(model)
        if found is not None:
            return found
        from .facts import facts_of

        finder, environ = self.catalog.prices.finder, self._environ
        known = [facts_of(finder, *self.catalog.named(name), environ).window for name in models_of(model)]
        return min((each for each in known if each is not None), default=None)

    def window(self, model: str = "") -> int | None:
        """Tokens that `model` (or the default) takes in, as far as the settings say; of several the least."""
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
        """Ask a model and wait for its whole reply.

        Cancelling the caller closes the connection at once.

        Args:
            me: whom the events are about.
            request: what to ask; its gaps are filled from the settings. Of several models see `fallback`.
            on_delta: gets the reply in pieces as well, in one piece if the model can't stream. With it a stream is
                asked for, unless `request.stream` or the settings say no.
            on_usage: gets tokens and cost of every complete reply, also of one that is tried again.
            attempts: exact number of tries, the first included, where errors may pass by themselves; or which errors
                those are and how long to wait, too.
            deadline: on `trio.current_time()`'s clock.
            need_text: a reply that only calls tools, of which it was offered none, counts as an error that may pass;
                and after an empty one as many tries are made as `attempts` says, in place of one more.
            may_wait: a request that is one too many for the provider waits for its turn, however long that takes, and
                is no failed try. Else it is an UpstreamError.
            account: what every try is charged to; it goes out when there is room for it.
            recorder: keeps what the model saw and said.

        Raises:
            ConfigError, CredentialsError: the model or its key is missing.
            ModelError: the provider refused the request, or its answer makes no sense.
            ReplyFiltered: a filter of the provider's has stopped the request or the reply.
            EmptyReply: the reply has neither text nor calls, and another was no better.
            UpstreamError: the tries are spent, or there is no time left for the wait before the next.
            TimedOut: the deadline passed.
            TurnsReached, BudgetReached: the account is at its end.
            Unpriced: it is limited in money, and the price of the model is not known.
        """
        retry = _tries_of(attempts) if isinstance(attempts, int) else attempts
        if retry.most < 1:
            raise ValueError(f"attempts must be at least 1, not {retry.most}")
        if self._settings.dry_run:
            return self._dry(me, request, on_delta)
        targets = self.catalog.known(name := request.model or self.choice().model) or await self.catalog.fetched(name)
        target, several = targets[0], len(targets) > 1
        ticket, stream = self.gates.ticket(), self._settings.stream
        asked, id = request if several else target.complete(request, self._settings), f"llm-{ticket}"
        call = Call(me, id, ticket, target, asked, on_delta, on_usage, need_text, stream, may_wait, account, recorder)
        try:
            if deadline == math.inf:  # a scope costs a kilobyte
                return await self._answer(call, targets, retry, deadline)
            with trio.move_on_at(deadline):
                return await self._answer(call, targets, retry, deadline)
            raise TimedOut(f"{call.target.id} did not answer in time")
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

    def _answer(
        self, call: Call, targets: Sequence[Target], retry: Retry, deadline: float
    ) -> Coroutine[Any, Any, ChatReply]:
        if len(targets) > 1:
            return self._several(call, targets, retry, deadline)
        return self._tries(call, retry, deadline)

    def _tries(self, call: Call, retry: Retry, deadline: float) -> Coroutine[Any, Any, ChatReply]:
        once = partial(self._try if call.account is None else self._try_on_account, call)
        return retried(once, retry, on_wait=call.will_retry, rand=self._rng.random, deadline=deadline)

    async def _several(self, call: Call, targets: Sequence[Target], retry: Retry, deadline: float) -> ChatReply:
        from .fallback import Down, first_to_answer

        if self._down is None:
            self._down = Down(self._settings.fallback_cooldown)

        def ask(retry: Retry) -> Awaitable[ChatReply]:
            return self._tries(call, retry, deadline)

        return await first_to_answer(call, targets, call.request, self._settings, self._down, ask, retry)

    async def _try_on_account(self, call: Call, attempt: int) -> ChatReply:
        target = call.target
        if self.gates.get(target.id) is None:
            await self._open(target)  # which looks its price up
        assert call.account is not None
        await call.reserve(call.account, self._settings.file)
        try:
            return await self._try(call, attempt)
        except BaseException as error:  # cancelled too: it is only looked at
            call.cut_off(error)
            raise

    async def _try(self, call: Call, attempt: int) -> ChatReply:
        target = call.target
        gate = self.gates.get(target.id) or await self._open(target)
        usage: TokenUsage | None = None
        while usage is None:
            if call.patience == math.inf:
                await gate.admit(call.ticket, call.me.path, call.tokens, call.waits)
            else:
                await self._admitted(gate, call)
            refused: UpstreamError | None = None
            try:
                if target.engine is None:
                    reply = await self._send(call, target.api_base, target.headers, attempt)
                else:
                    reply = await self._send_to_engine(call, target.engine, attempt)
                usage = countable(reply.usage)
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
                    used = None if usage is None else usage.input_tokens + usage.output_tokens
                    gate.done(call.ticket, used, call.remaining)
            if refused is not None:
                call.is_refused(refused)
        reply = msgspec.structs.replace(reply, model=target.id, usage=usage, cost=target.cost(usage))
        try:
            return call.ends(reply)
        except EmptyReply as error:  # asked for once more; as often as a node says, where it says so
            error.transient = error.transient and (call.need_text or attempt == 1)
            raise

    async def _admitted(self, gate: Gate, call: Call) -> None:
        from .fallback import admitted

        await admitted(gate, call)

    async def _open(self, target: Target) -> Gate:
        """What a model needs when it is first asked: the client, its limiter, and its price, looked up in a thread."""
        await imported(".actors.work.models.client")
        await target.price.looked_up()
        return await self.gates.of(target.id, target.rules, target.account)

    async def _send_to_engine(self, call: Call, engine: str, attempt: int) -> ChatReply:
        target = call.target
        if self._engines is None:
            raise ConfigError(f"'{target.id}' can't be used here: no local engine can be started")
        async with self._engines.lease(engine) as served:
            headers = {**target.codec.headers(served.key), "connection": "close"}
            return await self._send(call, f"{served.url}/v1", headers, attempt)

    async def _send(self, call: Call, api_base: str, headers: Mapping[str, str], attempt: int) -> ChatReply:
        target = call.target
        if target.signed_in is not None:
            return await self._send_signed_in(call, target.signed_in, attempt)
        if target.renew is not None:
            await target.renew()
        with self._endpoints.lease(api_base, target.proxy, target.connect_timeout) as endpoint:
            return await call.send(endpoint, headers, attempt)

    async def _send_signed_in(self, call: Call, signed_in: TokenBearer, attempt: int) -> ChatReply:
        target, token = call.target, await signed_in.renew()
        with self._endpoints.lease(target.api_base, target.proxy, target.connect_timeout) as endpoint:
            try:
                return await call.send(endpoint, signed_in.headers, attempt)
            except KeyRefused as refused:
                refusal = refused

            def again() -> Coroutine[Any, Any, ChatReply]:
                call.will_retry(attempt, 0.0, CredentialsError(refusal.said))
                return call.send(endpoint, signed_in.headers, attempt)

            return await signed_in.once_more(token, refusal, again)


@lru_cache(maxsize=16)
def _tries_of(attempts: int) -> Retry:
    return Retry(most=attempts, backoff=BACKOFF)
