"""The events of requests to models."""

from __future__ import annotations

import msgspec

from ..kernel.events import EventData


class LlmRequest(EventData, frozen=True, kw_only=True):
    """A request goes out. `messages` is their number, `tools` the names offered."""

    kind = "llm.request"
    model: str
    messages: int
    tools: list[str] = msgspec.field(default_factory=list)
    attempt: int = 1
    stream: bool = False


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
    `reasoning_tokens` of `output_tokens`.
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


class LlmRetry(EventData, frozen=True, kw_only=True):
    """A transient error; the next try starts after `wait` seconds."""

    kind = "llm.retry"
    model: str
    attempt: int
    wait: float
    error: str


class LlmWaiting(EventData, frozen=True, kw_only=True):
    """A request waits for its turn, `wait` seconds at least; 0: until another one is over.

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
    """`tools` or `system` of a conversation have changed: what a provider has cached of it is read anew."""

    kind = "llm.cache_missed"
    agent: str
    changed: list[str]


class LlmFallback(EventData, frozen=True, kw_only=True):
    """Of several models that may answer, `model` does not, and `next` is asked.

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
