"""Lines to providers: one request at a time or several, each tried again where that may help.

`Lines` owns the connections; a `Line` is how one model is spoken to through them. Embedders and rerankers both use it.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import trio

from .....protocol.chat import TokenUsage
from .....protocol.errors import ModelError, UpstreamError
from .....protocol.events import LlmRetry, UsageUpdate
from .....supervisors import Retry
from ...models.endpoints import Endpoints
from ...models.gateway import BACKOFF, Emitter, countable, retried

if TYPE_CHECKING:
    from ...models.catalog import Access
    from ...models.client import Endpoint

WITHIN = 300.0
"""Seconds for the answer to one request. Embedding needs no thinking: a slower server is stuck."""

AT_ONCE = 4
"""Requests under way at once for one model, unless the settings say otherwise."""

OnUsage = Callable[[Emitter, str, TokenUsage, float], UsageUpdate | None]
"""Gets what a request has used, where the provider says it: for whom it was, the model's id, tokens, cost in USD. It
may return the run's totals, to be announced as an event, and may raise `BudgetReached`, which the caller then gets."""

Door = Callable[[], AbstractAsyncContextManager[tuple["Endpoint", Mapping[str, str]]]]
"""Lends where requests go, with the headers they carry, for one request."""


class Line:
    """How one model is spoken to.

    Args:
        model: its id.
        door: where requests go.
        at_once: requests under way at once.
        input_price: USD per million tokens.
        on_usage: told of tokens.
        rng: where the jitter of the waits comes from.
    """

    def __init__(
        self,
        model: str,
        door: Door,
        *,
        at_once: int | None,
        input_price: float,
        on_usage: OnUsage | None,
        rng: random.Random,
    ) -> None:
        self.model = model
        self.at_once = at_once or AT_ONCE
        self._door = door
        self._places = trio.Semaphore(self.at_once)
        self._price = input_price
        self._on_usage = on_usage
        self._rng = rng

    async def post(
        self, me: Emitter, path: str, body: bytes, *, hopeless: Callable[[UpstreamError], bool] = lambda _: False
    ) -> bytes:
        """The answer to one request, which is tried again where that may help.

        Args:
            me: gets an event per wait.
            hopeless: which errors no other try would mend.

        Raises:
            CredentialsError, ModelError: it was refused.
            UpstreamError: the tries are spent.
        """

        async def once(_: int) -> bytes:
            async with self._places, self._door() as (endpoint, headers):
                return await self._answer(endpoint.post(self.model, headers, path, body))

        def on_wait(attempt: int, wait: float, error: ModelError) -> None:
            me.emit(LlmRetry(model=self.model, attempt=attempt, wait=wait, error=str(error)))

        retry = Retry(backoff=BACKOFF, retryable=lambda error: isinstance(error, UpstreamError) and not hopeless(error))
        return await retried(once, retry, on_wait=on_wait, rand=self._rng.random)

    async def _answer(self, answer: Awaitable[bytes]) -> bytes:
        with trio.move_on_after(WITHIN):
            return await answer
        raise UpstreamError(f"{self.model} did not answer within {WITHIN:g} s")

    def count(self, me: Emitter, tokens: float | None) -> None:
        """Tell what a request has used, if the provider said how many tokens it was.

        Raises:
            BudgetReached: the run's budget is used up.
        """
        if not tokens or self._on_usage is None:
            return
        usage = countable(TokenUsage(input_tokens=int(tokens)))
        totals = self._on_usage(me, self.model, usage, usage.input_tokens * self._price / 1e6)
        if totals is not None:
            me.emit(totals)


class Lines:
    """All connections of embedders, or of rerankers.

    Args:
        environ: for proxies and certificates.
        on_usage: told of tokens.
        rng: where the jitter of the waits comes from.
    """

    def __init__(self, environ: Mapping[str, str], on_usage: OnUsage | None, rng: random.Random | None) -> None:
        self._on_usage = on_usage
        self._rng = rng if rng is not None else random.Random()  # noqa: S311  (jitter, no secret)
        self._endpoints = Endpoints(environ)

    async def aclose(self) -> None:
        """Close every connection."""
        self._endpoints.close()

    def to(self, access: Access, headers: Mapping[str, str]) -> Line:
        """The line to a model of a client."""
        extra = access.client.extra

        @asynccontextmanager
        async def door() -> AsyncIterator[tuple[Endpoint, Mapping[str, str]]]:
            with self.endpoint(access.api_base, extra.proxy, extra.connect_timeout) as endpoint:
                yield endpoint, headers

        return Line(
            access.id,
            door,
            at_once=access.model.max_concurrency or access.client.max_concurrency,
            input_price=access.model.input_price,
            on_usage=self._on_usage,
            rng=self._rng,
        )

    def of_an_engine(self, model: str, door: Door) -> Line:
        """The line to a model on this machine: one request at a time, and its tokens are not counted."""
        return Line(model, door, at_once=1, input_price=0.0, on_usage=None, rng=self._rng)

    def endpoint(self, api_base: str, proxy: str, connect_timeout: float) -> AbstractContextManager[Endpoint]:
        """Where requests to that base URL go, for a block: one set of connections for all models behind it."""
        return self._endpoints.lease(api_base, proxy, connect_timeout)
