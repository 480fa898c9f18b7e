"""Requests to models that do not chat: tried again where that may help, and let out by the limiter that chats have.

A request that is one too many for the provider waits for its turn, together with all others of the process to that
model, and is no failed try; see `models/limiter`. So do requests beyond those that may be under way at once.

Where a run may spend no more than so much, each try is reserved in its account before it goes out and settled after it,
as chats are (`spending/accounts`): at most it comes to a token for each byte. It counts with what the provider says; an
estimate counts where that says nothing, and where a reply had begun, or the request was out, when it was cut off. One
that was refused costs nothing.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

import msgspec
import trio

from .....protocol.chat import TokenUsage
from .....protocol.errors import CallboardError, ModelError, UpstreamError
from .....protocol.events import LlmEmbedding, LlmRerank, LlmRetry, LlmWaiting, UsageUpdate
from .....supervisors import Retry
from ...models.allowance import Remaining, Rules, remaining_in
from ...models.bounds import dearest
from ...models.call import Emitter, busy, costs_nothing, countable
from ...models.limiter import Gates, Waiting, too_many
from ...models.prices.price import Price
from ...models.retrying import BACKOFF, retried
from ...spending.accounts import NOTHING, Amount, Hold
from ...spending.reserve import reserve

if TYPE_CHECKING:
    import httpx

    from ...spending.accounts import Account

T = TypeVar("T")

WITHIN = 300.0
"""Seconds for the answer to one request. Embedding needs no thinking: a slower server is stuck."""

AT_ONCE = 4
"""Requests under way at once for one model, unless the settings say otherwise."""

AccountOf = Callable[[Emitter], "Account | None"]
"""What a request is charged to, by whom it is for; None where nothing is limited."""

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


Read = Callable[[bytes], Awaitable[tuple[T, float | None]]]
"""What an answer says, and how many tokens the provider has counted for it; None if it does not say."""


class Post(msgspec.Struct, frozen=True):
    """A request as it is to go out.

    Attributes:
        tells: the event that says how it has ended.
        texts: how many there are in it.
        most: tokens that it comes to at most, where that is more than its bytes.
    """

    path: str
    body: bytes
    tells: type[LlmEmbedding | LlmRerank]
    texts: int
    most: int = 0


class ModelClient:
    """How one model is spoken to.

    Args:
        model: its id.
        connect: where requests go.
        rules: how much may be sent.
        price: finds what it costs.
        gates: the limiters of the process; without them none but `max_concurrency` is kept to.
        may_wait: whether requests of this one may wait for their turn.
        account_of: where requests are reserved.
        on_usage: told of tokens.
        file: where prices are set, for errors.
        tries: of one request, the first included.
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
        account_of: AccountOf = lambda _: None,
        on_usage: OnUsage | None = None,
        file: str = "",
        tries: int = 3,
        rng: random.Random,
    ) -> None:
        self.model = model
        self._tries = tries
        self.at_once = rules.max_concurrency or AT_ONCE
        self.rules = msgspec.structs.replace(rules, max_concurrency=self.at_once)
        self._connect = connect
        self._gates = gates
        self.may_wait = may_wait
        self.slots = trio.Semaphore(self.at_once)  # where there is no limiter
        self._price = price
        self._account_of = account_of
        self._on_usage = on_usage
        self._file = file
        self._rng = rng

    async def ask(
        self,
        me: Emitter,
        post: Post,
        read: Read[T],
        *,
        hopeless: Callable[[UpstreamError], bool] = lambda _: False,
        on_headers: OnHeaders | None = None,
    ) -> T:
        """What the answer to one request says, which is tried again where that may help.

        Args:
            me: gets an event per wait, and one when it is over.
            read: reads the answer.
            hopeless: which errors no other try would mend.
            on_headers: gets those of the answer.

        Raises:
            CredentialsError, ModelError: it was refused.
            Unpriced: the run's money is limited, and what this costs is not known.
            BudgetReached: the run's budget is used up.
            UpstreamError: the tries are spent.
        """
        account = self._account_of(me)
        if account is not None:
            await self._price.looked_up()
            unpriced = account.asks_for_prices and self._price.tariff is None
            if unpriced and (refused := account.unpriced(self.model, self._file)) is not None:
                raise refused
        last: _Request | None = None

        async def once(attempt: int) -> T:
            nonlocal last
            request = _Request(self, me, post, attempt, on_headers)
            hold = None if account is None else await self._reserved(account, me, post)
            last = request
            try:
                found, tokens = await read(await request.answered(self._gates))
            except BaseException as error:  # cancelled too: it is only looked at
                if hold is not None:
                    self._cut_off(hold, request, error)
                raise
            last = None
            self._count(me, hold, tokens, request)
            return found

        def on_wait(attempt: int, wait: float, error: ModelError) -> None:
            me.emit(LlmRetry(model=self.model, attempt=attempt, wait=wait, error=str(error)))

        retry = Retry(
            most=self._tries,
            backoff=BACKOFF,
            retryable=lambda error: isinstance(error, UpstreamError) and error.transient and not hopeless(error),
        )
        try:
            return await retried(once, retry, on_wait=on_wait, rand=self._rng.random)
        except CallboardError as error:
            if last is not None and last.began is not None:  # else nothing went out
                last.tell(error=error)
            raise

    async def send(self, path: str, body: bytes, on_headers: OnHeaders | None) -> bytes:
        """The answer to one request, which goes out now."""
        async with self._connect() as send:
            with trio.move_on_after(WITHIN):
                return await send(path, body, on_headers)
            raise UpstreamError(f"{self.model} did not answer within {WITHIN:g} s")

    async def _reserved(self, account: Account, me: Emitter, post: Post) -> Hold:
        def on_wait() -> None:
            me.emit(LlmWaiting(model=self.model, wait=0.0, reason="budget"))

        most = max(len(post.body), post.most)
        amount = dearest(most, 0, self._price.tariff) if account.measures else NOTHING
        return await reserve(account, amount, on_wait, turn=False)

    def _cut_off(self, hold: Hold, request: _Request, error: BaseException) -> None:
        if not request.out or (not request.replying and costs_nothing(error)):
            hold.release()
        else:
            self._estimate(hold, request)

    def _estimate(self, hold: Hold, request: _Request) -> None:
        hold.settle(self._amount(TokenUsage(input_tokens=request.about_tokens())), estimated=True)

    def _amount(self, usage: TokenUsage) -> Amount:
        return Amount(usage.input_tokens, self._cost(usage) or 0.0)

    def _cost(self, usage: TokenUsage) -> float | None:
        tariff = self._price.tariff
        return None if tariff is None else tariff.cost(usage)

    def _count(self, me: Emitter, hold: Hold | None, tokens: float | None, request: _Request) -> None:
        """Settle what was reserved, and tell of the answer, and of what was used if the provider has said it.

        Raises:
            BudgetReached: the run's budget is used up.
        """
        usage = countable(TokenUsage(input_tokens=int(tokens or 0)))
        if hold is not None and usage.input_tokens:
            hold.settle(self._amount(usage))
        elif hold is not None:
            self._estimate(hold, request)
        request.tell(usage.input_tokens)
        if not tokens or self._on_usage is None:
            return
        totals = self._on_usage(me, self.model, usage, self._cost(usage))
        if totals is not None:
            me.emit(totals)


class _Request:
    """One try of a request.

    Attributes:
        out: it is on its way, or has been and was not refused for being one too many.
        replying: a good answer has begun to come in.
        began: when it went out; None as long as it has not.
    """

    def __init__(
        self, client: ModelClient, me: Emitter, post: Post, attempt: int, on_headers: OnHeaders | None
    ) -> None:
        self._client = client
        self._me = me
        self._post = post
        self._attempt = attempt
        self._on_headers = on_headers
        self.began: float | None = None
        self._remaining: Remaining | None = None
        self._refusal = ""
        self.out = self.replying = False

    async def answered(self, gates: Gates | None) -> bytes:
        """The answer, when it was its turn."""
        if gates is not None:
            return await self._in_turn(gates)
        async with self._client.slots:
            return await self._sent()

    async def _in_turn(self, gates: Gates) -> bytes:
        gate = await gates.of(self._client.model, self._client.rules)
        ticket, answer = gates.ticket(), None
        while answer is None:
            await gate.admit(ticket, self._me.path, self.about_tokens, self._waits)
            refused: UpstreamError | None = None
            try:
                answer = await self._sent()
            except UpstreamError as error:
                if not too_many(error):
                    raise
                refused = error
            finally:
                if refused is None:
                    gate.done(ticket, None if answer is None else self.about_tokens(), self._remaining)
                else:
                    gate.refused(ticket, refused.retry_after)
            if refused is not None:
                self.out = False
                self._refusal = str(refused)
        return answer

    async def _sent(self) -> bytes:
        self.out = True
        self.began = trio.current_time()
        return await self._client.send(self._post.path, self._post.body, self._reads)

    def tell(self, tokens: int = 0, error: CallboardError | None = None) -> None:
        """How it has ended."""
        self._me.emit(
            self._post.tells(
                model=self._client.model,
                texts=self._post.texts,
                seconds=trio.current_time() - (self.began or 0.0),
                attempt=self._attempt,
                input_tokens=tokens,
                error=None if error is None else str(error),
                code="" if error is None else error.code,
            )
        )

    def about_tokens(self) -> int:
        """About how many it takes, as providers count them."""
        return len(self._post.body) // 4

    def _reads(self, headers: httpx.Headers) -> None:
        self.replying = True
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
