"""Embedding over HTTP: texts in batches, several batches at a time, each over one `Line`.

A text that is too long for a model is cut rather than failing the whole knowledge base, and the caller gets an
event. How long is too long only the model knows: what settings or the wire say is a first estimate, and where
a provider still refuses, the batch is halved until the culprit is alone, which then loses a quarter at a time.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import trio

from .....protocol.errors import CallboardError, ModelError, UpstreamError
from .....protocol.events import Warned
from ...models.gateway import Emitter
from .embedder import OnProgress, normalised
from .lines import Line
from .wires import Embedded, Wire, embedded

if TYPE_CHECKING:
    from .embedder import Vectors

CHARACTERS = 200_000
"""Of all texts in one request: providers bound the tokens of a request, too."""

BYTES_PER_TOKEN = 4
SHORTEST = 16
"""Characters below which a refused text is not cut any further."""

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
        bytes: that a text may have, as far as that is known; 0 where it is not.

    Args:
        line: where requests go.
        name: what the provider calls the model.
        wire: the provider's language.
        limiter: of the threads in which answers are decoded.
        batch: texts in a request; the wire's own number by default, and never more than it can take.
        tokens: what a text may have, as far as that is known.
        request_tokens: what a request may have, as far as that is known.
    """

    def __init__(
        self,
        line: Line,
        name: str,
        wire: Wire,
        *,
        limiter: trio.CapacityLimiter,
        batch: int | None = None,
        tokens: int | None = None,
        request_tokens: int | None = None,
    ) -> None:
        self._line = line
        self._name = name
        self._wire = wire
        self._limiter = limiter
        self._batch = max(1, min(batch or wire.batch, wire.most))
        self.bytes = (tokens or wire.tokens or 0) * BYTES_PER_TOKEN
        self._characters = min(CHARACTERS, (request_tokens or CHARACTERS) * BYTES_PER_TOKEN)
        self._dimension: int | None = None

    @property
    def model(self) -> str:
        """Its id."""
        return self._line.model

    @property
    def dimension(self) -> int | None:
        """Numbers per vector, known from the first answer on."""
        return self._dimension

    async def embed(
        self, me: Emitter, texts: Sequence[str], *, query: bool = False, on_progress: OnProgress | None = None
    ) -> Vectors:
        """See `Embedder.embed`."""
        import numpy as np

        job = _Job(self, me, query)
        found: dict[int, Vectors] = {}
        done = 0

        async def one(batch: Batch) -> None:
            nonlocal done
            first, part = batch
            found[first] = await job.vectors(part)
            done += len(part)
            if on_progress is not None:
                on_progress(done, len(texts))

        await _each(batches(texts, self._batch, self._characters), one, self._line.at_once)
        job.tell()
        if not found:
            return np.empty((0, self._dimension or 0), np.float32)
        return np.concatenate([found[first] for first in sorted(found)])

    async def ask(self, me: Emitter, texts: list[str], *, query: bool) -> Vectors:
        """One request."""
        path, body = self._wire.encode(self._name, texts, query)
        answer = await self._line.post(me, path, body, hopeless=_is_too_long)
        found, vectors = await trio.to_thread.run_sync(self._read, answer, len(texts), limiter=self._limiter)
        self._line.count(me, found.tokens)
        return self._checked(vectors)

    def _read(self, answer: bytes, texts: int) -> tuple[Embedded, Vectors]:
        found = embedded(self._wire, answer, texts, self.model)
        return found, normalised(found.rows, self.model)

    def _checked(self, vectors: Vectors) -> Vectors:
        dimension = vectors.shape[1]
        if self._dimension is None:
            self._dimension = dimension
        if dimension != self._dimension:
            raise ModelError(
                f"{self.model} gave vectors of {dimension} numbers, and of {self._dimension} before: "
                "its server was changed to another model; rebuild what was built with the old one"
            )
        return vectors


class _Job:
    """One call of `embed`: what it sends, and how many texts it had to cut."""

    def __init__(self, embedder: Remote, me: Emitter, query: bool) -> None:
        self._embedder = embedder
        self._me = me
        self._query = query
        self._cut: set[str] = set()

    async def vectors(self, texts: list[str]) -> Vectors:
        """Of one batch."""
        sent = [shortened(text, self._embedder.bytes) for text in texts]
        self._cut.update(short for short, text in zip(sent, texts, strict=True) if len(short) < len(text))
        return await self._refined([text if text.strip() else " " for text in sent])

    async def _refined(self, texts: list[str]) -> Vectors:
        """Of texts of which some may be too long."""
        import numpy as np

        try:
            return await self._embedder.ask(self._me, texts, query=self._query)
        except ModelError as error:
            if not _is_too_long(error) or max(map(len, texts)) < SHORTEST:
                raise
        if len(texts) == 1:
            return await self._trimmed(texts[0])
        middle = len(texts) // 2
        return np.concatenate([await self._refined(texts[:middle]), await self._refined(texts[middle:])])

    async def _trimmed(self, text: str) -> Vectors:
        """Of a text that was refused for its length."""
        self._cut.add(text)
        while True:
            text = text[: len(text) * 3 // 4]
            try:
                return await self._embedder.ask(self._me, [text], query=self._query)
            except ModelError as error:
                if not _is_too_long(error) or len(text) < SHORTEST:
                    raise

    def tell(self) -> None:
        """Say that texts were cut, if any were."""
        if self._cut:
            count = "1 text was" if len(self._cut) == 1 else f"{len(self._cut)} texts were"
            text = f"{count} too long for {self._embedder.model} and embedded without the end; use smaller chunks"
            self._me.emit(Warned(code="embedding_truncated", message=text))


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
