"""Embedding over HTTP: texts in batches, several batches at a time, through one `ModelClient`.

A text that is too long for a model is truncated, and the caller gets an event; the whole knowledge base must not fail.
Only the model knows its limit: the number in settings or codec is a first estimate. If the provider still refuses a
batch, it is halved until a single text remains, which then loses a quarter at a time.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from .....protocol.errors import CallboardError, ModelError, UpstreamError
from .....protocol.events import LlmEmbedding, Warned
from ...models.call import Emitter
from .codecs import Embedded, EmbeddingCodec
from .embedder import normalised
from .model_client import ModelClient, Post

if TYPE_CHECKING:
    from .embedder import Vectors

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
            text = f"{count} too long for {self.model} and embedded without the end; use smaller chunks"
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
                f"{self.model} returned vectors of {dimension} numbers, and of {self.dimension} before: "
                "its server runs another model now; rebuild the bases that were built with the old one"
            )
        return vectors

    def _read(self, answer: bytes, texts: int) -> tuple[Embedded, Vectors]:
        found = self._codec.decode(answer)
        if len(found.rows) != texts:
            raise ModelError(f"{self.model} gave {len(found.rows)} vectors for {texts} texts")
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
