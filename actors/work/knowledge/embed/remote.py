"""Remote embedding models: a client with retries, limits and accounting, and the embedder that sends batches by it.

A request above the provider's rate limit waits, together with all others of the process to that model. This does not
count as a failed attempt; see `models/limiter`. Requests above the maximum concurrency wait in the same way.

If the spending of a run is limited, each attempt is reserved in its account before it is sent and settled afterwards,
as chat requests are (`spending/accounts`). Its upper bound is one token per byte. The amount is the provider's figure.
An estimate is used if the provider reports none, or if the attempt was cut off after it was sent or after its answer
had begun. A refused attempt costs nothing.

`Remote` embeds texts in batches, several at a time. A text that is too long for a model is truncated, and the caller
gets an event; the whole knowledge base must not fail. Only the model knows its limit: the number in settings or codec
is a first estimate. If the provider still refuses a batch, it is halved until a single text remains, which then loses a
quarter at a time.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

import msgspec
import trio

from .....protocol.chat import TokenUsage
from .....protocol.errors import CallboardError, ModelError, UpstreamError
from .....protocol.events import LlmEmbedding, LlmRerank, LlmRetry, LlmWaiting, UsageUpdate, Warned
from .....supervisors import Retry
from ...models.call import Emitter, busy, costs_nothing, countable
from ...models.gateway import BACKOFF, retried
from ...models.limiter import AllowanceRules, Gates, MustWait, Remaining, remaining_in, too_many
from ...models.prices.price import Price
from ...models.request_upper_bound import dearest
from ...spending.accounts import NOTHING, Amount, Hold, reserve
from .codecs import Embedded, EmbeddingCodec
from .embedder import normalised

if TYPE_CHECKING:
    from ...spending.accounts import Account
    from .embedder import Vectors


T = TypeVar("T")

WITHIN = 300.0
"""Seconds for the answer to one request. Embedding needs no reasoning, so a slower server is stuck."""

AT_ONCE = 4
"""Concurrent requests to one model, unless the settings have another number."""

AccountOf = Callable[[Emitter], "Account | None"]
"""Returns the account of a request, by its caller; None if nothing is limited."""

OnUsage = Callable[[Emitter, str, TokenUsage, float | None], UsageUpdate | None]
"""Called with the usage of a request, if the provider reports it.

Arguments: the caller, the model id, the tokens, and the cost in USD (None without a price). It may return the run's
totals, which are emitted as an event. It may raise `BudgetReached`, which is raised to the caller.
"""

OnHeaders = Callable[[Mapping[bytes, bytes]], None]
"""Called with the headers of a successful answer."""

Send = Callable[[str, bytes, OnHeaders | None], Awaitable[bytes]]
"""Sends a request, given by path and body, and returns the answer."""

Connect = Callable[[], AbstractAsyncContextManager[Send]]
"""Opens a connection for one request; its context value sends the request."""


Read = Callable[[bytes], Awaitable[tuple[T, float | None]]]
"""Decodes an answer. Returns its content and the tokens reported by the provider; None if it reports none."""


class Post(msgspec.Struct, frozen=True):
    """Encoded request to an embedding or rerank model, ready to be sent.

    Attributes:
        tells: type of the event that reports the end of the request.
        texts: number of texts in it.
        most: upper bound of its tokens, if that is more than its bytes.
    """

    path: str
    body: bytes
    tells: type[LlmEmbedding | LlmRerank]
    texts: int
    most: int = 0


class ModelClient:
    """Client of one embedding or rerank model.

    Args:
        model: id of the model.
        connect: opens the connection of a request.
        rules: rate limits.
        price: finds the price of the model.
        gates: the limiters of the process; without them only `max_concurrency` is enforced.
        may_wait: returns whether requests of this caller may wait for the limiter.
        account_of: returns the account of a request.
        on_usage: called with the usage.
        file: file in which prices are set, for errors.
        tries: attempts of one request, including the first.
        rng: source of the jitter of waits.
    """

    def __init__(
        self,
        model: str,
        connect: Connect,
        *,
        rules: AllowanceRules,
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
        self.at_once: int = rules.max_concurrency or AT_ONCE
        self.rules: AllowanceRules = msgspec.structs.replace(rules, max_concurrency=self.at_once)
        self._connect = connect
        self._gates = gates
        self.may_wait = may_wait
        self.slots: trio.Semaphore = trio.Semaphore(self.at_once)  # used if there is no limiter
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
        """Send a request and return the decoded answer. Transient errors are retried.

        Args:
            me: receives an event per wait, and one at the end.
            read: decodes the answer.
            hopeless: returns whether a retry can't fix an error.
            on_headers: called with the headers of the answer.

        Raises:
            CredentialsError, ModelError: the request was refused.
            Unpriced: the run has a limit in money, and the price of the model is not known.
            BudgetReached: the run's budget is used up.
            UpstreamError: all attempts failed.
        """
        account = self._account_of(me)
        if account is not None:
            await self._price.load()
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
            except BaseException as error:  # including cancellation: the error is inspected only
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
            if last is not None and last.began is not None:  # else nothing was sent
                last.report(error=error)
            raise

    async def send(self, path: str, body: bytes, on_headers: OnHeaders | None) -> bytes:
        """Send one request now and return the answer."""
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
        # Never sent, or refused before a reply: free. Otherwise the provider may charge it, so charge an estimate.
        if not request.out or (not request.replying and costs_nothing(error)):
            hold.release()
        else:
            self._estimate(hold, request)

    def _estimate(self, hold: Hold, request: _Request) -> None:
        hold.spend(self._amount(TokenUsage(input_tokens=request.about_tokens())), estimated=True)

    def _amount(self, usage: TokenUsage) -> Amount:
        return Amount(usage.input_tokens, self._cost(usage) or 0.0)

    def _cost(self, usage: TokenUsage) -> float | None:
        tariff = self._price.tariff
        return None if tariff is None else tariff.cost(usage)

    def _count(self, me: Emitter, hold: Hold | None, tokens: float | None, request: _Request) -> None:
        """Settle the reservation, emit the event of the request, and report the usage if the provider has stated it.

        Raises:
            BudgetReached: the run's budget is used up.
        """
        usage = countable(TokenUsage(input_tokens=int(tokens or 0)))
        if hold is not None and usage.input_tokens:
            hold.spend(self._amount(usage))
        elif hold is not None:
            self._estimate(hold, request)
        request.report(usage.input_tokens)
        if not tokens or self._on_usage is None:
            return
        totals = self._on_usage(me, self.model, usage, self._cost(usage))
        if totals is not None:
            me.emit(totals)


class _Request:
    """Attempt of a request.

    Attributes:
        out: the request was sent, and the provider did not refuse it because of its rate limit.
        replying: a successful answer has begun to arrive.
        began: time when it was sent; None before.
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
        """Wait for the limiter, send the request, and return the answer."""
        if gates is not None:
            return await self._in_turn(gates)
        async with self._client.slots:
            return await self._sent()

    async def _in_turn(self, gates: Gates) -> bytes:
        gate = await gates.of(self._client.model, self._client.rules)
        ticket, answer = gates.ticket(), None
        while answer is None:
            await gate.admit(ticket, self._me.path, self.about_tokens, self._waits)
            # Refusals by the rate limit are repeated here, and do not count as attempts of `retried`.
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

    def report(self, tokens: int = 0, error: CallboardError | None = None) -> None:
        """Emit the event that reports the end of the request."""
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
        """Return an estimate of its tokens."""
        return len(self._post.body) // 4

    def _reads(self, headers: Mapping[bytes, bytes]) -> None:
        self.replying = True
        self._remaining = remaining_in(headers)
        if self._on_headers is not None:
            self._on_headers(headers)

    def _waits(self, waiting: MustWait) -> None:
        about, self._refusal = self._refusal, ""
        if waiting.why == "concurrency" and not about:
            return
        seconds = waiting.seconds or 0.0
        if not self._client.may_wait(self._me):
            raise busy(about, self._client.model, seconds)
        self._me.emit(LlmWaiting(model=self._client.model, wait=seconds, reason=waiting.why, error=about))


CHARACTERS = 200_000
"""Most characters of all texts in one request: providers also limit the tokens of a request."""

BYTES_PER_TOKEN = 4
SHORTEST = 16
"""Fewest characters of a refused text that is truncated further."""

_TOKENS_OF_BEDROCK = b"x-amzn-bedrock-input-token-count"

_TOO_LONG = re.compile(
    r"too (?:long|large|many tokens)|(?:exceed|larger|longer|more) .*(?:length|context|tokens|size|limit)"
    r"|(?:maximum|max|input|context) (?:input |context )?(?:length|size|tokens)|batch size",
    re.IGNORECASE,
)

Batch = tuple[int, list[str]]
"""Position of the first text, and consecutive texts from there."""


class Remote:
    """An `Embedder` over HTTP.

    Attributes:
        model, dimension: see `Embedder`; the dimension is known after the first answer.
        bytes: limit of a text in bytes, as far as it is known; 0 if not.

    Args:
        client: client that sends the requests.
        name: name of the model at the provider.
        codec: codec of the provider.
        limiter: limiter of the threads that decode answers.
        batch: texts in a request; by default the codec's number, and never above its maximum.
        tokens: limit of a text in tokens, as far as it is known.
        request_tokens: limit of a request in tokens, as far as it is known.
    """

    def __init__(
        self,
        client: ModelClient,
        name: str,
        codec: EmbeddingCodec,
        *,
        limiter: trio.CapacityLimiter,
        batch: int | None = None,
        tokens: int | None = None,
        request_tokens: int | None = None,
    ) -> None:
        self.model = client.model
        self._client = client
        self._name = name
        self._codec = codec
        self._limiter = limiter
        self._batch = max(1, min(batch or codec.batch, codec.most))
        self.bytes = (tokens or codec.tokens or 0) * BYTES_PER_TOKEN
        self._characters = min(CHARACTERS, (request_tokens or CHARACTERS) * BYTES_PER_TOKEN)
        self.dimension: int | None = None

    async def embed(self, me: Emitter, texts: Sequence[str], *, query: bool = False) -> Vectors:
        import numpy as np

        found: dict[int, Vectors] = {}
        cut: set[str] = set()

        async def one(batch: Batch) -> None:
            first, part = batch
            sent = [shortened(text, self.bytes) for text in part]
            cut.update(short for short, text in zip(sent, part, strict=True) if len(short) < len(text))
            found[first] = await self._refined(me, [text if text.strip() else " " for text in sent], query, cut)

        await _each(batches(texts, self._batch, self._characters), one, self._client.at_once)
        if cut:
            count = "1 text was" if len(cut) == 1 else f"{len(cut)} texts were"
            text = f"{count} too long for {self.model} and cut at the end before embedding; use smaller chunks"
            me.emit(Warned(code="embedding_truncated", message=text))
        if not found:
            return np.empty((0, self.dimension or 0), np.float32)
        return np.concatenate([found[first] for first in sorted(found)])

    async def _refined(self, me: Emitter, texts: list[str], query: bool, cut: set[str]) -> Vectors:
        """Embed texts, some of which may be too long; the truncated ones are added to `cut`."""
        import numpy as np

        try:
            return await self._ask(me, texts, query)
        except ModelError as error:
            if not _is_too_long(error) or max(map(len, texts)) < SHORTEST:
                raise
        if len(texts) > 1:
            middle = len(texts) // 2
            halves = [await self._refined(me, half, query, cut) for half in (texts[:middle], texts[middle:])]
            return np.concatenate(halves)
        [text] = texts
        cut.add(text)
        while True:
            text = text[: len(text) * 3 // 4]
            try:
                return await self._ask(me, [text], query)
            except ModelError as error:
                if not _is_too_long(error) or len(text) < SHORTEST:
                    raise

    async def _ask(self, me: Emitter, texts: list[str], query: bool) -> Vectors:
        post = Post(*self._codec.encode(self._name, texts, query), LlmEmbedding, len(texts))
        beside: list[float] = []

        def hear(headers: Mapping[bytes, bytes]) -> None:
            # Bedrock reports the tokens of a request in a header, not in the body.
            count = headers.get(_TOKENS_OF_BEDROCK, b"")
            beside.extend([float(count)] if count.isdigit() else [])

        async def read(answer: bytes) -> tuple[Vectors, float | None]:
            found, vectors = await trio.to_thread.run_sync(self._read, answer, len(texts), limiter=self._limiter)
            return vectors, found.tokens if found.tokens is not None else next(iter(beside), None)

        vectors = await self._client.ask(me, post, read, hopeless=_is_too_long, on_headers=hear)
        dimension = vectors.shape[1]
        if self.dimension is None:
            self.dimension = dimension
        if dimension != self.dimension:
            raise ModelError(
                f"{self.model} returned vectors of {dimension} numbers, and of {self.dimension} before: its "
                "server uses another model now; rebuild the knowledge bases that were built with the old one"
            )
        return vectors

    def _read(self, answer: bytes, texts: int) -> tuple[Embedded, Vectors]:
        found = self._codec.decode(answer)
        if len(found.rows) != texts:
            raise ModelError(
                f"the number of vectors that {self.model} returned, {len(found.rows)}, is not the number of "
                f"texts, {texts}; check the model and `api_base` of its client"
            )
        return found, normalised(found.rows, self.model)


def shortened(text: str, most: int) -> str:
    """Return the text without the part that surely exceeds a limit in bytes; 0 means no limit."""
    # A character has at most 4 bytes: skip the encoding of short texts.
    if not most or len(text) * 4 <= most:
        return text
    data = text.encode(errors="surrogatepass")
    return text if len(data) <= most else data[:most].decode(errors="ignore")


def batches(texts: Sequence[str], most: int, characters: int = CHARACTERS) -> Iterator[Batch]:
    """Yield consecutive texts: at most `most` texts and `characters` characters, unless a single text has more."""
    first = size = 0
    batch: list[str] = []
    for position, text in enumerate(texts):
        if batch and (len(batch) == most or size + len(text) > characters):
            yield first, batch
            first, size, batch = position, 0, []
        batch.append(text)
        size += len(text)
    if batch:
        yield first, batch


async def _each(jobs: Iterator[Batch], work: Callable[[Batch], Awaitable[None]], workers: int) -> None:
    """Execute all jobs with this many workers. The first failure cancels the others and is raised unchanged."""
    failures: list[CallboardError] = []

    async def worker() -> None:
        for job in jobs:  # the iterator is shared: each worker takes the next job when it is free
            try:
                await work(job)
            except CallboardError as error:
                failures.append(error)
                nursery.cancel_scope.cancel()
                return

    async with trio.open_nursery() as nursery:
        for _ in range(workers):
            nursery.start_soon(worker)
    if failures:
        raise failures[0]


def _is_too_long(error: ModelError) -> bool:
    if isinstance(error, UpstreamError) and error.status != 500:
        return False  # a rate limit of tokens per minute, not a limit of the text
    return _TOO_LONG.search(str(error)) is not None
