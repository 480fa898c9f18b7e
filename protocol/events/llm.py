"""Events of requests to models."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..kernel.events import EventData


class LlmRequest(EventData, frozen=True, kw_only=True):
    """A request goes out. `messages` is their number, `tools` the names offered, `server` the `host:port` asked."""

    kind = "llm.request"
    model: str
    messages: int
    tools: list[str] = msgspec.field(default_factory=list)
    attempt: int = 1
    stream: bool = False
    server: str = ""


LONGEST_PIECE = 65_536
"""Characters of one chunk of text. Escaped as JSON it stays below the 1 MiB that websocket clients accept."""


def split_text(text: str) -> Iterator[str]:
    """Yield the text in chunks that fit into an event; an empty text is one chunk."""
    yield text[:LONGEST_PIECE]
    for start in range(LONGEST_PIECE, len(text), LONGEST_PIECE):
        yield text[start : start + LONGEST_PIECE]


class LlmDelta(EventData, frozen=True, kw_only=True):
    """A piece of text as it arrives."""

    kind = "llm.delta"
    text: str


class LlmReasoning(EventData, frozen=True, kw_only=True):
    """A piece of the model's visible reasoning as it arrives."""

    kind = "llm.reasoning"
    text: str


class LlmResponse(EventData, frozen=True, kw_only=True):
    """An answer is complete.

    `cached_tokens` and `cache_write_tokens` (read from and written to the provider's cache) are part of `input_tokens`,
    `reasoning_tokens` of `output_tokens`. `response_id` is the provider's id of the reply, `server` its `host:port`.
    """

    kind = "llm.response"
    model: str
    seconds: float
    input_tokens: int = 0
    output_tokens: int = 0
    stop: str = ""
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    response_id: str = ""
    server: str = ""


class LlmRetry(EventData, frozen=True, kw_only=True):
    """A transient error; the next try starts after `wait` seconds."""

    kind = "llm.retry"
    model: str
    attempt: int
    wait: float
    error: str


class LlmWaiting(EventData, frozen=True, kw_only=True):
    """Request delayed by a limit for at least `wait` seconds; 0 until another request ends.

    Attributes:
        reason: `refused`: the provider said that there are too many; `rate`, `concurrency`: more would be;
            `budget`: what is left of a limit is reserved for requests under way.
        error: how the provider has refused this very request, if it has.
    """

    kind = "llm.waiting"
    model: str
    wait: float
    reason: str
    error: str = ""


class CacheMissed(EventData, frozen=True, kw_only=True):
    """`tools` or `system` of a conversation have changed, so that the provider's prompt cache does not apply."""

    kind = "llm.cache_missed"
    agent: str
    changed: list[str]


class LlmFallback(EventData, frozen=True, kw_only=True):
    """Fallback: `model` failed, and the request goes to `next`.

    Attributes:
        error: why.
        asked: `model` was asked; else it was passed over, as it failed a moment ago or can't take this request.
    """

    kind = "llm.fallback"
    model: str
    next: str
    error: str
    asked: bool = True


class LlmEmbedding(EventData, frozen=True, kw_only=True):
    """A request for the vectors of `texts` texts is over, after `attempt` tries; the last one took `seconds`.

    Attributes:
        input_tokens: 0 where the provider does not say.
        error, code: why it was given up. One that is interrupted has no event.
    """

    kind = "llm.embedding"
    model: str
    texts: int
    seconds: float
    attempt: int = 1
    input_tokens: int = 0
    error: str | None = None
    code: str = ""


class LlmRerank(EventData, frozen=True, kw_only=True):
    """A request to put `texts` texts in order by a query is over; the rest is as that of `llm.embedding`."""

    kind = "llm.rerank"
    model: str
    texts: int
    seconds: float
    attempt: int = 1
    input_tokens: int = 0
    error: str | None = None
    code: str = ""


class LlmFailed(EventData, frozen=True, kw_only=True):
    """A request is given up: the last error, of that `code`. One that is interrupted has no event of its own."""

    kind = "llm.failed"
    model: str
    error: str
    code: str
