"""Embedding over HTTP: texts in batches, several batches at a time, each over one `ModelClient`.

A text that is too long for a model is cut rather than failing the whole knowledge base, and the caller gets an
event. How long is too long only the model knows: what settings or the codec say is a first estimate, and where
a provider still refuses, the batch is halved until the culprit is alone, which then loses a quarter at a time.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import trio

from .....protocol.errors import CallboardError, ModelError, UpstreamError
from .....protocol.events import LlmEmbedding, Warned
from ...models.call import Emitter
from .codecs import Codec, Embedded
from .embedder import normalised
from .model_client import ModelClient, Post

if TYPE_CHECKING:
    import httpx

    from .embedder import Vectors

CHARACTERS = 200_000
"""Of all texts in one request: providers bound the tokens of a request, too."""

BYTES_PER_TOKEN = 4
SHORTEST = 16
"""Characters below which a refused text is not cut any further."""

_TOKENS_OF_BEDROCK = "x-amzn-bedrock-input-token-count"

_TOO_LONG = re.compile(
    r"too (?:long|large|many tokens)|(?:exceed|larger|longer|more) .*(?:length|context|tokens|size|limit)"
    r"|(?:maximum|max|input|context) (?:input |context )?(?:length|size|tokens)|batch size",
    re.IGNORECASE,
)

Batch = tuple[int, list[str]]
"""Neighbours among the texts, and the position of the first of them."""


class Remote:
    """An `Embedder` over HTTP.

    Attributes:
        model, dimension: see `Embedder`; the dimension is known from the first answer on.
        bytes: that a text may have, as far as that is known; 0 where it is not.

    Args:
        client: where requests go.
        name: what the provider calls the model.
        codec: the provider's language.
        limiter: of the threads in which answers are decoded.
        batch: texts in a request; the codec's own number by default, and never more than it can take.
        tokens: what a text may have, as far as that is known.
        request_tokens: what a request may have, as far as that is known.
    """

    def __init__(
        self,
        client: ModelClient,
        name: str,
        codec: Codec,
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
        """Of texts of which some may be too long; those that had to be cut come into `cut`."""
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

        def hear(headers: httpx.Headers) -> None:
            count = headers.get(_TOKENS_OF_BEDROCK, "")
            beside.extend([float(count)] if count.isdecimal() else [])

        async def read(answer: bytes) -> tuple[Vectors, float | None]:
            found, vectors = await trio.to_thread.run_sync(self._read, answer, len(texts), limiter=self._limiter)
            return vectors, found.tokens if found.tokens is not None else next(iter(beside), None)

        vectors = await self._client.ask(me, post, read, hopeless=_is_too_long, on_headers=hear)
        dimension = vectors.shape[1]
        if self.dimension is None:
            self.dimension = dimension
        if dimension != self.dimension:
            raise ModelError(
                f"{self.model} gave vectors of {dimension} numbers, and of {self.dimension} before: "
                "its server was changed to another model; rebuild what was built with the old one"
            )
        return vectors

    def _read(self, answer: bytes, texts: int) -> tuple[Embedded, Vectors]:
        found = self._codec.decode(answer)
        if len(found.rows) != texts:
            raise ModelError(f"{self.model} gave {len(found.rows)} vectors for {texts} texts")
        return found, normalised(found.rows, self.model)


def shortened(text: str, most: int) -> str:
    """The text without what is surely too much for a model that takes so many bytes; 0 for any number."""
    if not most or len(text) * 4 <= most:
        return text
    data = text.encode(errors="surrogatepass")
    return text if len(data) <= most else data[:most].decode(errors="ignore")


def batches(texts: Sequence[str], most: int, characters: int = CHARACTERS) -> Iterator[Batch]:
    """Neighbours together: so many texts, and so many characters unless one text alone has more."""
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
    """Do all jobs, so many at a time. The first failure ends the others and is raised as it is."""
    failures: list[CallboardError] = []

    async def worker() -> None:
        for job in jobs:  # shared: each takes the next when it is free
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
        return False  # too many tokens in a minute, not in a text
    return _TOO_LONG.search(str(error)) is not None
