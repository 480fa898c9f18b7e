"""Requests to models that do not chat: tried again where that may help, and let out by the limiter that chats have.

A request that is one too many for the provider waits for its turn, together with all others of the process to that
model, and is no failed try; see `models/limiter`. So do requests beyond those that may be under way at once.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.chat import TokenUsage
from .....protocol.errors import ModelError, UpstreamError
from .....protocol.events import LlmRetry, LlmWaiting, UsageUpdate
from .....supervisors import Retry
from ...models.allowance import Remaining, Rules, remaining_in
from ...models.call import Emitter, busy, countable
from ...models.limiter import Gates, Waiting, too_many
from ...models.prices.price import Price
from ...models.retrying import BACKOFF, retried

if TYPE_CHECKING:
    import httpx

WITHIN = 300.0
"""Seconds for the answer to one request. Embedding needs no thinking: a slower server is stuck."""

AT_ONCE = 4
"""Requests under way at once for one model, unless the settings say otherwise."""

OnRequest = Callable[[Emitter, str, Price], None]
"""Told for whom a request is, the model's id, what finds its price. It may raise `Unpriced`, which the caller gets."""

OnUsage = Callable[[Emitter, str, TokenUsage, float | None], UsageUpdate | None]
"""Gets what a request has used, where the provider says it: for whom it was, the model's id, tokens, cost in USD (None
where there is no price). It may return the run's totals, to be announced as an event, and may raise `BudgetReached`,
which the caller then gets."""

OnHeaders = Callable[["httpx.Headers"], None]
"""Gets those of a good answer."""

Send = Callable[[str, bytes, OnHeaders | None], Awaitable[bytes]]
"""Gets the answer to a request: path and body."""

Connect = Callable[[], AbstractAsyncContextManager[Send]]
"""Lends the way that requests go, for one of them."""


class ModelClient:
    """How one model is spoken to.

    Args:
        model: its id.
        connect: where requests go.
        rules: how much may be sent.
        price: finds what it costs.
        gates: the limiters of the process; without them none but `max_concurrency` is kept to.
        may_wait: whether requests of this one may wait for their turn.
        on_request: told of requests, before they go out.
        on_usage: told of tokens.
        rng: where the jitter of the waits comes from.
    """

    def __init__(
        self,
        model: str,
        connect: Connect,
        *,
        rules: Rules,
        price: Price,
        gates: Gates | None = None,
        may_wait: Callable[[Emitter], bool] = lambda _: True,
        on_request: OnRequest | None = None,
        on_usage: OnUsage | None = None,
        rng: random.Random,
    ) -> None:
        self.model = model
        self.at_once = rules.max_concurrency or AT_ONCE
        self.rules = msgspec.structs.replace(rules, max_concurrency=self.at_once)
        self._connect = connect
        self._gates = gates
        self.may_wait = may_wait
        self._slots = trio.Semaphore(self.at_once)  # where there is no limiter
        self._price = price
        self._on_request = on_request
        self._on_usage = on_usage
        self._rng = rng

    async def post(
        self,
        me: Emitter,
        path: str,
        body: bytes,
        *,
        hopeless: Callable[[UpstreamError], bool] = lambda _: False,
        on_headers: OnHeaders | None = None,
    ) -> bytes:
        """The answer to one request, which is tried again where that may help.

        Args:
            me: gets an event per wait.
            hopeless: which errors no other try would mend.
            on_headers: gets those of the answer.

        Raises:
            CredentialsError, ModelError: it was refused.
            Unpriced: the run's money is limited, and what this costs is not known.
            UpstreamError: the tries are spent.
        """

        if self._on_request is not None:
            self._on_request(me, self.model, self._price)

        async def once(_: int) -> bytes:
            if self._gates is not None:
                return await _Turn(self, me, path, body, on_headers).taken(self._gates)
            async with self._slots:
                return await self.send(path, body, on_headers)

        def on_wait(attempt: int, wait: float, error: ModelError) -> None:
            me.emit(LlmRetry(model=self.model, attempt=attempt, wait=wait, error=str(error)))

        retry = Retry(
            backoff=BACKOFF,
            retryable=lambda error: isinstance(error, UpstreamError) and error.transient and not hopeless(error),
        )
        return await retried(once, retry, on_wait=on_wait, rand=self._rng.random)

    async def send(self, path: str, body: bytes, on_headers: OnHeaders | None) -> bytes:
        """The answer to one request, which goes out now."""
        async with self._connect() as send:
            with trio.move_on_after(WITHIN):
                return await send(path, body, on_headers)
            raise UpstreamError(f"{self.model} did not answer within {WITHIN:g} s")

    def count(self, me: Emitter, tokens: float | None) -> None:
        """Tell what a request has used, if the provider said how many tokens it was.

        Raises:
            BudgetReached: the run's budget is used up.
        """
        if not tokens or self._on_usage is None:
            return
        usage = countable(TokenUsage(input_tokens=int(tokens)))
        tariff = self._price.tariff
        totals = self._on_usage(me, self.model, usage, None if tariff is None else tariff.cost(usage))
        if totals is not None:
            me.emit(totals)


class _Turn:
    """One request in the line of its limiter."""

    def __init__(self, client: ModelClient, me: Emitter, path: str, body: bytes, on_headers: OnHeaders | None) -> None:
        self._client = client
        self._me = me
        self._path = path
        self._body = body
        self._on_headers = on_headers
        self._remaining: Remaining | None = None
        self._refusal = ""

    async def taken(self, gates: Gates) -> bytes:
        """The answer, when it was its turn."""
        gate = await gates.of(self._client.model, self._client.rules)
        ticket, answer = gates.ticket(), None
        while answer is None:
            await gate.admit(ticket, self._me.path, self._tokens, self._waits)
            refused: UpstreamError | None = None
            try:
                answer = await self._client.send(self._path, self._body, self._reads)
            except UpstreamError as error:
                if not too_many(error):
                    raise
                refused = error
            finally:
                if refused is None:
                    gate.done(ticket, None if answer is None else self._tokens(), self._remaining)
                else:
                    gate.refused(ticket, refused.retry_after)
            if refused is not None:
                self._refusal = str(refused)
        return answer

    def _tokens(self) -> int:
        return len(self._body) // 4

    def _reads(self, headers: httpx.Headers) -> None:
        self._remaining = remaining_in(headers)
        if self._on_headers is not None:
            self._on_headers(headers)

    def _waits(self, waiting: Waiting) -> None:
        about, self._refusal = self._refusal, ""
        if waiting.why == "concurrency" and not about:
            return
        seconds = waiting.seconds or 0.0
        if not self._client.may_wait(self._me):
            raise busy(about, self._client.model, seconds)
        self._me.emit(LlmWaiting(model=self._client.model, wait=seconds, reason=waiting.why, error=about))
