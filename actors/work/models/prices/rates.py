"""Token rates and the cost of a reply.

`TokenUsage.input_tokens` includes the tokens that were read from or written to the provider's cache;
`output_tokens` includes reasoning. Each of these parts has its own rate, else the rate of the whole. With tiered rates,
the highest tier below the size of the input applies to all tokens of the request, as with all providers.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from typing import Annotated

import msgspec
from msgspec import Meta

from .....protocol.chat import TokenUsage

USD = Annotated[float, Meta(ge=0)]


class Tier(msgspec.Struct, frozen=True, array_like=True):
    """Price per million tokens of requests with more than `above` input tokens."""

    above: Annotated[int, Meta(ge=0)]
    price: USD


class Tiered(msgspec.Struct, frozen=True, array_like=True):
    """Rate that depends on the size of the request, with its tiers in ascending order."""

    base: USD
    tiers: tuple[Tier, ...]


Rate = USD | Tiered
"""USD per million tokens."""


class Rates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Rates of a model for one period.

    Attributes:
        cached: rate of input that was read from the provider's cache.
        cache_write: rate of input that was written to the cache.
        cache_write_1h: rate of input that was written to the cache for an hour.
        reasoning: rate of reasoning tokens in the output.
        request: USD per request, in addition to its tokens.
        since: first day on which these rates apply; None for always.
        hours: start and end of the time of day at which they apply, in UTC; None for the whole day.
    """

    input: Rate | None = None
    output: Rate | None = None
    cached: Rate | None = None
    cache_write: Rate | None = None
    cache_write_1h: Rate | None = None
    reasoning: Rate | None = None
    request: USD = 0.0
    since: date | None = None
    hours: tuple[time, time] | None = None

    def count_at(self, now: datetime) -> bool:
        """Return True if these rates apply at `now` (UTC)."""
        if self.since is not None and now.date() < self.since:
            return False
        return self.hours is None or self.hours[0] <= now.timetz() < self.hours[1]

    def parts(self, usage: TokenUsage) -> Iterator[tuple[str, int, float]]:
        """Yield the parts of a reply: name, tokens, USD per million. The rates for input and output must be set."""
        # Counts of faulty servers may exceed the whole; each part is limited so that no share becomes negative.
        size = usage.input_tokens
        written = min(usage.cache_write_tokens, size)
        hour = min(usage.cache_write_1h_tokens, written)
        cached = min(usage.cached_tokens, size - written)
        thought = min(usage.reasoning_tokens, usage.output_tokens)
        shares = (
            ("input", size - cached - written, self.input),
            ("cached", cached, self.cached),
            ("cache_write", written - hour, self.cache_write),
            ("cache_write_1h", hour, self.cache_write if self.cache_write_1h is None else self.cache_write_1h),
            ("output", usage.output_tokens - thought, self.output),
            ("reasoning", thought, self.reasoning),
        )
        for position, (name, tokens, rate) in enumerate(shares):
            if tokens:
                whole = self.input if position < 4 else self.output
                yield name, tokens, _of_size(whole if rate is None else rate, size)

    def cost(self, usage: TokenUsage) -> float:
        """Return the cost of a reply in USD."""
        return sum((tokens * price for _, tokens, price in self.parts(usage)), 0.0) / 1e6 + self.request


def _of_size(rate: Rate | None, size: int) -> float:
    if not isinstance(rate, Tiered):
        return rate or 0.0
    return next((tier.price for tier in reversed(rate.tiers) if size > tier.above), rate.base)


class Tariff(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of one model.

    Attributes:
        rates: rates by period. The last that applies at a time is used, or the first if none applies.
        origins: origin of each rate, by its name.
    """

    rates: tuple[Rates, ...]
    origins: dict[str, str] = {}

    def now(self, moment: datetime | None = None) -> Rates:
        """Return the rates that apply at `moment`, by default the current time."""
        if len(self.rates) == 1:
            return self.rates[0]
        moment = moment or datetime.now(UTC)
        return next((rates for rates in reversed(self.rates) if rates.count_at(moment)), self.rates[0])

    def cost(self, usage: TokenUsage, moment: datetime | None = None) -> float:
        """Return the cost of a reply in USD, at `moment` or the current time."""
        return self.now(moment).cost(usage)


FREE = Tariff(rates=(Rates(input=0.0, output=0.0),), origins={"input": "it runs here", "output": "it runs here"})
"""Tariff of models on this machine."""
