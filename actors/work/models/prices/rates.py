"""What the tokens of a reply cost.

A provider counts all that it has read as input, and what of it came out of its cache, or went there, as parts of that;
so with output and what of it was reasoning. Each part has its own rate, else that of the whole. Where rates
depend on the size of a request, all of its tokens cost what the highest tier below its input says, as all providers
have it.
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
    """What a million tokens cost in requests of more than `above` tokens of input."""

    above: Annotated[int, Meta(ge=0)]
    price: USD


class Tiered(msgspec.Struct, frozen=True, array_like=True):
    """A rate that depends on the size of the request; the tiers by size."""

    base: USD
    tiers: tuple[Tier, ...]


Rate = USD | Tiered
"""USD per million tokens."""


class Rates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All rates of a model.

    Attributes:
        cached: of input that the provider's cache had; cache_write, cache_write_1h: of what it keeps, for an hour.
        reasoning: of output that is not shown as the answer.
        request: USD for a request, whatever its size.
        since: the first day on which these count.
        hours: from when to when they count, every day, in UTC.
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
        """Whether they count then."""
        if self.since is not None and now.date() < self.since:
            return False
        return self.hours is None or self.hours[0] <= now.timetz() < self.hours[1]

    def parts(self, usage: TokenUsage) -> Iterator[tuple[str, int, float]]:
        """What a reply is made of: name, tokens, USD per million of these. Wants rates for input and output."""
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
        """What a reply costs, in USD."""
        return sum((tokens * price for _, tokens, price in self.parts(usage)), 0.0) / 1e6 + self.request


def _of_size(rate: Rate | None, size: int) -> float:
    if not isinstance(rate, Tiered):
        return rate or 0.0
    return next((tier.price for tier in reversed(rate.tiers) if size > tier.above), rate.base)


class Tariff(msgspec.Struct, frozen=True, kw_only=True):
    """The prices of one model.

    Attributes:
        rates: the last of those that count at a time is meant; the first, if none does.
        origins: by the names of rates, where each is from.
    """

    rates: tuple[Rates, ...]
    origins: dict[str, str] = {}

    def now(self, moment: datetime | None = None) -> Rates:
        """The rates that count at a moment, by default this one."""
        if len(self.rates) == 1:
            return self.rates[0]
        moment = moment or datetime.now(UTC)
        return next((rates for rates in reversed(self.rates) if rates.count_at(moment)), self.rates[0])

    def cost(self, usage: TokenUsage, moment: datetime | None = None) -> float:
        """What a reply costs, in USD."""
        return self.now(moment).cost(usage)


FREE = Tariff(rates=(Rates(input=0.0, output=0.0),), origins={"input": "it runs here", "output": "it runs here"})
"""Of models on this machine."""
